"""Turns that a user, a crash or a broken store interrupts."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.turns.crash_recovery import CRASHED_READ, CRASHED_UNKNOWN
from gateway.turns.journal import STOPPED_RUNNING
from platforms.core.contract import Accepted, Address, InboundMessage, Live, Sender, Text
from sessions.changes import SetSession
from sessions.conversation.actor import EventNotHandled
from sessions.records import InboxEntry, InboxState, Message, SessionReason, SessionState
from sessions.settings import SessionSettings
from sessions.store.store import SessionStore
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, opened, talkative
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import TimerClock

pytestmark = pytest.mark.quick

CHAT = "7"


class Bank:
    """A tool whose effects are counted and can be delayed."""

    def __init__(self, risk: Risk = Risk.WRITE) -> None:
        self.paid: list[int] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.tool = self._tool(risk)

    def _tool(self, risk: Risk) -> Tool:
        @tool(risk=risk, label="amount")
        async def pay(context: ToolContext, amount: int) -> str:  # noqa: ARG001 - every tool has one
            """Pay an amount.

            Args:
                context: Not part of the call.
                amount: How much.
            """
            self.paid.append(amount)
            self.begun.set()
            await self.gate.wait()
            return f"paid {amount}"

        return pay


PAY = 'H T"Paying now." C(0,c1,pay,{"amount":5}) F tool_calls U D'


def first(script: str) -> Callable[[dict[str, object]], Script]:
    scripts = iter([script])

    def answer(body: dict[str, object]) -> Script:
        return next(scripts, None) or talkative(body)

    return answer


async def history(home: Path) -> list[Message]:
    async with opened(home) as store:
        sessions = await store.sessions.list(key=f"memory:{CHAT}")
        return list(await store.sessions.history(sessions[-1].id))


async def test_a_stop_names_the_tool_that_was_running_and_closes_its_call(tmp_path: Path) -> None:
    bank = Bank()
    async with (
        ModelServer(first(PAY)) as model,
        gateway(tmp_path, model, tools=(bank.tool,)) as kit,
    ):
        await kit.screen.say(CHAT, "pay 5")
        async with asyncio.timeout(5):
            await bank.begun.wait()
        await kit.screen.say(CHAT, "/stop")
        await kit.screen.shows(CHAT, "pay was running and may have taken effect.")
        await kit.screen.shows(CHAT, "Paying now.")
    rows = await history(tmp_path)
    assert [row.role for row in rows] == ["user", "assistant", "tool"]
    assert rows[2].content == STOPPED_RUNNING
    assert bank.paid == [5]


@pytest.mark.parametrize(
    ("risk", "result"),
    [
        pytest.param(Risk.WRITE, CRASHED_UNKNOWN, id="side effect"),
        pytest.param(Risk.READ, CRASHED_READ, id="read only"),
    ],
)
async def test_a_crash_during_a_tool_call_is_reported_and_the_call_never_repeated(
    tmp_path: Path, risk: Risk, result: str
) -> None:
    bank, screen = Bank(risk), Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(first(PAY)) as model:
        async with gateway(tmp_path, model, screen, tools=(bank.tool,)) as kit:
            await screen.say(CHAT, "pay 5")
            async with asyncio.timeout(5):
                await bank.begun.wait()
            await kit.crash()
        async with gateway(tmp_path, model, screen, tools=(bank.tool,)):
            told = await screen.shows(CHAT, "♻️ I was restarted", "Paying now.")
            (notice,) = (each.text for each in told if "restarted" in each.text)
            # A tool that only reads has no effect to check.
            assert ("pay({" in notice and "don't know" in notice) is (risk is Risk.WRITE)
            await screen.say(CHAT, "/resume")
            await screen.shows(CHAT, "↩️ Back")
            await screen.say(CHAT, "and?")
            await screen.shows(CHAT, "echo: and?")
    rows = await history(tmp_path)
    assert [row.role for row in rows] == ["user", "assistant", "tool", "user", "assistant"]
    assert rows[2].content == result
    assert bank.paid == [5]


async def test_a_command_stored_before_a_crash_runs_after_the_crash(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.NONE)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            store, answered = await _answer_one_message(kit)
            await store.accept(_command(answered, "/new", "memory:1001"))
            await store.accept(_command(answered, "/stop", "memory:666"))
        async with gateway(tmp_path, model, screen):
            await screen.shows(CHAT, "🆕 New conversation.")
    async with opened(tmp_path) as store:
        assert await store.inbox.pending_commands() == ()
        (session,) = await store.sessions.list()
        assert session.reason is SessionReason.NEW


async def test_a_stop_stored_before_a_crash_does_not_stop_later_messages(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.NONE)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            store, answered = await _answer_one_message(kit)
            await store.accept(_command(answered, "/new", "memory:1001"))
            said = _command(answered, "and this?", "memory:1001")
            await store.accept(msgspec.structs.replace(said, state=InboxState.WAITING))
        async with gateway(tmp_path, model, screen):
            await screen.shows(CHAT, "🆕 New conversation.", "echo: and this?")


async def _answer_one_message(kit: GatewayKit) -> tuple[SessionStore, InboxEntry]:
    """Return the store, and the inbox entry of a message that was answered."""
    await kit.screen.say(CHAT, "before")
    await kit.screen.shows(CHAT, "echo: before")
    store = kit.runner._store
    assert store
    (trace,) = await store.trace(f"memory:{CHAT}")
    return store, trace.entry


def _command(like: InboxEntry, text: str, sender: str) -> InboxEntry:
    name = sender.partition(":")[2]
    event = InboundMessage(
        text,
        2**50,
        address=Address("memory", CHAT),
        sender=Sender(name),
        parts=(Text(text),),
        direct=True,
    )
    return msgspec.structs.replace(
        like,
        id=f"i_{text}",
        event=text,
        state=InboxState.COMMAND,
        payload=msgspec.json.encode(event),
        turn_id=None,
        session_id=None,
    )


async def test_an_answer_that_cannot_be_stored_waits_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with (
        ModelServer(first('H W.3 T"at last" F stop D')) as model,
        gateway(tmp_path, model) as kit,
    ):
        store = kit.runner._store
        assert store
        await store.database.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 50"))
        await kit.screen.say(CHAT, "go")
        async with asyncio.timeout(5):
            await model.request(1)
        with locked(tmp_path / "holdfast.db"):
            async with asyncio.timeout(5):
                await model.requests[0].answered.wait()
            (problem,) = await kit.runner.condition.problems()
            assert problem.startswith("store: ")
        await kit.screen.shows(CHAT, "at last")
        assert await kit.runner.condition.problems() == []


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the database lock, as another process would."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


class LaterClock(TimerClock):
    """A clock set forward."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


