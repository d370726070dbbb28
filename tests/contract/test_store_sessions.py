"""Sessions and their history, on every database."""

import asyncio

import pytest

from sessions.changes import AppendMessages, SetInbox, SetSession, SetTitle, TakeBackTurn
from sessions.errors import AmbiguousSession, Conflict, RecordNotFound, StoreError
from sessions.records import (
    InboxState,
    Message,
    Session,
    SessionReason,
    SessionState,
    ToolCall,
)
from sessions.store.store import ConversationSnapshot, SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ADDRESS, KEY, ended, entry, opened, started, talk

ACTIVE, SUSPENDED, CLOSED = SessionState.ACTIVE, SessionState.SUSPENDED, SessionState.CLOSED


async def test_a_session_is_read_back_unchanged(store: SessionStore) -> None:
    await store.apply(opened("s1", at=7))
    assert await store.sessions.get("s1") == Session(
        id="s1",
        key=KEY,
        address=ADDRESS,
        state=ACTIVE,
        reason=None,
        title=None,
        messages=0,
        created_at=7,
        updated_at=7,
    )
    assert await store.sessions.get("s2") is None


async def test_a_key_has_at_most_one_active_session(store: SessionStore) -> None:
    await store.apply(opened("s1"))
    with pytest.raises(Conflict, match="telegram:1001 already has an active session"):
        await store.apply(opened("s2"))
    assert await store.sessions.get("s2") is None
    await store.apply(SetSession("s1", SUSPENDED, SessionReason.STOP, 2000), opened("s2"))
    with pytest.raises(Conflict, match="another session of its key"):
        await store.apply(SetSession("s1", ACTIVE, None, 3000))
    suspended = await store.sessions.get("s1")
    assert suspended
    assert (suspended.state, suspended.reason) == (SUSPENDED, SessionReason.STOP)


async def test_changes_are_committed_all_or_none(store: SessionStore) -> None:
    await store.apply(opened("s1"))
    with pytest.raises(Conflict):
        await store.apply(
            SetTitle("s1", "a new title"),
            started("t1", "s1"),
            opened("s2", key="telegram:1002"),
            opened("s3", key="telegram:1002"),
        )
    untouched = await store.sessions.get("s1")
    assert untouched
    assert (untouched.title, untouched.messages) == (None, 0)
    assert await store.turns.get("t1") is None
    assert await store.sessions.get("s2") is None


async def test_changing_a_missing_record_is_refused(store: SessionStore) -> None:
    with pytest.raises(RecordNotFound, match="s9 is not in the database"):
        await store.apply(SetSession("s9", CLOSED, SessionReason.NEW, 1))
    with pytest.raises(RecordNotFound):
        await store.apply(AppendMessages("s9", "t1", (Message("user", "hello"),), 1))
    with pytest.raises(RecordNotFound, match="StartTurn"):
        await store.apply(started("t1", "s9"))


async def test_a_session_is_titled_after_the_first_line_of_its_first_request(
    store: SessionStore,
) -> None:
    await store.apply(opened("s1"))
    await store.apply(started("t1", "s1", said=f"\n  {'word ' * 20}\nmore"), ended("t1"))
    await store.apply(started("t2", "s1", said="another request"))
    session = await store.sessions.get("s1")
    assert session
    assert session.title == ("word " * 12).strip()
    await store.apply(SetTitle("s1", "holiday"))
    session = await store.sessions.get("s1")
    assert session
    assert session.title == "holiday"


async def test_history_is_read_back_exactly_and_in_order(store: SessionStore) -> None:
    call = ToolCall("call_1", "write", '{"text": "a\\u0000b \\ud83d\\ude00"}', extra=b"\x00\xff")
    rows = (
        Message("user", "héllo ✓ 😀", sender="Ann (7)"),
        Message("assistant", tool_calls=(call,), reasoning=b"\x01\x02"),
        Message("tool", "done", tool_call_id="call_1"),
        Message("assistant", "half an ans", interrupted="stop"),
    )
    await store.apply(opened("s1"), AppendMessages("s1", "t1", rows, 2000))
    await store.apply(AppendMessages("s1", "t2", (Message("user", "go on"),), 3000))
    assert await store.sessions.history("s1") == (*rows, Message("user", "go on"))
    assert await store.sessions.history("s1", limit=2) == (rows[3], Message("user", "go on"))
    assert await store.sessions.history("s1", limit=0) == ()
    assert await store.sessions.history("nobody") == ()
    session = await store.sessions.get("s1")
    assert session
    assert (session.messages, session.updated_at) == (5, 3000)


