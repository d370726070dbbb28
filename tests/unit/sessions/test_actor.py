"""The owner of a conversation: what a dead process left, and what nobody can read any more."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from sessions.changes import Change, EndTurn, OpenSession, SetSession, StartTurn
from sessions.conversation.actor import Actor, ActorServices, EventNotHandled, TurnHandle
from sessions.conversation.events import (
    CommandContext,
    ConversationState,
    Event,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    StartWaiting,
    TurnCrashed,
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
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids
from tests.contract.store_kit import damage

KEY = "web:a"


class Witness:
    """Hands that note whose turn was wrecked; a message was sent by who stands in its payload."""

    def __init__(self) -> None:
        self.found: list[RunningTurn] = []
        self.said: list[SendNotice] = []

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        person = (entry.payload or b"").decode()
        return PendingMessage(
            id=entry.id, address=entry.address, person=person, message=Message("user", "hello")
        )

    def start_changes(self, key: str, start: StartTask) -> tuple[Change, ...]:
        return ()

    def create_turn(self, key: str, start: StartTask, post: Callable[[Event], None]) -> TurnHandle:
        msg = "here conversations are only looked at after a crash; no turn begins"
        raise NotImplementedError(msg)

    async def recover_turn(self, turn: Turn, running: RunningTurn) -> TurnCrashed:
        self.found.append(running)
        return TurnCrashed(turn=running, changes=(), fields={}, resume=False)

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


async def awoken(store: SessionStore) -> tuple[Witness, ConversationState]:
    """Let the owner of the conversation look at what is stored."""
    hands = Witness()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        state = await carried_out(owner(store, hands, tasks), StartWaiting())
    return hands, state


def owner(store: SessionStore, hands: Witness, tasks: asyncio.TaskGroup) -> Actor:
    clock = SystemClock()
    shared = ActorServices(
        store=store,
        host=hands,
        clock=clock,
        ids=Ids(clock),
        expiry_policy=ExpiryPolicy,
        queue_limit=lambda: 20,
        tasks=tasks,
    )
    return Actor(KEY, shared, draining=lambda: False, on_idle=lambda: None)


async def carried_out(actor: Actor, event: Event) -> ConversationState:
    handled: asyncio.Future[ConversationState] = asyncio.get_running_loop().create_future()
    actor.post(event, handled)
    return await handled


@pytest.mark.parametrize(
    ("kept", "sent_by", "expected"),
    [
        pytest.param("web:ann", None, "web:ann", id="brought back, without a message of its own"),
        pytest.param("web:ann", "web:bob", "web:ann", id="joined by somebody else's message"),
        pytest.param("", "web:bob", "web:bob", id="begun by a version that did not keep it"),
        pytest.param("", None, "", id="nobody knows"),
    ],
)
async def test_a_turn_that_was_left_is_still_that_of_who_asked(
    store: SessionStore, kept: str, sent_by: str | None, expected: str
) -> None:
    if sent_by:
        waiting = InboxEntry(
            id="i1",
            source="web",
            event="1",
            key=KEY,
            address="there",
            state=InboxState.WAITING,
            payload=sent_by.encode(),
            received_at=1,
        )
        await store.accept(waiting)
    rows = ("i1",) if sent_by else ()
    await store.apply(
        OpenSession("s1", KEY, "there", 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address="there",
            inbox=rows,
            messages=(),
            request="hello",
            at=1,
            person=kept,
        ),
    )
    hands, state = await awoken(store)
    assert [turn.person for turn in hands.found] == [expected]
    assert state.person == expected


async def test_of_two_turns_that_were_left_each_stays_with_who_asked(store: SessionStore) -> None:
    await store.apply(
        OpenSession("s1", KEY, "there", 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address="there",
            inbox=(),
            messages=(),
            request="hello",
            at=1,
            person="web:ann",
        ),
        SetSession("s1", SessionState.CLOSED, SessionReason.NEW, 2),
        OpenSession("s2", KEY, "there", 3),
        StartTurn(
            id="t2",
            session_id="s2",
            key=KEY,
            address="there",
            inbox=(),
            messages=(),
            request="hello",
            at=3,
            person="web:bob",
        ),
    )
    hands, state = await awoken(store)
    assert [turn.person for turn in hands.found] == ["web:ann", "web:bob"]
    assert state.person == "web:bob"


async def test_who_asks_for_something_that_is_damaged_is_told_and_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    file = tmp_path / "holdfast.db"
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await store.accept(_received("i1", InboxState.WAITING, b"x" * 5_000 + b"mark" + b"x" * 13_000))
    await store.apply(
        OpenSession("s1", KEY, "there", 1),
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address="there",
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
        hands = Witness()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            actor = owner(store, hands, tasks)
            with pytest.raises(EventNotHandled):
                await carried_out(
                    actor,
                    UndoTurn(CommandContext(address="there", person="web:ann", inbox="i2"), None),
                )
            assert [(say.notice, say.address) for say in hands.said] == [("damaged.here", "there")]
            done = await store.inbox_entry("web", "event of i2")
            assert done
            assert done.state is InboxState.DONE
            await carried_out(actor, StartWaiting())  # what does not need it goes on
    finally:
        await store.close()


def _received(id_: str, state: InboxState, payload: bytes) -> InboxEntry:
    return InboxEntry(
        id=id_,
        source="web",
        event=f"event of {id_}",
        key=KEY,
        address="there",
        state=state,
        payload=payload,
        received_at=1,
    )
