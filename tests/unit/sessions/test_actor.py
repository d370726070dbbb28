"""What the owner of a conversation finds out about a turn that a dead process left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from sessions.actor import Actor, Shared, TurnHandle
from sessions.changes import Change, OpenSession, SetSession, StartTurn
from sessions.events import Begin, Event, Pending, RunningTurn, Say, StartTask, State, Wrecked
from sessions.expiry import Expiry
from sessions.records import InboxEntry, InboxState, Message, Reason, SessionState, Turn
from sessions.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids

KEY = "web:a"


class Witness:
    """Hands that note whose turn was wrecked; a message was sent by who stands in its payload."""

    def __init__(self) -> None:
        self.found: list[RunningTurn] = []

    def pending(self, entry: InboxEntry) -> Pending:
        person = (entry.payload or b"").decode()
        return Pending(entry.id, entry.address, person, Message("user", "hello"))

    def opening(self, key: str, start: StartTask) -> tuple[Change, ...]:
        return ()

    def begin(self, key: str, start: StartTask, post: Callable[[Event], None]) -> TurnHandle:
        msg = "here conversations are only looked at after a crash; no turn begins"
        raise NotImplementedError(msg)

    async def wrecked(self, turn: Turn, running: RunningTurn) -> Wrecked:
        self.found.append(running)
        return Wrecked(running, (), {}, take_up=False)

    def say(self, says: Iterable[Say]) -> tuple[Change, ...]:
        return ()

    def committed(self, changes: tuple[Change, ...]) -> None:
        pass


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock())
    yield store
    await store.close()


async def awoken(store: SessionStore) -> tuple[Witness, State]:
    """Let the owner of the conversation look at what is stored."""
    hands, clock = Witness(), SystemClock()
    handled: asyncio.Future[State] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        shared = Shared(store, hands, clock, Ids(clock), Expiry, lambda: 20, tasks)
        Actor(KEY, shared, draining=lambda: False, rested=lambda: None).post(Begin(), handled)
        state = await handled
    return hands, state


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
            "i1", "web", "1", KEY, "there", InboxState.WAITING, sent_by.encode(), 1
        )
        await store.accept(waiting)
    rows = ("i1",) if sent_by else ()
    await store.apply(
        OpenSession("s1", KEY, "there", 1),
        StartTurn("t1", "s1", KEY, "there", rows, (), "hello", 1, kept),
    )
    hands, state = await awoken(store)
    assert [turn.person for turn in hands.found] == [expected]
    assert state.person == expected


async def test_of_two_turns_that_were_left_each_stays_with_who_asked(store: SessionStore) -> None:
    await store.apply(
        OpenSession("s1", KEY, "there", 1),
        StartTurn("t1", "s1", KEY, "there", (), (), "hello", 1, "web:ann"),
        SetSession("s1", SessionState.CLOSED, Reason.NEW, 2),
        OpenSession("s2", KEY, "there", 3),
        StartTurn("t2", "s2", KEY, "there", (), (), "hello", 3, "web:bob"),
    )
    hands, state = await awoken(store)
    assert [turn.person for turn in hands.found] == ["web:ann", "web:bob"]
    assert state.person == "web:bob"