async def test_unstorable_characters_are_replaced_and_never_refused(
    store: SessionStore,
) -> None:
    bad = "nul \x00 lone \ud800 end"
    call = ToolCall("call_1", "write", bad)
    await store.apply(opened("s1"), started("t1", "s1", said=bad), SetTitle("s1", bad), ended("t1"))
    await store.apply(AppendMessages("s1", "t1", (Message("assistant", "", (call,)),), 1))
    first, second = await store.sessions.history("s1")
    assert first.content.startswith("nul ")
    assert first.content.endswith(" end")
    assert second.tool_calls[0].arguments.endswith(" end")
    turn, session = await store.turns.get("t1"), await store.sessions.get("s1")
    assert turn
    assert turn.request == "nul \ufffd lone ? end"
    assert session
    assert session.title == "nul \ufffd lone ? end"


async def test_retracted_rows_leave_the_history_and_the_count(store: SessionStore) -> None:
    await talk(store, "s1", 3)
    await store.apply(TakeBackTurn("s1", "t_s1_00002", 5000))
    assert [row.content for row in await store.sessions.history("s1")] == [
        "question 0",
        "question 1",
    ]
    session = await store.sessions.get("s1")
    assert session
    assert session.messages == 2
    assert session.title == "question 0"
    assert len(await store.turns.of_session("s1")) == 3


async def test_after_an_undo_the_last_turn_is_the_one_before(store: SessionStore) -> None:
    await talk(store, "s1", 3)
    await store.apply(TakeBackTurn("s1", "t_s1_00002", 5000))
    last = await store.turns.last("s1")
    assert last
    assert last.id == "t_s1_00001"
    await store.apply(
        TakeBackTurn("s1", "t_s1_00001", 5000), TakeBackTurn("s1", "t_s1_00000", 5000)
    )
    assert await store.turns.last("s1") is None
    with pytest.raises(RecordNotFound):
        await store.apply(TakeBackTurn("s1", "t9", 5000))


async def test_an_unknown_conversation_is_empty(store: SessionStore) -> None:
    assert await store.conversation(KEY) == ConversationSnapshot()


async def test_a_conversation_snapshot_has_everything_an_actor_needs(store: SessionStore) -> None:
    for number in range(4):
        await store.accept(entry(f"i{number}"))
    await store.accept(entry("other", key="telegram:1002"))
    await store.apply(opened("s1"), started("t1", "s1", "i0"))
    await store.apply(
        ended("t1"),
        SetInbox(ids=("i1", "i2"), state=InboxState.HELD, at=3500, session_id="s1"),
        SetSession("s1", SUSPENDED, SessionReason.STOP, 4000),
    )
    stopped = await store.conversation(KEY)
    assert stopped.active is None
    assert stopped.suspended
    assert stopped.suspended == stopped.newest == await store.sessions.get("s1")
    assert (stopped.held, [each.id for each in stopped.waiting]) == (2, ["i3"])
    assert stopped.last_turn == await store.turns.get("t1")
    assert stopped.running == ()

    await store.apply(opened("s2", at=5000), started("t2", "s2", "i3", at=5000))
    fresh = await store.conversation(KEY)
    assert fresh.active
    assert fresh.active == fresh.newest == await store.sessions.get("s2")
    assert fresh.suspended == stopped.suspended
    assert fresh.running == (await store.turns.get("t2"),)
    assert fresh.last_turn == await store.turns.get("t2")
    assert (fresh.held, fresh.waiting) == (2, ())


