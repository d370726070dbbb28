"""Sans-IO: the key names one conversation, whatever sessions it goes through.

Written `platform[@account]:chat[:t=THREAD][:u=USER]`. A colon or percent sign inside a part is
percent-encoded, so that every key can be read back.
"""

import re
from urllib.parse import unquote

import msgspec

_KEY = re.compile(
    r"(?P<platform>[^:@]+)(?:@(?P<account>[^:]+))?:(?P<chat>[^:]+)"
    r"(?::t=(?P<thread>[^:]+))?(?::u=(?P<user>[^:]+))?"
)


class SessionKey(msgspec.Struct, frozen=True, kw_only=True):
    """Who talks where: the unit that has one mailbox and at most one active session."""

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
    """Read a key back; raises `ValueError` with one sentence when the text is not a key."""
    match = _KEY.fullmatch(text)
    if match is None:
        msg = f"{text!r} is not a session key; one looks like telegram:1001 or slack:T1/D1"
        raise ValueError(msg)
    return SessionKey(**{name: unquote(part or "") for name, part in match.groupdict().items()})


def _quote(part: str) -> str:
    # "@" matters only in front of the first colon, but quoting it everywhere keeps one rule.
    return part.replace("%", "%25").replace(":", "%3A").replace("@", "%40")
