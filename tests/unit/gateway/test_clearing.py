import os
from pathlib import Path

import pytest

from agent.tools.confine import open_by_steps, open_workspace
from agent.tools.received import MARKER_FILE
from gateway.media.cleanup import remove_old_files
from sessions.values.file_names import RECEIVED_FOLDER

OLD, NEW = 1_000.0, 2_000_000_000.0
NOW = 1_900_000_000.0
OURS = "0123456789"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose folder of received files has the marker."""
    folder = tmp_path / "w"
    with open_workspace(folder, create=True, opener=open_by_steps) as opened:
        opened.make_marked_folder(RECEIVED_FOLDER, MARKER_FILE)
    return folder


def put(path: Path, at: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (at, at))
    return path


def cleared(workspace: Path, before: float | None = NOW, begun: float = NOW) -> int:
    return remove_old_files(workspace, older_than=before, unfinished_before=begun)


def test_old_files_are_removed_with_their_folders_and_new_ones_stay(workspace: Path) -> None:
    old = put(workspace / "received" / OURS / "a.pdf")
    new = put(workspace / "received" / "abcdefghjk" / "a.pdf", NEW)
    assert cleared(workspace) == 1
    assert not old.parent.exists()
    assert new.exists()


def test_a_folder_with_a_new_file_stays(workspace: Path) -> None:
    put(workspace / "received" / OURS / "a.pdf")
    new = put(workspace / "received" / OURS / "b.pdf", NEW)
    assert cleared(workspace) == 1
    assert [each.name for each in new.parent.iterdir()] == ["b.pdf"]


def test_other_files_of_a_workspace_stay(workspace: Path) -> None:
    kept = [
        put(workspace / "notes.txt"),
        put(workspace / OURS / "a.pdf"),
        put(workspace / "received" / "notes.txt"),
        put(workspace / "received" / "of a person" / "a.pdf"),
        put(workspace / "received" / OURS / "folder" / "a.pdf"),
    ]
    assert cleared(workspace) == 0
    assert all(each.exists() for each in kept)


def test_a_folder_without_the_marker_is_left_alone(tmp_path: Path) -> None:
    theirs = put(tmp_path / "received" / OURS / "a.pdf")
    with open_workspace(tmp_path, opener=open_by_steps) as opened:
        opened.make_marked_folder(RECEIVED_FOLDER, MARKER_FILE)
    assert cleared(tmp_path) == 0
    assert theirs.exists()


@pytest.mark.parametrize("where", [f"received/{OURS}", "received"])
def test_links_are_not_followed(tmp_path: Path, workspace: Path, where: str) -> None:
    outside = put(tmp_path / "outside" / OURS / "a.pdf")
    put(tmp_path / "outside" / MARKER_FILE)
    put(tmp_path / "outside" / "b.pdf")
    link = workspace / where
    if link.exists():
        (link / MARKER_FILE).unlink()
        link.rmdir()
    link.symlink_to(tmp_path / "outside")
    assert cleared(workspace) == 0
    assert outside.exists()
    assert (tmp_path / "outside" / "b.pdf").exists()


def test_a_link_is_removed_and_its_target_stays(tmp_path: Path, workspace: Path) -> None:
    target = put(tmp_path / "target")
    link = workspace / "received" / OURS / "a.pdf"
    link.parent.mkdir()
    link.symlink_to(target)
    os.utime(link, (OLD, OLD), follow_symlinks=False)
    assert cleared(workspace) == 1
    assert target.exists()


def test_stale_partial_files_are_removed_and_active_ones_stay(workspace: Path) -> None:
    left = put(workspace / "received" / OURS / ".holdfast-1.tmp")
    coming = put(workspace / "received" / "abcdefghjk" / ".holdfast-2.tmp", NEW)
    whole = put(workspace / "received" / "abcdefghjk" / "a.pdf")
    assert cleared(workspace, before=None) == 1
    assert not left.parent.exists()
    assert coming.exists()
    assert whole.exists()


def test_an_empty_folder_is_removed_unless_it_is_new(workspace: Path) -> None:
    old, new = workspace / "received" / OURS, workspace / "received" / "abcdefghjk"
    for folder, at in ((old, OLD), (new, NEW)):
        folder.mkdir()
        os.utime(folder, (at, at))
    assert cleared(workspace) == 0
    assert not old.exists()
    assert new.exists()


def test_without_a_workspace_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert cleared(tmp_path / "nowhere") == 0
