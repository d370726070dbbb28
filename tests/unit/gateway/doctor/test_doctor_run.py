"""Running the checks, the report and the exit code."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.operate.doctor.check import Check
from gateway.operate.doctor.checks import all_checks
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.doctor.report import (
    ASCII_SIGNS,
    SIGNS,
    FindingGroup,
    exit_code,
    finding_records,
    report_lines,
    summary_line,
)
from gateway.operate.doctor.run import DaemonThreadExecutor, run_checks
from sessions.values.finding import Finding, fail, ok, warn
from tests.fakes.case import case_of, only, told


async def well(_: DoctorContext) -> Sequence[Finding]:
    return [ok("thing", "is well")]


async def breaks(_: DoctorContext) -> Sequence[Finding]:
    msg = "who would have thought\nthat"
    raise ZeroDivisionError(msg)


async def hangs(_: DoctorContext) -> Sequence[Finding]:
    await asyncio.Event().wait()
    raise AssertionError


async def silent(_: DoctorContext) -> Sequence[Finding]:
    return []


async def test_a_broken_or_hanging_check_is_a_finding_and_the_others_still_run(
    tmp_path: Path,
) -> None:
    checks = [
        Check("a", well),
        Check("b", breaks),
        Check("c", hangs, timeout_seconds=0.05),
        Check("d", silent),
        Check("a", well),
    ]
    groups = await run_checks(checks, case_of(tmp_path))
    assert [(group.name, group.level, len(group.findings)) for group in groups] == [
        ("a", "ok", 2),
        ("b", "fail", 1),
        ("c", "fail", 1),
    ]
    broken = only(groups[1].findings, "the check")
    assert broken.text == "the check failed to run: ZeroDivisionError: who would have thought"
    assert "longer than 0.05 s" in only(groups[2].findings, "the check").text


async def test_without_a_configuration_only_independent_checks_run(tmp_path: Path) -> None:
    case = replace(case_of(tmp_path), loaded=None, problems=("x.toml:1: is not TOML",))
    groups = await run_checks(
        [Check("a", breaks), Check("b", well, works_without_config=True)], case
    )
    assert "configuration does not work" in groups[0].findings[0].text
    assert told(groups[1].findings) == [("ok", "thing")]
    everything = await run_checks(all_checks(case), case)
    names = [group.name for group in everything]
    assert names[:2] == ["configuration", "files"]
    assert exit_code(everything) == 78


async def test_all_checks_pass_on_a_fresh_machine(tmp_path: Path) -> None:
    case = replace(case_of(tmp_path / "state", {"PATH": "/usr/bin:/bin"}), offline=True)
    groups = await run_checks(all_checks(case), case)
    troubles = [each for group in groups for each in group.problems]
    assert {each.subject for each in troubles} <= {"SQLite", "roots", "port"}
    shown = list(report_lines(groups, show_all=False, signs=SIGNS, width=None))
    assert len(shown) <= 25


def test_the_worst_finding_comes_first_and_sets_the_level() -> None:
    mixed = FindingGroup("x", (ok("a", "a"), warn("b", "b", "Do."), fail("c", "c", "Do.")))
    assert (mixed.level, [each.subject for each in mixed.problems]) == ("fail", ["c", "b"])
    assert FindingGroup("x", (ok("a", "a"), warn("b", "b", "Do."))).level == "warn"


def test_a_passed_group_is_one_line_and_problems_follow_their_group() -> None:
    groups = [
        FindingGroup("short", (ok("a", "all well", seconds=0.5), ok("b", "more"))),
        FindingGroup(
            "a longer one", (warn("b", "is odd\x1b[31m", "Mend it."), fail("c", "bad", "Do."))
        ),
    ]
    assert [
        line.text for line in report_lines(groups, show_all=False, signs=SIGNS, width=None)
    ] == [
        "✓ short         all well",
        "✗ a longer one  1 problem, 1 warning",
        "    ✗ c: bad",
        "      Do.",
        "    ! b: is odd [31m",
        "      Mend it.",
    ]
    everything = [
        line.text for line in report_lines(groups, show_all=True, signs=SIGNS, width=None)
    ]
    assert "    ✓ a: all well (0.50 s)" in everything
    narrow = list(report_lines(groups, show_all=True, signs=ASCII_SIGNS, width=30))
    assert max(len(line.text) for line in narrow) <= 30
    assert all(line.text.isascii() for line in narrow)
    assert list(report_lines([], show_all=True, signs=SIGNS, width=80)) == []


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ((ok("a", "a"),), "No problems found."),
        ((warn("a", "a", "Do."),), "1 warning."),
        ((fail("a", "a", "Do.", mend="x"),), "1 problem; `holdfast doctor --fix` can fix it."),
        (
            (fail("a", "a", "Do.", mend="x"), fail("b", "b", "Do.")),
            "2 problems; `holdfast doctor --fix` can fix 1 of them.",
        ),
        (
            (fail("a", "a", "Do.", mend="x"), warn("b", "b", "Do.", mend="x")),
            "1 problem, 1 warning; `holdfast doctor --fix` can fix all.",
        ),
    ],
)
def test_the_last_line_counts_problems_and_warnings(
    findings: tuple[Finding, ...], words: str
) -> None:
    assert summary_line([FindingGroup("x", findings)]) == words


@pytest.mark.parametrize(
    ("group", "finding", "code"),
    [
        ("x", ok("a", "a"), 0),
        ("x", warn("a", "a", "Do."), 0),
        ("x", fail("a", "a", "Do."), 1),
        ("configuration", fail("a", "a", "Do."), 78),
        ("configuration", warn("a", "a", "Do."), 0),
        ("database", fail("version", "a", "Do."), 78),
    ],
)
def test_the_exit_code_depends_on_the_failures(group: str, finding: Finding, code: int) -> None:
    assert exit_code([FindingGroup(group, (finding,))]) == code


def test_json_contains_every_finding() -> None:
    assert finding_records([FindingGroup("x", (fail("a", "b", "Do.", mend="m"),))]) == [
        {
            "group": "x",
            "level": "fail",
            "subject": "a",
            "text": "b",
            "fix": "Do.",
            "mendable": True,
            "seconds": None,
        }
    ]


# --- the executor ----------------------------------------------------------------------------


def test_the_executor_returns_results_and_errors() -> None:
    with DaemonThreadExecutor(1) as pool:
        assert pool.submit(sum, [1, 2]).result(5) == 3
        assert isinstance(pool.submit(int, "x").exception(5), ValueError)


def test_the_executor_does_not_wait_for_hanging_threads() -> None:
    gate = threading.Event()
    since = time.monotonic()

    async def give_up() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.to_thread(gate.wait, 60)

    asyncio.run(give_up())
    assert time.monotonic() - since < 30
    gate.set()
