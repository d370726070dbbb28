"""A person who loses access: the running turn stops, queued messages go, open questions close."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gateway.access.settings import AccessSettings
from platforms.core.actions import ButtonAction, write_action
from platforms.core.contract import Accepted, Address, InboundMessage, Live, Sender, Text
from sessions.records import InboxEntry, InboxState, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.e2e.gateway_kit import PATIENCE, GatewayKit, Screen, gateway, opened, talkative
from tests.e2e.test_approval_requests import Machine, calling
from tests.e2e.test_reload import ChangeableConfig
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

EVE, CHIEF, ANN = Sender("666", "Eve"), Sender("9", "Chief"), Sender("1001", "Ann")
STOPPED = "no longer has access. I stopped working on “hang here”."
Revoke = Callable[[GatewayKit, ChangeableConfig], Awaitable[None]]


async def remove_line(kit: GatewayKit, config: ChangeableConfig) -> None:
    """Remove Eve from the configuration and reload."""
    config.change(access=AccessSettings(allow=("memory:1001",), admins=("memory:9",)))
    await kit.runner.operations["reload"]()


async def revoke_by_operator(kit: GatewayKit, _config: ChangeableConfig) -> None:
    """Run `holdfast pair revoke`."""
    await kit.runner.operations["pair_revoke"](principal="memory:666")


async def revoke_by_admin(kit: GatewayKit, _config: ChangeableConfig) -> None:
    """Send `/pair revoke` as an admin."""
    await kit.screen.say("9", "/pair revoke memory:666", sender=CHIEF)
    await kit.screen.shows("9", "🚫 memory:666 no longer has access.")


WAYS = [
    pytest.param(remove_line, id="a removed line and a reload"),
    pytest.param(revoke_by_operator, id="holdfast pair revoke"),
    pytest.param(revoke_by_admin, id="/pair revoke"),
]


def configured(model: ModelServer, revoke: Revoke) -> ChangeableConfig:
    """Return a configuration that lists Eve only if her line is removed later."""
    config = ChangeableConfig(model)
    listed = ("memory:666",) if revoke is remove_line else ()
    config.change(access=AccessSettings(allow=("memory:1001", *listed), admins=("memory:9",)))
    return config


async def let_in(kit: GatewayKit) -> None:
    """Pair Eve unless the configuration lists her."""
    await kit.screen.say("666", "/whoami", sender=EVE)
    shown = await kit.screen.until("666", lambda messages: len(messages) == 1)
    if "with this code: " in shown[0].text:
        code = shown[0].text.rpartition(" ")[2]
        await kit.runner.operations["pair_approve"](code=code)


async def say_in_thread(kit: GatewayKit, sender: Sender, text: str, event: str) -> Accepted:
    return await kit.screen.inject(
        InboundMessage(
            id=event,
            at=2**50,
            address=Address("memory", "room", "", "7"),
            sender=sender,
            parts=(Text(text),),
            addressed=True,
        )
    )


@pytest.mark.parametrize("revoke", WAYS)
async def test_lost_access_stops_the_turn_and_drops_queued_messages(
    tmp_path: Path, revoke: Revoke
) -> None:
    async with ModelServer(talkative) as model:
        config = configured(model, revoke)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await kit.screen.say("666", "hang here", sender=EVE)
            await kit.screen.shows("666", "so far")
            await kit.screen.say("666", "next", sender=EVE)
            await kit.screen.shows("666", "1 message is queued")
            await kit.screen.say("1001", "hang too", sender=ANN)
            await kit.screen.shows("1001", "so far")
            await revoke(kit, config)
            await kit.screen.shows("666", f"{STOPPED} 1 queued message was dropped.")
            running = kit.conversations.pool.running_turns()
            assert [turn.person for _, turn in running] == ["memory:1001"]
            assert await kit.screen.say("666", "/resume", sender=EVE) is Accepted.IGNORED
            assert await kit.screen.say("666", "/retry", sender=EVE) is Accepted.IGNORED
        assert len(model.requests) == 2
    async with opened(tmp_path) as store:
        rows = {row.entry.id: row for row in await store.trace("memory:666")}
        states = [(row.entry.state, row.turn and row.turn.state) for row in rows.values()]
        assert (InboxState.DONE, TurnState.STOPPED) in states
        assert not {InboxState.WAITING, InboxState.HELD} & {state for state, _ in states}


async def test_messages_that_cannot_be_dropped_at_first_are_dropped_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ModelServer(talkative) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await say_in_thread(kit, ANN, "hang here", "m1")
            await kit.screen.shows("room", "so far")
            await say_in_thread(kit, EVE, "and then", "m2")
            await kit.screen.shows("room", "1 message is queued")
            with refusing(tmp_path, "UPDATE OF state ON inbox"):
                await revoke_by_operator(kit, config)
                assert "the work of people without access was not stopped" in caplog.text
            await kit.screen.shows("room", "1 queued message was dropped")


@contextlib.contextmanager
def refusing(home: Path, change: str) -> Iterator[None]:
    """Make the database refuse a change within the block."""
    file = home / "holdfast.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(
            f"CREATE TRIGGER refused BEFORE {change} BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        try:
            yield
        finally:
            database.execute("DROP TRIGGER refused")


@pytest.mark.parametrize("revoke", WAYS)
async def test_lost_access_stops_a_side_question(tmp_path: Path, revoke: Revoke) -> None:
    async with ModelServer(talkative) as model:
        config = configured(model, revoke)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await kit.screen.say("1001", "/btw hang too", sender=ANN)
            anns = await model.request(1)
            await kit.screen.say("666", "/btw hang here", sender=EVE)
            request = await model.request(2)
            await revoke(kit, config)
            async with asyncio.timeout(PATIENCE):
                await request.closed.wait()
            assert not anns.closed.is_set()
            shown = len(kit.screen.messages("666"))
            await kit.screen.say("1001", "/btw hello", sender=ANN)
            await kit.screen.shows("1001", "echo: hello")
            assert len(kit.screen.messages("666")) == shown
    async with opened(tmp_path) as store:
        states = {row.entry.state for row in await store.trace("memory:666")}
    assert InboxState.WAITING not in states


async def test_other_people_in_the_conversation_are_answered(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await say_in_thread(kit, EVE, "hang here", "m1")
            await kit.screen.shows("room", "so far")
            await say_in_thread(kit, ANN, "hello", "m2")
            await say_in_thread(kit, EVE, "and then", "m3")
            await kit.screen.shows("room", "2 messages are queued")
            await revoke_by_operator(kit, config)
            await kit.screen.shows("room", STOPPED, "hello")
            async with opened(tmp_path) as store:
                (session,) = await store.sessions.list(key="memory:room:t=7")
                turns = await store.turns.of_session(session.id)
            assert [turn.person for turn in turns] == ["memory:666", "memory:1001"]
    assert "and then" not in str([request.body for request in model.requests])


async def test_an_admin_resumes_the_session_but_not_the_task_of_a_revoked_person(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await say_in_thread(kit, EVE, "hang here", "m1")
            await kit.screen.shows("room", "so far")
            await say_in_thread(kit, EVE, "held", "m2")
            await say_in_thread(kit, CHIEF, "/stop", "m3")
            await kit.screen.shows("room", "1 queued message is kept")
            async with opened(tmp_path) as store:
                (session,) = await store.sessions.list(key="memory:room:t=7")
                (turn,) = await store.turns.of_session(session.id)
            await revoke_by_operator(kit, config)
            await kit.screen.shows("room", "no longer has access. 1 queued message was dropped.")
            assert await say_in_thread(kit, EVE, "/resume", "m4") is Accepted.IGNORED
            await say_in_thread(kit, CHIEF, "/retry", "m5")
            await kit.screen.shows("room", "There's no message to run again.")
            await kit.screen.press("room", write_action(ButtonAction.RESUME, turn.id), sender=CHIEF)
            await say_in_thread(kit, CHIEF, "/resume", "m6")
            await kit.screen.shows("room", "↩️ Back in the earlier conversation")
            await say_in_thread(kit, CHIEF, "hello", "m7")
            await kit.screen.shows("room", "hello")
        assert len(model.requests) == 2


async def test_an_open_question_closes(tmp_path: Path) -> None:
    machine = Machine()
    async with ModelServer(calling()) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(
            tmp_path, model, settings=config(), reread=config, tools=(machine.tool,)
        ) as kit:
            await let_in(kit)
            await kit.screen.say("666", "tea, please", sender=EVE)
            await kit.screen.shows("666", "An admin has to answer")
            await kit.screen.shows("9", "/approve ")
            await revoke_by_operator(kit, config)
            await kit.screen.shows("9", "⏹ The task has ended, so it does not run.")
            await kit.screen.say("9", "/approve", sender=CHIEF)
            await kit.screen.shows("9", "There's no open question here.")
    assert machine.ran == []


@pytest.mark.parametrize("on_interrupted", ["suspend", "resume"])
async def test_access_lost_while_the_gateway_was_stopped_counts_at_the_next_start(
    tmp_path: Path, on_interrupted: str
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model:
        config = configured(model, remove_line)
        sessions = type(config().sessions)(on_interrupted=on_interrupted)  # type: ignore[arg-type]  # one of the two allowed words
        config.change(sessions=sessions)
        async with gateway(tmp_path, model, screen, settings=config()) as kit:
            await kit.screen.say("666", "hang here", sender=EVE)
            await kit.screen.shows("666", "so far")
            await kit.screen.say("666", "next", sender=EVE)
            await kit.screen.shows("666", "1 message is queued")
            await kit.crash()
        config.change(access=AccessSettings(allow=("memory:1001",)))
        async with gateway(tmp_path, model, screen, settings=config()) as kit:
            await kit.screen.shows("666", "I was restarted", "1 queued message was dropped.")
            await kit.screen.say("1001", "hello", sender=ANN)
            await kit.screen.shows("1001", "echo: hello")
        assert len(model.requests) == 2
    async with opened(tmp_path) as store:
        states = {row.entry.state for row in await store.trace("memory:666")}
        assert not {InboxState.WAITING, InboxState.HELD, InboxState.RUNNING} & states


def answering_late(body: dict[str, object]) -> Script:
    """Answer a side question slowly."""
    return words("It is very late by now", 0.1) if "on the side" in str(body) else talkative(body)


async def test_a_side_question_of_a_revoked_person_gets_no_answer(tmp_path: Path) -> None:
    async with ModelServer(answering_late) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)
            await kit.screen.say("666", "/btw what time is it", sender=EVE, event="side")
            await kit.asked(1)
            await revoke_by_operator(kit, config)
            async with opened(tmp_path) as store, asyncio.timeout(PATIENCE):
                state = InboxState.COMMAND
                while state is InboxState.COMMAND:
                    await asyncio.sleep(0.05)
                    row = await store.inbox.find("memory@:666", "side")
                    state = row.state if row else state
            assert state is InboxState.IGNORED
            assert "late" not in str(kit.screen.screen("666"))


async def test_a_damaged_message_does_not_prevent_the_start(tmp_path: Path) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            await kit.screen.say("1001", "hang here", sender=ANN)
            await kit.screen.shows("1001", "so far")
            await kit.screen.say("1001", "next", sender=ANN, event="damaged")
            await kit.screen.shows("1001", "1 message is queued")
            await kit.crash()
        store = await SessionStore.open(
            f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock()
        )
        row = await store.inbox.find("memory@:1001", "damaged")
        assert row
        await store.replace_payload(row.id, b"{}")
        await store.close()
        async with gateway(tmp_path, model, screen) as kit:
            await kit.screen.say("5", "hello", sender=ANN)
            await kit.screen.shows("5", "echo: hello")


async def test_a_message_stored_while_access_is_revoked_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = SessionStore.accept
    async with ModelServer(talkative) as model:
        config = configured(model, revoke_by_operator)
        async with gateway(tmp_path, model, settings=config(), reread=config) as kit:
            await let_in(kit)

            async def accept_and_revoke(store: SessionStore, entry: InboxEntry) -> bool:
                accepted = await accept(store, entry)
                assert kit.runner._open
                await kit.runner._open.people.revoke("memory:666")
                return accepted

            monkeypatch.setattr(SessionStore, "accept", accept_and_revoke)
            assert await kit.screen.say("666", "hello", sender=EVE) is Accepted.IGNORED
            monkeypatch.undo()
            await kit.screen.say("1001", "hello", sender=ANN)
            await kit.screen.shows("1001", "echo: hello")
        assert len(model.requests) == 1
