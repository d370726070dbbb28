"""Sans-IO: what was found out about one thing, and what to do about it."""

from typing import Literal

import msgspec

FindingLevel = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that was looked at.

    `fix` is one sentence that tells what to do, for all that is not ok. `mend` names what whoever
    found it can do about it, when asked; empty when that is for people alone.
    """

    level: FindingLevel
    subject: str
    text: str
    fix: str = ""
    mend: str = ""
    seconds: float | None = None  # how long it took, where that says something


def ok(subject: str, text: str, *, seconds: float | None = None) -> Finding:
    """All is well."""
    return Finding(level="ok", subject=subject, text=text, seconds=seconds)


def warn(
    subject: str, text: str, fix: str, *, mend: str = "", seconds: float | None = None
) -> Finding:
    """It works, and not as it could."""
    return Finding(level="warn", subject=subject, text=text, fix=fix, mend=mend, seconds=seconds)


def fail(
    subject: str, text: str, fix: str, *, mend: str = "", seconds: float | None = None
) -> Finding:
    """It cannot work."""
    return Finding(level="fail", subject=subject, text=text, fix=fix, mend=mend, seconds=seconds)
