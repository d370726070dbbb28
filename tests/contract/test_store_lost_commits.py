"""PostgreSQL connections that break during commits: nothing is stored twice, nothing is lost."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.changes import (
    AnswerApproval,
    AppendMessages,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    PutApproval,
    PutItem,
    PutSummary,
    SetInbox,
    SetItem,
    StartAttempt,
    StartTool,
    TakeBackTurn,
)
from sessions.errors import CommitOutcomeUnknown, RecordNotFound, StoreError, StoreUnavailable
from sessions.records import ApprovalState, InboxState, ItemState, Message, ToolCall
from sessions.store import schema
from sessions.store.commit_probe import MAX_WRITERS
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ended, entry, item, opened, question, started
from tests.fakes import postgres
from tests.fakes.cutter import HOWS, Cutter, How

pytestmark = pytest.mark.timeout(60)

Write = Callable[[SessionStore], Coroutine[Any, Any, object]]


@pytest.fixture(scope="module")
def url(postgres_server: postgres.Server) -> str:
    return postgres_server.database()


def story(name: str) -> list[Write]:
    """Return the writes of a conversation with two turns, one per commit."""
    key, session, first, second = f"web:{name}", f"s_{name}", f"t_{name}_1", f"t_{name}_2"
    call = ToolCall(f"call_{name}", "pay", "{}")

    def accept(id_: str) -> Write:
        return lambda store: store.accept(entry(id_, key=key, source=key))

    def apply(*changes: Change) -> Write:
        return lambda store: store.apply(*changes)

    def said(turn: str, *rows: Message) -> AppendMessages:
        return AppendMessages(session, turn, rows, 4)

    def answer(state: ApprovalState) -> AnswerApproval:
        return AnswerApproval(id=f"p_{name}", state=state, by="telegram:7", at=5)

    return [
        accept(f"i_{name}_1"),
        apply(
            opened(session, key=key),
            started(first, session, f"i_{name}_1", key=key),
            StartAttempt(first, 1, "openai/one", 3),
        ),
        apply(
            EndAttempt(turn_id=first, number=1, verdict="TOOLS", at=4, input_tokens=9, cost=0.01),
            said(first, Message("assistant", "I pay.", tool_calls=(call,))),
        ),
        apply(PutApproval(question(f"p_{name}", session=session, turn=first, key=key))),
        apply(answer(ApprovalState.ALLOWED)),
        apply(answer(ApprovalState.USED)),
        apply(
            StartTool(
                turn_id=first, call_id=call.id, tool="pay", risk="write", arguments="{}", at=5
            )
        ),
        apply(
            said(first, Message("tool", "paid", tool_call_id=call.id)),
            EndTool(turn_id=first, call_id=call.id, ok=True, result="paid", at=6),
        ),
        apply(StartAttempt(first, 2, "openai/one", 7)),
        apply(Checkpoint(first, "It is")),
        apply(started(first, session, key=key, said="")),
        apply(
            EndAttempt(turn_id=first, number=2, verdict="DONE", at=8),
            said(first, Message("assistant", "It is paid.")),
            ended(first),
            PutItem(item(f"o_{name}", turn=first)),
        ),
        apply(SetItem(id=f"o_{name}", state=ItemState.SENT, at=9, shown=b"m1")),
        accept(f"i_{name}_2"),
        apply(
            started(second, session, f"i_{name}_2", key=key, said="and now?"),
            StartAttempt(second, 1, "openai/one", 10),
        ),
        apply(PutSummary(session_id=session, keep=1, summary="They paid.", at=11, rows=5)),
        apply(said(second, Message("assistant", "Nothing.")), ended(second)),
        apply(
            TakeBackTurn(session, second, 12),
            SetInbox(ids=(f"i_{name}_2",), state=InboxState.DONE, at=12),
        ),
    ]


async def tell(store: SessionStore, name: str) -> list[object]:
    """Perform all writes, repeating failed ones as an actor does."""
    results = []
    for write in story(name):
        while True:
            try:
                results.append(await write(store))
            except StoreUnavailable:
                await asyncio.sleep(0)
            else:
                break
    return results


_COUNTED = {"seq", "id of messages", "upto", "summary_upto"}  # shared counters


async def stored(store: SessionStore, name: str) -> dict[str, list[str]]:
    """Return all rows of a story, with names independent of the story's name."""

    def rows(connection: sa.Connection, table: sa.Table) -> list[str]:
        columns = [
            column
            for column in table.c
            if not {column.name, f"{column.name} of {table.name}"} & _COUNTED
        ]
        order = table.c.id if table.name == "messages" else sa.text("1, 2")
        found = connection.execute(sa.select(*columns).order_by(order))
        words = (repr(tuple(row)) for row in found)
        return [text.replace(name, "NAME") for text in words if name in text]

    def all_tables(connection: sa.Connection) -> dict[str, list[str]]:
        return {table.name: rows(connection, table) for table in schema.metadata.sorted_tables}

    return await store.database.read(all_tables)


