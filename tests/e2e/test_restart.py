"""Restarts inside one process: reports to the requesters, refusals, safe mode."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.config.loader import read_environment
from gateway.process.control_socket import Operation
from gateway.process.restart import RestartRefused
from gateway.process.successor import Successor
from gateway.settings import GatewaySettings, Settings
from platforms.core.contract import Address, InboundMessage, Inbox, Live, Sender, Text
from sessions.settings import SessionSettings
from tests.e2e.gateway_kit import PATIENCE, GatewayKit, Screen, gateway, opened, talkative
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHIEF, OTHER, ANN = "9", "8", "1001"
ADMINS = ("memory:9", "memory:8")
BACK = "✅ Back after"


def new_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


def successor_script(folder: Path, text: str = "exit 0") -> Successor:
    """Return the next program: a shell script that answers the check."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Successor((str(path), "run"), read_environment())


def drains(seconds: float) -> dict[str, Any]:
    return {"gateway": GatewaySettings(drain_seconds=seconds)}


@contextlib.asynccontextmanager
async def kit(
    folder: Path, model: ModelServer, screen: Screen, says: str = "exit 0", **more: Any
) -> AsyncIterator[GatewayKit]:
    options: dict[str, Any] = {
        "admins": ADMINS,
        "successor": successor_script(folder, says),
        "served": False,
        **drains(0.05),
        **more,
    }
    async with gateway(folder / "home", model, screen, **options) as running:
        yield running


async def says(kit: GatewayKit, chat: str, text: str) -> None:
    await kit.screen.say(chat, text, sender=Sender(chat, f"Person {chat}"))


async def hangs(kit: GatewayKit, chat: str = ANN) -> None:
    """Start a turn that does not end."""
    await says(kit, chat, "hang here")
    await kit.screen.shows(chat, "so far")


def texts(screen: Screen, chat: str, part: str) -> list[str]:
    return [each.text for each in screen.messages(chat) if part in each.text]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(talkative) as server:
        yield server


# --- requested in a chat --------------------------------------------------------------------------


