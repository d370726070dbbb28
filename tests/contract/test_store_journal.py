"""Inbox, turns and outbox, on every database."""

import asyncio

import msgspec
import pytest
import sqlalchemy as sa

from sessions.changes import (
    AppendMessages,
    Checkpoint,
    EndAttempt,
    EndTool,
    EndTurn,
    OpenSession,
    PutApproval,
    PutItem,
    SetInbox,
    SetItem,
    StartAttempt,
    StartTool,
    StartTurn,
)
from sessions.errors import Conflict, RecordNotFound, ToolAlreadyStarted
from sessions.records import (
    AWAITING_CLIENT,
    InboxState,
    ItemKind,
    ItemState,
    Message,
    MessageTrace,
    OutboxItem,
    ToolCall,
    ToolRun,
    Turn,
    TurnState,
)
from sessions.store import schema
from sessions.store.store import SessionStore
from sessions.values.address import Address, write_address
from tests.contract.store_kit import ADDRESS, KEY, ended, entry, item, opened, question, started

WAITING, HELD, DONE = InboxState.WAITING, InboxState.HELD, InboxState.DONE


async def state_of(store: SessionStore, name: str) -> InboxState:
    found = await store.inbox.find("telegram::1001", f"event of {name}")
    assert found
    return found.state


# --- inbox -----------------------------------------------------------------------------------


async def test_an_entry_is_read_back_unchanged(store: SessionStore) -> None:
    sent = entry("i1", payload=b"\x00\xff{}")
    assert await store.accept(sent)
    assert await store.inbox.find(sent.source, sent.event) == msgspec.structs.replace(sent, seq=1)
    assert await store.inbox.find(sent.source, "another") is None


async def test_a_redelivery_is_recognised_and_changes_nothing(store: SessionStore) -> None:
    first = entry("i1")
    assert await store.accept(first)
    again = msgspec.structs.replace(first, id="i2", payload=b"other", key="web:a")
    assert not await store.accept(again)
    kept = await store.inbox.find(first.source, first.event)
    assert kept
    assert (kept.id, kept.payload, kept.key) == ("i1", b"{}", KEY)
    assert await store.accept(msgspec.structs.replace(again, source="telegram::1002"))


async def test_waiting_entries_are_listed_in_order_of_arrival(store: SessionStore) -> None:
    for name in ("i3", "i1", "i2"):
        await store.accept(entry(name))
    await store.accept(entry("i4", key="web:a"))
    await store.accept(entry("i5", key="web:b", state=InboxState.IGNORED, payload=None))
    waiting = (await store.conversation(KEY)).waiting
    assert [each.id for each in waiting] == ["i3", "i1", "i2"]
    assert sorted(await store.inbox.waiting_keys()) == [KEY, "web:a"]


async def test_commands_are_listed_until_they_are_done(store: SessionStore) -> None:
    for name in ("i1", "i2"):
        await store.accept(entry(name, state=InboxState.COMMAND))
    assert [each.id for each in await store.inbox.pending_commands()] == ["i1", "i2"]
    await store.apply(SetInbox(ids=("i1",), state=DONE, at=5000))
    assert [each.id for each in await store.inbox.pending_commands()] == ["i2"]
    done = await store.inbox.find("telegram::1001", "event of i1")
    assert done
    assert done.settled_at == 5000


async def test_starting_a_turn_marks_its_entries_as_running(store: SessionStore) -> None:
    for name in ("i1", "i2", "i3"):
        await store.accept(entry(name))
    await store.apply(opened("s1"), started("t1", "s1", "i1", "i2"))
    taken = await store.inbox.of_turn("t1")
    assert [(each.id, each.state, each.session_id) for each in taken] == [
        ("i1", InboxState.RUNNING, "s1"),
        ("i2", InboxState.RUNNING, "s1"),
    ]
    await store.apply(ended("t1", at=3000))
    assert {each.state for each in await store.inbox.of_turn("t1")} == {DONE}
    assert {each.settled_at for each in await store.inbox.of_turn("t1")} == {3000}
    assert await state_of(store, "i3") is WAITING


