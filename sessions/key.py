"""Sans-IO: keys that identify conversations; one conversation may use several sessions over time.

A key is written `platform[@account]:chat[:t=THREAD][:u=USER]`. Colons, at signs and percent signs
inside a part are percent-encoded, so that every key can be parsed back.
"""

import re
from urllib.parse import unquote

import msgspec

_KEY = re.compile(
    r"(?P<platform>[^:@]+)(?:@(?P<account>[^:]+))?:(?P<chat>[^:]+)"
    r"(?::t=(?P<thread>[^:]+))?(?::u=(?P<user>[^:]+))?"
)


class SessionKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a conversation, which has one mailbox and at most one active session."""

    platform: str
    chat: str
    account: str = ""
    thread: str = ""
    user: str = ""

    def __str__(self) -> str:
        text = _quote(self.platform)
        if self.account:
            text += f"@{_quote(self.account)}"
        text += f":{_quote(self.chat)}"
        if self.thread:
            text += f":t={_quote(self.thread)}"
        if self.user:
            text += f":u={_quote(self.user)}"
        return text


def parse_key(text: str) -> SessionKey:
    """Parse a key; raise `ValueError` with a one-sentence message if the text is not a key."""
    match = _KEY.fullmatch(text)
    if match is None:
        msg = f"{text!r} is not a session key; one looks like telegram:1001 or slack:T1/D1"
        raise ValueError(msg)
    return SessionKey(**{name: unquote(part or "") for name, part in match.groupdict().items()})


def _quote(part: str) -> str:
    # "@" is ambiguous only before the first colon; quoting it everywhere keeps a single rule.
    return part.replace("%", "%25").replace(":", "%3A").replace("@", "%40")