async def test_the_resumable_session_is_the_last_suspended_one(
    store: SessionStore,
) -> None:
    for name, at in (("s1", 9000), ("s2", 8000)):
        await store.apply(opened(name), SetSession(name, SUSPENDED, SessionReason.STOP, at))
    await store.apply(opened("s3"), SetSession("s3", CLOSED, SessionReason.NEW, 9500))
    found = await store.conversation(KEY)
    assert found.suspended
    assert found.newest
    assert (found.active, found.suspended.id, found.newest.id) == (None, "s1", "s3")
    await store.apply(SetSession("s1", ACTIVE, None, 9900))
    found = await store.conversation(KEY)
    assert found.active
    assert found.suspended
    assert (found.active.id, found.suspended.id) == ("s1", "s2")
    assert found.active.reason is None


async def test_sessions_are_listed_newest_first(store: SessionStore) -> None:
    keys = {
        "s1": "telegram:1001",
        "s2": "telegram@work:1001",
        "s3": "telegramx:1",
        "s4": "web:a",
        "s5": "telegram:1002:u=7",
    }
    for name, key in keys.items():
        await store.apply(opened(name, key=key))
    await store.apply(SetSession("s1", CLOSED, SessionReason.NEW, 2), opened("s6"))

    def names(found: tuple[Session, ...]) -> list[str]:
        return [session.id for session in found]

    assert names(await store.sessions.list()) == ["s6", "s5", "s4", "s3", "s2", "s1"]
    assert names(await store.sessions.list(limit=2)) == ["s6", "s5"]
    assert names(await store.sessions.list(key=KEY)) == ["s6", "s1"]
    assert names(await store.sessions.list(platform="telegram")) == ["s6", "s5", "s2", "s1"]
    assert names(await store.sessions.list(platform="web")) == ["s4"]
    assert await store.sessions.list(platform="nothing") == ()


async def test_a_session_is_found_by_a_prefix_of_its_id(store: SessionStore) -> None:
    for name in ("s_aab1", "s_aab2", "s_aac1", "s_aac"):
        await store.apply(opened(name, key=f"web:{name}"))

    async def found(text: str, key: str | None = None) -> str | None:
        session = await store.sessions.find(text, key)
        return session.id if session else None

    assert await found("s_aab2") == "s_aab2"
    assert await found("s_aac") == "s_aac"
    assert await found("s_aac1") == "s_aac1"
    assert await found("nothing%") is None
    with pytest.raises(AmbiguousSession, match="s_aab matches 2 or more sessions"):
        await found("s_aab")
    assert await found("s_aab", "web:s_aab1") == "s_aab1"
    assert await found("s_aab2", "web:s_aab1") is None


async def test_chats_of_a_platform_are_listed_last_used_first(store: SessionStore) -> None:
    await talk(store, "s1", 1, key="web:a")
    await store.apply(SetSession("s1", CLOSED, SessionReason.NEW, 4000))
    for name, key, at in (("s2", "web:b", 5000), ("s3", "web:a", 6000), ("s4", "web:c", 7000)):
        changed = opened(name, key=key, at=at)
        await store.apply(
            type(changed)(name, key, Address(*key.split(":")), at), SetTitle(name, name)
        )
    await store.apply(SetSession("s4", CLOSED, SessionReason.DELETED, 8000))
    await store.apply(opened("s5", key="telegram:1"))
    assert await store.sessions.chats("web", 10) == (
        (Address("web", "a"), "s3", 6000),
        (Address("web", "b"), "s2", 5000),
        (ADDRESS, "question 0", 4000),
    )
    assert len(await store.sessions.chats("web", 1)) == 1


async def test_small_values_are_stored_replaced_and_deleted(store: SessionStore) -> None:
    assert await store.get_value("telegram", "offset") is None
    await store.put_value("telegram", "offset", "1")
    await store.put_value("telegram", "offset", "2")
    await store.put_value("telegram", "name", "bot")
    await store.put_value("slack", "offset", "9")
    assert await store.get_value("telegram", "offset") == "2"
    assert await store.values("telegram") == {"offset": "2", "name": "bot"}
    await store.put_value("telegram", "offset", None)
    await store.put_value("telegram", "never there", None)
    assert await store.values("telegram") == {"name": "bot"}


