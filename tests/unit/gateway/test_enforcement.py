"""Stopping the work of people who lost access, on a real store and real conversations."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from gateway.commands.enforcement import AccessEnforcement
from gateway.inbound.reader import InboxReader, read_event
from platforms.core.contract import InboundMessage, Sender, Text
from sessions.changes import Change, PutApproval
from sessions.conversation.actor import ActorServices, PreparedTurn, TurnHandle
from sessions.conversation.events import (
    BusyPolicy,
    Event,
    Interruption,
    MessageArrived,
    PendingMessage,
    RunningTurn,
    SendNotice,
    StartTask,
    TurnCrashed,
    TurnEnded,
)
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.pool import SessionPool
from sessions.errors import Conflict, StoreError, StoreUnavailable
from sessions.records import (
    Approval,
    InboxEntry,
    InboxState,
    Message,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.ids import Ids
from tests.contract.store_kit import opened, question, started
from tests.fakes.quick_time import clock

pytestmark = pytest.mark.quick

PATIENCE = 120.0  # of the loop's time, which does not pass while there is something to do
ANN, EVE = "web:ann", "web:eve"


def message(id_: str, person: str, *, chat: str) -> InboxEntry:
    address = Address("web", chat)
    event = InboundMessage(
        id=id_,
        at=1,
        address=address,
        sender=Sender(person.partition(":")[2], person),
        parts=(Text("hello"),),
    )
    return InboxEntry(
        id=id_,
        source="web",
        event=id_,
        key=f"web:{chat}",
        address=address,
        state=InboxState.WAITING,
        payload=msgspec.json.encode(event),
        received_at=1,
    )


class RefusingStore(SessionStore):
    """A store that refuses changes while `refuses` is set."""

    refuses: StoreError | None = None

    async def apply(self, *changes: Change) -> None:
        if self.refuses:
            raise self.refuses
        await super().apply(*changes)


class EndlessTurn:
    """A turn that runs until it is cancelled."""

    def __init__(self, turn: RunningTurn) -> None:
        self._turn = turn

    async def run(self) -> TurnEnded:
        await asyncio.Event().wait()
        return TurnEnded(self._turn.id, TurnState.DONE)

    def abort(self, cause: str) -> tuple[Change, ...]:
        return ()

    def end_after_crash(self, error: Exception) -> TurnEnded:
        return TurnEnded(self._turn.id, TurnState.FAILED, str(error))

    def partial_text(self) -> str:
        return ""

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        pass


class EndlessHost:
    """A host of such turns; a recovery waits for `recovers`."""

    def __init__(self) -> None:
        self.recovers = asyncio.Event()
        self.recovering = asyncio.Event()
        self.notices: list[SendNotice] = []
        self.read_pending: Callable[[InboxEntry], PendingMessage] = InboxReader(
            lambda: BusyPolicy.QUEUE
        ).read_pending

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        def create(_post: Callable[[Event], None]) -> TurnHandle:
            return EndlessTurn(start.turn)

        return PreparedTurn((), create)

    async def recover_turn(
        self, turn: Turn, running: RunningTurn, *, repeatable: bool
    ) -> TurnCrashed:
        self.recovering.set()
        await self.recovers.wait()
        return TurnCrashed(
            turn=running,
            changes=(),
            interruption=Interruption(request="go", minutes=0),
            resume=False,
        )

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        self.notices += says
        return ()

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        pass


class Kit:
    """Conversations, open questions and commands, from which people can be excluded."""

    def __init__(
        self, store: RefusingStore, turns: asyncio.TaskGroup, checks: asyncio.TaskGroup
    ) -> None:
        self.store = store
        self.host = EndlessHost()
        self.without: set[str] = set()  # people without access
        self.closed: list[str] = []  # ids of questions
        self.checked_at: list[float] = []  # when commands were ended, which is the last step
        self.refusals: list[StoreError] = []  # of the next checks
        self.hanging: list[asyncio.Event] = []  # waited for by the next checks
        self._checked = asyncio.Event()
        shared = ActorServices(
            store=store,
            host=self.host,
            clock=clock(),
            ids=Ids(clock()),
            expiry_policy=ExpiryPolicy,
            queue_limit=lambda: 20,
            tasks=turns,
        )
        self.pool = SessionPool(shared)
        self.enforcement = AccessEnforcement(
            store=store,
            pool=self.pool,
            has_access=self._has_access,
            close_question=self._close_question,
            end_commands=self._end_commands,
            tasks=checks,
        )

    def _has_access(self, entry: InboxEntry) -> bool:
        event = read_event(entry)
        return f"{event.address.platform}:{event.sender.id}" not in self.without

    async def _close_question(self, closed: Approval) -> None:
        self.closed.append(closed.id)

    async def _end_commands(self) -> None:
        self.checked_at.append(clock().monotonic())
        self._checked.set()
        if self.hanging:
            await self.hanging.pop().wait()
        if self.refusals:
            raise self.refusals.pop()

    @property
    def checks(self) -> int:
        """Number of checks that have come to their last step."""
        return len(self.checked_at)

    async def checked(self, times: int) -> None:
        """Wait until this many checks have come to their last step."""
        while self.checks < times:
            self._checked.clear()
            await self._checked.wait()

    async def receive(self, id_: str, person: str, *, chat: str) -> None:
        """Store a message and handle it: a turn starts, or the message waits behind one."""
        entry = message(id_, person, chat=chat)
        await self.store.accept(entry)
        await self.pool.ask(entry.key, MessageArrived(self.host.read_pending(entry)))

    async def interrupt(self, person: str, *, chat: str) -> None:
        """Store a turn that a dead process left running."""
        await self.store.accept(message(f"i_{chat}", person, chat=chat))
        key = f"web:{chat}"
        await self.store.apply(
            opened(f"s_{chat}", key=key),
            started(f"t_{chat}", f"s_{chat}", f"i_{chat}", key=key, person=person),
        )

    async def ask(self, id_: str, *, chat: str) -> None:
        """Store an open question of the running turn of a chat."""
        turn = next(turn for turn in await self.store.turns.running() if turn.key == f"web:{chat}")
        await self.store.apply(
            PutApproval(question(id_, session=turn.session_id, turn=turn.id, key=turn.key))
        )

    async def running_people(self) -> list[str]:
        return [turn.person for turn in await self.store.turns.running()]

    async def state_of(self, event: str) -> InboxState:
        row = await self.store.inbox.find("web", event)
        assert row
        return row.state


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RefusingStore]:
    store = await RefusingStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=clock())
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def conversations(store: RefusingStore) -> AsyncIterator[Kit]:
    """Open the conversations; leaving the block waits for the end of all checks."""
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as turns:
        async with asyncio.TaskGroup() as checks:
            kit = Kit(store, turns, checks)
            yield kit
        with kit.pool.closing():
            pass


async def test_the_turn_of_a_person_without_access_stops_and_others_go_on(
    store: RefusingStore,
) -> None:
    async with conversations(store) as kit:
        await kit.receive("m1", EVE, chat="eve")
        await kit.receive("m2", ANN, chat="ann")
        await kit.enforcement.run()
        assert sorted(await kit.running_people()) == [ANN, EVE]
        kit.without.add(EVE)
        await kit.enforcement.run()
        assert await kit.running_people() == [ANN]
    assert kit.checks == 2  # nothing failed, so nothing was retried


async def test_a_queued_message_is_dropped_and_the_turn_of_another_person_goes_on(
    store: RefusingStore,
) -> None:
    async with conversations(store) as kit:
        await kit.receive("m1", ANN, chat="room")
        await kit.receive("m2", EVE, chat="room")
        kit.without.add(EVE)
        await kit.enforcement.run()
        assert await kit.state_of("m2") is InboxState.IGNORED
        assert await kit.running_people() == [ANN]


async def test_an_open_question_closes_only_for_a_person_without_access(
    store: RefusingStore,
) -> None:
    async with conversations(store) as kit:
        for person in (EVE, ANN):
            chat = person.partition(":")[2]
            await kit.receive(f"m_{chat}", person, chat=chat)
            await kit.ask(f"q_{chat}", chat=chat)
        kit.without.add(EVE)
        await kit.enforcement.run()
        assert kit.closed == ["q_eve"]


async def test_a_slow_conversation_delays_neither_the_others_nor_the_questions(
    store: RefusingStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with conversations(store) as kit:
        await kit.interrupt(EVE, chat="slow")
        await kit.receive("m1", EVE, chat="eve")
        await kit.receive("m2", ANN, chat="ann")
        await kit.ask("q1", chat="eve")
        await kit.ask("q2", chat="ann")
        kit.without.add(EVE)
        await kit.enforcement.run()
        assert kit.host.recovering.is_set()
        assert {turn.key for turn in await store.turns.running()} == {"web:slow", "web:ann"}
        assert kit.closed[0] == "q1"
        assert kit.checks == 1
        await kit.checked(3)  # the retries wait for the conversation and do not ask it again
        assert caplog.text.count("web:slow: no access any more: web:eve") == 1
        kit.host.recovers.set()
    assert await kit.running_people() == [ANN]
    assert "q2" not in kit.closed
    assert kit.host.notices


async def test_a_conversation_that_could_not_stop_its_work_is_asked_again(
    store: RefusingStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with conversations(store) as kit:
        await kit.receive("m1", ANN, chat="room")
        await kit.receive("m2", EVE, chat="room")
        kit.without.add(EVE)
        store.refuses = Conflict("refused")
        await kit.enforcement.run()
        assert await kit.state_of("m2") is InboxState.WAITING
        assert "web:room: the work of people without access was not stopped" in caplog.text
        store.refuses = None
    assert await kit.state_of("m2") is InboxState.IGNORED


async def test_failed_checks_share_one_retry_that_repeats_until_a_check_succeeds(
    store: RefusingStore,
) -> None:
    async with conversations(store) as kit:
        kit.refusals = [StoreUnavailable("down") for _ in range(3)]
        await kit.enforcement.run()
        await kit.enforcement.run()
        assert kit.checks == 2
    assert kit.checks == 4
    second, third, fourth = kit.checked_at[1:]
    assert third - second >= 1
    assert fourth - third >= 2


async def test_a_check_that_fails_after_a_successful_retry_is_retried_too(
    store: RefusingStore,
) -> None:
    async with conversations(store) as kit:
        for checks in (2, 4):
            kit.refusals = [StoreUnavailable("down")]
            await kit.enforcement.run()
            await kit.checked(checks)
            await asyncio.sleep(0)  # lets the retry end
    assert kit.checks == 4


async def test_a_check_that_takes_too_long_ends_for_its_caller_and_is_retried(
    store: RefusingStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with conversations(store) as kit:
        kit.hanging = [asyncio.Event()]
        await kit.enforcement.run()
        assert kit.checks == 1
        assert "stopping the work of people without access takes long" in caplog.text
    assert kit.checks == 2


async def test_the_end_of_the_process_waits_neither_for_retries_nor_for_conversations(
    store: RefusingStore,
) -> None:
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as turns:
        async with asyncio.TaskGroup() as checks:
            kit = Kit(store, turns, checks)
            await kit.interrupt(EVE, chat="slow")
            kit.without.add(EVE)
            with kit.enforcement.closing():
                await kit.enforcement.run()
                await kit.checked(2)
        assert not kit.host.recovers.is_set()
        with kit.pool.closing():
            pass
    assert await kit.running_people() == [EVE]


async def test_a_check_while_the_process_ends_leaves_the_work_to_the_next_start(
    store: RefusingStore,
) -> None:
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as turns:
        async with asyncio.TaskGroup() as ended:
            pass
        kit = Kit(store, turns, ended)
        await kit.receive("m1", EVE, chat="eve")
        kit.without.add(EVE)
        with kit.enforcement.closing():
            await kit.enforcement.run()
        assert kit.checks == 1
        assert await kit.running_people() == [EVE]
        with kit.pool.closing():
            pass


async def test_the_process_can_end_without_any_check(store: RefusingStore) -> None:
    async with conversations(store) as kit:
        with kit.enforcement.closing():
            pass
    assert kit.checks == 0
