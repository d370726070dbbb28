"""The limit on what changed code can write."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.confine import can_confine, confine_writes
from tests.mutants.engine import fork

pytestmark = pytest.mark.skipif(not can_confine(), reason="this kernel has no Landlock")

OVERWRITE = "import sys; open(sys.argv[1], 'w')"


def in_another_process(path: Path) -> None:
    subprocess.run([sys.executable, "-c", OVERWRITE, str(path)], check=True, capture_output=True)


CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda path: path.write_text("changed"),
    "append": lambda path: path.open("a"),
    "truncate": lambda path: os.truncate(path, 0),
    "delete": lambda path: path.unlink(),
    "move away": lambda path: path.rename(path.with_suffix(".moved")),
    "make a folder": lambda path: path.with_suffix(".folder").mkdir(),
    "make a link": lambda path: path.with_suffix(".link").symlink_to(path),
    "write in another process": in_another_process,
}


def is_refused(change: Callable[[Path], object], path: Path, folder: Path) -> bool:
    """Return True if a process that is confined to a folder cannot make a change."""

    def work() -> int:
        confine_writes(folder)
        try:
            change(path)
        except (OSError, subprocess.CalledProcessError):
            return 1
        return 0

    code = fork(work, 30)
    assert code in {0, 1}
    return code == 1


@pytest.mark.parametrize("name", CHANGES)
def test_a_confined_process_changes_files_in_its_folder_only(tmp_path: Path, name: str) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        folder.joinpath("file").write_text("kept")
    assert is_refused(CHANGES[name], outside / "file", inside)
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert outside.joinpath("file").read_text() == "kept"
    assert not is_refused(CHANGES[name], inside / "file", inside)


def test_a_confined_process_writes_to_the_null_device(tmp_path: Path) -> None:
    assert not is_refused(lambda path: path.write_text("lost"), Path(os.devnull), tmp_path)


def test_a_confined_process_ends_no_other_process(tmp_path: Path) -> None:
    parent = os.getpid()
    assert is_refused(lambda _: os.kill(parent, 0), tmp_path, tmp_path)
