"""`holdfast service restart` at the terminal: output, questions and waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import CannotStart, HoldfastError
from gateway.operate.cli import restarting
from gateway.operate.cli.restarting import (
    RestartNotFinished,
    confirm_restart,
    restart_daemon,
    running_pid,
    wait_until_idle,
)
from gateway.process.control_socket import NotRunning, Operation, serve_control_socket
from gateway.process.lock import hold_state_folder
from gateway.process.restart import RestartRefused

TASK = {"line": "pigeon:1001: “write a report” (3 min)"}
BACK = {
    "id": "r_1",
    "state": "back",
    "took_text": "4 s",
    "before": "1.0",
    "after": "1.0",
    "lines": [],
}

Row = dict[str, Any]


class Played:
    """A daemon stand-in that plays scripted states, repeating the last one."""

    def __init__(self, *states: Row, running: Sequence[list[Row]] = ([],)) -> None:
        self.states = list(states)
        self.running = list(running)
        self.asked: list[Row] = []
        self.cancelled = ""

    def table(self) -> dict[str, Operation]:
        return {
            "status": self._status,
            "restart": self._restart,
            "restart_list": self._list,
            "restart_state": self._state,
            "restart_cancel": self._cancel,
        }

    async def _status(self) -> Row:
        return {"pid": 4711}

    async def _list(self) -> list[Row]:
        return self.running.pop(0) if len(self.running) > 1 else self.running[0]

    async def _restart(self, when_idle: float | None = None) -> Row:
        self.asked.append({"when_idle": when_idle})
        return self._next()

    async def _state(self, restart: str) -> Row:
        assert restart == "r_1"
        return self._next()

    async def _cancel(self, restart: str) -> Row:
        self.cancelled = restart
        return self._next()

    def _next(self) -> Row:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def draining(*running: Row) -> Row:
    return {"id": "r_1", "state": "draining", "running": [*running], "drain_seconds": 5.0}


def waiting(*running: Row, seconds: int = 1800) -> Row:
    return {"id": "r_1", "state": "waiting", "running": [*running], "seconds_left": seconds}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(restarting, "POLL_SECONDS", 0.001)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@asynccontextmanager
async def daemon(home: Path, played: Played) -> AsyncIterator[None]:
    async with serve_control_socket(home / "control.sock", played.table()):
        yield


async def at_terminal(work: Callable[[], None]) -> HoldfastError | None:
    try:
        await asyncio.to_thread(work)
    except HoldfastError as error:
        return error
    return None


async def test_it_lists_interrupted_tasks_and_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = {
        **BACK,
        "after": "1.1",
        "lines": [TASK["line"]],
        "in_order": False,
        "careful": True,
    }
    played = Played(draining(TASK), draining(TASK), draining(), over, running=[[TASK]])
    async with daemon(tmp_path, played):
        assert await at_terminal(restart_daemon) is None
        assert await asyncio.to_thread(running_pid) == 4711
    assert played.asked == [{"when_idle": None}]
    assert capsys.readouterr().out.splitlines() == [
        "Running now, interrupted unless finished in time: 1 task.",
        "  · pigeon:1001: “write a report” (3 min)",
        "Restarting; waiting for 1 task.",
        "Restarting.",
        "Back after 4 s.",
        "Updated from version 1.0 to 1.1.",
        "Interrupted: 1 task.",
        "  · pigeon:1001: “write a report” (3 min)",
        "The shutdown was not clean. See the log.",
        "Holdfast is in safe mode; see: holdfast status",
    ]


async def test_when_idle_waits_and_shows_the_remaining_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = waiting(TASK), waiting(TASK, seconds=1790), waiting(TASK, seconds=60), draining(), BACK
    played = Played(*states, running=[[TASK]])
    async with daemon(tmp_path, played):
        assert await at_terminal(lambda: restart_daemon(30)) is None
    assert played.asked == [{"when_idle": 30}]
    assert capsys.readouterr().out.splitlines() == [
        "Waiting for 1 task to finish, 30 min left.",
        "Waiting for 1 task to finish, 1 min left.",
        "Restarting.",
        "Back after 4 s.",
    ]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (
            {**waiting(TASK), "state": "gave_up"},
            "tasks were running all the time (1 task now)",
        ),
        ({**waiting(), "state": "refused", "cause": "The disk is full."}, "The disk is full."),
        ({**waiting(), "state": "cancelled"}, "the restart was cancelled"),
        ({**draining(), "state": "stopping"}, "and is stopping"),
    ],
)
async def test_a_refused_restart_is_an_error(tmp_path: Path, end: Row, words: str) -> None:
    async with daemon(tmp_path, Played(waiting(TASK), end)):
        error = await at_terminal(lambda: restart_daemon(30))
    assert words in str(error)
    assert error
    assert error.exit_code == 1


async def test_it_waits_for_the_new_daemon_but_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = asyncio.Event()
    played = Played(draining())

    async def leave(when_idle: float | None = None) -> Row:
        assert when_idle is None
        gone.set()
        return draining()

    table = {**played.table(), "restart": leave}
    async with asyncio.TaskGroup() as group:
        async with serve_control_socket(tmp_path / "control.sock", table):
            waits = group.create_task(at_terminal(restart_daemon))
            await gone.wait()
        await asyncio.sleep(0.05)  # no daemon answers for a while
        async with daemon(tmp_path, Played(BACK)):
            assert await waits is None
        monkeypatch.setattr(restarting, "RESTART_TIMEOUT_SECONDS", -10.0)
        async with daemon(tmp_path, Played(draining())):
            assert isinstance(await at_terminal(restart_daemon), RestartNotFinished)


async def test_a_daemon_that_ends_while_waiting_is_not_awaited(
    tmp_path: Path,
) -> None:
    asked = asyncio.Event()

    async def wait(when_idle: float | None = None) -> Row:
        assert when_idle == 30
        asked.set()
        return waiting(TASK)

    async with asyncio.TaskGroup() as group:
        async with serve_control_socket(
            tmp_path / "control.sock", {**Played(waiting()).table(), "restart": wait}
        ):
            waits = group.create_task(at_terminal(lambda: restart_daemon(30)))
            await asked.wait()
        assert isinstance(await waits, CannotStart | RestartNotFinished)


async def test_a_restart_that_begins_between_two_looks_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = asyncio.Event()

    async def wait(when_idle: float | None = None) -> Row:
        assert when_idle == 30
        gone.set()
        return waiting()

    with hold_state_folder(
        tmp_path
    ):  # the process keeps the lock while it executes the new program
        async with asyncio.TaskGroup() as group:
            async with serve_control_socket(
                tmp_path / "control.sock", {**Played(waiting()).table(), "restart": wait}
            ):
                waits = group.create_task(at_terminal(lambda: restart_daemon(30)))
                await gone.wait()
            await asyncio.sleep(0.05)  # no daemon answers for a while
            async with daemon(tmp_path, Played(BACK)):
                assert await waits is None
    assert capsys.readouterr().out.splitlines()[-1] == "Back after 4 s."


async def test_without_a_daemon_there_is_nothing_to_restart() -> None:
    assert isinstance(await at_terminal(restart_daemon), NotRunning)
    assert running_pid() is None


# --- a person at the terminal -----------------------------------------------------------------


async def test_the_person_at_the_terminal_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    said: list[bool] = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("click.confirm", lambda _: said.pop())
    async with daemon(tmp_path, Played(BACK, running=[[TASK]])):
        said.append(False)
        error = await at_terminal(restart_daemon)
        assert isinstance(error, RestartRefused)
        assert "--when-idle" in str(error)
        said.append(True)
        assert await at_terminal(restart_daemon) is None
        assert await at_terminal(lambda: restart_daemon(assume_yes=True)) is None
    async with daemon(tmp_path, Played(BACK)):
        assert await at_terminal(restart_daemon) is None  # nothing runs
        assert await at_terminal(lambda: confirm_restart(assume_yes=False)) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [("cancelled", "Cancelled; nothing was restarted."), ("draining", "The restart continues.")],
)
async def test_ctrl_c_cancels_a_waiting_restart_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    state: str, words: str,
) -> None:  # fmt: skip
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    played = Played(waiting(TASK), {**waiting(TASK), "state": state})
    caught: list[str] = []

    def work() -> None:
        try:
            restart_daemon(30)
        except KeyboardInterrupt:
            caught.append("out")

    async with daemon(tmp_path, played):
        await at_terminal(work)
    assert caught == ["out"]
    assert played.cancelled == "r_1"
    assert capsys.readouterr().out.splitlines()[-1] == words


async def test_before_a_systemd_restart_the_command_waits_until_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with daemon(tmp_path, Played(BACK, running=[[TASK], [TASK], []])):
        assert await at_terminal(lambda: wait_until_idle(30)) is None
    assert capsys.readouterr().out == "Waiting for 1 task to finish, 30 min left.\n"
    async with daemon(tmp_path, Played(BACK, running=[[TASK]])):
        assert isinstance(await at_terminal(lambda: wait_until_idle(0)), RestartRefused)