@pytest.fixture(scope="module")
def names() -> Callable[[], str]:
    given: list[str] = []

    def new() -> str:
        given.append(f"n{len(given):05d}")
        return given[-1]

    return new


@pytest.fixture
async def undisturbed(
    url: str, names: Callable[[], str]
) -> AsyncIterator[tuple[SessionStore, list[object], dict[str, list[str]]]]:
    """Return an undisturbed store, the results of a story there, and the stored rows."""
    store = await SessionStore.open(url, clock=SystemClock())
    name = names()
    results = await tell(store, name)
    rows = await stored(store, name)
    assert len(rows["messages"]) == 6
    assert results.count(True) == 2
    yield store, results, rows
    await store.close()


Undisturbed = tuple[SessionStore, list[object], dict[str, list[str]]]


@pytest.mark.parametrize("how", HOWS)
async def test_every_lost_commit_takes_effect_exactly_once(
    url: str, undisturbed: Undisturbed, names: Callable[[], str], how: How
) -> None:
    other, results, rows = undisturbed
    for number in range(len(results) + 1):
        cutter, name = Cutter(url), names()
        async with asyncio.timeout(20), cutter.listening() as through:
            store = await SessionStore.open(through, clock=SystemClock())
            cutter.commits, cutter.plan = 0, {number: how}
            assert await tell(store, name) == results, number
            assert cutter.commits > number
            await store.close()
        assert await stored(other, name) == rows, number


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=st.dictionaries(st.integers(0, 60), st.sampled_from(HOWS), min_size=1, max_size=9))
async def test_lost_commits_of_concurrent_conversations_take_effect_once(
    url: str, undisturbed: Undisturbed, names: Callable[[], str], plan: dict[int, How]
) -> None:
    other, results, rows = undisturbed
    cutter, together = Cutter(url), [names() for _ in range(3)]
    async with asyncio.timeout(20), cutter.listening() as through:
        store = await SessionStore.open(through, clock=SystemClock())
        cutter.commits, cutter.plan = 0, plan
        async with asyncio.TaskGroup() as tasks:
            telling = [tasks.create_task(tell(store, name)) for name in together]
        assert [each.result() for each in telling] == [results] * 3
        await store.close()
    for name in together:
        assert await stored(other, name) == rows


async def test_a_write_in_doubt_waits_while_other_writes_are_refused_at_once(
    url: str, names: Callable[[], str]
) -> None:
    cutter, name = Cutter(url), names()
    async with asyncio.timeout(20), cutter.listening() as through, asyncio.TaskGroup() as tasks:
        store = await SessionStore.open(through, clock=SystemClock())
        await store.apply(opened(f"s_{name}", key=name))
        cutter.plan, cutter.refuses = {cutter.commits: "after"}, True
        doubtful = tasks.create_task(store.apply(started(f"t_{name}", f"s_{name}", key=name)))
        while not cutter.refused:  # noqa: ASYNC110 - only later writes are certain to be refused
            await asyncio.sleep(0)
        for number in range(3):
            with pytest.raises(StoreUnavailable, match="cannot be used"):
                await store.accept(entry(f"i_{name}_{number}", key=name, source=name))
        assert not doubtful.done()
        cutter.refuses = False
        await doubtful
        assert len(await store.sessions.history(f"s_{name}")) == 1
        await store.close()


@pytest.mark.parametrize(
    "comes_back", [True, False], ids=["the server is back", "the server stays away"]
)
async def test_closing_the_store_asks_once_more_for_the_commit(
    url: str, undisturbed: Undisturbed, names: Callable[[], str], comes_back: bool
) -> None:
    other, cutter, name = undisturbed[0], Cutter(url), names()
    async with asyncio.timeout(20), cutter.listening() as through, asyncio.TaskGroup() as tasks:
        store = await SessionStore.open(through, clock=SystemClock())
        await store.apply(opened(f"s_{name}", key=name))
        cutter.plan, cutter.refuses = {cutter.commits: "before"}, True
        doubtful = tasks.create_task(seen(store.apply(started(f"t_{name}", f"s_{name}", key=name))))
        while not cutter.refused:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        cutter.refuses = not comes_back
        await store.close()
        outcome = await doubtful
        assert isinstance(outcome, CommitOutcomeUnknown) != comes_back
        assert len(await other.sessions.history(f"s_{name}")) == comes_back


async def seen(write: Coroutine[Any, Any, None]) -> StoreError | None:
    try:
        await write
    except StoreError as error:
        return error
    return None


