"""The actor: recovery of interrupted turns, and damaged conversations."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from sessions.changes import Change, EndTurn, OpenSession, SetSession, StartTurn
from sessions.conversation.actor import (
    Actor,
    ActorServices,
    EventNotHandled,
    PreparedTurn,
)
from sessions.conversation.events import (
    CommandContext,
    ConversationState,
    Event,
    Interruption,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    StartWaiting,
    TurnCrashed,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.expiry import ExpiryPolicy
from sessions.records import (
    InboxEntry,
    InboxState,
    Message,
    SessionReason,
    SessionState,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.contract.store_kit import damage, damage_tables

KEY = "web:a"
THERE = Address("web", "a")


class RecordingHost:
    """A host that records recovered turns; the payload of a message is its sender."""

    def __init__(self) -> None:
        self.found: list[RunningTurn] = []
        self.said: list[SendNotice] = []

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        person = (entry.payload or b"").decode()
        return PendingMessage(
            id=entry.id, address=entry.address, person=person, message=Message("user", "hello")
        )

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        msg = "no turn starts in these tests"
        raise NotImplementedError(msg)

    async def recover_turn(
        self, turn: Turn, running: RunningTurn, *, repeatable: bool
    ) -> TurnCrashed:
        self.found.append(running)
        return TurnCrashed(
            turn=running,
            changes=(),
            interruption=Interruption(request="go", minutes=0),
            resume=False,
        )

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        self.said += says
        return ()

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        pass


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock())
    yield store
    await store.close()


async def load_conversation(store: SessionStore) -> tuple[RecordingHost, ConversationState]:
    """Load the conversation from the store; return its state."""
    host = RecordingHost()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        state = await handled_state(make_actor(store, host, tasks), StartWaiting())
    return host, state


def make_actor(store: SessionStore, host: RecordingHost, tasks: asyncio.TaskGroup) -> Actor:
    clock = SystemClock()
    shared = ActorServices(
        store=store,
        host=host,
        clock=clock,
        ids=Ids(clock),
        expiry_policy=ExpiryPolicy,
        queue_limit=lambda: 20,
        tasks=tasks,
    )
    return Actor(KEY, shared, draining=lambda: False, on_idle=lambda: None)


async def handled_state(actor: Actor, event: Event) -> ConversationState:
    handled: asyncio.Future[ConversationState] = asyncio.get_running_loop().create_future()
    actor.post(event, handled)
    return await handled


@pytest.mark.parametrize(
    ("kept", "sent_by", "expected"),
    [
        pytest.param("web:ann", None, "web:ann", id="turn with a stored person and no message"),
        pytest.param(
            "web:ann", "web:bob", "web:ann", id="turn joined by a message of another person"
        ),
        pytest.param(
            "", "web:bob", "web:bob", id="turn of an older version without a stored person"
        ),
        pytest.param("", None, "", id="neither person nor message"),
    ],
)
async def test_an_interrupted_turn_keeps_its_requester(
    store: SessionStore, kept: str, sent_by: str | None, expected: str
) -> None:
    if sent_by:
        waiting = InboxEntry(
            id="i1",
            source="web",
            event="1",
            key=KEY,
            address=THERE,
            state=InboxState.WAITING,
            payload=sent_by.encode(),
            received_at=1,
        )
        await store.accept(waiting)
    rows = ("i1",) if sent_by else ()
    await store.apply(
        OpenSession("s1", KEY, THERE, 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address=THERE,
            inbox=rows,
            messages=(),
            request="hello",
            at=1,
            person=kept,
        ),
    )
    host, state = await load_conversation(store)
    assert [turn.person for turn in host.found] == [expected]
    assert state.person == expected


async def test_two_interrupted_turns_keep_their_own_requesters(store: SessionStore) -> None:
    await store.apply(
        OpenSession("s1", KEY, THERE, 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address=THERE,
            inbox=(),
            messages=(),
            request="hello",
            at=1,
            person="web:ann",
        ),
        SetSession("s1", SessionState.CLOSED, SessionReason.NEW, 2),
        OpenSession("s2", KEY, THERE, 3),
        StartTurn(
            id="t2",
            session_id="s2",
            key=KEY,
            address=THERE,
            inbox=(),
            messages=(),
            request="hello",
            at=3,
            person="web:bob",
        ),
    )
    host, state = await load_conversation(store)
    assert [turn.person for turn in host.found] == ["web:ann", "web:bob"]
    assert state.person == "web:bob"


async def test_damage_is_reported_to_the_requester_and_not_retried(
    tmp_path: Path,
) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await store.accept(_received("i1", InboxState.WAITING, b"x" * 5_000 + b"mark" + b"x" * 13_000))
    await store.apply(
        OpenSession("s1", KEY, THERE, 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address=THERE,
            inbox=("i1",),
            messages=(),
            request="hello",
            at=1,
            person="web:ann",
        ),
        EndTurn("t1", TurnState.DONE, 2),
    )
    await store.close()
    damage(file, b"mark")
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    try:
        await store.accept(_received("i2", InboxState.COMMAND, b"/undo"))
        host = RecordingHost()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            actor = make_actor(store, host, tasks)
            with pytest.raises(EventNotHandled):
                await handled_state(
                    actor,
                    UndoTurn(CommandContext(address=THERE, person="web:ann", inbox="i2"), None),
                )
            assert [(say.notice, say.address) for say in host.said] == [("damaged.here", THERE)]
            done = await store.inbox.find("web", "event of i2")
            assert done
            assert done.state is InboxState.DONE
            await handled_state(actor, StartWaiting())  # other events are still handled
    finally:
        await store.close()


async def test_a_message_that_waits_in_a_damaged_conversation_gets_a_notice_at_the_start(
    tmp_path: Path,
) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await store.accept(_received("i1", InboxState.WAITING, b"web:ann"))
    await store.apply(OpenSession("s1", KEY, THERE, 1))
    await store.close()
    damage_tables(file, "sessions", "ux_sessions_active", "ix_sessions_key")
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    try:
        host = RecordingHost()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            with pytest.raises(EventNotHandled):
                await handled_state(make_actor(store, host, tasks), StartWaiting())
        assert [(say.notice, say.address) for say in host.said] == [("damaged.here", THERE)]
    finally:
        await store.close()


def _received(id_: str, state: InboxState, payload: bytes) -> InboxEntry:
    return InboxEntry(
        id=id_,
        source="web",
        event=f"event of {id_}",
        key=KEY,
        address=THERE,
        state=state,
        payload=payload,
        received_at=1,
    )


async def test_an_event_after_the_end_of_the_task_group_is_refused(store: SessionStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        actor = make_actor(store, RecordingHost(), tasks)
    with pytest.raises(EventNotHandled):
        await handled_state(actor, StartWaiting())
    gc.collect()  # a coroutine that is never awaited would be reported here


class StartingHost(RecordingHost):
    """A host whose turns start."""

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        return PreparedTurn(changes=(), create=lambda _post: UnusedTurn())


class UnusedTurn:
    """A turn that must not run."""

    async def run(self) -> TurnEnded:
        raise NotImplementedError

    def abort(self, cause: str) -> tuple[Change, ...]:
        raise NotImplementedError

    def end_after_crash(self, error: Exception) -> TurnEnded:
        raise NotImplementedError

    def partial_text(self) -> str:
        raise NotImplementedError

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        raise NotImplementedError


class GroupWithoutTurns(asyncio.TaskGroup):
    """A group that begins to end while an actor handles an event."""

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if str(options.get("name")).startswith("turn "):
            msg = "the group is shutting down"
            raise RuntimeError(msg)
        return super().create_task(coro, **options)


async def test_a_turn_that_cannot_start_any_more_stays_in_the_journal(
    store: SessionStore,
) -> None:
    await store.accept(_received("i1", InboxState.WAITING, b"web:ann"))
    host = StartingHost()
    async with asyncio.timeout(5), GroupWithoutTurns() as tasks:
        actor = make_actor(store, host, tasks)
        await handled_state(actor, StartWaiting())
        with pytest.raises(EventNotHandled):
            await handled_state(actor, StartWaiting())
        assert not actor.is_busy
        assert actor.running_turn is None
    gc.collect()  # a coroutine that is never awaited would be reported here
    assert [turn.key for turn in await store.turns.running()] == [KEY]
