import contextlib
import errno
import os
import platform
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import ToolError
from agent.tools import confine
from agent.tools.confine import Opener, Workspace, open_beneath, open_by_steps, open_workspace

SECRET = b"secret"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"in a")
    (folder / "sub" / "b.txt").write_bytes(b"in b")
    (folder / "out").symlink_to(outside)
    (folder / "relative_out").symlink_to("../outside")
    (folder / "out_file").symlink_to(outside / "secret")
    (folder / "root").symlink_to("/")
    (folder / "loop").symlink_to("loop")
    (folder / "self").symlink_to("/proc/self/root")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture(params=[open_beneath, open_by_steps], ids=["kernel", "steps"])
def opener(request: pytest.FixtureRequest) -> Opener:
    opener: Opener = request.param
    if opener is open_beneath and confine.choose_opener() is not open_beneath:
        pytest.skip("this kernel cannot do it")
    return opener


@pytest.fixture
def workspace(root: Path, opener: Opener) -> Iterator[Workspace]:
    with open_workspace(root, opener=opener) as workspace:
        yield workspace


READING = [
    pytest.param("../outside/secret", id="parent"),
    pytest.param("..", id="only .."),
    pytest.param("sub/../a.txt", id=".. inside the path"),
    pytest.param("sub/deep/../../../outside/secret", id="many .."),
    pytest.param("/etc/passwd", id="absolute"),
    pytest.param("//etc/passwd", id="absolute with two slashes"),
    pytest.param("{root}/../outside/secret", id="absolute with .."),
    pytest.param("{root}x/secret", id="a sibling with the same prefix"),
    pytest.param("out/secret", id="through a link"),
    pytest.param("relative_out/secret", id="through a relative link"),
    pytest.param("out_file", id="a link to a file"),
    pytest.param("root/etc/passwd", id="a link to the workspace"),
    pytest.param("self/etc/passwd", id="a magic link"),
    pytest.param("loop", id="a link to itself"),
    pytest.param("gone", id="a link to nothing"),
    pytest.param("pipe", id="a pipe"),
    pytest.param("socket", id="a socket"),
    pytest.param("a.txt\0", id="NUL"),
    pytest.param("\0", id="only NUL"),
    pytest.param("x" * 256, id="a long name"),
    pytest.param("é" * 200, id="a name of many bytes"),
    pytest.param("d/" * 3000 + "x", id="a long path"),
    pytest.param("a.txt/b", id="beneath a file"),
    pytest.param("missing", id="missing"),
    pytest.param("missing/too", id="in a missing folder"),
    pytest.param("\ud800", id="an unpaired surrogate"),
    pytest.param("sub", id="a folder"),
    pytest.param(".", id="the workspace"),
    pytest.param("", id="nothing"),
]


@pytest.mark.parametrize("path", READING)
def test_only_regular_files_in_the_workspace_are_read(
    workspace: Workspace, root: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ToolError) as caught:
            workspace.read(path.format(root=root), 1000)
    assert str(caught.value)
    assert "Errno" not in str(caught.value)


_HARMLESS = {"missing", "in a missing folder", "a folder", "the workspace", "nothing"}
WRITING = [each for each in READING if each.id not in _HARMLESS]