async def test_fifty_concurrent_writers_lose_nothing_and_share_commits(store: SessionStore) -> None:
    async def chat(number: int) -> None:
        key, session = f"web:{number:02d}", f"s_{number:02d}"
        assert await store.accept(entry(f"i_{number:02d}", key=key))
        await store.apply(opened(session, key=key))
        for turn in (f"t_{number:02d}_{each}" for each in range(5)):
            await store.apply(started(turn, session, key=key))
            await store.apply(ended(turn))

    counts = store.count_queries()
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(chat(number))
    assert {session.messages for session in await store.sessions.list()} == {5}
    assert len(await store.sessions.list()) == 50
    assert await store.turns.running() == ()
    assert counts.commits < 50 * 12 / 2, "waiting writes must share commits"


async def test_checking_writability_commits_a_write(store: SessionStore) -> None:
    await store.check_writable()  # registers the new connection's writer first on PostgreSQL
    counts = store.count_queries()
    await store.check_writable()
    assert counts.commits == 1
    assert await store.values("store") != {}
    assert await store.find_problems() == ()


async def test_a_read_only_store_sees_the_writes_of_another_store(
    store: SessionStore, store_url: str
) -> None:
    await talk(store, "s1", 1)
    reader = await SessionStore.open(store_url, clock=SystemClock(), read_only=True)
    try:
        assert await reader.sessions.list() == await store.sessions.list()
        await talk(store, "s2", 1, key="web:a")
        assert len(await reader.sessions.list()) == 2
        with pytest.raises(StoreError, match="opened read-only"):
            await reader.apply(opened("s3", key="web:b"))
        with pytest.raises(StoreError, match="cannot be used"):
            await reader.database.read(
                lambda c: c.exec_driver_sql("INSERT INTO shelves VALUES ('a', 'b', 'c')")
            )
    finally:
        await reader.close()
    assert await store.get_value("a", "b") is None


async def test_a_history_is_read_up_to_the_end_of_a_turn(store: SessionStore) -> None:
    await store.apply(opened("s1"), opened("s2", key="telegram:1002"))
    await store.apply(started("t1", "s1", said="one"))
    await store.apply(AppendMessages("s1", "t1", (Message("assistant", "two"),), 1), ended("t1"))
    await store.apply(started("x1", "s2", key="telegram:1002", said="elsewhere"), ended("x1"))
    await store.apply(started("t2", "s1", said="three"), ended("t2"))
    await store.apply(started("t3", "s1", said="four"), ended("t3"))

    async def read(session: str, turn: str) -> list[str]:
        return [row.content for row in await store.sessions.history_up_to(session, turn)]

    assert await read("s1", "t1") == ["one", "two"]
    assert await read("s1", "t2") == ["one", "two", "three"]
    assert await read("s1", "x1") == await read("s1", "t9") == await read("s9", "t1") == []
    await store.apply(TakeBackTurn("s1", "t1", 9))
    assert await read("s1", "t2") == ["three"]


async def test_an_inbox_entry_is_found_by_its_id(store: SessionStore) -> None:
    await store.accept(entry("i1"))
    await store.accept(entry("i2"))
    found = await store.inbox.get("i2")
    assert found
    assert (found.id, found.event) == ("i2", "event of i2")
    assert await store.inbox.get("i3") is None


async def test_titles_and_requests_of_older_versions_have_no_frames(store: SessionStore) -> None:
    room = "[Earlier in this room, from people who may not be known:\n  Eve: hi\n]\n"
    said = f"{room}[In reply to Eve: hi]\nbuy milk"
    await store.apply(opened("s1"), started("t1", "s1", said=said), ended("t1"))
    (turn,) = await store.turns.of_session("s1")
    assert turn.request == "buy milk"
    session = await store.sessions.get("s1")
    assert session is not None
    assert session.title is None
    assert (await store.sessions.history("s1"))[0].content == said
