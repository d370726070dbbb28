"""The control socket: a unix socket for commands on this machine to the running daemon.

A request is one line of JSON, `{"do": "send", "args": {…}}`; so is the answer, `{"ok": …}` or
`{"error": "One sentence.", "code": 1}`. After a request that opens a stream both sides send lines
until one of them disconnects. Only the user who runs the daemon, and root, may connect.
"""

import asyncio
import contextlib
import enum
import errno
import hashlib
import inspect
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import CannotStart, ConfigError, HoldfastError
from platforms.core.errors import PlatformError
from sessions.errors import StoreError
from sessions.values.exceptions import first_error
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_PATH_BYTES = 100  # Linux allows 107
_REQUEST_TIMEOUT_SECONDS = 10.0  # for the request line of a client
_ANSWER_TIMEOUT_SECONDS = 75.0  # for an operation
_CONNECT_TIMEOUT_SECONDS = 5.0

EXPECTED_ERRORS = (HoldfastError, PlatformError, StoreError, ValueError, LookupError, OSError)
"""Errors whose message is sent to the client; other exceptions are bugs."""

Operation = Callable[..., Awaitable[object]]
StreamHandler = Callable[["ControlConnection", Mapping[str, object]], Awaitable[None]]


class ProcessState(enum.StrEnum):
    """State of the process, as shown by `holdfast status`."""

    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"


class NotRunning(CannotStart):
    """No Holdfast runs on this state folder; start one with: holdfast run."""


class NotAnswering(CannotStart):
    """The running Holdfast ended before it answered."""


class ControlRequest(msgspec.Struct, frozen=True):
    """A request of a client: the name of an operation or stream, and its arguments."""

    do: str
    args: dict[str, Any] = {}


class ControlResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request: a result, or an error with its exit code."""

    ok: Any = None
    error: str = ""
    code: int = 0


def socket_path(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the socket path of a state folder; a long path moves to the runtime folder or /tmp.

    Another user may have taken the name there; then the path has another name.
    """
    usual = home / "control.sock"
    if len(os.fsencode(usual)) <= MAX_PATH_BYTES:
        return usual
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:24]
    folder = Path(environ.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108 - both sides check the other's user
    names = [f"holdfast-{name}{suffix}.sock" for suffix in ("", *map(chr, range(0x61, 0x7B)))]
    trusted = _trusted_users(home)
    owners = {folder / each: _owner(folder / each) for each in names}
    own = (path for path, owner in owners.items() if owner in trusted)
    free = (path for path, owner in owners.items() if owner is None)
    return next(own, None) or next(free, folder / names[0])


def _owner(path: Path) -> int | None:
    """Return the uid of a path's owner, of a link itself; None if there is nothing."""
    try:
        return path.lstat().st_uid
    except OSError:
        return None


class ControlConnection:
    """A connection that carries lines of JSON in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes | None:
        """Return the next line; None if the other side disconnected."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError:
            msg = f"A line can have at most {MAX_LINE_BYTES} bytes."
            raise ValueError(msg) from None
        return line

    async def write(self, message: object) -> None:
        """Send one line; raises `ConnectionError` if the other side disconnected."""
        self._writer.write(msgspec.json.encode(message) + b"\n")
        await self._writer.drain()

    def peer_user_id(self) -> int:
        """Return the uid of the process on the other side."""
        return peer_user_id(self._writer.get_extra_info("socket"))

    async def close(self) -> None:
        """Close the connection and wait until it is closed."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def peer_user_id(connection: Any) -> int:  # noqa: ANN401 - a socket, or asyncio's wrapper of one
    """Return the uid that opened the other end of a unix socket, as the kernel reports it."""
    layout = "3i"  # struct ucred: pid, uid, gid
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(layout))
    return int(struct.unpack(layout, raw)[1])


# --- server ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve_control_socket(
    path: Path,
    operations: Mapping[str, Operation],
    streams: Mapping[str, StreamHandler] | None = None,
    *,
    users: frozenset[int] | None = None,
) -> AsyncIterator[None]:
    """Serve requests inside this block, from `users` or by default from the own user and root.

    The caller holds the lock of the state folder, so an existing socket file is stale.
    """
    listening = _listen(path)
    requests = _RequestServer(operations, streams or {}, users or frozenset({os.geteuid(), 0}))
    async with asyncio.TaskGroup() as connections:
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = start_task(connections, requests.serve(ControlConnection(reader, writer)))
            if task is None:
                writer.close()
                return
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_unix_server(connected, sock=listening, limit=MAX_LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            _remove(path)
            for task in tasks:
                task.cancel()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
        listening.bind(os.fspath(path))
        path.chmod(0o600)  # before `listen`, so that no connection precedes the mode
        listening.listen()
    except OSError as error:
        listening.close()
        msg = f"The control socket {path} cannot be created: {error.strerror}."
        raise CannotStart(msg) from error
    return listening


class _RequestServer:
    """Server of requests; each connection has a task of its own."""

    def __init__(
        self,
        operations: Mapping[str, Operation],
        streams: Mapping[str, StreamHandler],
        users: frozenset[int],
    ) -> None:
        self._operations = operations
        self._streams = streams
        self._users = users

    async def serve(self, connection: ControlConnection) -> None:
        try:
            await self._serve_request(connection)
        except ConnectionError:
            log.debug("control socket: a client disconnected before its answer")
        finally:
            await connection.close()

    async def _serve_request(self, connection: ControlConnection) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
                line = await connection.read()
            if line is None:
                return
            # Checked after reading: closing earlier would fail the client's write, not answer it.
            if connection.peer_user_id() not in self._users:
                await connection.write(
                    ControlResponse(error="Only the user who runs Holdfast may do this.", code=1)
                )
                return
            request = msgspec.json.decode(line, type=ControlRequest)
        except TimeoutError:
            return
        except (ValueError, RecursionError) as error:
            await connection.write(
                ControlResponse(error=f"This is not a valid request: {error}", code=2)
            )
            return
        if request.do in self._streams:
            await self._run_stream(connection, request)
        else:
            await connection.write(await self._run_operation(request))

    async def _run_operation(self, request: ControlRequest) -> ControlResponse:
        operation = self._operations.get(request.do)
        if operation is None:
            return ControlResponse(
                error=f"The running Holdfast does not know the operation {request.do!r}.", code=1
            )
        try:
            inspect.signature(operation).bind(**request.args)
        except TypeError as error:
            return ControlResponse(error=f"{request.do}: {error}.", code=2)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS):
                return ControlResponse(ok=await operation(**request.args))
        except TimeoutError:
            return ControlResponse(
                error=f"This took longer than {_ANSWER_TIMEOUT_SECONDS:g} seconds.", code=1
            )
        except EXPECTED_ERRORS as error:
            return _error_response(error)
        except Exception as error:
            # A bug in one operation must not end the daemon; web requests have the same rule.
            log.exception("control socket: operation %s failed", request.do)
            sentence = f"Internal error in Holdfast ({type(error).__name__}); see its log."
            return ControlResponse(error=sentence, code=1)

    async def _run_stream(self, connection: ControlConnection, request: ControlRequest) -> None:
        try:
            await self._streams[request.do](connection, request.args)
        except ConnectionError:
            raise
        except EXPECTED_ERRORS as error:
            await connection.write(_error_response(error))
        except ExceptionGroup as group:
            if group.split(EXPECTED_ERRORS)[1]:
                raise
            await connection.write(_error_response(first_error(group, prefer=HoldfastError)))


def _error_response(error: BaseException) -> ControlResponse:
    code = error.exit_code if isinstance(error, HoldfastError) else 1
    sentence = error.args[0] if isinstance(error, KeyError) and error.args else error
    return ControlResponse(error=str(sentence) or type(error).__name__, code=code)


# --- client ----------------------------------------------------------------------------------


def send_request(path: Path, do: str, args: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - result of the operation
    """Run an operation in the daemon and return its result; raises `HoldfastError`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_SECONDS)
        try:
            connection.connect(os.fspath(path))
            check_peer(peer_user_id(connection), path)
            connection.settimeout(_ANSWER_TIMEOUT_SECONDS + 5)
            connection.sendall(msgspec.json.encode(ControlRequest(do, dict(args or {}))) + b"\n")
            line = b""
            while not line.endswith(b"\n") and (more := connection.recv(65536)):
                line += more
        except OSError as error:
            raise connection_error(path, error) from error
    return read_response(line)


