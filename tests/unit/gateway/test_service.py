"""Running as a service: signals, systemd, control socket, terminals of other processes."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import msgspec
import pytest

from gateway.errors import CannotStart, ConfigError
from gateway.process.chat_stream import ChatFinished, InputStored
from gateway.process.control_socket import (
    ControlConnection,
    NotRunning,
    Operation,
    open_stream,
    send_request,
    socket_path,
)
from gateway.process.exit import INTERRUPTED_EXIT_CODE, report_crash, run_to_exit_code
from gateway.process.lock import hold_state_folder
from gateway.process.service import OnReady, serve
from gateway.process.systemd_notify import SystemdNotifier
from platforms.console import CHAT, AnswerFrame, ConsoleAdapter, NoteFrame, UserFrame
from platforms.core.contract import (
    Accepted,
    Adapter,
    Inbound,
    InboundMessage,
    Post,
    Surroundings,
)
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.fakes.archive import EmptyArchive, MemoryShelf


class SmallRunner:
    """A gateway with only a console that answers every message."""

    def __init__(self, error: Exception | None = None) -> None:
        clock = SystemClock()
        self.console = ConsoleAdapter(
            Surroundings(clock, Ids(clock), shelf=MemoryShelf(), archive=EmptyArchive())
        )
        self.stopping = asyncio.Event()
        self.restarting = asyncio.Event()
        self.skip_drain = asyncio.Event()
        self.ready = asyncio.Event()
        self.operations: dict[str, Operation] = {"status": self._status, "reload": self._reload}
        self.heard: list[str] = []
        self.error = error
        self.reloaded = asyncio.Event()

    async def _status(self) -> dict[str, str]:
        return {"state": "running"}

    @property
    def condition(self) -> Self:
        return self

    def adapter(self, name: str) -> Adapter | None:
        return self.console if name == "console" else None

    async def _reload(self) -> None:
        self.reloaded.set()

    drain_seconds = 60.0

    def running_turns(self) -> int:
        return 0

    async def release_memory(self) -> None:
        pass

    def describe_status(self) -> str:
        return "Stopping." if self.stopping.is_set() else "Answering."

    async def wait_first_attempts(self) -> None:
        await self.ready.wait()

    async def ping_writer(self) -> None:
        return

    def writer_steps(self) -> int:
        return 0

    async def _hear(self, event: Inbound) -> Accepted:
        assert isinstance(event, InboundMessage)
        self.heard.append(event.text)
        await self.console.deliver(Post(f"{event.id}.0", event.address, f"You said {event.text}."))
        return Accepted.STORED

    async def run(self) -> None:
        if self.error:
            raise self.error
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.console.run(self._hear, self.ready.set))
            await self.stopping.wait()
            task.cancel()


class SlowToStop(SmallRunner):
    """A gateway whose running turns never finish on their own."""

    async def run(self) -> None:
        self.ready.set()
        await self.skip_drain.wait()


async def _serve(
    runner: SmallRunner, home: Path, environ: Mapping[str, str], on_ready: OnReady | None = None
) -> None:
    with hold_state_folder(home) as folder:
        await serve(runner, folder, environ, on_ready=on_ready)


@asynccontextmanager
async def _serving(runner: SmallRunner, home: Path, **environ: str) -> AsyncIterator[Path]:
    """Run a service from start to stop; yields the control socket."""
    attended = asyncio.Event()

    async def then() -> None:
        attended.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(_serve(runner, home, environ, then))
        await attended.wait()
        yield socket_path(home, environ)
        runner.stopping.set()


async def _frame(wire: ControlConnection) -> object:
    line = await wire.read()
    assert line
    return msgspec.json.decode(
        line, type=AnswerFrame | NoteFrame | UserFrame | InputStored | ChatFinished
    )


# --- signals and the socket ------------------------------------------------------------------


async def test_first_signal_stops_and_second_skips_the_drain(tmp_path: Path) -> None:
    runner = SlowToStop()
    hurried = []

    async def then() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await runner.stopping.wait()
        hurried.append(runner.skip_drain.is_set())
        os.kill(os.getpid(), signal.SIGINT)
        await runner.skip_drain.wait()

    async with asyncio.timeout(5):
        await _serve(runner, tmp_path, {}, then)
    assert hurried == [False]
    given_back = not asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert given_back


async def test_ctrl_c_is_answered_with_the_way_to_skip_the_wait(tmp_path: Path) -> None:
    runner = SlowToStop()
    said: list[str] = []

    async def then() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await runner.stopping.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await runner.skip_drain.wait()

    async with asyncio.timeout(5):
        with hold_state_folder(tmp_path) as folder:
            await serve(runner, folder, {}, on_ready=then, say=said.append)
    assert said == ["Stopping … press Ctrl-C again to skip the wait for running answers."]


async def test_sighup_reloads_the_configuration(tmp_path: Path) -> None:
    runner = SmallRunner()
    async with _serving(runner, tmp_path) as path:
        os.kill(os.getpid(), signal.SIGHUP)
        await runner.reloaded.wait()
        assert await asyncio.to_thread(send_request, path, "status") == {"state": "running"}
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


async def test_operations_are_available_from_ready_to_stop(tmp_path: Path) -> None:
    async with _serving(SmallRunner(), tmp_path) as path:
        assert await asyncio.to_thread(send_request, path, "status") == {"state": "running"}
    with pytest.raises(NotRunning):
        send_request(path, "status")


async def test_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with _serving(SmallRunner(), tmp_path) as path:
        with pytest.raises(CannotStart, match=f"pid {os.getpid()}"):
            await _serve(SmallRunner(), tmp_path, {})
        assert await asyncio.to_thread(send_request, path, "status") == {"state": "running"}


async def test_error_of_the_runner_is_raised(tmp_path: Path) -> None:
    error = CannotStart("The port is taken.")
    with pytest.raises(ExceptionGroup) as raised:
        await _serve(SmallRunner(error), tmp_path, {})
    assert raised.value.exceptions == (error,)


# --- systemd ---------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
async def test_systemd_is_notified_of_start_status_and_stop(tmp_path: Path, abstract: bool) -> None:
    name = f"@holdfast-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if abstract else name)
        manager.settimeout(5)
        environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000"}
        async with _serving(SmallRunner(), tmp_path, **environ):
            said = [await asyncio.to_thread(manager.recv, 999) for _ in range(3)]
        said.append(manager.recv(999))
    assert said == [
        b"STATUS=Starting.",
        b"WATCHDOG=1",
        b"READY=1\nSTATUS=Answering.",
        b"STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000\nSTATUS=Stopping.",
    ]


async def test_watchdog_is_fed_twice_per_interval(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"}
        async with _serving(SmallRunner(), tmp_path, **environ):
            said: list[bytes] = []
            while said.count(b"WATCHDOG=1") < 3:
                said.append(await asyncio.to_thread(manager.recv, 999))
    assert SystemdNotifier(environ).watchdog_seconds == pytest.approx(0.01)


def test_missing_service_manager_is_ignored(tmp_path: Path) -> None:
    SystemdNotifier({}).notify("READY=1")
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")
    assert SystemdNotifier({"WATCHDOG_USEC": "soon"}).watchdog_seconds == 0


# --- terminals of other processes ------------------------------------------------------------


async def test_attached_terminal_sends_messages_and_shows_answers(tmp_path: Path) -> None:
    runner = SmallRunner()
    async with _serving(runner, tmp_path) as path:
        one, two = await open_stream(path, "chat"), await open_stream(path, "chat", chat=CHAT)
        await one.write({"say": "hello", "id": "c_1"})
        first = {await _frame(one), await _frame(one)}
        assert first == {
            AnswerFrame(item="c_1", text="You said hello.", replaces=True),
            InputStored("c_1"),
        }
        await two.write({"say": "hi", "id": "c_2"})
        assert await _frame(one) == UserFrame("hi")
        assert await _frame(one) == AnswerFrame(item="c_2", text="You said hi.", replaces=True)
        assert runner.heard == ["hello", "hi"]
        await one.close()
        await two.close()


async def test_terminal_at_end_of_input_gets_all_answers_before_the_end(
    tmp_path: Path,
) -> None:
    async with _serving(SmallRunner(), tmp_path) as path:
        wire = await open_stream(path, "chat")
        await wire.write({"say": "hello", "id": "c_1"})
        await wire.write({"end": True})
        first = {await _frame(wire), await _frame(wire)}
        assert first == {
            AnswerFrame(item="c_1", text="You said hello.", replaces=True),
            InputStored("c_1"),
        }
        assert await _frame(wire) == ChatFinished()
        assert await wire.read() is None
        await wire.close()


@pytest.mark.parametrize("said", [b"hello\n", b'{"say": 7}\n'])
async def test_invalid_input_ends_only_its_own_stream(tmp_path: Path, said: bytes) -> None:
    async with _serving(SmallRunner(), tmp_path) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"do": "chat"}\n' + said)
        assert b'"error"' in await reader.readline()
        writer.close()
        assert await asyncio.to_thread(send_request, path, "status") == {"state": "running"}


async def test_chat_without_a_name_is_refused(tmp_path: Path) -> None:
    async with _serving(SmallRunner(), tmp_path) as path:
        wire = await open_stream(path, "chat", chat="")
        assert b"needs a name" in (await wire.read() or b"")
        await wire.close()


# --- exit codes ------------------------------------------------------------------------------


def _raising(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_known_errors_are_printed_with_their_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: None) == 0
    assert (
        run_to_exit_code(_raising(ConfigError("http.port is wrong", "model.nam is unknown"))) == 78
    )
    assert capsys.readouterr().err == (
        "holdfast: http.port is wrong\nholdfast: model.nam is unknown\n"
    )
    group = BaseExceptionGroup(
        "", [ValueError("a consequence"), ExceptionGroup("", [CannotStart("The port is taken.")])]
    )
    assert run_to_exit_code(_raising(group)) == 1
    assert capsys.readouterr().err == "holdfast: The port is taken.\n"
    assert run_to_exit_code(_raising(KeyboardInterrupt())) == INTERRUPTED_EXIT_CODE


def test_unexpected_error_is_one_line_with_a_logged_traceback(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    error = ExceptionGroup("", [ZeroDivisionError("division by zero\nat night")])
    with pytest.raises(ExceptionGroup) as raised:
        run_to_exit_code(_raising(error))
    assert raised.value is error
    with caplog.at_level(logging.CRITICAL):
        report_crash(type(error), error)
    assert capsys.readouterr().err.endswith(
        "holdfast: ended by an internal error: ZeroDivisionError: division by zero\n"
    )
    assert caplog.records[0].exc_info
    report_crash(ValueError, ValueError("bad"))
    assert capsys.readouterr().err.endswith("ValueError: bad\n")
