"""Sans-IO: what the doctor found, as lines for people and as records for programs."""

import textwrap
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gateway.errors import ConfigError
from sessions.values.finding import Finding, FindingLevel


class FindingGroup(Struct, frozen=True):
    """What came of a group's checks."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> FindingLevel:
        """How bad the worst of it is."""
        levels = {finding.level for finding in self.findings}
        return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is not well, the worst first."""
        found = [each for each in self.findings if each.level != "ok"]
        return tuple(sorted(found, key=lambda each: each.level != "fail"))


CONFIGURATION_GROUP = "configuration"
FIXED_GROUP = "mended"
"""What was done: all of it is always told."""

VERSION_SUBJECT = "version"
"""The subject of a finding about a database that a newer version wrote."""

SIGNS: dict[FindingLevel, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
ASCII_SIGNS: dict[FindingLevel, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
"""For terminals that show only ASCII."""


class ReportLine(Struct, frozen=True):
    """A line, and how bad what it tells is: for its colour."""

    text: str
    level: FindingLevel | None = None


def report_lines(
    groups: Sequence[FindingGroup],
    *,
    show_all: bool,
    signs: dict[FindingLevel, str],
    width: int | None,
) -> Iterator[ReportLine]:
    """A line for each group, and below it what is wrong there; or everything.

    `width` is that of the terminal; None breaks no line.
    """
    room = max(len(group.name) for group in groups) if groups else 0
    for group in groups:
        done = group.name == FIXED_GROUP
        well = group.findings[0].text if not (group.problems or done) else _problem_counts(group)
        first = f"{signs[group.level]} {group.name.ljust(room)}  {well}".rstrip()
        yield from _wrap(first, " " * (len(signs[group.level]) + room + 3), width, group.level)
        for finding in group.findings if show_all or done else group.problems:
            yield from _finding_lines(finding, signs, width)


def _problem_counts(group: FindingGroup) -> str:
    counted = [
        _format_count(sum(each.level == level for each in group.findings), what)
        for level, what in (("fail", "problem"), ("warn", "warning"))
    ]
    return ", ".join(filter(None, counted))


def _finding_lines(
    finding: Finding, signs: dict[FindingLevel, str], width: int | None
) -> Iterator[ReportLine]:
    sign = signs[finding.level]
    seconds = f" ({finding.seconds:.2f} s)" if finding.seconds is not None else ""
    indent = " " * (5 + len(sign))
    yield from _wrap(
        f"    {sign} {finding.subject}: {finding.text}{seconds}", indent, width, finding.level
    )
    if finding.fix:
        yield from _wrap(f"{indent}{finding.fix}", indent, width, None)


def _wrap(
    text: str, indent: str, width: int | None, level: FindingLevel | None
) -> Iterator[ReportLine]:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    cut = (
        textwrap.wrap(
            plain, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        )
        if width
        else [plain]
    )
    yield from (ReportLine(each, None if place else level) for place, each in enumerate(cut))


def summary_line(groups: Sequence[FindingGroup]) -> str:
    """The last line."""
    found = [finding for group in groups for finding in group.findings]
    failed, odd = (sum(each.level == level for each in found) for level in ("fail", "warn"))
    mends = sum(bool(each.mend) for each in found)
    if not failed and not odd:
        return "All is well."
    told = ", ".join(
        filter(None, (_format_count(failed, "problem"), _format_count(odd, "warning")))
    )
    if not mends:
        return f"{told}."
    alone = failed + odd == 1
    which = "it" if alone else "all" if mends == failed + odd else f"{mends} of them"
    return f"{told}; `holdfast doctor --fix` mends {which}."


def _format_count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def finding_records(groups: Sequence[FindingGroup]) -> list[dict[str, object]]:
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


def exit_code(groups: Sequence[FindingGroup]) -> int:
    """0 when nothing failed, 78 when the configuration cannot work, else 1."""
    failed = [
        (group.name, finding.subject)
        for group in groups
        for finding in group.findings
        if finding.level == "fail"
    ]
    if any(group == CONFIGURATION_GROUP or subject == VERSION_SUBJECT for group, subject in failed):
        return ConfigError.exit_code
    return 1 if failed else 0
