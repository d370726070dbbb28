"""How much room is left."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from gateway.observe.disk import DiskGauge, DiskSpace, free_bytes


@pytest.mark.parametrize(
    ("free", "wanted", "said"),
    [
        (200_000_000, 200_000_000, ""),
        (
            199_999_999,
            200_000_000,
            "disk: nearly full, 200 MB left in /state (gateway.disk_low is 200 MB)",
        ),
        (
            3_500_000,
            200_000_000,
            "disk: nearly full, 3.5 MB left in /state (gateway.disk_low is 200 MB)",
        ),
        (0, 1, "disk: nearly full, 0 bytes left in /state (gateway.disk_low is 1 byte)"),
        (0, 0, ""),  # nobody wants to know
    ],
)
def test_it_is_said_when_less_is_left_than_is_wanted(free: int, wanted: int, said: str) -> None:
    assert DiskSpace(free, wanted, Path("/state")).warning == said


def test_the_room_is_what_the_disk_says(tmp_path: Path) -> None:
    assert 0 < free_bytes(tmp_path) < 2**60


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "gone")


@pytest.mark.parametrize(
    ("free", "before", "low"),
    [
        (999, False, True),
        (1000, False, False),
        (999, True, True),
        (1000, True, True),  # a byte more is no news
        (1099, True, True),
        (1100, True, False),
        (5000, True, False),
    ],
)
def test_a_disk_that_was_low_needs_some_more_to_be_well_again(
    free: int, *, before: bool, low: bool
) -> None:
    assert DiskSpace(free, 1000, Path("/state")).is_low(was_low=before) is low


@pytest.mark.parametrize("before", [True, False])
def test_who_wants_no_room_is_never_told(*, before: bool) -> None:
    assert not DiskSpace(0, 0, Path("/state")).is_low(was_low=before)


async def test_a_disk_that_hangs_is_asked_once_however_often_somebody_wants_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.observe.disk.READ_TIMEOUT_SECONDS", 0.02)
    answers, asked = threading.Event(), []

    def hanging(folder: Path) -> int:
        asked.append(folder)
        answers.wait(5)
        return 7

    monkeypatch.setattr("gateway.observe.disk.free_bytes", hanging)
    gauge = DiskGauge(tmp_path, 10)
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError) as told:
                await gauge.read()
            assert told.value.errno == errno.ETIMEDOUT
            assert "no answer within" in str(told.value.strerror)
        assert asked == [tmp_path]
    finally:
        answers.set()
    async with asyncio.timeout(5):
        assert (await gauge.read()).free_bytes == 7


async def test_each_answer_is_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([5, 50])
    monkeypatch.setattr("gateway.observe.disk.free_bytes", lambda _: next(left))
    gauge = DiskGauge(tmp_path, 10)
    assert [(await gauge.read()).free_bytes for _ in range(2)] == [5, 50]


async def test_what_the_disk_says_instead_of_a_number_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await DiskGauge(tmp_path / "gone", 10).read()
