"""Sans-IO: the doctor's findings, as lines for people and as JSON records."""

import textwrap
from collections.abc import Iterator, Sequence

from msgspec import Struct

from gateway.errors import ConfigError
from sessions.values.finding import Finding, FindingLevel

CONFIGURATION_GROUP = "configuration"
FIXED_GROUP = "mended"
"""Group with the results of `--fix`; the report always shows all of them."""

VERSION_SUBJECT = "version"
"""Subject of the finding about a database written by a newer version."""

SIGNS: dict[FindingLevel, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
ASCII_SIGNS: dict[FindingLevel, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
"""Signs for terminals that show only ASCII."""


class FindingGroup(Struct, frozen=True):
    """The findings of one group of checks."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> FindingLevel:
        """Level of the worst finding."""
        levels = {finding.level for finding in self.findings}
        return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that are not ok, failures first."""
        found = [finding for finding in self.findings if finding.level != "ok"]
        return tuple(sorted(found, key=lambda finding: finding.level != "fail"))


class ReportLine(Struct, frozen=True):
    """A line of the report; the level sets the colour."""

    text: str
    level: FindingLevel | None = None


def report_lines(
    groups: Sequence[FindingGroup],
    *,
    show_all: bool,
    signs: dict[FindingLevel, str],
    width: int | None,
) -> Iterator[ReportLine]:
    """Yield a line per group, followed by its problems, or by all findings with `show_all`.

    `width` is the terminal's width in columns; None wraps no line.
    """
    padding = max(len(group.name) for group in groups) if groups else 0
    for group in groups:
        done = group.name == FIXED_GROUP
        summary = group.findings[0].text if not (group.problems or done) else _problem_counts(group)
        first = f"{signs[group.level]} {group.name.ljust(padding)}  {summary}".rstrip()
        yield from _wrap(first, " " * (len(signs[group.level]) + padding + 3), width, group.level)
        for finding in group.findings if show_all or done else group.problems:
            yield from _finding_lines(finding, signs, width)


def _problem_counts(group: FindingGroup) -> str:
    counted = [
        _format_count(sum(finding.level == level for finding in group.findings), what)
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
    lines = (
        textwrap.wrap(
            plain, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        )
        if width
        else [plain]
    )
    yield from (ReportLine(line, None if index else level) for index, line in enumerate(lines))


def summary_line(groups: Sequence[FindingGroup]) -> str:
    """Return the last line: the number of problems and warnings, and how many `--fix` can fix."""
    found = [finding for group in groups for finding in group.findings]
    failed, warnings = (
        sum(finding.level == level for finding in found) for level in ("fail", "warn")
    )
    fixable = sum(bool(finding.mend) for finding in found)
    if not failed and not warnings:
        return "No problems found."
    counts = ", ".join(
        filter(None, (_format_count(failed, "problem"), _format_count(warnings, "warning")))
    )
    if not fixable:
        return f"{counts}."
    only_one = failed + warnings == 1
    which = "it" if only_one else "all" if fixable == failed + warnings else f"{fixable} of them"
    return f"{counts}; `holdfast doctor --fix` can fix {which}."


def _format_count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def finding_records(groups: Sequence[FindingGroup]) -> list[dict[str, object]]:
    """Return all findings as JSON data."""
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
    """Return 0 without failures, 78 if the configuration cannot work, else 1."""
    failed = [
        (group.name, finding.subject)
        for group in groups
        for finding in group.findings
        if finding.level == "fail"
    ]
    if any(group == CONFIGURATION_GROUP or subject == VERSION_SUBJECT for group, subject in failed):
        return ConfigError.exit_code
    return 1 if failed else 0
