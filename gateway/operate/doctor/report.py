"""Sans-IO: what the doctor found, as lines for people and as records for programs."""

import textwrap
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gateway.errors import ConfigError
from gateway.operate.doctor.found import Group
from sessions.values.finding import Finding, Level

CONFIGURATION = "configuration"
MENDED = "mended"
"""What was done: all of it is always told."""

NEWER = "version"
"""The subject of a finding about a database that a newer version wrote."""

SIGNS: dict[Level, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
PLAIN_SIGNS: dict[Level, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
"""For terminals that show only ASCII."""


class Line(Struct, frozen=True):
    """A line, and how bad what it tells is: for its colour."""

    text: str
    level: Level | None = None


def lines(
    groups: Sequence[Group], *, all_of_it: bool, signs: dict[Level, str], width: int | None
) -> Iterator[Line]:
    """A line for each group, and below it what is wrong there; or everything.

    `width` is that of the terminal; None breaks no line.
    """
    room = max(len(group.name) for group in groups) if groups else 0
    for group in groups:
        done = group.name == MENDED
        well = group.findings[0].text if not (group.troubles or done) else _headline(group)
        first = f"{signs[group.level]} {group.name.ljust(room)}  {well}".rstrip()
        yield from _wrapped(first, " " * (len(signs[group.level]) + room + 3), width, group.level)
        for finding in group.findings if all_of_it or done else group.troubles:
            yield from _told(finding, signs, width)


def _headline(group: Group) -> str:
    counted = [
        _number(sum(each.level == level for each in group.findings), what)
        for level, what in (("fail", "problem"), ("warn", "warning"))
    ]
    return ", ".join(filter(None, counted))


def _told(finding: Finding, signs: dict[Level, str], width: int | None) -> Iterator[Line]:
    sign = signs[finding.level]
    seconds = f" ({finding.seconds:.2f} s)" if finding.seconds is not None else ""
    indent = " " * (5 + len(sign))
    yield from _wrapped(
        f"    {sign} {finding.subject}: {finding.text}{seconds}", indent, width, finding.level
    )
    if finding.fix:
        yield from _wrapped(f"{indent}{finding.fix}", indent, width, None)


def _wrapped(text: str, indent: str, width: int | None, level: Level | None) -> Iterator[Line]:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    cut = (
        textwrap.wrap(
            plain, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        )
        if width
        else [plain]
    )
    yield from (Line(each, None if place else level) for place, each in enumerate(cut))


def summary(groups: Sequence[Group]) -> str:
    """The last line."""
    found = [finding for group in groups for finding in group.findings]
    failed, odd = (sum(each.level == level for each in found) for level in ("fail", "warn"))
    mends = sum(bool(each.mend) for each in found)
    if not failed and not odd:
        return "All is well."
    told = ", ".join(filter(None, (_number(failed, "problem"), _number(odd, "warning"))))
    if not mends:
        return f"{told}."
    alone = failed + odd == 1
    which = "it" if alone else "all" if mends == failed + odd else f"{mends} of them"
    return f"{told}; `holdfast doctor --fix` mends {which}."


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def records(groups: Sequence[Group]) -> list[dict[str, object]]:
    """All findings, for programs."""
    return [
        {
            "group": group.name,
            "level": finding.level,
            "subject": finding.subject,
            "text": finding.text,
            "fix": finding.fix,
            "mendable": bool(finding.mend),
            "seconds": finding.seconds,
        }
        for group in groups
        for finding in group.findings
    ]


def exit_code(groups: Sequence[Group]) -> int:
    """0 when nothing failed, 78 when the configuration cannot work, else 1."""
    failed = [
        (group.name, finding.subject)
        for group in groups
        for finding in group.findings
        if finding.level == "fail"
    ]
    if any(group == CONFIGURATION or subject == NEWER for group, subject in failed):
        return ConfigError.exit_code
    return 1 if failed else 0
