"""Sans-IO: the stored session that a request names, and whether its history agrees with it.

`X-Holdfast-Session` is ours and always counts. Programs such as opencode and LiteLLM send
`X-Session-Id` without the person's knowledge, so that header is only a hint: a program may edit,
shorten or take back its own history, and the stored one must not replace that history.
"""

from collections.abc import Iterable

import msgspec
from starlette.datastructures import Headers

from gateway.http.api.asked import RequestMessage
from sessions.records import Message, MessageRole

SESSION_HEADER = "X-Holdfast-Session"
HINT_HEADER = "X-Session-Id"

_COMPARED_ROLES = frozenset({MessageRole.USER, MessageRole.ASSISTANT})


class NamedSession(msgspec.Struct, frozen=True):
    """The session that the headers of a request name; without a name there is none."""

    name: str = ""
    is_hint: bool = False  # counts only if the history of the request agrees

    @property
    def header(self) -> str:
        """Header that named the session, for error messages."""
        return HINT_HEADER if self.is_hint else SESSION_HEADER


def read_named_session(headers: Headers) -> NamedSession:
    """Return the session that the headers name."""
    if name := headers.get(SESSION_HEADER, ""):
        return NamedSession(name)
    name = headers.get(HINT_HEADER, "")
    return NamedSession(name, is_hint=bool(name))


def agrees(history: Iterable[RequestMessage], stored: Iterable[Message]) -> bool:
    """Return True if a request brings no history, or the same conversation as the stored one.

    Only the texts of user and assistant count. Tool rows, white space, and the division of a text
    into several messages do not.
    """
    brought = tuple(history)
    if not brought:
        return True
    told = _spoken((each.role, each.text) for each in brought)
    return bool(told) and told == _spoken((each.role, each.content) for each in stored)


def _spoken(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the texts without white space; consecutive ones of one role are joined."""
    spoken: list[tuple[str, str]] = []
    for role, text in rows:
        bare = "".join(text.split())
        if role not in _COMPARED_ROLES or not bare:
            continue
        if spoken and spoken[-1][0] == role:
            bare = spoken.pop()[1] + bare
        spoken.append((role, bare))
    return spoken
