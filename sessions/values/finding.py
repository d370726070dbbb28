"""Sans-IO: the result of one check, and how to fix a problem."""

from typing import Literal

import msgspec

FindingLevel = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one check.

    `fix` is one sentence of advice, for every level but ok. `mend` names the automatic repair that
    the caller may offer; empty if only a person can fix the problem.
    """

    level: FindingLevel
    subject: str
    text: str
    fix: str = ""
    mend: str = ""
    seconds: float | None = None  # duration of the check, if informative


def ok(subject: str, text: str, *, seconds: float | None = None) -> Finding:
    """Return a finding that reports no problem."""
    return Finding(level="ok", subject=subject, text=text, seconds=seconds)


def warn(
    subject: str, text: str, fix: str, *, mend: str = "", seconds: float | None = None
) -> Finding:
    """Return a finding about something that works, but not well."""
    return Finding(level="warn", subject=subject, text=text, fix=fix, mend=mend, seconds=seconds)


def fail(
    subject: str, text: str, fix: str, *, mend: str = "", seconds: float | None = None
) -> Finding:
    """Return a finding about something that cannot work."""
    return Finding(level="fail", subject=subject, text=text, fix=fix, mend=mend, seconds=seconds)