async def open_stream(path: Path, do: str, **args: object) -> ControlConnection:
    """Open a stream to the daemon; raises `HoldfastError`."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            wire = ControlConnection(
                *await asyncio.open_unix_connection(path, limit=MAX_LINE_BYTES)
            )
        check_peer(wire.peer_user_id(), path)
        await wire.write(ControlRequest(do, dict(args)))
    except OSError as error:
        raise connection_error(path, error) from error
    return wire


def check_peer(user: int, path: Path) -> None:
    """Refuse to talk to a daemon of another user, which could be an impostor.

    Root also trusts the owner of the state folder, such as the user of the system service.
    """
    if user not in _trusted_users(path.parent):
        msg = f"The control socket belongs to another user (uid {user}); run this as that user."
        raise CannotStart(msg)


def _trusted_users(home: Path) -> set[int]:
    trusted = {os.geteuid(), 0}
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            trusted.add(home.stat().st_uid)
    return trusted


def connection_error(path: Path, error: OSError) -> HoldfastError:
    """Return the error that says why the daemon cannot be reached."""
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}:
        return NotRunning()
    if isinstance(error, TimeoutError):
        return NotAnswering("The running Holdfast does not answer; try `holdfast status`.")
    if isinstance(error, ConnectionError):
        return NotAnswering()
    return CannotStart(f"The control socket {path} cannot be used: {error.strerror}.")


def read_response(line: bytes) -> Any:  # noqa: ANN401 - result of the operation
    """Return the result in an answer, or raise its error."""
    try:
        answer = msgspec.json.decode(line, type=ControlResponse)
    except msgspec.DecodeError:
        raise NotAnswering from None
    if answer.error:
        raise (ConfigError if answer.code == ConfigError.exit_code else CannotStart)(answer.error)
    return answer.ok
