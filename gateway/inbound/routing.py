"""Sans-IO: which conversation something belongs to, and which command a text is."""

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import Struct

from gateway.settings import RouteSettings
from platforms.core.contract import Inbound
from sessions.key import SessionKey
from sessions.values.spelling import nearest

GroupScope = Literal["user", "shared"]


def key_of(event: Inbound, group_scope: GroupScope) -> SessionKey:
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


def name_of(platform: str, account: str) -> str:
    """How logs, `/readyz` and admins call a platform."""
    return f"{platform}@{account}" if account else platform


def route_of(routes: Sequence[RouteSettings], key: SessionKey) -> RouteSettings | None:
    """Find the first `[[route]]` that matches a conversation's key or the chat it is in."""
    chat = str(SessionKey(platform=key.platform, chat=key.chat))
    for route in routes:
        pattern = re.compile(".*".join(map(re.escape, route.match.split("*"))), re.DOTALL)
        if pattern.fullmatch(chat) or pattern.fullmatch(str(key)):
            return route
    return None


def is_stale(age: int, stale_after: float) -> bool:
    """Tell whether something reached us too late to be answered; its age is in milliseconds."""
    return age > stale_after * 1000


# --- commands ----------------------------------------------------------------------------------


class Command(Struct, frozen=True):
    """A text that is a command of ours."""

    word: str  # as it is known: lower case, without the sign in front
    args: str = ""


class Unknown(Struct, frozen=True):
    """A text that looks like a command, but none of ours."""

    word: str
    nearest: str | None = None


_COMMAND = re.compile(
    r"(?P<sign>[/!])(?P<word>[A-Za-z][A-Za-z0-9_]*)(?:@[A-Za-z0-9_]+)?(?:\s+(?P<args>.*))?",
    re.DOTALL,
)


def parse_command(text: str, known: Collection[str]) -> Command | Unknown | None:
    """Read a command: `/stop`, `/STOP now`, `/stop@ourbot`, `!stop`. Anything else is None.

    The name of a bot is taken for ours: what is meant for another one does not leave the adapter.
    After `!` only known words are commands, since people also write `!important`.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    word, args = match["word"].lower(), (match["args"] or "").strip()
    if word in known:
        return Command(word, args)
    if match["sign"] == "/" and match["word"] == word:
        return Unknown(word, nearest(word, known))
    return None