@contextlib.asynccontextmanager
async def writer_held(store: SessionStore) -> AsyncIterator[asyncio.TaskGroup]:
    """Hold the writer, so that the writes of this block are taken at once when it ends."""
    reached, gate = threading.Event(), threading.Event()

    def hold(_connection: sa.Connection) -> None:
        reached.set()
        assert gate.wait(5)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.database.write(hold))
        await asyncio.to_thread(reached.wait, 5)
        yield tasks
        await asyncio.sleep(0)  # let the tasks start
        gate.set()


@pytest.mark.parametrize("how", HOWS)
async def test_later_writes_do_not_overtake_a_write_in_doubt(
    url: str, names: Callable[[], str], how: How
) -> None:
    cutter, name = Cutter(url), names()
    async with asyncio.timeout(20), cutter.listening() as through:
        store = await SessionStore.open(through, clock=SystemClock())
        await store.apply(opened(f"s_{name}", key=name))
        async with writer_held(store) as tasks:
            cutter.plan = {cutter.commits + 2: how}  # the commit of "a", after the held one and "0"
            for word in ("0", "a", "b", "c"):
                said = AppendMessages(f"s_{name}", f"t_{name}", (Message("user", word),), 1)
                tasks.create_task(store.apply(said))
            missing = seen(store.apply(ended(f"t_{name}")))  # forces separate transactions
            refused = tasks.create_task(missing)
        assert isinstance(refused.result(), RecordNotFound)
        assert [row.content for row in await store.sessions.history(f"s_{name}")] == [
            "0",
            "a",
            "b",
            "c",
        ]
        await store.close()


async def test_the_last_commit_before_closing_is_also_resolved(
    url: str, undisturbed: Undisturbed, names: Callable[[], str]
) -> None:
    other, cutter, name = undisturbed[0], Cutter(url), names()
    async with asyncio.timeout(20), cutter.listening() as through:
        store = await SessionStore.open(through, clock=SystemClock())
        await store.apply(opened(f"s_{name}", key=name))
        async with writer_held(store) as tasks:
            cutter.plan = {cutter.commits + 1: "before"}
            tasks.create_task(store.apply(started(f"t_{name}", f"s_{name}", key=name)))
            await asyncio.sleep(0)
            store.database.stop()
        await store.close()
    assert len(await other.sessions.history(f"s_{name}")) == 1


async def test_a_closed_writer_removes_its_row(
    postgres_server: postgres.Server,
) -> None:
    url = postgres_server.database()
    for _ in range(2):
        store = await SessionStore.open(url, clock=SystemClock())
        await store.check_writable()
        assert len(await store.values("writers")) == 1
        await store.close()
    store = await SessionStore.open(url, clock=SystemClock(), read_only=True)
    assert await store.values("writers") == {}
    await store.close()


def writer_rows(connection: sa.Connection) -> set[str]:
    kept = sa.select(schema.shelves.c.name).where(schema.shelves.c.shelf == "writers")
    return set(connection.scalars(kept))


async def test_the_rows_of_killed_writers_are_bounded(postgres_server: postgres.Server) -> None:
    """A writer in use is older than all killed ones, and keeps its row by its later commit."""
    url = postgres_server.database()
    clock = SystemClock()

    def add_killed(number: int) -> Callable[[sa.Connection], None]:
        row = {"shelf": "writers", "name": f"killed {number}", "value": "1"}
        return lambda connection: void(connection.execute(sa.insert(schema.shelves).values(row)))

    in_use = await SessionStore.open(url, clock=clock)
    try:
        await in_use.check_writable()
        (own,) = await in_use.database.read(writer_rows)
        killed = MAX_WRITERS + 20
        for number in range(killed):
            await in_use.database.write(add_killed(number))
        await in_use.check_writable()
        other = await SessionStore.open(url, clock=clock)
        try:
            await other.check_writable()
            left = await other.database.read(writer_rows)
        finally:
            await other.close()
    finally:
        await in_use.close()
    assert len(left) == MAX_WRITERS
    assert own in left
    oldest = {f"killed {number}" for number in range(22)}
    assert left.isdisjoint(oldest)
    assert f"killed {killed - 1}" in left


async def test_a_writer_whose_row_is_gone_stores_nothing_and_then_gets_another(
    postgres_server: postgres.Server,
) -> None:
    url = postgres_server.database()
    store = await SessionStore.open(url, clock=SystemClock())
    other = await SessionStore.open(url, clock=SystemClock())
    try:
        await store.check_writable()
        (row,) = await store.database.read(writer_rows)
        gone = sa.delete(schema.shelves).where(schema.shelves.c.name == row)
        await other.database.write(lambda connection: void(connection.execute(gone)))
        with pytest.raises(StoreError):
            await store.accept(entry("i1"))
        assert await store.inbox.get("i1") is None
        await store.accept(entry("i1"))
        assert await store.inbox.get("i1")
        assert row not in await store.database.read(writer_rows)
    finally:
        await store.close()
        await other.close()


def void(_: object) -> None:
    """Discard a result."""
