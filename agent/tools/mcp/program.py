"""A server that is a program on this machine; its pipes are the transport.

The transport of the official package logs a traceback for each line that is not a message, and
collects a line of any length. This one drops and counts such lines, limits the length of a line, and
reads slowly from a program that prints too much, so that the program waits instead of this process.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TextIO

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

from agent.settings import McpSettings
from agent.tools.mcp.contract import MAX_MESSAGE_BYTES, ServerListener
from agent.tools.mcp.held import hold_context
from agent.tools.mcp.http_client import UNCLEAR
from sessions.values.size import format_size

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, may move

_EXIT_SECONDS = 2.0  # for a program to exit after its input was closed
_KILL_SECONDS = 2.0  # for a program to exit after SIGTERM; then it is killed
_READ_BYTES = 64 * 1024
_MAX_STDERR_LINE_BYTES = 2_000
_MAX_EXAMPLE_LENGTH = 100  # characters of an unreadable line
# Rates at which lines and useless bytes are read; a program that prints more has to wait.
_LINES_PER_SECOND = 5_000
_BYTES_PER_SECOND = 1024 * 1024
_OUTPUT_GRACE_SECONDS = 0.5  # for the last messages of an ended program
_STDERR_GRACE_SECONDS = 0.5  # for the last output of an ended program
_FLUSH_SECONDS = 0.5  # for messages that were accepted before the end
_REAP_SECONDS = 2.0  # until the end of a killed program is noticed
_POLL_SECONDS = 0.01
_DRAIN_PAUSE_SECONDS = 0.01

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def program_streams(
    settings: McpSettings, listener: ServerListener
) -> "AsyncIterator[TransportStreams]":
    """Start the program; terminate it at the end, by force if necessary."""
    async with (
        _stderr_reader(listener.on_stderr_line) as errors,
        hold_context(_run(settings, listener, errors), listener.on_disconnected) as streams,
    ):
        errors.close()  # only the program keeps the pipe open now
        yield streams


def pause_seconds(lines: int, size: int) -> float:
    """Return the pause after so many lines and so many bytes of useless output."""
    return max(lines / _LINES_PER_SECOND, size / _BYTES_PER_SECOND)


# --- standard input and output -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _run(
    settings: McpSettings, listener: ServerListener, errors: TextIO
) -> "AsyncIterator[TransportStreams]":
    # Only PATH, HOME and the user's name come from our own environment.
    variables = {name: value.reveal() for name, value in settings.env.items()}
    process = await anyio.open_process(
        [settings.command or "", *settings.args],
        env={**get_default_environment(), "LANG": "C.UTF-8", **variables},
        stderr=errors,
        cwd=settings.cwd.expanduser() if settings.cwd else None,
        start_new_session=True,
    )
    # No await until the `try` block, because a cancellation here would leave the program running.
    to_session, from_program = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    from_session, to_program = anyio.create_memory_object_stream[SessionMessage](0)
    loop = asyncio.get_running_loop()
    reader = loop.create_task(_read(process, to_session, listener), name="output of a server")
    writer = loop.create_task(_write(process, to_program, to_session), name="input of a server")
    exit_watch = _ExitWatch(process.pid, lambda: _end_output(reader, listener))
    try:
        yield from_program, from_session
    finally:
        exit_watch.close()
        from_program.close()
        from_session.close()
        await asyncio.wait({writer}, timeout=_FLUSH_SECONDS)
        reader.cancel()
        await asyncio.wait({reader}, timeout=_FLUSH_SECONDS)
        await _stop(process)
        writer.cancel()
        await asyncio.wait({reader, writer}, timeout=_REAP_SECONDS)
        for stream in (to_session, to_program):
            stream.close()


class _ExitWatch:
    """Calls a function some time after the exit of a process.

    The end of the output does not tell: a child of the program may keep the pipes open.
    """

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor: int | None = None
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:  # it has ended already
            self._timer = self._loop.call_later(_OUTPUT_GRACE_SECONDS, on_exit)
        else:
            self._loop.add_reader(self._descriptor, self._exited)

    def _exited(self) -> None:
        self._stop_watching()
        self._timer = self._loop.call_later(_OUTPUT_GRACE_SECONDS, self._on_exit)

    def _stop_watching(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        """Stop watching."""
        self._stop_watching()
        if self._timer:
            self._timer.cancel()


def _end_output(reader: asyncio.Task[None], listener: ServerListener) -> None:
    """End the output of an ended program whose children keep the pipe open."""
    if not reader.done():
        listener.on_disconnected("the program has ended")
        reader.cancel()


async def _read(
    process: Process,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    listener: ServerListener,
) -> None:
    """Pass on the messages of the program until its output ends or a line is too long."""
    assert process.stdout  # noqa: S101 - opened with a pipe
    line = bytearray()
    async with to_session:
        with contextlib.suppress(
            anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError
        ):
            while True:
                chunk = await process.stdout.receive(_READ_BYTES)
                *ends, rest = chunk.split(b"\n")
                unreadable = _UnreadableLines()
                for end in ends:
                    line += end
                    if (message := unreadable.parse(line)) is not None:
                        await to_session.send(message)
                    line.clear()
                line += rest
                if unreadable.count:
                    listener.on_unreadable_output(unreadable.count, unreadable.example)
                await asyncio.sleep(pause_seconds(len(ends), unreadable.size))
                if len(line) > MAX_MESSAGE_BYTES:
                    limit = format_size(MAX_MESSAGE_BYTES)
                    listener.on_disconnected(f"it printed a line of more than {limit}")
                    break
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await _drain(process.stdout)


class _UnreadableLines:
    """The lines of one chunk that are not messages."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.example = ""

    def parse(self, line: bytearray) -> SessionMessage | None:
        """Return the message in a line; count the line if there is none."""
        text = line.decode(errors="replace").strip()  # an invalid byte spoils only one message
        if text.startswith("{"):
            with contextlib.suppress(ValueError):
                return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
            if (error := _malformed_answer(text)) is not None:
                return SessionMessage(error)
        self.count += 1
        self.size += len(line)
        self.example = self.example or text[:_MAX_EXAMPLE_LENGTH]
        return None


