"""Progress of long operations: the line, and the moments at which it is shown."""

import io
import threading
from pathlib import Path

import pytest

from gateway.operate.backup.writing import BackupSource, write_backup_file
from gateway.operate.cli.progress import show_progress
from gateway.operate.progress import Progress, progress_line
from sessions.store import prepare
from sessions.store.copy import sqlite_location


@pytest.mark.parametrize(
    ("done", "total", "seconds", "line"),
    [
        (0, 0, 12, "Work: 12 s"),
        (0, 1_200_000_000, 75, "Work: 1.2 GB, 1 min 15 s"),
        (5_000_000, 0, 12, "Work: 5 MB, 12 s"),
        (1_000, 100_000, 3, "Work: [--------------------] 1 KB of 100 KB, 3 s"),
        (25_000, 100_000, 4, "Work: [#####---------------] 25 KB of 100 KB, 4 s, 12 s left"),
        (100_000, 100_000, 16, "Work: [####################] 100 KB of 100 KB, 16 s"),
        (130_000, 100_000, 16, "Work: [####################] 100 KB of 100 KB, 16 s"),
    ],
)
def test_the_line_shows_size_and_time_and_a_bar_if_the_end_is_known(
    done: int, total: int, seconds: float, line: str
) -> None:
    assert progress_line("Work", done, total, seconds) == line


class Terminal(io.StringIO):
    """A terminal that remembers what was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.drawn.set()
        return super().write(text)


def test_a_line_is_shown_and_erased_at_the_end() -> None:
    terminal = Terminal()
    with show_progress(terminal, quiet_seconds=0) as progress:
        progress.begin("Work", 100)
        progress.advance(50)
        terminal.drawn.clear()
        assert terminal.drawn.wait(20)
    shown = terminal.getvalue()
    assert "Work: [##########----------] 50 bytes of 100 bytes" in shown
    assert shown.endswith("\r")
    assert shown.rsplit("\r", 2)[1].strip() == ""


def test_a_line_is_erased_after_an_error() -> None:
    terminal = Terminal()

    def fail() -> None:
        with show_progress(terminal, quiet_seconds=0) as progress:
            progress.begin("Work", 100)
            assert terminal.drawn.wait(20)
            msg = "broken"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert terminal.getvalue().endswith("\r")
    assert not [each for each in threading.enumerate() if "_display" in each.name]


def test_a_short_operation_and_a_pipe_show_nothing() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    with show_progress(terminal) as progress:
        progress.begin("Work", 100)
    with show_progress(pipe, quiet_seconds=0) as progress:
        progress.begin("Work", 100)
    assert terminal.getvalue() == pipe.getvalue() == ""


class Recorded(Progress):
    """Records each step and the bytes counted in it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[int]] = {}
        self._label = ""

    def begin(self, label: str, total_bytes: int = 0, measure: object = None) -> None:
        del measure
        self._label = label
        self.steps[label] = [0, total_bytes]

    def advance(self, count: int) -> None:
        self.steps[self._label][0] += count


def test_a_backup_counts_the_bytes_that_it_announces(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "workspace/telegram-1").mkdir(parents=True)
    (home / "workspace/telegram-1/notes.bin").write_bytes(bytes(range(256)) * 4000)
    (home / "letter.txt").write_text("hello")
    prepare.prepare(sqlite_location(home / "holdfast.db"))
    progress = Recorded()
    source = BackupSource(
        home=home, store_url=f"sqlite:///{home}/holdfast.db", version="1", made_at=""
    )
    write_backup_file(source, tmp_path / "a.tar", progress=progress)
    assert [*progress.steps] == [
        "Copying the database",
        "Checking the copy",
        "Writing the backup",
        "Verifying the backup",
    ]
    written, announced = progress.steps["Writing the backup"]
    manifest = 4096
    assert announced <= written <= announced + manifest
    assert announced > 1_024_000
    read, size = progress.steps["Verifying the backup"]
    assert size == (tmp_path / "a.tar").stat().st_size
    assert size - 10_240 <= read <= size  # the padding at the end is not read
