"""Sans-IO: the conversation an event belongs to, and command parsing."""

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from gateway.settings import RouteSettings
from platforms.core.actions import ButtonAction, read_action
from platforms.core.contract import Inbound, InboundAction, InboundMessage
from sessions.key import SessionKey
from sessions.values.spelling import closest_match

GroupScope = Literal["user", "shared"]


def session_key_for(event: Inbound, group_scope: GroupScope) -> SessionKey:
    """Return the conversation of an event: a DM, a thread, or a room (shared or per person)."""
    address = event.address
    in_room = not event.direct and not address.thread
    return SessionKey(
        platform=address.platform,
        chat=address.chat,
        account=address.account,
        thread=address.thread,
        user=event.sender.id if in_room and group_scope == "user" else "",
    )


def connection_name(platform: str, account: str) -> str:
    """Return the name of a platform connection in logs, `/readyz` and messages to admins."""
    return f"{platform}@{account}" if account else platform


def find_route(routes: Sequence[RouteSettings], key: SessionKey) -> RouteSettings | None:
    """Return the first `[[route]]` that matches a conversation or its chat."""
    chat = str(SessionKey(platform=key.platform, chat=key.chat))
    for route in routes:
        pattern = re.compile(".*".join(map(re.escape, route.match.split("*"))), re.DOTALL)
        if pattern.fullmatch(chat) or pattern.fullmatch(str(key)):
            return route
    return None


def is_stale(age_ms: int, stale_after_seconds: float) -> bool:
    """Return True if a message arrived too late to be answered."""
    return age_ms > stale_after_seconds * 1000


# --- commands ----------------------------------------------------------------------------------


class ParsedCommand(Struct, frozen=True):
    """A text that is a known command."""

    word: str  # lower case, without the prefix
    args: str = ""


class UnknownCommand(Struct, frozen=True):
    """A text that looks like a command, but is unknown."""

    word: str
    suggestion: str | None = None


class CommandMessage(Struct, frozen=True):
    """A message whose text is a command."""

    message: InboundMessage
    parsed: ParsedCommand | UnknownCommand


ReceivedCommand = CommandMessage | InboundAction


_CONTROL_WORDS = frozenset({"stop", "approve", "deny"})
_CONTROL_ACTIONS = frozenset({ButtonAction.STOP, ButtonAction.APPROVE, ButtonAction.DENY})

_LOGIN_WORD = "mcp"
PASTED = "pasted"
"""First word of the arguments of a command that was made from the address of a login."""

_LOGIN_REDIRECT = re.compile(
    r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?/callback\?\S*"
    r"(?<=[?&])(?:code|error)=\S*"
)

_COMMAND_PATTERN = re.compile(
    r"(?P<sign>[/!])(?P<word>[A-Za-z][A-Za-z0-9_]*)(?:@[A-Za-z0-9_]+)?(?:\s+(?P<args>.*))?",
    re.DOTALL,
)


def parse_command(text: str, known_words: Collection[str]) -> ParsedCommand | UnknownCommand | None:
    """Parse a command: `/stop`, `/STOP now`, `/stop@botname` or `!stop`; None for other texts.

    Any bot name is accepted, because adapters drop commands for other bots. After `!` only known
    words are commands, because people also write `!important`. The address of the page that ends a
    login at an MCP server is a command, too, so that its code never reaches the model.
    """
    if _LOGIN_WORD in known_words and _LOGIN_REDIRECT.fullmatch(text.strip()):
        return ParsedCommand(_LOGIN_WORD, f"{PASTED} {text.strip()}")
    match = _COMMAND_PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    word, args = match["word"].lower(), (match["args"] or "").strip()
    if word in known_words:
        return ParsedCommand(word, args)
    if match["sign"] == "/" and match["word"] == word:
        return UnknownCommand(word, closest_match(word, known_words))
    return None


def find_command(event: Inbound, known_words: Collection[str]) -> ReceivedCommand | None:
    """Return the event as a command; None for other messages, edits and deletions."""
    if isinstance(event, InboundMessage):
        parsed = parse_command(event.text, known_words)
        return CommandMessage(event, parsed) if parsed else None
    return event if isinstance(event, InboundAction) else None


def is_control(command: ReceivedCommand) -> bool:
    """Return True for /stop and answers to approval requests, which must work at any time."""
    if isinstance(command, InboundAction):
        return read_action(command.action)[0] in _CONTROL_ACTIONS
    return isinstance(command.parsed, ParsedCommand) and command.parsed.word in _CONTROL_WORDS