class _Answer(msgspec.Struct):
    """The fields that tell which request a malformed message answers."""

    id: int | str
    method: str | None = None


def _malformed_answer(text: str) -> JSONRPCError | None:
    """Return an error for the request that a malformed answer belongs to, which else would hang."""
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, RecursionError):
        return None
    if answer.method is not None:
        return None
    error = ErrorData(code=UNCLEAR, message="its answer cannot be decoded")
    return JSONRPCError(jsonrpc="2.0", id=answer.id, error=error)


async def _drain(stdout: ByteReceiveStream) -> None:
    """Discard the rest of the output, so that the program can exit."""
    with contextlib.suppress(anyio.EndOfStream):
        while True:
            await stdout.receive(_READ_BYTES)
            await asyncio.sleep(_DRAIN_PAUSE_SECONDS)


async def _write(
    process: Process,
    to_program: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin  # noqa: S101 - opened with a pipe
    try:
        async for item in to_program:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{text}\n".encode())
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        # The program may still be alive; without an end of its messages, requests would hang.
        await to_session.aclose()


async def _stop(process: Process) -> None:
    """Close the input, wait, then terminate the program and all its children."""
    assert process.stdin  # noqa: S101 - opened with pipes
    assert process.stdout  # noqa: S101
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    # A program that is stuck in its output cannot read its input.
    drain = asyncio.get_running_loop().create_task(_drain_quietly(process.stdout))
    if not await _wait_exit(process, _EXIT_SECONDS):
        await terminate_posix_process_tree(process, _KILL_SECONDS)
        await _wait_exit(process, _REAP_SECONDS)
    drain.cancel()
    if process.returncode is None:
        _log.warning("the program with process id %d cannot be killed", process.pid)
    else:
        await process.aclose()  # closes the pipes, which children may still have open


async def _drain_quietly(stdout: ByteReceiveStream) -> None:
    with contextlib.suppress(
        OSError, anyio.BusyResourceError, anyio.BrokenResourceError, anyio.ClosedResourceError
    ):
        await _drain(stdout)


async def _wait_exit(process: Process, seconds: float) -> bool:
    """Return True if the program exits in time.

    `Process.wait` is no help, because it also waits for children that keep the pipes open.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while process.returncode is None:
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


# --- standard error ------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stderr_reader(on_line: Callable[[str], None]) -> AsyncIterator[TextIO]:
    """Yield a writable file whose lines are passed to `on_line`."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "w") as sink:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        try:
            async with asyncio.TaskGroup() as group:
                forwarder = group.create_task(
                    _forward_lines(reader, on_line), name="stderr of a server"
                )
                try:
                    yield sink
                finally:
                    sink.close()
                    await asyncio.wait({forwarder}, timeout=_STDERR_GRACE_SECONDS)
                    forwarder.cancel()
        finally:
            transport.close()


async def _forward_lines(reader: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    rest = b""
    while chunk := await reader.read(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _forward_line(line, on_line)
        rest = rest[:_MAX_STDERR_LINE_BYTES]
        await asyncio.sleep(pause_seconds(len(lines), len(chunk)))
    _forward_line(rest, on_line)


def _forward_line(line: bytes, on_line: Callable[[str], None]) -> None:
    text = line[:_MAX_STDERR_LINE_BYTES].decode(errors="replace").rstrip()
    if text:
        on_line(text)
