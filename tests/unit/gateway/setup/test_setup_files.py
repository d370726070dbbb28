import os
import signal
import stat
from pathlib import Path

import pytest

from gateway.operate.setup.files import FileTransaction, block_signals


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


class Trouble(Exception):
    pass


def test_files_and_folders_get_their_mode_regardless_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with FileTransaction() as files:
            files.make_folder(tmp_path / "a/b", 0o700)
            files.write(tmp_path / "a/b/secret", b"x", 0o600)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b")) == (0o700, 0o700)
    assert mode(tmp_path / "a/b/secret") == 0o600
    assert names(tmp_path / "a/b") == ["secret"]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    file.chmod(0o640)
    with FileTransaction() as files:
        files.write(file, b"new", 0o600)
    assert (file.read_text(), mode(file)) == ("new", 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    os.chown(file, 1234, 1235)
    with FileTransaction() as files:
        files.write(file, b"new", 0o600)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)


def test_an_error_restores_every_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    file.chmod(0o644)

    def fail() -> None:
        with FileTransaction() as files:
            files.make_folder(tmp_path / "a/b", 0o700)
            files.write(tmp_path / "a/b/secret", b"x", 0o600)
            files.write(file, b"new", 0o600)
            files.write(file, b"newer", 0o600)
            raise Trouble

    with pytest.raises(Trouble):
        fail()
    assert names(tmp_path) == ["x"]
    assert (file.read_text(), mode(file)) == ("old", 0o644)


def test_a_new_folder_used_by_others_is_kept(tmp_path: Path) -> None:
    def fail() -> None:
        with FileTransaction() as files:
            files.make_folder(tmp_path / "a", 0o700)
            (tmp_path / "a/theirs").write_text("x")
            raise Trouble

    with pytest.raises(Trouble):
        fail()
    assert names(tmp_path / "a") == ["theirs"]


def test_a_temporary_file_is_beside_its_target_and_removed_afterwards(tmp_path: Path) -> None:
    with (
        FileTransaction() as files,
        files.temporary_file(tmp_path / "x", b"new", 0o600) as candidate,
    ):
        assert candidate.parent == tmp_path
        assert candidate.read_bytes() == b"new"
    assert names(tmp_path) == []


def test_ctrl_c_is_delayed_until_everything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "x"

    def interrupted() -> None:
        with block_signals():
            with FileTransaction() as files:
                signal.raise_signal(signal.SIGINT)
                files.write(file, b"new", 0o600)
            assert file.read_text() == "new"

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "new"
