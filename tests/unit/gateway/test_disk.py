"""How much room is left."""

from pathlib import Path

import pytest

from gateway.disk import complaint, room


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
    assert complaint(free, wanted, Path("/state")) == said


def test_the_room_is_what_the_disk_says(tmp_path: Path) -> None:
    assert 0 < room(tmp_path) < 2**60


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        room(tmp_path / "gone")