@pytest.mark.parametrize(
    "path",
    [
        *WRITING,
        pytest.param("out/new", id="new through a link"),
        pytest.param("relative_out/new/er", id="new folders through a link"),
        pytest.param("gone/new", id="through a link to nothing"),
        pytest.param("sub", id="a folder"),
        pytest.param("new/", id="named as a folder"),
        pytest.param(".", id="the workspace"),
        pytest.param("", id="nothing"),
    ],
)
def test_writing_outside_the_workspace_is_refused(
    workspace: Workspace, root: Path, outside: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        before = sorted(root.rglob("*"))
        # A write that is not refused must not damage the machine.
        path = path.format(root=root).replace("/etc/passwd", f"{outside}/secret")
        with pytest.raises(ToolError) as caught:
            workspace.write(path, b"bad", "t")
    assert str(caught.value)
    assert sorted(root.rglob("*")) == before
    assert [(file.name, file.read_bytes()) for file in outside.iterdir()] == [("secret", SECRET)]


@pytest.mark.parametrize("path", ["sub/b.txt", "./sub//b.txt", "{root}/sub/b.txt"])
def test_a_file_is_found_by_every_valid_path(workspace: Workspace, root: Path, path: str) -> None:
    content, state = workspace.read(path.format(root=root), 4)
    assert (content, state.st_size) == (b"in b", 4)


def test_an_absolute_path_may_go_through_a_link_to_the_workspace(
    root: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    with open_workspace(link) as workspace:
        assert workspace.relative_name(f"{root}/a.txt") == "a.txt"
        assert workspace.read(f"{link}/a.txt", 10)[0] == b"in a"


def test_an_internal_link_is_followed_only_with_openat2(
    workspace: Workspace, root: Path, opener: Opener
) -> None:
    (root / "inner").symlink_to("sub/b.txt")
    (root / "sub" / "up").symlink_to("../sub")
    if opener is open_beneath:
        assert workspace.read("inner", 10)[0] == b"in b"
        assert workspace.read("sub/up/b.txt", 10)[0] == b"in b"
        workspace.write("sub/up/new/c.txt", b"c", "t")
        assert (root / "sub" / "new" / "c.txt").read_bytes() == b"c"
    else:
        for path in ("inner", "sub/up/b.txt"):
            with pytest.raises(ToolError):
                workspace.read(path, 10)
    with pytest.raises(ToolError, match="is a link"):
        workspace.write("inner", b"x", "t")


def test_a_file_that_is_too_large_is_not_read(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match=r"'a.txt' has 4 bytes; the limit is 3 bytes"):
        workspace.read("a.txt", 3)


def test_missing_folders_of_a_new_file_are_created(workspace: Workspace, root: Path) -> None:
    assert workspace.write("x/y/z.txt", b"new", "t") is False
    assert (root / "x" / "y" / "z.txt").read_bytes() == b"new"
    assert [file.name for file in (root / "x" / "y").iterdir()] == ["z.txt"]


def test_a_replaced_file_keeps_its_mode_without_setuid_bits(
    workspace: Workspace, root: Path
) -> None:
    file = root / "a.txt"
    file.chmod(0o4751)
    assert workspace.write("a.txt", b"new", "t") is True
    assert stat.S_IMODE(file.stat().st_mode) == 0o751


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_replaced_file_keeps_its_owner(workspace: Workspace, root: Path) -> None:
    file = root / "a.txt"
    os.chown(file, 1234, 4321)
    workspace.write("a.txt", b"new", "t")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)


def test_a_cancelled_write_changes_nothing(workspace: Workspace, root: Path) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(ToolError, match="stopped"):
        workspace.write("a.txt", b"new", "t", is_cancelled=lambda: True)
    assert sorted(root.rglob("*")) == before
    assert (root / "a.txt").read_bytes() == b"in a"


def test_a_failed_write_leaves_nothing_behind(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(root.rglob("*"))
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(ToolError, match="The disk is full"):
        workspace.write("new", b"new", "t")
    assert sorted(root.rglob("*")) == before


def test_a_file_changed_since_it_was_read_is_not_replaced(workspace: Workspace, root: Path) -> None:
    _, state = workspace.read("a.txt", 10)
    (root / "a.txt").write_bytes(b"by somebody else")
    with pytest.raises(ToolError, match="has changed since it was read"):
        workspace.write("a.txt", b"new", "t", expected_state=state)
    (root / "a.txt").unlink()
    with pytest.raises(ToolError, match="has changed since it was read"):
        workspace.write("a.txt", b"new", "t", expected_state=state)
    assert not (root / "a.txt").exists()


def test_temporary_files_of_a_crash_are_skipped(workspace: Workspace, root: Path) -> None:
    name, descriptor = confine._create_temporary(_descriptor(root), "t")
    os.close(descriptor)
    workspace.write("new", b"new", "t")
    assert (root / "new").read_bytes() == b"new"
    assert (root / name).read_bytes() == b""


def _descriptor(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def test_a_missing_workspace_is_created_only_for_writing(tmp_path: Path) -> None:
    root = tmp_path / "new" / "work"
    with pytest.raises(ToolError, match="workspace is still empty"), open_workspace(root):
        pass
    assert not root.exists()
    with open_workspace(root, create=True) as workspace:
        workspace.write("a", b"a", "t")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    with pytest.raises(ToolError, match="cannot be opened"), open_workspace(root / "a"):
        pass


def test_without_openat2_paths_are_opened_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: object) -> int:
        raise OSError(errno.EPERM, "no")

    choose: Callable[[], Opener] = confine.choose_opener.__wrapped__
    with monkeypatch.context() as patched:
        patched.setattr(confine, "open_beneath", forbidden)
        assert choose() is open_by_steps
    with monkeypatch.context() as patched:
        patched.setattr(platform, "machine", lambda: "riscv64")
        assert choose() is open_by_steps


@pytest.mark.timeout(30)
def test_a_folder_swapped_for_a_link_at_any_moment_leads_nowhere(
    root: Path, outside: Path, opener: Opener
) -> None:
    (outside / "file").write_bytes(SECRET)
    flip, real, link = root / "flip", root / "real", root / "link"
    real.mkdir()
    (real / "file").write_bytes(b"inside")
    link.symlink_to(outside)
    done, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            try:
                real.rename(flip)
                flip.rename(real)
                link.rename(flip)
                flip.rename(link)
            except OSError:  # a write created the folder while the original was moved away
                flip.rename(root / f"made{swaps}")
            swaps += 1

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = refused = 0
    try:
        with open_workspace(root, opener=opener) as workspace:
            for _ in range(100_000):
                try:
                    assert workspace.read("flip/file", 100)[0] == b"inside"
                    read += 1
                except ToolError as error:
                    refused += "There is no" not in str(error)
                if read >= 50 and refused >= 50:
                    break
            for number in range(1000):
                with contextlib.suppress(ToolError):
                    workspace.write(f"flip/new{number}", b"x", str(number))
    finally:
        done.set()
        swapper.join()
    assert read
    assert swaps
    assert refused
    assert sorted(file.name for file in outside.iterdir()) == ["file", "secret"]
    assert (outside / "file").read_bytes() == SECRET
    assert not [file for file in root.rglob("*") if file.name.startswith(confine.TEMPORARY_PREFIX)]


# --- received files ------------------------------------------------------------------------------


def names(root: Path) -> list[str]:
    return sorted(each.name for each in (root / "in" / "a").iterdir())


def test_a_received_file_appears_only_when_it_is_complete(workspace: Workspace, root: Path) -> None:
    incoming = workspace.receive("in/a/b.bin", "t")
    for piece in (b"one", b"two"):
        incoming.write(piece)
    assert "b.bin" not in names(root)
    incoming.finish()
    incoming.close()
    assert names(root) == ["b.bin"]
    assert (root / "in" / "a" / "b.bin").read_bytes() == b"onetwo"
    assert workspace.file_size("in/a/b.bin") == 6


def test_a_restarted_or_abandoned_transfer_leaves_nothing_behind(
    workspace: Workspace, root: Path
) -> None:
    incoming = workspace.receive("in/a/b.bin", "t")
    incoming.write(b"a long beginning")
    incoming.restart()
    incoming.write(b"new")
    incoming.finish()
    incoming.close()
    incoming.close()
    assert (root / "in" / "a" / "b.bin").read_bytes() == b"new"
    other = workspace.receive("in/a/c.bin", "t2")
    other.write(b"x")
    other.close()
    assert names(root) == ["b.bin"]
    assert workspace.file_size("in/a/c.bin") is None


def test_a_leftover_of_a_dead_process_is_replaced(workspace: Workspace, root: Path) -> None:
    left = workspace.receive("in/a/b.bin", "t")
    left.write(b"of before")
    again = workspace.receive("in/a/b.bin", "t")
    again.write(b"of now")
    again.finish()
    again.close()
    left.close()
    assert names(root) == ["b.bin"]
    assert (root / "in" / "a" / "b.bin").read_bytes() == b"of now"


@pytest.mark.parametrize("path", ["out/x", "out_file", "gone", "sub", "pipe", "../outside/x"])
def test_receiving_outside_the_workspace_is_refused(
    workspace: Workspace, root: Path, outside: Path, path: str
) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(ToolError):
        workspace.receive(path, "t")
    assert sorted(root.rglob("*")) == before
    assert [(file.name, file.read_bytes()) for file in outside.iterdir()] == [("secret", SECRET)]


@pytest.mark.parametrize("path", ["out/secret", "out_file", "gone", "sub", "pipe", "nothing"])
def test_only_a_regular_file_has_a_size(workspace: Workspace, path: str) -> None:
    assert workspace.file_size(path) is None
    assert workspace.file_size("a.txt") == 4


def test_only_a_newly_created_folder_gets_the_mark(workspace: Workspace, root: Path) -> None:
    workspace.make_marked_folder("new", "mark")
    workspace.make_marked_folder("new", "mark")
    workspace.make_marked_folder("sub", "mark")
    assert [each.name for each in (root / "new").iterdir()] == ["mark"]
    assert not (root / "sub" / "mark").exists()


def test_the_free_space_is_positive(workspace: Workspace) -> None:
    assert workspace.free_bytes() > 0
