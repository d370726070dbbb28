"""Sans-IO: which conversation something belongs to, and which command a text is."""

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from gateway.settings import RouteSettings
from platforms.core.contract import Inbound
from sessions.key import SessionKey
from sessions.values.spelling import closest_match

GroupScope = Literal["user", "shared"]


def session_key_for(event: Inbound, group_scope: GroupScope) -> SessionKey:
    """Name the conversation: a DM and a thread are one each, a room is one per person or shared."""
    place = event.address
    in_room = not event.direct and not place.thread
    return SessionKey(
        platform=place.platform,
        chat=place.chat,
        account=place.account,
        thread=place.thread,
        user=event.sender.id if in_room and group_scope == "user" else "",
    )


def connection_name(platform: str, account: str) -> str:
    """How logs, `/readyz` and admins call a platform."""
    return f"{platform}@{account}" if account else platform


def find_route(routes: Sequence[RouteSettings], key: SessionKey) -> RouteSettings | None:
    """Find the first `[[route]]` that matches a conversation's key or the chat it is in."""
    chat = str(SessionKey(platform=key.platform, chat=key.chat))
    for route in routes:
        pattern = re.compile(".*".join(map(re.escape, route.match.split("*"))), re.DOTALL)
        if pattern.fullmatch(chat) or pattern.fullmatch(str(key)):
            return route
    return None


def is_stale(age_ms: int, stale_after_seconds: float) -> bool:
    """Tell whether something reached us too late to be answered; its age is in milliseconds."""
    return age_ms > stale_after_seconds * 1000


# --- commands ----------------------------------------------------------------------------------


class ParsedCommand(Struct, frozen=True):
    """A text that is a command of ours."""

    word: str  # as it is known: lower case, without the sign in front
    args: str = ""


class UnknownCommand(Struct, frozen=True):
    """A text that looks like a command, but none of ours."""

    word: str
    suggestion: str | None = None


_COMMAND_PATTERN = re.compile(
    r"(?P<sign>[/!])(?P<word>[A-Za-z][A-Za-z0-9_]*)(?:@[A-Za-z0-9_]+)?(?:\s+(?P<args>.*))?",
    re.DOTALL,
)


def parse_command(text: str, known_words: Collection[str]) -> ParsedCommand | UnknownCommand | None:
    """Read a command: `/stop`, `/STOP now`, `/stop@ourbot`, `!stop`. Anything else is None.

    The name of a bot is taken for ours: what is meant for another one does not leave the adapter.
    After `!` only known words are commands, since people also write `!important`.
    """
    match = _COMMAND_PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    word, args = match["word"].lower(), (match["args"] or "").strip()
    if word in known_words:
        return ParsedCommand(word, args)
    if match["sign"] == "/" and match["word"] == word:
        return UnknownCommand(word, closest_match(word, known_words))
    return None
