"""The control socket and the lock, over real sockets and processes."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import CannotStart, ConfigError, HoldfastError
from gateway.process.control_socket import (
    MAX_LINE_BYTES,
    MAX_PATH_BYTES,
    ControlConnection,
    NotRunning,
    Operation,
    check_peer,
    connection_error,
    open_stream,
    send_request,
    serve_control_socket,
    socket_path,
)
from gateway.process.lock import hold_state_folder


async def _double(number: int) -> dict[str, int]:
    return {"twice": 2 * number}


async def _refuse() -> None:
    msg = "This cannot be done today."
    raise CannotStart(msg)


async def _misconfigured() -> None:
    msg = "The configuration cannot work."
    raise ConfigError(msg)


async def _unknown() -> None:
    msg = "No such thing."
    raise KeyError(msg)


async def _echo(wire: ControlConnection, args: Mapping[str, object]) -> None:
    await wire.write({"args": args})
    while (line := await wire.read()) is not None:
        if line == b'"fail"\n':
            msg = "The stream cannot go on."
            raise CannotStart(msg)
        await wire.write({"heard": json.loads(line)})


OPERATIONS: dict[str, Operation] = {
    "double": _double,
    "refuse": _refuse,
    "misconfigured": _misconfigured,
    "unknown": _unknown,
}


@asynccontextmanager
async def _served(path: Path) -> AsyncIterator[Path]:
    async with asyncio.timeout(5), serve_control_socket(path, OPERATIONS, {"echo": _echo}):
        yield path


async def _raw(path: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE_BYTES)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_operation_answers_with_its_result(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        assert await asyncio.to_thread(send_request, path, "double", {"number": 21}) == {
            "twice": 42
        }


async def test_socket_is_private_and_removed_afterwards(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    ("do", "args", "error", "words"),
    [
        ("refuse", {}, CannotStart, "This cannot be done today."),
        ("misconfigured", {}, ConfigError, "The configuration cannot work."),
        ("unknown", {}, CannotStart, "No such thing."),
        ("dance", {}, CannotStart, "The running Holdfast does not know the operation 'dance'."),
        ("double", {"word": 1}, CannotStart, "missing a required argument"),
    ],
)
async def test_errors_are_one_sentence_with_an_exit_code(
    tmp_path: Path, do: str, args: dict[str, object], error: type[HoldfastError], words: str
) -> None:
    async with _served(tmp_path / "s") as path:
        with pytest.raises(error, match=words):
            await asyncio.to_thread(send_request, path, do, args)


@pytest.mark.parametrize("sent", [b"hello\n", b'{"args": {}}\n', b'["do"]\n'])
async def test_invalid_request_is_refused_and_the_socket_keeps_serving(
    tmp_path: Path, sent: bytes
) -> None:
    async with _served(tmp_path / "s") as path:
        answer = json.loads(await _raw(path, sent))
        assert answer["code"] == 2
        assert "not a valid request" in answer["error"]
        assert await asyncio.to_thread(send_request, path, "double", {"number": 1}) == {"twice": 2}


async def test_oversized_line_is_refused(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * (MAX_LINE_BYTES + 100_000))
        answer = json.loads(await reader.readline())
        assert f"A line can have at most {MAX_LINE_BYTES} bytes" in answer["error"]
        writer.close()


async def test_client_can_disconnect_without_a_request(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        _, writer = await asyncio.open_unix_connection(path)
        writer.close()
        await writer.wait_closed()
        assert await asyncio.to_thread(send_request, path, "double", {"number": 2}) == {"twice": 4}


async def test_stream_carries_lines_both_ways_until_the_client_disconnects(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        wire = await open_stream(path, "echo", chat="terminal")
        assert await wire.read() == b'{"args":{"chat":"terminal"}}\n'
        await wire.write({"say": "hello\nthere"})
        assert json.loads(await wire.read() or b"") == {"heard": {"say": "hello\nthere"}}
        await wire.close()


async def test_failing_stream_sends_an_error(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        wire = await open_stream(path, "echo")
        await wire.read()
        await wire.write("fail")
        assert json.loads(await wire.read() or b"") == {
            "error": "The stream cannot go on.",
            "code": 1,
        }
        assert await wire.read() is None
        await wire.close()


async def test_shutdown_ends_open_streams(tmp_path: Path) -> None:
    async with _served(tmp_path / "s") as path:
        wire = await open_stream(path, "echo")
        await wire.read()
    async with asyncio.timeout(5):
        assert await wire.read() is None
    await wire.close()


async def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(path))
    with pytest.raises(NotRunning):
        send_request(path, "double", {"number": 1})
    async with _served(path):
        assert await asyncio.to_thread(send_request, path, "double", {"number": 1}) == {"twice": 2}


async def test_file_at_the_socket_path_is_kept_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(CannotStart, match=f"{path} cannot be created"):
        async with serve_control_socket(path, OPERATIONS):
            pass
    assert path.read_text() == "precious"


async def test_both_clients_report_a_missing_daemon(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="holdfast run"):
        send_request(tmp_path / "s", "double")
    with pytest.raises(NotRunning, match="holdfast run"):
        await open_stream(tmp_path / "s", "echo")


async def test_daemon_that_dies_during_a_request_is_reported(tmp_path: Path) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with asyncio.timeout(5), await asyncio.start_unix_server(die, tmp_path / "s"):
        with pytest.raises(CannotStart, match="ended before it answered"):
            await asyncio.to_thread(send_request, tmp_path / "s", "double")


def test_each_connection_error_has_its_message(tmp_path: Path) -> None:
    assert "does not answer" in str(connection_error(tmp_path, TimeoutError()))
    assert "ended before" in str(connection_error(tmp_path, ConnectionResetError()))
    refused = connection_error(tmp_path, PermissionError(13, "Permission denied"))
    assert str(refused) == f"The control socket {tmp_path} cannot be used: Permission denied."


def test_daemon_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    check_peer(os.geteuid(), tmp_path / "s")
    with pytest.raises(CannotStart, match="another user"):
        check_peer(54321, tmp_path / "s")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_root_trusts_only_the_owner_of_the_state_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 54321, 54321)
    check_peer(54321, tmp_path / "s")
    with pytest.raises(CannotStart, match="another user"):
        check_peer(54322, tmp_path / "s")
    with pytest.raises(CannotStart, match="another user"):
        check_peer(54321, tmp_path / "gone" / "s")


async def test_other_users_are_refused_whatever_the_file_mode(tmp_path: Path) -> None:
    somebody_else = frozenset({os.geteuid() + 1})
    async with (
        asyncio.timeout(5),
        serve_control_socket(tmp_path / "s", OPERATIONS, users=somebody_else),
    ):
        with pytest.raises(CannotStart, match="Only the user who runs Holdfast may do this"):
            await asyncio.to_thread(send_request, tmp_path / "s", "double", {"number": 1})


def test_socket_is_in_the_state_folder() -> None:
    assert socket_path(Path("/var/lib/holdfast"), {}) == Path("/var/lib/holdfast/control.sock")


def test_long_path_moves_the_socket_to_a_hashed_name() -> None:
    home = Path("/srv") / ("deep" * 30)
    moved = socket_path(home, {"XDG_RUNTIME_DIR": "/run/user/1000"})
    assert moved.parent == Path("/run/user/1000")
    assert socket_path(home, {}) == Path("/tmp") / moved.name  # noqa: S108 - the documented place
    assert socket_path(home.parent / "other", {}).name != moved.name
    edge = Path("/" + "x" * (MAX_PATH_BYTES - len("//control.sock")))
    assert socket_path(edge, {}).parent == edge
    assert socket_path(Path(f"{edge}x"), {}).parent != edge


# --- lock ------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from gateway.process.lock import hold_state_folder
with hold_state_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(home: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, os.fspath(home)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.process
def test_second_daemon_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    home = tmp_path / "state"
    with _holder(home) as first:
        with pytest.raises(CannotStart, match=f"pid {first.pid}.*{home}"), hold_state_folder(home):
            pass
        first.kill()


@pytest.mark.process
def test_a_start_waits_for_a_command_that_holds_the_lock(tmp_path: Path) -> None:
    with _holder(tmp_path) as command:
        end = threading.Timer(0.2, command.kill)
        end.start()
        with hold_state_folder(tmp_path):
            assert command.wait(5) < 0
        end.join()


@pytest.mark.process
def test_kill_9_releases_the_lock(tmp_path: Path) -> None:
    with _holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait(5)
    with hold_state_folder(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with hold_state_folder(tmp_path):
        pass  # a clean exit releases the lock as well


def test_state_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CannotStart, match=f"{tmp_path}/file/state cannot be used"),
        hold_state_folder(tmp_path / "file" / "state"),
    ):
        pass


def test_state_folder_is_private(tmp_path: Path) -> None:
    with hold_state_folder(tmp_path / "state"):
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_socket_name_that_another_user_took_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, shared = tmp_path / ("x" * 120), {"XDG_RUNTIME_DIR": str(tmp_path)}
    first = socket_path(home, shared)
    first.touch()
    assert socket_path(home, shared) == first, "our own file is used again"
    monkeypatch.setattr("os.geteuid", lambda: first.stat().st_uid + 12_345)
    monkeypatch.setattr(
        "gateway.process.control_socket._owner",
        lambda path: 12_344 if path == first else None,
    )
    assert socket_path(home, shared) == first.with_name(f"{first.stem}a.sock")


def test_files_created_while_the_state_folder_is_held_belong_to_its_user_alone(
    tmp_path: Path,
) -> None:
    usual = os.umask(0o022)
    try:
        with hold_state_folder(tmp_path / "home"):
            (tmp_path / "inside").touch()
        (tmp_path / "after").touch()
    finally:
        os.umask(usual)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("inside", "after")]
    assert modes == [0o600, 0o644]