async def test_an_idle_conversation_starts_a_new_session(tmp_path: Path) -> None:
    clock = LaterClock()
    settings = SessionSettings(reset="idle", idle_minutes=30)
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, sessions=settings, clock=clock) as kit,
    ):
        await kit.screen.say(CHAT, "first")
        await kit.screen.shows(CHAT, "echo: first")
        clock.ahead = 31 * 60_000
        await kit.screen.say(CHAT, "second")
        await kit.screen.shows(
            CHAT, "🆕 New conversation, because the previous one was inactive", "second"
        )
        assert await kit.asked(2) == [{"role": "user", "content": "second"}]
    async with opened(tmp_path) as store:
        newest, oldest = await store.sessions.list()
        assert (oldest.state, oldest.reason) == (SessionState.CLOSED, SessionReason.IDLE)
        assert newest.state is SessionState.ACTIVE


async def test_an_old_session_can_be_deleted_while_another_is_active(tmp_path: Path) -> None:
    async with ModelServer(lambda _: words("fine")) as model, gateway(tmp_path, model) as kit:
        store = kit.runner._store
        assert store
        await kit.screen.say(CHAT, "one")
        await kit.screen.shows(CHAT, "fine")
        (session,) = await store.sessions.list()
        await store.apply(SetSession(session.id, SessionState.SUSPENDED, SessionReason.STOP, 1))
        do = kit.runner.operations
        assert await do["delete"](session=session.id) == {"id": session.id, "state": "closed"}
        with pytest.raises(Exception, match="only a suspended session"):
            await do["resume"](session=session.id)


