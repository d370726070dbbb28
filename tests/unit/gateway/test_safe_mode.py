"""Safe mode: the decision at a start, and the recorded phase of a start."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from gateway.errors import CannotStart
from gateway.notices.catalogue import CATALOGUE
from gateway.process.safe_mode import (
    UPTIME_THRESHOLDS_SECONDS,
    StartPhase,
    StartRecord,
    next_start,
    phase_reached,
    seconds_until_next_phase,
)
from gateway.process.start_log import FILE_NAME, StartLog
from sessions.values.notices import NoticeId

S, R, T, W, E, X = (
    StartPhase.STARTING,
    StartPhase.READY,
    StartPhase.STEADY,
    StartPhase.WELL,
    StartPhase.ENDED,
    StartPhase.REFUSED,
)


def test_the_notice_names_the_uptime_after_which_safe_mode_ends() -> None:
    # The catalogue is below the process in the order of imports, so it cannot read the threshold.
    minutes = UPTIME_THRESHOLDS_SECONDS[1] / 60
    assert f"once I have run well for {minutes:g} minutes" in CATALOGUE[NoticeId.SAFE_MODE]


# --- the decision -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lives", "careful"),
    [
        ([], False),
        ([S], False),
        ([R, R], False),
        ([S, R, S], True),
        ([R, R, R], True),
        ([R, R, E, R], False),  # a clean exit breaks the row
        ([R, R, T, R], False),  # so does a minute of uptime
        ([R, R, W, R], False),
        ([R, R, X, R], True),  # a refused start is neutral
        ([X, X, X, X], False),
        ([R, X, X, R], False),
        ([R, R, R, R], True),  # still crashing in safe mode
        ([R, R, R, T], True),  # a minute does not end safe mode
        ([R, R, R, X], True),
        ([R, R, R, W], False),  # ten minutes do
        ([R, R, R, E], False),  # so does a clean exit
        ([R, R, R, W, R, R], False),  # the count starts again
        ([R, R, R, W, R, R, R], True),
        ([R, R, R, T, R], True),
    ],
)
def test_safe_mode_begins_after_three_early_crashes(lives: list[StartPhase], careful: bool) -> None:
    left: StartRecord | None = None
    for life in lives:
        left = StartRecord(life, next_start(left).crashes, next_start(left).careful)
    begun = next_start(left)
    assert (begun.phase, begun.careful) == (StartPhase.STARTING, careful)


def test_late_crash_in_safe_mode_keeps_the_crash_count() -> None:
    begun = next_start(StartRecord(T, crashes=3, careful=True))
    assert (begun.crashes, begun.careful) == (3, True)
    assert next_start(StartRecord(T, crashes=2)).crashes == 0


def test_phase_advances_with_uptime() -> None:
    assert list(UPTIME_THRESHOLDS_SECONDS) == [60, 600]
    assert [phase_reached(at) for at in (0, 59.9, 60, 599, 600, 9e9)] == [R, R, T, T, W, W]
    assert [seconds_until_next_phase(at) for at in (0, 59, 60, 599, 600, 9e9)] == [
        60,
        1,
        540,
        1,
        None,
        None,
    ]


# --- the start log ----------------------------------------------------------------------------


class Killed(BaseException):
    """Simulate `kill -9`, as far as the next start can tell."""


async def a_start(home: Path, error: BaseException | None = None, *, ready: bool = True) -> int:
    """Start and end once; return the number of crashes that cause safe mode."""
    starts = StartLog(home)
    with starts:
        if ready:
            starts.mark_ready()
        if error:
            raise error
    return starts.crash_count


async def test_crashes_and_clean_exits_are_recorded(tmp_path: Path) -> None:
    groups = BaseExceptionGroup("", [Killed(), ZeroDivisionError()])
    for error, ready in ((Killed(), True), (groups, False), (Killed(), True)):
        assert StartLog(tmp_path).crash_count == 0
        with pytest.raises((Killed, BaseExceptionGroup)):
            await a_start(tmp_path, error, ready=ready)
    assert await a_start(tmp_path) == 3
    assert await a_start(tmp_path) == 0


async def test_refused_start_is_not_a_crash(tmp_path: Path) -> None:
    for _ in range(5):
        with pytest.raises(ExceptionGroup):
            await a_start(tmp_path, ExceptionGroup("", [CannotStart("taken")]), ready=False)
    assert await a_start(tmp_path) == 0


async def test_error_after_ready_is_a_crash(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(CannotStart):
            await a_start(tmp_path, CannotStart("the disk is gone"))
    assert await a_start(tmp_path) == 3


async def test_long_uptime_ends_the_crash_count(tmp_path: Path) -> None:
    starts = StartLog(tmp_path, (0.01, 0.02))
    phases: list[bytes] = []
    with starts:
        starts.mark_ready()
        async with asyncio.timeout(5):
            while not phases or phases[-1] != b"well":
                phases.append((tmp_path / FILE_NAME).read_bytes().split(b'"')[3])
                await asyncio.sleep(0.001)
    assert list(dict.fromkeys(phases)) == [b"ready", b"steady", b"well"]
    assert b"ended" in (tmp_path / FILE_NAME).read_bytes()


@pytest.mark.parametrize("left", [b"", b"{", b'{"phase":"flying"}', b"[]"])
async def test_unreadable_record_counts_as_a_first_start(
    tmp_path: Path, left: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(left)
    assert await a_start(tmp_path) == 0
    assert "cannot be read" in caplog.text


async def test_unwritable_folder_does_not_prevent_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).mkdir()  # a folder cannot be replaced by a file
    with caplog.at_level(logging.WARNING):
        await a_start(tmp_path)
    assert "cannot be written" in caplog.text
    assert os.listdir(tmp_path) == [FILE_NAME]  # noqa: PTH208 - does not block
