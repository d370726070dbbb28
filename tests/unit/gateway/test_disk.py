"""Free disk space."""

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
        (0, 0, ""),  # warnings are off
    ],
)
def test_warning_below_the_required_free_space(free: int, wanted: int, said: str) -> None:
    assert DiskSpace(free, wanted, Path("/state")).warning == said


def test_free_bytes_come_from_the_file_system(tmp_path: Path) -> None:
    assert 0 < free_bytes(tmp_path) < 2**60


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "gone")


@pytest.mark.parametrize(
    ("free", "before", "low"),
    [
        (999, False, True),
        (1000, False, False),
        (999, True, True),
        (1000, True, True),  # within the hysteresis
        (1099, True, True),
        (1100, True, False),
        (5000, True, False),
    ],
)
def test_low_disk_recovers_with_hysteresis(free: int, *, before: bool, low: bool) -> None:
    assert DiskSpace(free, 1000, Path("/state")).is_low(was_low=before) is low


@pytest.mark.parametrize("before", [True, False])
def test_limit_zero_never_warns(*, before: bool) -> None:
    assert not DiskSpace(0, 0, Path("/state")).is_low(was_low=before)


async def test_hanging_disk_is_read_once_for_all_callers(
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


async def test_each_read_is_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([5, 50])
    monkeypatch.setattr("gateway.observe.disk.free_bytes", lambda _: next(left))
    gauge = DiskGauge(tmp_path, 10)
    assert [(await gauge.read()).free_bytes for _ in range(2)] == [5, 50]


async def test_error_of_the_disk_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await DiskGauge(tmp_path / "gone", 10).read()