async def test_requester_gets_start_and_end_of_a_restart_and_others_only_their_interruption(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await first.ended()
        assert first.runner.restarting.is_set()
    (told,) = texts(screen, CHIEF, "🔄 Restarting.")
    async with kit(tmp_path, model, screen) as second:
        await screen.shows(ANN, "♻️ I was restarted while working on “hang here”")
        await screen.shows(CHIEF, BACK)
        await says(second, CHIEF, "and now")
        await screen.shows(CHIEF, "echo: and now")
    async with kit(tmp_path, model, screen) as third:
        await says(third, CHIEF, "once more")
        await screen.shows(CHIEF, "echo: once more")
    (told,) = texts(screen, CHIEF, BACK)
    assert "1 task was interrupted.\n· memory:1001: “hang here” (under 1 min)" in told
    assert len(texts(screen, CHIEF, "Restarting")) == 1
    assert not texts(screen, ANN, BACK)
    assert len(texts(screen, ANN, "♻️")) == 1


async def test_report_in_a_room_does_not_quote_requests_of_others(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        asked = InboundMessage(
            "e_1", 0, address=Address("memory", "-100"), sender=Sender(CHIEF, "Chief"), parts=(Text("/restart"),),
            direct=False, addressed=True,
        )  # fmt: skip
        await screen.inject(asked)
        await first.ended()
    async with kit(tmp_path, model, screen):
        (told,) = [each.text for each in await screen.shows("-100", BACK) if BACK in each.text]
    assert told.endswith("1 task was interrupted.")


async def test_only_admins_can_restart(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await says(first, ANN, "/restart")
        await screen.shows(ANN, "Only an admin can do that.")
        assert not first.runner.stopping.is_set()


async def test_all_requesters_get_a_report_and_messages_are_answered_afterwards(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, **drains(60)) as first:
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "🔄 Restarting. 1 task is finishing first, for 60 s at most.")
        await says(first, OTHER, "/restart")
        await screen.shows(
            OTHER, "I'm already restarting, and I'll tell you when I'm back. 1 task is still"
        )
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "already restarting")
        await says(first, OTHER, "a question")
        await screen.shows(OTHER, "Your message is saved, and I'll answer it right after.")
        assert await first.runner.condition.problems() == [
            "gateway: restarting, no new turns begin"
        ]
        first.runner.skip_drain.set()
        await first.ended()
    async with kit(tmp_path, model, screen):
        await screen.shows(OTHER, BACK, "echo: a question")
        await screen.shows(CHIEF, BACK)
    assert len(texts(screen, OTHER, BACK)) == len(texts(screen, CHIEF, BACK)) == 1


class LateScreen(Screen):
    """A platform that connects when it is told to."""

    gate: asyncio.Event | None = None

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        if self.gate:
            await self.gate.wait()
        await super().run(inbox, ready)


async def test_report_stands_before_the_answers_of_a_platform_that_connects_late(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = LateScreen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with kit(tmp_path, model, screen, **drains(60)) as first:
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "🔄 Restarting. 1 task is finishing first, for 60 s at most.")
        await says(first, CHIEF, "a question")
        await screen.shows(CHIEF, "Your message is saved, and I'll answer it right after.")
        await says(first, CHIEF, "another one")
        first.runner.skip_drain.set()
        await first.ended()
    gate = screen.gate = asyncio.Event()

    async def connect_after_the_answer() -> None:
        await model.request(3)  # the second question, so the answer to the first is stored
        gate.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(connect_after_the_answer())
        async with kit(tmp_path, model, screen):
            await screen.shows(CHIEF, BACK, "echo: a question", "echo: another one")
    report, *answers = [each.text for each in screen.messages(CHIEF)][-3:]
    assert BACK in report
    assert answers == ["echo: a question", "echo: another one"]


async def test_restart_uses_reloaded_settings(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    resumes: dict[str, Any] = {"sessions": SessionSettings(on_interrupted="resume")}
    written: list[Settings] = []
    async with kit(tmp_path, model, screen, reread=written.pop) as first:
        written.append(replace(first.runner._settings, **resumes, **drains(60)))
        await operation(first, "reload")()
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "1 task is finishing first, for 60 s at most.")
        first.runner.skip_drain.set()
        await first.ended()
    async with kit(tmp_path, model, screen, **resumes):
        await screen.shows(CHIEF, BACK)
    (told,) = texts(screen, CHIEF, BACK)
    assert "1 task was interrupted and resumed." in told


async def test_concurrent_requests_cause_one_restart(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        async with asyncio.TaskGroup() as both:
            both.create_task(says(first, CHIEF, "/restart"))
            both.create_task(says(first, OTHER, "/restart"))
        await first.ended()
    async with kit(tmp_path, model, screen):
        await screen.shows(CHIEF, BACK)
        await screen.shows(OTHER, BACK)


async def test_crash_during_a_restart_is_reported_once(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, **drains(60)) as first:
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "🔄 Restarting.")
        await first.crash()
    for _ in range(2):
        async with kit(tmp_path, model, screen) as next_one:
            await screen.shows(CHIEF, BACK)
            await next_one.crash()
    (told,) = texts(screen, CHIEF, BACK)
    assert "I did not shut down cleanly. 1 task was interrupted." in told


async def test_interrupted_report_is_shown_once(tmp_path: Path, model: ModelServer) -> None:
    """The process dies after the report is in the outbox, before it is recorded as sent."""
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await says(first, CHIEF, "/restart")
        await first.ended()
    async with opened(tmp_path / "home") as store:
        kept = await store.get_value("restart", "asked")
    async with kit(tmp_path, model, screen) as second:
        await screen.shows(CHIEF, BACK)
        assert second.runner._store
        await second.runner._store.put_value("restart", "asked", kept)
        await second.crash()
    async with kit(tmp_path, model, screen) as third:
        await says(third, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
    assert len(texts(screen, CHIEF, BACK)) == 1


async def test_restart_command_to_a_dead_process_does_not_restart_the_next(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, "exec sleep 60") as first:
        await says(first, CHIEF, "/restart")
        await first.crash()
    async with kit(tmp_path, model, screen) as second:
        await screen.shows(CHIEF, "I started only a moment ago.")
        await says(second, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
        assert not second.runner.stopping.is_set()


async def test_restart_works_without_a_writable_store(tmp_path: Path, model: ModelServer) -> None:
    screen, line = new_screen(), tmp_path / "line"
    os.mkfifo(line)
    async with kit(tmp_path, model, screen, f"read x < {line}") as first:
        await says(first, CHIEF, "/restart")
        assert first.runner._store
        first.runner._store.database.stop()
        await asyncio.to_thread(line.write_text, "go on\n")
        await first.ended()
        assert first.runner.restarting.is_set()
    async with kit(tmp_path, model, screen) as second:
        await screen.shows(CHIEF, "I started only a moment ago.")
        await says(second, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
        assert not second.runner.stopping.is_set()


async def test_unreadable_restart_record_is_ignored(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        assert first.runner._store
        await first.runner._store.put_value("restart", "asked", "nonsense")
    async with kit(tmp_path, model, screen) as second:
        await says(second, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
    assert "the stored state of a restart cannot be read" in caplog.text


# --- refused --------------------------------------------------------------------------------------


async def test_failing_check_prevents_the_restart_and_interrupts_nothing(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    refuses = "echo 'holdfast: holdfast.toml:3: http.prot: unknown key' >&2; exit 78"
    async with kit(tmp_path, model, screen, refuses) as first:
        await hangs(first)
        await says(first, CHIEF, "/restart")
        await screen.shows(
            CHIEF,
            "⛔ I did not restart, and nothing was interrupted: "
            "holdfast.toml:3: http.prot: unknown key.",
        )
        with pytest.raises(RestartRefused, match="nothing was interrupted"):
            await operation(first, "restart")()
        assert first.runner.condition.running_turns() == 1  # still runs
        await says(first, CHIEF, "still there?")
        await screen.shows(CHIEF, "echo: still there?")


async def test_stopping_gateway_refuses_a_restart(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, **drains(60)) as first:
        await hangs(first)
        first.runner.stopping.set()
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "I'm being stopped, so I can't restart")
        with pytest.raises(RestartRefused, match="Holdfast is stopping"):
            await operation(first, "restart")()
        assert not first.runner.restarting.is_set()


async def test_stop_during_a_restart_wins_and_the_report_follows_at_the_next_start(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, **drains(60)) as first:
        await hangs(first)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(operation_result(first)) for _ in range(2)]
        told, again = (each.result() for each in asked)
        assert told["id"] == again["id"]  # both requests get one restart
        assert (await operation_result(first))["id"] == told["id"]
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "already restarting")
        first.runner.restarting.clear()  # as a signal does, see `gateway.process.service`
        await says(first, OTHER, "/restart")
        await screen.shows(OTHER, "I'm being stopped")
        state: Any = await operation(first, "restart_state")(restart=told["id"])
        assert state["state"] == "stopping"
        first.runner.skip_drain.set()
        await first.ended()
        assert not first.runner.restarting.is_set()
    async with kit(tmp_path, model, screen):
        await screen.shows(CHIEF, BACK)


async def test_gateway_in_a_terminal_cannot_be_restarted(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, successor=None) as first:
        await says(first, CHIEF, "/restart")
        await screen.shows(CHIEF, "This gateway runs in a terminal")
        with pytest.raises(RestartRefused, match="runs inside a terminal"):
            await operation(first, "restart")()


# --- requested by the command line ----------------------------------------------------------------


def operation(kit: GatewayKit, name: str) -> Operation:
    return kit.runner.operations[name]


async def operation_result(kit: GatewayKit) -> Any:
    return await operation(kit, "restart")()


async def until_state(kit: GatewayKit, id_: str, state: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            told: Any = await operation(kit, "restart_state")(restart=id_)
            if told["state"] == state:
                return told
            await asyncio.sleep(0.01)


async def test_idle_restart_waits_for_a_moment_without_turns(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        tasks: Any = await operation(first, "restart_list")()
        (task,) = tasks
        assert task["line"] == "memory:1001: “hang here” (under 1 min)"
        told: Any = await operation(first, "restart")(when_idle=30)
        assert (told["state"], told["seconds_left"]) == ("waiting", 1800)
        assert len(told["running"]) == 1
        again: Any = await operation(first, "restart")(when_idle=10)
        assert (again["id"], again["seconds_left"]) == (told["id"], 600)
        await hangs(first, CHIEF)
        await says(first, ANN, "/stop")
        await screen.shows(ANN, "⏹")
        assert not first.runner.stopping.is_set()
        await says(first, CHIEF, "/stop")
        await first.ended()
        assert first.runner.restarting.is_set()
    async with kit(tmp_path, model, screen) as second:
        state: Any = await operation(second, "restart_state")(restart=told["id"])
        assert (state["state"], state["lines"]) == ("back", [])
        assert state["before"] == state["after"]
    async with kit(tmp_path, model, screen) as third:  # the result stays available
        state = await operation(third, "restart_state")(restart=told["id"])
        assert state["state"] == "back"
        with pytest.raises(RestartRefused, match="No restart has the id"):
            await operation(third, "restart_state")(restart="r_none")
    assert not texts(screen, CHIEF, BACK)


async def test_a_restart_that_is_being_stored_is_not_taken_for_a_stop(
    tmp_path: Path, model: ModelServer
) -> None:
    async with kit(tmp_path, model, new_screen()) as first:
        file = tmp_path / "home/holdfast.db"
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # so that storing takes as long as this
            told: Any = await operation(first, "restart")(when_idle=30)
            async with asyncio.timeout(PATIENCE):
                while told["state"] == "waiting":
                    await asyncio.sleep(0.01)
                    told = await operation(first, "restart_state")(restart=told["id"])
            assert told["state"] == "draining"
            assert not first.runner.stopping.is_set()
            database.execute("ROLLBACK")
        await first.ended()
        assert first.runner.restarting.is_set()


async def test_idle_restart_gives_up_after_its_limit(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        told: Any = await operation(first, "restart")(when_idle=0.001)
        state = await until_state(first, told["id"], "gave_up")
        assert len(state["running"]) == 1
        assert not first.runner.stopping.is_set()
        later: Any = await operation(first, "restart")(when_idle=30)
        assert later["id"] != told["id"]
        called_off: Any = await operation(first, "restart_cancel")(restart=later["id"])
        assert called_off["state"] == "cancelled"
        await says(first, ANN, "/stop")
        await screen.shows(ANN, "⏹")
        await says(first, ANN, "hello")
        await screen.shows(ANN, "echo: hello")
        assert not first.runner.stopping.is_set()


async def test_idle_restart_checks_the_program_again(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        told: Any = await operation(first, "restart")(when_idle=30)
        successor_script(tmp_path, "echo 'holdfast: The disk is full.' >&2; exit 1")
        await says(first, ANN, "/stop")
        state = await until_state(first, told["id"], "refused")
        assert state["cause"] == "The disk is full."
        assert not first.runner.stopping.is_set()


async def test_idle_restart_joins_an_immediate_restart(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await hangs(first)
        told: Any = await operation(first, "restart")(when_idle=30)
        await says(first, CHIEF, "/restart")
        await first.ended()
    async with kit(tmp_path, model, screen) as second:
        state: Any = await operation(second, "restart_state")(restart=told["id"])
        assert (state["state"], len(state["lines"])) == ("back", 1)
        await screen.shows(CHIEF, BACK)


# --- safe mode ------------------------------------------------------------------------------------


async def test_safe_mode_has_no_tools_and_resumes_nothing(
    tmp_path: Path, model: ModelServer
) -> None:
    screen = new_screen()
    resumes: dict[str, Any] = {"sessions": SessionSettings(on_interrupted="resume")}
    async with kit(tmp_path, model, screen, **resumes) as first:
        await hangs(first)
        assert model.requests[0].body["tools"]
        await first.crash()
    async with kit(tmp_path, model, screen, crashes=3, **resumes) as careful:
        await screen.shows(ANN, "♻️ I was restarted while working on “hang here”")
        await screen.shows(CHIEF, "🛟 Safe mode: I crashed 3 times in a row", "/restart")
        assert len(model.requests) == 1
        await says(careful, ANN, "hello")
        await screen.shows(ANN, "echo: hello")
        assert "tools" not in model.requests[-1].body
        await says(careful, ANN, "/status")
        await says(careful, CHIEF, "/status")
        await screen.shows(CHIEF, "🛟 Safe mode after 3 crashes in a row")
        await screen.shows(ANN, "No active task")
        assert not texts(screen, ANN, "🛟")
        status: Any = await operation(careful, "status")()
        assert status["state"] == "running"
        assert status["safe_mode"].startswith("Safe mode after 3 crashes")
        assert await careful.runner.condition.problems() == []
        assert careful.runner.condition.mode() == status["safe_mode"]
        await careful.crash()
    async with kit(tmp_path, model, screen, crashes=4) as careful:
        await says(careful, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
        await says(careful, CHIEF, "/restart")
        await careful.ended()
    async with kit(tmp_path, model, screen) as usual:
        await screen.shows(CHIEF, "✅ Safe mode is over")
        await says(usual, ANN, "hello again")
        await screen.shows(ANN, "echo: hello again")
        assert model.requests[-1].body["tools"]
    async with kit(tmp_path, model, screen) as usual:
        await says(usual, CHIEF, "fine?")
        await screen.shows(CHIEF, "echo: fine?")
    assert len(texts(screen, CHIEF, "I crashed 3 times")) == 1
    assert len(texts(screen, CHIEF, "Safe mode is over")) == 1
    assert len(texts(screen, OTHER, "afe mode")) == 2


async def test_the_notice_of_safe_mode_and_its_record_are_stored_together(
    tmp_path: Path, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen) as first:
        await says(first, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
    file = tmp_path / "home" / "holdfast.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON shelves WHEN NEW.shelf = 'operators'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        async with kit(tmp_path, model, screen, crashes=3) as careful:
            await says(careful, ANN, "hello")
            await screen.shows(ANN, "echo: hello")
            assert "admin alerts not stored" in caplog.text
            assert database.execute(
                "SELECT count(*) FROM outbox WHERE CAST(body AS TEXT) LIKE '%Safe mode%'"
            ).fetchone() == (0,)
            database.execute("DROP TRIGGER refused")
            await screen.shows(CHIEF, "🛟 Safe mode")
            await careful.crash()
    async with kit(tmp_path, model, screen, crashes=4) as careful:
        await says(careful, CHIEF, "hello again")
        await screen.shows(CHIEF, "echo: hello again")
    assert len(texts(screen, CHIEF, "🛟 Safe mode")) == 1


async def test_pending_command_is_not_run_in_safe_mode(tmp_path: Path, model: ModelServer) -> None:
    screen = new_screen()
    async with kit(tmp_path, model, screen, "exec sleep 60") as first:
        await says(first, CHIEF, "/restart")
        await first.crash()
    async with kit(tmp_path, model, screen, crashes=3) as careful:
        await screen.shows(CHIEF, "Sorry, that didn't work just now.")
        assert not careful.runner.stopping.is_set()
    async with kit(tmp_path, model, screen) as usual:
        await says(usual, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")
    assert len(texts(screen, CHIEF, "that didn't work just now")) == 1
