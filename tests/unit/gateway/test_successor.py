"""The next process image: its command, its check, and the files passed to it."""

import fcntl
import os
import socket
import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path

import pytest

from gateway.config.loader import HANDOVER_VARIABLE, read_environment, take_handover
from gateway.errors import CannotStart
from gateway.http.server import HttpServer
from gateway.process.handover import LOCK, PORT, Handover
from gateway.process.lock import hold_state_folder
from gateway.process.successor import Successor, describe_failure, restart_command


def script(folder: Path, text: str, name: str = "holdfast") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# --- command ----------------------------------------------------------------------------------


def test_script_is_restarted_directly_and_modules_by_python(tmp_path: Path) -> None:
    own = script(tmp_path, "")
    plain = tmp_path / "plain.py"
    plain.write_text("print()")
    for argv, original, words in [
        ([own, "run"], ["/old/python", own, "run"], (own, "run")),
        ([own, "run"], ["/old/python", "-X", "dev", own, "run"], ("py", "-X", "dev", own, "run")),
        ([str(plain), "run"], ["p", str(plain), "run"], ("py", str(plain), "run")),
        (["/gone", "run"], ["p", "/gone", "run"], ("py", "/gone", "run")),
        (
            ["/m.py", "run"],
            ["p", "-m", "gateway.operate.cli", "run"],
            ("py", "-m", "gateway.operate.cli", "run"),
        ),
    ]:
        assert restart_command(argv, original, "py") == words


def test_relative_script_path_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = script(tmp_path, "")
    assert restart_command(["./holdfast", "run"], ["p", "./holdfast", "run"], "py") == (own, "run")


# --- check ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("exit 0", ""),
        ('[ "$1 $2" = "run --check" ]', ""),
        ('[ -n "$HOLDFAST_HANDOVER" ]', ""),
        ('[ -z "$NOTIFY_SOCKET" ] && [ "$KEPT" = yes ]', ""),
        ("echo 'holdfast: http.port is wrong' >&2; exit 78", "http.port is wrong."),
        ("echo 'holdfast: One.' >&2; echo 'holdfast: Two!' >&2; exit 1", "One. Two!"),
        ("exit 3", "The installed program exits at once without an error message."),
    ],
)
async def test_new_program_is_checked(tmp_path: Path, text: str, refusal: str) -> None:
    environ = {**read_environment(), "NOTIFY_SOCKET": "/x", "KEPT": "yes"}
    successor = Successor((script(tmp_path, text), "run"), environ)
    assert await successor.find_start_error() == refusal
    assert await successor.find_start_error() == refusal


async def test_missing_or_broken_program_is_reported(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert "is missing or not executable" in await Successor((gone, "run"), {}).find_start_error()
    broken = tmp_path / "broken"
    broken.write_bytes(b"\0\0\0\0")
    broken.chmod(0o755)
    assert "cannot be run" in await Successor((str(broken), "run"), {}).find_start_error()
    own = script(tmp_path, "")
    os.chmod(own, 0o644)  # noqa: PTH101 - does not block
    assert "not executable" in await Successor((own, "run"), {}).find_start_error()


async def test_silent_check_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.process.successor.CHECK_TIMEOUT_SECONDS", 0.05)
    successor = Successor((script(tmp_path, "exec sleep 60"), "run"), read_environment())
    assert "did not finish within 0.05 s" in await successor.find_start_error()


def test_traceback_is_reported_in_one_line() -> None:
    said = 'Traceback (most recent call last):\n  File "x"\nImportError: no module agent\n'
    assert describe_failure(said) == (
        "The installed program crashes at its start: ImportError: no module agent"
    )


def test_version_is_the_installed_version() -> None:
    assert Successor(("x",), {}).version == installed("holdfast")


def test_program_that_vanished_before_exec_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="Holdfast is not running"):
        Successor((str(tmp_path / "gone"), "run"), {}).replace_process()


# --- handover ---------------------------------------------------------------------------------


@pytest.mark.process
def test_files_are_passed_only_to_the_next_process_image(tmp_path: Path) -> None:
    """Replace a process image: passed files are open there, named, and still locked."""
    code = """
import os, sys
from pathlib import Path
from gateway.process.handover import LOCK, Handover
from gateway.process.lock import hold_state_folder
home = Path(sys.argv[1])
if len(sys.argv) == 2:
    handover = Handover()
    with hold_state_folder(home) as folder:
        handover.pass_on(LOCK, folder.lock)
    os.execve(sys.executable, [*sys.orig_argv, "again"], {**os.environ, **handover.environment()})
from gateway.config.loader import read_environment, take_handover
left = take_handover()
assert "HOLDFAST_HANDOVER" not in os.environ
assert Handover(left.replace(str(os.getpid()), "1")).take(LOCK) is None
handover = Handover(left)
file = handover.take(LOCK)
assert not os.get_inheritable(file)
assert handover.take(LOCK) is None
with hold_state_folder(home, file) as folder:
    assert folder.lock == file
    print("locked", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(CannotStart, match=f"pid {process.pid}"), hold_state_folder(tmp_path):
            pass
        process.stdin.close()
        assert process.wait() == 0
    with hold_state_folder(tmp_path):
        pass


def test_inherited_lock_of_another_folder_is_closed(tmp_path: Path) -> None:
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    with hold_state_folder(tmp_path / "home", other) as folder:
        assert folder.lock != other
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(other)
        own = os.open(tmp_path / "home" / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(own)


def test_unused_inherited_files_are_closed(tmp_path: Path) -> None:
    handover = Handover()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    handover.pass_on(PORT, file)
    number = int(handover.environment()[HANDOVER_VARIABLE].rpartition("=")[2])
    assert os.get_inheritable(number)
    handover.discard()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    os.close(file)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "1 lock=3", "x lock=y", f"{os.getpid()} lock=9999"]
)
def test_malformed_handover_variable_is_ignored(text: str) -> None:
    handover = Handover(text)
    assert handover.take(LOCK) is None
    assert take_handover() == ""


# --- port -------------------------------------------------------------------------------------


def left_behind() -> tuple[int, int]:
    """Return a listening socket without an accepting process, as after a handover."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    return server.detach(), port


@pytest.mark.parametrize("any_port", [True, False])
def test_connection_made_before_the_handover_is_served(any_port: bool) -> None:
    number, port = left_behind()
    with socket.create_connection(("127.0.0.1", port)):
        server = HttpServer("localhost", 0 if any_port else port)
        server.bind(number)
        assert (server.port, server.fileno) == (port, number)
        assert server._socket
        server._socket.settimeout(5)
        server._socket.accept()[0].close()
        server.close()
    assert server.fileno is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.0.0.2", "localhost"])
def test_inherited_socket_on_another_address_is_replaced(host: str) -> None:
    number, old = left_behind()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as other:
        wanted = other.getsockname()[1]
    server = HttpServer(host, 0 if host in {"::1", "127.0.0.2"} else wanted)
    server.bind(number)
    assert server.port != old
    assert not accepts("127.0.0.1", old)
    assert accepts(host, server.port)
    server.close()


def accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_inherited_file_that_is_no_socket_is_ignored(tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    server = HttpServer("127.0.0.1", 0)
    server.bind(file)
    assert server.port
    server.close()
    os.close(file)