async def test_a_stored_message_without_a_turn_is_answered_on_redelivery(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen, store = kit.screen, kit.runner._store
        assert store
        await screen.say(CHAT, "hello")
        await screen.shows(CHAT, "echo: hello")
        (seen,) = await store.trace(f"memory:{CHAT}")
        lost = msgspec.structs.replace(
            _command(seen.entry, "lost words", "memory:1001"),
            event="lost",
            state=InboxState.WAITING,
        )
        assert await store.accept(lost)  # the process dies before it announces the message
        for _ in range(3):
            await screen.say(CHAT, "lost words", event="lost")
        await screen.shows(CHAT, "echo: lost words")
        await screen.say(CHAT, "lost words", event="lost")
        await screen.say(CHAT, "next")
        await screen.shows(CHAT, "echo: next")
    assert len(model.requests) == 3


async def test_a_resumed_turn_keeps_the_text_it_has_shown(tmp_path: Path) -> None:
    bank, screen = Bank(Risk.READ), Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    settings = SessionSettings(on_interrupted="resume")
    async with ModelServer(first(PAY)) as model:
        async with gateway(tmp_path, model, screen, tools=(bank.tool,), sessions=settings) as kit:
            await screen.say(CHAT, "pay 5")
            await screen.shows(CHAT, "Paying now.")
            async with asyncio.timeout(5):
                await bank.begun.wait()
            await kit.crash()
        async with gateway(tmp_path, model, screen, tools=(bank.tool,), sessions=settings):
            await screen.shows(CHAT, "Paying now.\n\necho: pay 5")
    assert len(screen.messages(CHAT)) == 1
    assert bank.paid == [5]


async def test_ignored_messages_are_deleted_after_a_week(tmp_path: Path) -> None:
    clock = LaterClock()
    screen = Screen(live=Live.NONE, clock=clock)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen, clock=clock):
            await screen.say("666", "let me in", sender=Sender("666", "Eve"))
            await screen.say(CHAT, "hello")
            await screen.shows(CHAT, "echo: hello")
        async with opened(tmp_path) as store:
            assert len(await store.trace("memory:666")) == 1
        clock.ahead = 8 * 86_400_000
        async with gateway(tmp_path, model, screen, clock=clock):
            await screen.say(CHAT, "again")
            await screen.shows(CHAT, "echo: again")
        async with opened(tmp_path) as store:
            assert await store.trace("memory:666") == ()
            assert len(await store.trace(f"memory:{CHAT}")) == 2


async def test_an_unreadable_conversation_does_not_delay_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    screen = Screen(live=Live.NONE)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            await screen.say(CHAT, "hello")
            await screen.shows(CHAT, "echo: hello")
            store = kit.runner._store
            assert store
            (seen,) = await store.trace(f"memory:{CHAT}")
            broken = msgspec.structs.replace(
                _command(seen.entry, "x", "memory:1001"), state=InboxState.WAITING, payload=b"{"
            )
            assert await store.accept(broken)
        async with gateway(tmp_path, model, screen) as kit:
            await screen.say("8", "fine here")
            await screen.shows("8", "echo: fine here")
            with pytest.raises(EventNotHandled):
                await kit.runner.operations["stop"](session=seen.entry.session_id)


async def test_a_failed_command_runs_when_it_is_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen, store = kit.screen, kit.runner._store
        assert store
        await screen.say(CHAT, "hello")
        await screen.shows(CHAT, "echo: hello")
        (seen,) = await store.trace(f"memory:{CHAT}")
        await store.accept(_command(seen.entry, "/whoami", "memory:1001"))  # the process dies here
        for _ in range(3):
            assert await screen.say(CHAT, "/whoami", event="/whoami") is Accepted.DUPLICATE
        await screen.shows(CHAT, "You are memory:1001")
        await screen.say(CHAT, "/undo", event="u1")
        await screen.say(CHAT, "/undo", event="u1")
        await screen.shows(CHAT, "↩️ Undone: I removed “hello”")
        await screen.say(CHAT, "next")
        await screen.shows(CHAT, "echo: next")
    shown = [message.text for message in screen.messages(CHAT)]
    assert sum("You are memory:1001" in text for text in shown) == 1
    assert not any("nothing to undo" in text for text in shown)


async def test_status_of_a_broken_conversation_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen, store = kit.screen, kit.runner._store
        assert store
        await screen.say("8", "hello")
        await screen.shows("8", "echo: hello")
        (seen,) = await store.trace("memory:8")
        broken = msgspec.structs.replace(
            _command(seen.entry, "x", "memory:1001"),
            key=f"memory:{CHAT}",
            state=InboxState.WAITING,
            payload=b"{",
        )
        await store.accept(broken)
        await screen.say(CHAT, "/status")
        await screen.shows(CHAT, "Sorry, that didn't work just now.")
