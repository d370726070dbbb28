"""The end of a turn when the store refuses the changes of an event."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from sessions.changes import AppendMessages, Change, OpenSession, SetSession, SetTitle
from sessions.conversation.actor import Actor, ActorServices, PreparedTurn, TurnHandle
from sessions.conversation.events import (
    BusyPolicy,
    CommandContext,
    ConversationState,
    Event,
    Interruption,
    InterruptTurn,
    MessageArrived,
    PendingMessage,
    RequestTranscribed,
    ResumableSession,
    RunningTurn,
    SendNotice,
    StartTask,
    StartWaiting,
    StopTurn,
    TurnCrashed,
    TurnEnded,
)
from sessions.conversation.expiry import ExpiryPolicy
from sessions.errors import Conflict, StoreError, StoreUnavailable
from sessions.records import (
    InboxEntry,
    InboxState,
    Message,
    SessionReason,
    SessionState,
    ToolCall,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids

THERE = Address("web", "a")
KEY, ME = "web:a", CommandContext(address=THERE, person="web:ann")
CALL = Message("assistant", "", (ToolCall("c1", "pay", "{}"),))
CUT = Message("tool", "UNKNOWN: stopped", tool_call_id="c1")
SALVAGED = Message("tool", "UNKNOWN: restarted", tool_call_id="c1")
ANSWER = Message("assistant", "done")


class RefusingStore(SessionStore):
    """A store that raises prepared errors."""

    refusals: list[StoreError]
    refused: asyncio.Event

    async def apply(self, *changes: Change) -> None:
        if self.refusals:
            self.refused.set()
            raise self.refusals.pop(0)
        await super().apply(*changes)


class StubTurn:
    """A turn that has made a call and waits; its cancellation may take time."""

    def __init__(self, store: SessionStore, turn: RunningTurn, *, slow_cancel: bool) -> None:
        self._store = store
        self._turn = turn
        self._lingers = slow_cancel
        self.called = asyncio.Event()
        self.go = asyncio.Event()
        self.cuts = 0

    @property
    def turn_id(self) -> str:
        return self._turn.id

    def _rows(self, *rows: Message) -> Change:
        return AppendMessages(self._turn.session, self._turn.id, rows, 5)

    async def run(self) -> TurnEnded:
        await self._store.apply(self._rows(CALL))
        self.called.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            if self._lingers:
                await self.go.wait()
            raise
        return TurnEnded(self._turn.id, TurnState.DONE, changes=(self._rows(SALVAGED, ANSWER),))

    def abort(self, cause: str) -> tuple[Change, ...]:
        self.cuts += 1
        return (self._rows(CUT),)

    def end_after_crash(self, error: Exception) -> TurnEnded:
        return TurnEnded(self._turn.id, TurnState.FAILED, str(error))

    def partial_text(self) -> str:
        return ""

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        pass


class StubHost:
    """A host that creates such turns and gives unfinished calls a result on recovery."""

    def __init__(self, store: SessionStore, *, slow_cancel: bool) -> None:
        self._store = store
        self._lingers = slow_cancel
        self.works: list[StubTurn] = []
        self.recoveries = 0

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        return PendingMessage(
            id=entry.id, address=entry.address, person="web:ann", message=Message("user", "go")
        )

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        def create(_post: Callable[[Event], None]) -> TurnHandle:
            self.works.append(StubTurn(self._store, start.turn, slow_cancel=self._lingers))
            return self.works[-1]

        return PreparedTurn((), create)

    async def recover_turn(
        self, turn: Turn, running: RunningTurn, *, repeatable: bool
    ) -> TurnCrashed:
        self.recoveries += 1
        rows = AppendMessages(turn.session_id, turn.id, (SALVAGED,), 5)
        return TurnCrashed(
            turn=running,
            changes=(rows,),
            interruption=Interruption(request="go", minutes=0),
            resume=False,
        )

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        return tuple(SetTitle("s1", say.notice) for say in says)

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        pass


def received(id_: str) -> InboxEntry:
    return InboxEntry(
        id=id_,
        source="web",
        event=id_,
        key=KEY,
        address=THERE,
        state=InboxState.WAITING,
        payload=b"",
        received_at=1,
    )


class Conversation:
    def __init__(
        self, store: RefusingStore, host: StubHost, actor: Actor, idle: asyncio.Event
    ) -> None:
        self.store = store
        self.host = host
        self.actor = actor
        self.idle = idle

    def post(self, event: Event) -> asyncio.Future[ConversationState]:
        handled: asyncio.Future[ConversationState] = asyncio.get_running_loop().create_future()
        self.actor.post(event, handled)
        return handled

    async def begin(self) -> StubTurn:
        """Start a turn and wait for its first call."""
        entry = InboxEntry(
            id="i1",
            source="web",
            event="1",
            key=KEY,
            address=THERE,
            state=InboxState.WAITING,
            payload=b"",
            received_at=1,
        )
        await self.store.accept(entry)
        await self.post(StartWaiting())
        (work,) = self.host.works
        await work.called.wait()
        return work

    async def rested(self) -> None:
        """Wait until no turn runs and no event is left."""
        while self.actor.is_busy:
            self.idle.clear()
            await self.idle.wait()

    async def history(self) -> list[Message]:
        return list(await self.store.sessions.history("s1"))

    async def states(self) -> list[TurnState]:
        return [turn.state for turn in await self.store.turns.of_session("s1")]


@asynccontextmanager
async def talking(folder: Path, *, slow_cancel: bool = False) -> AsyncIterator[Conversation]:
    clock = SystemClock()
    store = await RefusingStore.open(f"sqlite:///{folder / 'holdfast.db'}", clock=clock)
    store.refusals, store.refused = [], asyncio.Event()
    host = StubHost(store, slow_cancel=slow_cancel)
    try:
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            shared = ActorServices(
                store=store,
                host=host,
                clock=clock,
                ids=Ids(clock),
                expiry_policy=ExpiryPolicy,
                queue_limit=lambda: 20,
                tasks=tasks,
            )
            rested = asyncio.Event()
            actor = Actor(KEY, shared, draining=lambda: False, on_idle=rested.set)
            await store.apply(OpenSession("s1", KEY, THERE, 1))
            yield Conversation(store, host, actor, rested)
            while actor.is_busy:
                for work in host.works:
                    work.go.set()
                rested.clear()
                await rested.wait()
    finally:
        await store.close()


@pytest.mark.parametrize(
    "slow_cancel", [False, True], ids=["fast cancellation", "slow cancellation"]
)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("error", [Conflict, StoreUnavailable])
async def test_a_stop_refused_at_first_leaves_one_result_per_call(
    tmp_path: Path, error: type[StoreError], times: int, slow_cancel: bool
) -> None:
    async with talking(tmp_path, slow_cancel=slow_cancel) as talk:
        work = await talk.begin()
        talk.store.refusals = [error() for _ in range(times)]
        state = await talk.post(StopTurn(ME))
        assert await talk.history() == [Message("user", "go"), CALL, CUT]
        assert await talk.states() == [TurnState.STOPPED]
        assert work.cuts == 1
        assert talk.host.recoveries == 0
        assert state.session is None
        work.go.set()
        after = await talk.post(StartWaiting())
        assert await talk.history() == [Message("user", "go"), CALL, CUT]
        assert await talk.states() == [TurnState.STOPPED]
        assert after.turn is None or after.turn.cancelling


async def test_an_answer_survives_a_conflict_of_an_earlier_event(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        work = await talk.begin()
        talk.store.refusals = [Conflict()]
        pending = PendingMessage(
            id="i2",
            address=THERE,
            person="web:ann",
            message=Message("user", "and"),
            mode=BusyPolicy.QUEUE,
        )
        await talk.store.accept(
            InboxEntry(
                id="i2",
                source="web",
                event="2",
                key=KEY,
                address=THERE,
                state=InboxState.WAITING,
                payload=b"",
                received_at=1,
            )
        )
        arrived = talk.post(MessageArrived(pending))
        await talk.store.refused.wait()
        work.go.set()  # it ends while the actor loads the conversation again
        await arrived
        await talk.post(StartWaiting())
        assert talk.host.recoveries == 0
        rows = await talk.history()
        assert rows[:4] == [Message("user", "go"), CALL, SALVAGED, ANSWER]
        assert (await talk.states())[0] is TurnState.DONE


STOP = StopTurn(ME)
SHUTDOWN = InterruptTurn(SessionReason.RESTART, Interruption(request="go", minutes=0))
RESUMABLE_SHUTDOWN = msgspec.structs.replace(SHUTDOWN, resume_after_restart=True)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        pytest.param(STOP, TurnState.STOPPED, id="stop"),
        pytest.param(SHUTDOWN, TurnState.INTERRUPTED, id="shutdown"),
        pytest.param(RESUMABLE_SHUTDOWN, TurnState.DONE, id="shutdown with resumed turns"),
    ],
)
async def test_an_answer_that_is_complete_when_its_turn_is_cancelled_is_kept(
    tmp_path: Path, event: Event, state: TurnState
) -> None:
    async with talking(tmp_path) as talk:
        work = await talk.begin()
        talk.store.refusals = [StoreUnavailable()]
        waiting = talk.post(RequestTranscribed(work.turn_id, "went"))
        await talk.store.refused.wait()
        cancelled = talk.post(event)
        work.go.set()  # the turn ends while the actor repeats the write
        await waiting
        await cancelled
        await talk.rested()
        assert await talk.history() == [Message("user", "go"), CALL, SALVAGED, ANSWER]
        assert await talk.states() == [state]
        assert work.cuts == 0


async def test_a_stop_of_the_next_turn_stores_nothing_of_the_finished_one(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        first = await talk.begin()
        entry = received("i2")
        await talk.store.accept(entry)
        await talk.post(MessageArrived(talk.host.read_pending(entry)))
        first.go.set()
        while len(talk.host.works) < 2:  # noqa: ASYNC110 - the second turn starts by itself
            await asyncio.sleep(0)
        await talk.host.works[1].called.wait()
        await talk.post(StopTurn(ME))
        expected = [Message("user", "go"), CALL, SALVAGED, ANSWER, Message("user", "go"), CALL, CUT]
        assert await talk.history() == expected


async def test_an_end_that_cannot_be_stored_is_recovered_later(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        work = await talk.begin()
        talk.store.refusals = [Conflict(), Conflict(), Conflict()]
        work.go.set()
        await talk.store.refused.wait()
        state = await talk.post(StartWaiting())
        assert state.turn is None
        assert talk.host.recoveries == 1
        assert await talk.history() == [Message("user", "go"), CALL, SALVAGED]
        assert await talk.states() == [TurnState.INTERRUPTED]


async def test_an_end_that_cannot_be_stored_is_recovered_without_another_event(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        work = await talk.begin()
        talk.store.refusals = [Conflict(), Conflict(), Conflict()]
        work.go.set()
        await talk.rested()
        assert talk.host.recoveries == 1
        assert await talk.states() == [TurnState.INTERRUPTED]


async def test_messages_that_arrive_before_the_conversation_is_loaded_count_against_the_limit(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        for number in range(30):
            await talk.store.accept(received(f"i{number:02d}"))
        for entry in await talk.store.inbox.unanswered():
            talk.actor.post(MessageArrived(talk.host.read_pending(entry)))
        state = await talk.post(StartWaiting())
        assert [p.id for p in state.waiting] == [f"i{number:02d}" for number in range(1, 21)]
        stored = [await talk.store.inbox.get(f"i{number:02d}") for number in range(30)]
        states = [entry.state for entry in stored if entry]
        assert states == [
            InboxState.RUNNING,
            *[InboxState.WAITING] * 20,
            *[InboxState.REFUSED] * 9,
        ]


async def test_a_stop_that_is_never_stored_leaves_one_result(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        work = await talk.begin()
        talk.store.refusals = [Conflict(), Conflict(), Conflict()]
        stopped = talk.post(StopTurn(ME))
        await asyncio.wait({stopped})
        assert stopped.exception() is not None
        await talk.post(StartWaiting())
        assert work.cuts == 1
        assert await talk.history() == [Message("user", "go"), CALL, CUT]
        assert await talk.states() == [TurnState.INTERRUPTED]


@pytest.mark.parametrize(
    "reason", [SessionReason.STOP, SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK]
)
async def test_loading_a_conversation_knows_why_its_newest_session_ended(
    tmp_path: Path, reason: SessionReason
) -> None:
    async with talking(tmp_path) as talk:
        await talk.store.apply(SetSession("s1", SessionState.SUSPENDED, reason, 2))
        state = await talk.post(StartWaiting())
        assert state.replaced_reason is reason
        assert state.resumable == ResumableSession("s1", reason)


async def test_a_switched_session_is_no_reason_for_a_fresh_start_notice(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        await talk.store.apply(SetSession("s1", SessionState.SUSPENDED, SessionReason.SWITCHED, 2))
        state = await talk.post(StartWaiting())
        assert state.replaced_reason is None
        assert state.resumable == ResumableSession("s1", SessionReason.SWITCHED)


async def test_a_closed_newer_session_is_no_reason_for_a_fresh_start_notice(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as talk:
        await talk.store.apply(
            SetSession("s1", SessionState.SUSPENDED, SessionReason.STOP, 2),
            OpenSession("s2", KEY, THERE, 3),
            SetSession("s2", SessionState.CLOSED, SessionReason.NEW, 4),
        )
        state = await talk.post(StartWaiting())
        assert state.replaced_reason is None
        assert state.resumable == ResumableSession("s1", SessionReason.STOP)