async def test_an_entry_can_be_answered_a_second_time(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    await store.apply(opened("s1"), started("t1", "s1", "i1"), ended("t1"))
    await store.apply(started("t2", "s1", "i1"))
    assert await store.inbox.of_turn("t1") == ()
    [again] = await store.inbox.of_turn("t2")
    assert (again.state, again.settled_at) == (InboxState.RUNNING, None)


async def test_ending_a_turn_does_not_touch_entries_taken_from_it(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    await store.apply(opened("s1"), started("t1", "s1", "i1"))
    await store.apply(SetInbox(ids=("i1",), state=WAITING, at=2500), ended("t1"))
    assert await state_of(store, "i1") is WAITING


async def test_a_suspended_session_holds_its_waiting_entries(store: SessionStore) -> None:
    for name in ("i1", "i2", "i3"):
        await store.accept(entry(name))
    await store.apply(
        opened("s1"), SetInbox(ids=("i1", "i2"), state=HELD, at=3000, session_id="s1")
    )
    assert [each.id for each in await store.inbox.held("s1")] == ["i1", "i2"]
    await store.apply(SetInbox(ids=("i2",), state=WAITING, at=4000))
    assert [each.id for each in await store.inbox.held("s1")] == ["i1"]
    assert [each.id for each in (await store.conversation(KEY)).waiting] == ["i2", "i3"]


async def test_waiting_and_held_entries_of_all_conversations_are_unanswered(
    store: SessionStore,
) -> None:
    for number in range(1, 5):
        await store.accept(entry(f"i{number}", key=f"k{number % 2}"))
    await store.apply(
        opened("s1"),
        SetInbox(ids=("i1",), state=HELD, at=2, session_id="s1"),
        SetInbox(ids=("i3",), state=DONE, at=2),
    )
    unanswered = [(each.id, each.state) for each in await store.inbox.unanswered()]
    assert unanswered == [("i1", HELD), ("i2", WAITING), ("i4", WAITING)]


async def test_the_request_of_a_resumed_turn_is_that_of_the_same_person(
    store: SessionStore,
) -> None:
    await store.accept(entry("i1"))
    await store.accept(entry("i2"))
    await store.apply(
        opened("s1"),
        started("t1", "s1", "i1", person="telegram:7"),
        ended("t1"),
        started("t2", "s1", "i2", person="telegram:8"),
        ended("t2"),
        started("t3", "s1", person="telegram:7"),
        ended("t3"),
        started("t4", "s1", person="telegram:9"),
    )
    for turn, rows in (("t1", ["i1"]), ("t2", ["i2"]), ("t3", ["i1"]), ("t4", []), ("t9", [])):
        assert [each.id for each in await store.inbox.of_request(turn)] == rows, turn


async def test_only_waiting_entries_can_be_edited(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    assert await store.replace_payload("i1", b"edited")
    await store.apply(opened("s1"), SetInbox(ids=("i1",), state=HELD, at=2, session_id="s1"))
    assert await store.replace_payload("i1", b"edited again")
    await store.apply(started("t1", "s1", "i1"))
    assert not await store.replace_payload("i1", b"too late")
    assert not await store.replace_payload("i9", b"not there")
    [kept] = await store.inbox.of_turn("t1")
    assert kept.payload == b"edited again"


async def test_only_old_ignored_entries_are_deleted(store: SessionStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(1200):
            old = entry(f"old{number}", state=InboxState.IGNORED, payload=None, received_at=10)
            tasks.create_task(store.accept(old))
    await store.accept(entry("new", state=InboxState.IGNORED, payload=None, received_at=20))
    await store.accept(entry("answered", state=DONE, received_at=10))
    assert (await store.delete_ignored(before=20)).ignored == 1200
    assert (await store.delete_ignored(before=20)).ignored == 0
    assert await state_of(store, "new") is InboxState.IGNORED
    assert await state_of(store, "answered") is DONE


# --- turns -----------------------------------------------------------------------------------


async def test_a_turn_is_read_back_with_its_attempts_and_end(store: SessionStore) -> None:
    await store.apply(
        opened("s1"), started("t1", "s1", said="what time is it?", person="telegram:7")
    )
    begun = Turn(
        id="t1",
        session_id="s1",
        key=KEY,
        address=ADDRESS,
        state=TurnState.RUNNING,
        request="what time is it?",
        started_at=2000,
        person="telegram:7",
    )
    assert await store.turns.get("t1") == begun
    assert await store.turns.running() == (begun,)
    await store.apply(Checkpoint("t1", "it is"), StartAttempt("t1", 1, "openai/one", 2100))
    await store.apply(
        EndAttempt(
            turn_id="t1",
            number=1,
            verdict="CUT",
            at=2200,
            phase="text",
            received=40,
            cause="reset",
            request_id="req_1",
            input_tokens=10,
            output_tokens=2,
        ),
        StartAttempt("t1", 2, "openai/two", 2300),
    )
    await store.apply(EndTurn("t1", TurnState.FAILED, 2400, "no answer"))
    assert await store.turns.running() == ()
    assert await store.turns.get("t1") == msgspec.structs.replace(
        begun,
        state=TurnState.FAILED,
        finished_at=2400,
        attempts=2,
        cause="no answer",
    )
    assert await store.turns.of_session("s1") == (await store.turns.get("t1"),)


async def test_the_texts_of_running_turns_are_stored_until_their_ends(store: SessionStore) -> None:
    for number in (1, 2, 3):
        await store.apply(
            opened(f"s{number}", key=f"{KEY}:{number}"), started(f"t{number}", f"s{number}")
        )
    counts = store.count_queries()
    await store.save_texts({"t1": "one", "t2": "two", "unknown": "three"})
    assert (counts.statements, counts.commits) == (2, 1)  # BEGIN, and one UPDATE
    assert [turn.partial for turn in await store.turns.running()] == ["one", "two", ""]
    await store.apply(EndTurn("t1", TurnState.DONE, 2400))
    await store.save_texts({"t1": "too late", "t2": "two and more"})
    await store.apply(Checkpoint("t1", "too late as well"))
    texts = [await store.turns.get(f"t{number}") for number in (1, 2, 3)]
    assert [turn.partial for turn in texts if turn] == ["", "two and more", ""]


async def test_a_resumed_turn_keeps_its_id_and_person(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    start = started("t1", "s1", "i1", person="telegram:7")
    await store.apply(opened("s1"), start, Checkpoint("t1", "half"))
    await store.apply(
        StartTurn(
            id="t1",
            session_id="s1",
            key=KEY,
            address=ADDRESS,
            inbox=(),
            messages=(),
            request="hello",
            at=9000,
            person="telegram:8",
        )
    )
    turn, session = await store.turns.get("t1"), await store.sessions.get("s1")
    assert turn == Turn(
        id="t1",
        session_id="s1",
        key=KEY,
        address=ADDRESS,
        state=TurnState.RUNNING,
        request="hello",
        started_at=2000,
        partial="half",
        resumed=1,
        person="telegram:7",
    )
    assert session
    assert (session.messages, session.updated_at) == (1, 9000)


async def test_results_of_a_client_take_the_place_of_their_placeholders(
    store: SessionStore,
) -> None:
    calls = tuple(ToolCall(name, "weather", "{}") for name in ("c1", "c2"))
    waits = [
        Message("tool", "none yet", tool_call_id=name, interrupted=AWAITING_CLIENT)
        for name in ("c1", "c2")
    ]
    rows = (Message("assistant", tool_calls=calls), *waits)
    await store.apply(opened("s1"), started("t1", "s1"), AppendMessages("s1", "t1", rows, 2100))
    await store.apply(ended("t1"))
    result = Message("tool", "sunny", tool_call_id="c1")
    said = Message("user", "and now?")
    for turn in ("t2", "t3"):  # the second time, the call has its result
        start = msgspec.structs.replace(started(turn, "s1"), messages=(result, said))
        await store.apply(start, ended(turn))
    history = await store.sessions.history("s1")
    assert history[1:] == (rows[0], result, waits[1], said, said)
    session = await store.sessions.get("s1")
    assert session
    assert session.messages == len(history)
    assert await store.find_problems() == ()


async def test_a_turn_that_goes_on_keeps_what_it_began_with(store: SessionStore) -> None:
    await store.accept(entry("a"))
    await store.accept(entry("b"))
    await store.apply(opened("s1"), started("t1", "s1", "a", person="telegram:7"))
    await store.apply(started("t1", "s1", said=""))  # resumed after a crash
    handed = EndTurn("t1", TurnState.DONE, 3000, "tool_calls")
    await store.apply(StartAttempt("t1", 1, "openai/one", 2100), handed)
    again = started("t1", "s1", "b", said="sunny", at=4000, person="telegram:7")
    await store.apply(msgspec.structs.replace(again, continues=True))
    turn = await store.turns.get("t1")
    assert turn
    assert (turn.state, turn.cause, turn.finished_at) == (TurnState.RUNNING, None, None)
    assert (turn.started_at, turn.request, turn.attempts, turn.resumed) == (2000, "hello", 1, 0)
    assert [each.id for each in await store.inbox.of_turn("t1")] == ["a", "b"]
    await store.apply(ended("t1"))
    assert [each.state for each in await store.inbox.of_turn("t1")] == [InboxState.DONE] * 2
    assert await store.find_problems() == ()


async def test_a_history_with_its_own_calls_is_appended(store: SessionStore) -> None:
    call = Message("assistant", tool_calls=(ToolCall("c1", "weather", "{}"),))
    result = Message("tool", "sunny", tool_call_id="c1")
    start = msgspec.structs.replace(started("t1", "s1"), messages=(call, result))
    await store.apply(opened("s1"), start)
    assert await store.sessions.history("s1") == (call, result)


async def test_an_attempt_cannot_start_twice(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"), StartAttempt("t1", 1, "openai/one", 1))
    with pytest.raises(Conflict):
        await store.apply(StartAttempt("t1", 1, "openai/two", 2))
    with pytest.raises(RecordNotFound, match="attempt 2 of t1"):
        await store.apply(EndAttempt(turn_id="t1", number=2, verdict="DONE", at=3))


async def test_the_end_of_an_attempt_stores_the_request_hash(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    for number in (1, 2):
        await store.apply(StartAttempt("t1", number, "openai/one", number))
    await store.apply(
        EndAttempt(turn_id="t1", number=1, verdict="DONE", at=3, request_hash="c0ffee")
    )
    asked = sa.select(schema.attempts.c.request_hash).order_by(schema.attempts.c.number)
    assert await store.database.read(lambda c: list(c.scalars(asked))) == ["c0ffee", ""]


async def test_a_tool_call_is_never_started_twice(store: SessionStore) -> None:
    start = StartTool(
        turn_id="t1",
        call_id="call_1",
        tool="write",
        risk="write",
        arguments='{"a": 1}',
        at=2100,
        attempt=3,
    )
    await store.apply(opened("s1"), started("t1", "s1"), start)
    with pytest.raises(ToolAlreadyStarted, match="call_1 of t1"):
        await store.apply(Checkpoint("t1", "not this either"), start)
    turn = await store.turns.get("t1")
    assert turn
    assert turn.partial == ""
    assert await store.turns.tool_runs("t1") == (
        ToolRun(
            turn_id="t1",
            call_id="call_1",
            tool="write",
            risk="write",
            arguments='{"a": 1}',
            started_at=2100,
            attempt=3,
        ),
    )


async def test_tool_runs_are_read_back_with_their_result(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    for number, name in enumerate(("call_b", "call_a")):
        await store.apply(
            StartTool(
                turn_id="t1",
                call_id=name,
                tool="write",
                risk="write",
                arguments="{}",
                at=2100 + number,
            )
        )
    await store.apply(
        EndTool(turn_id="t1", call_id="call_b", ok=False, result="no \x00 disk", at=2200)
    )
    failed, unknown = await store.turns.tool_runs("t1")
    assert (failed.call_id, failed.ok, failed.result) == ("call_b", False, "no \ufffd disk")
    assert (unknown.call_id, unknown.ok, unknown.finished_at) == ("call_a", None, None)
    with pytest.raises(RecordNotFound, match="call_c of t1"):
        await store.apply(EndTool(turn_id="t1", call_id="call_c", ok=True, result="", at=2300))


async def test_tool_runs_of_calls_are_found_across_turns_of_a_session(
    store: SessionStore,
) -> None:
    await store.apply(
        opened("s1"),
        started("t1", "s1"),
        StartTool(turn_id="t1", call_id="c1", tool="write", risk="write", arguments="{}", at=2100),
        StartTool(turn_id="t1", call_id="c2", tool="write", risk="write", arguments="{}", at=2101),
        ended("t1"),
        started("t2", "s1"),
        StartTool(turn_id="t2", call_id="c3", tool="write", risk="write", arguments="{}", at=2102),
        EndTool(turn_id="t1", call_id="c1", ok=True, result="late", at=2103),
    )
    found = await store.turns.tool_runs_of_calls("s1", ["c3", "c1", "c9"])
    assert [(run.turn_id, run.call_id, run.result) for run in found] == [
        ("t1", "c1", "late"),
        ("t2", "c3", None),
    ]
    assert await store.turns.tool_runs_of_calls("s1", []) == ()
    assert await store.turns.tool_runs_of_calls("s2", ["c1"]) == ()


# --- outbox ----------------------------------------------------------------------------------


async def test_an_item_is_read_back_unchanged(store: SessionStore) -> None:
    put = OutboxItem(
        id="o1",
        address=ADDRESS,
        kind=ItemKind.ASK,
        state=ItemState.PENDING,
        body=b"\x00body",
        created_at=7,
        shown=b"shown",
        turn_id="t1",
        reply_to="m1",
        not_before=3,
    )
    await store.apply(PutItem(put))
    assert await store.outbox.undelivered() == (msgspec.structs.replace(put, seq=1),)


async def test_putting_an_item_again_keeps_its_delivery_state(
    store: SessionStore,
) -> None:
    await store.apply(PutItem(item("o1", text="half", final=False)))
    await store.apply(
        SetItem(id="o1", state=ItemState.ATTEMPTING, at=2600, shown=b"m1", tries=2, not_before=9000)
    )
    news = msgspec.structs.replace(item("o1", text="whole"), error="cut", reply_to="m7")
    await store.apply(PutItem(news))
    [kept] = await store.outbox.undelivered()
    assert (kept.body, kept.final, kept.error, kept.reply_to) == (b"whole", True, "cut", "m7")
    assert (kept.shown, kept.tries, kept.not_before) == (b"m1", 2, 9000)
    assert (kept.state, kept.created_at) == (ItemState.PENDING, 2500)


async def test_a_delivery_update_changes_only_the_given_fields(store: SessionStore) -> None:
    await store.apply(PutItem(item("o1")))
    await store.apply(
        SetItem(id="o1", state=ItemState.UNKNOWN, at=2600, shown=b"m1", tries=1, error="cut")
    )
    await store.apply(SetItem(id="o1", state=ItemState.ATTEMPTING, at=2700, tries=2))
    [tried] = await store.outbox.undelivered()
    assert (tried.shown, tried.tries, tried.error, tried.settled_at) == (b"m1", 2, "cut", None)
    await store.apply(SetItem(id="o1", state=ItemState.SENT, at=2800))
    assert await store.outbox.undelivered() == ()
    [sent] = await store.timeline(ADDRESS, 0, 10)
    assert isinstance(sent, OutboxItem)
    assert (sent.state, sent.settled_at, sent.shown) == (ItemState.SENT, 2800, b"m1")
    await store.apply(PutItem(item("o1", text="edited")))
    [reopened] = await store.outbox.undelivered()
    assert (reopened.settled_at, reopened.shown) == (None, b"m1")
    with pytest.raises(RecordNotFound, match="o9"):
        await store.apply(SetItem(id="o9", state=ItemState.SENT, at=1))


async def test_only_unsettled_items_are_undelivered(store: SessionStore) -> None:
    for state in ItemState:
        await store.apply(PutItem(item(f"o_{state.value}", state=state)))
    assert [each.state for each in await store.outbox.undelivered()] == [
        ItemState.PENDING,
        ItemState.ATTEMPTING,
        ItemState.UNKNOWN,
    ]


# --- the timeline ----------------------------------------------------------------------------


def ids(rows: tuple[object, ...]) -> list[str]:
    return [str(getattr(row, "id", "")) for row in rows]


async def test_the_timeline_merges_messages_and_answers(
    store: SessionStore,
) -> None:
    await store.accept(entry("i1"))
    await store.apply(PutItem(item("o1")))
    await store.accept(entry("i2"))
    await store.accept(entry("ignored", state=InboxState.IGNORED, payload=None))
    await store.accept(entry("elsewhere", address=Address("web", "a")))
    await store.apply(
        PutItem(item("unfinished", final=False)),
        PutItem(item("dead", state=ItemState.DEAD)),
        PutItem(item("elsewhere too", address=Address("web", "a"))),
        PutItem(item("o2")),
    )
    rows = await store.timeline(ADDRESS, 0, 10)
    assert ids(rows) == ["i1", "o1", "i2", "o2"]
    assert [row.seq for row in rows] == sorted({row.seq for row in rows})
    assert ids(await store.timeline(ADDRESS, 0, 3)) == ["o1", "i2", "o2"]
    assert ids(await store.timeline(ADDRESS, rows[0].seq, 2)) == ["o1", "i2"]
    assert await store.timeline(ADDRESS, rows[-1].seq, 10) == ()


async def test_a_timeline_reader_never_misses_a_late_answer(
    store: SessionStore,
) -> None:
    await store.accept(entry("i1"))
    await store.apply(PutItem(item("o1", text="", final=False)))
    await store.accept(entry("i2"))
    seen = await store.timeline(ADDRESS, 0, 10)
    assert ids(seen) == ["i1", "i2"]
    await store.apply(PutItem(item("o1", text="more", final=False)))
    await store.apply(PutItem(item("o1", text="whole")))
    [late] = await store.timeline(ADDRESS, seen[-1].seq, 10)
    assert late.id == "o1"
    await store.accept(entry("i3"))
    await store.apply(PutItem(item("o1", text="edited")))
    assert ids(await store.timeline(ADDRESS, seen[-1].seq, 10)) == ["o1", "i3"]


async def test_sequence_numbers_continue_after_a_restart(
    store: SessionStore, store_url: str
) -> None:
    await store.accept(entry("i1"))
    await store.apply(PutItem(item("o1", final=False)))
    await store.apply(PutItem(item("o1")))
    last = (await store.timeline(ADDRESS, 0, 10))[-1].seq
    await store.close()
    again = await SessionStore.open(store_url, clock=store._clock)
    try:
        await again.accept(entry("i2"))
        rows = await again.timeline(ADDRESS, 0, 10)
        assert ids(rows) == ["i1", "o1", "i2"]
        assert rows[-1].seq > last
    finally:
        await again.close()


async def test_a_message_is_traced_to_its_turn_and_items(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    await store.accept(entry("i2", state=InboxState.IGNORED, payload=None))
    await store.apply(opened("s1"), started("t1", "s1", "i1"), PutItem(item("o1", turn="t1")))
    await store.apply(ended("t1"), PutItem(item("o2", turn="t2")))
    turn = await store.turns.get("t1")
    shown = tuple(each for each in await store.outbox.undelivered() if each.id == "o1")
    [first] = await store.inbox.of_turn("t1")
    ignored = await store.inbox.find("telegram::1001", "event of i2")
    assert ignored
    expected = (MessageTrace(ignored, None, ()), MessageTrace(first, turn, shown))
    assert await store.trace(KEY) == await store.trace(write_address(ADDRESS)) == expected
    assert await store.trace("event of i1") == await store.trace("i1") == (expected[1],)
    assert await store.trace("t1") == (expected[1],)
    assert await store.trace(KEY, limit=1) == (expected[0],)
    assert await store.trace("nothing") == ()


async def test_an_address_is_stored_as_text_and_read_as_a_record(store: SessionStore) -> None:
    place = Address("slack", "T1/D1", "second", "7.5")
    await store.accept(entry("i1", address=place))
    await store.apply(
        OpenSession("s1", KEY, place, 1000),
        msgspec.structs.replace(started("t1", "s1", "i1"), address=place),
        PutApproval(msgspec.structs.replace(question("p1"), address=place)),
        PutItem(item("o1", address=place)),
    )
    stored = '{"platform":"slack","chat":"T1/D1","account":"second","thread":"7.5"}'
    raw = sa.text(
        "SELECT address FROM inbox UNION ALL SELECT address FROM sessions UNION ALL "
        "SELECT address FROM turns UNION ALL SELECT address FROM approvals UNION ALL "
        "SELECT address FROM outbox"
    )
    assert await store.database.read(lambda c: c.scalars(raw).all()) == [stored] * 5
    conversation = await store.conversation(KEY)
    found = (
        conversation.active,
        *conversation.running,
        *await store.inbox.of_turn("t1"),
        await store.approvals.get("p1"),
        *await store.outbox.undelivered(),
    )
    assert [row.address for row in found if row] == [place] * len(found) == [place] * 5
    assert [row.id for row in await store.timeline(place, 0, 10)] == ["i1", "o1"]


async def test_an_empty_list_of_changes_or_rows_changes_nothing(store: SessionStore) -> None:
    await store.apply(opened("s1"))
    before = await store.sessions.get("s1")
    await store.apply()
    await store.apply(SetInbox(ids=(), state=DONE, at=1), AppendMessages("s1", "t1", (), 1000))
    assert await store.sessions.get("s1") == before
    await store.apply(AppendMessages("s1", "t1", (Message("user", ""),), 1000))
    assert await store.sessions.history("s1") == (Message("user", ""),)


async def test_a_late_live_update_does_not_replace_the_final_item(
    store: SessionStore,
) -> None:
    await store.apply(PutItem(item("a_1", text="so far", final=False)))
    await store.apply(PutItem(item("a_1", text="whole")))
    await store.apply(PutItem(item("a_1", text="so far", final=False)))
    (found,) = await store.outbox.undelivered()
    assert (found.body, found.final) == (b"whole", True)
