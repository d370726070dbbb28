"""Download results of attachments, on every database."""

import msgspec
import pytest

from sessions.changes import AppendMessages, SetFileResults, SetRequest, SetTitle, TakeBackTurn
from sessions.errors import RecordNotFound
from sessions.records import Attachment, Message
from sessions.store.store import SessionStore
from tests.contract.store_kit import ended, opened, started, talk

PHOTO = Attachment(
    name="photo.jpg", media_type="image/jpeg", path="received/a/photo.jpg", ref="r1", size=9
)
VOICE = Attachment(
    name="v.ogg", media_type="audio/ogg", path="received/b/v.ogg", ref="r2", voice=True
)
FETCHED = msgspec.structs.replace(PHOTO, fetched=True)
HEARD = msgspec.structs.replace(VOICE, fetched=True, heard="Buy \ud800 milk")


def sent(turn: str, *rows: Message) -> AppendMessages:
    return AppendMessages("s1", turn, rows, 2000)


async def test_download_results_are_written_into_their_rows(store: SessionStore) -> None:
    rows = (Message("user", "look", files=(PHOTO, VOICE)), Message("user", "and", sender="Ann"))
    await store.apply(opened("s1"), sent("t1", *rows))
    assert await store.sessions.history("s1") == rows
    await store.apply(SetFileResults("s1", 2, (FETCHED, HEARD)))
    first, second = await store.sessions.history("s1")
    assert (first.content, second) == ("look", rows[1])
    assert first.files[0] == FETCHED
    assert first.files[1].heard.startswith("Buy ")
    session = await store.sessions.get("s1")
    assert session
    assert session.messages == 2


async def test_only_the_newest_rows_are_searched(store: SessionStore) -> None:
    rows = tuple(Message("user", str(number), files=(PHOTO,)) for number in range(3))
    await store.apply(opened("s1"), sent("t1", *rows))
    await store.apply(SetFileResults("s1", 2, (FETCHED,)))
    found = [row.files[0].fetched for row in await store.sessions.history("s1")]
    assert found == [False, True, True]


async def test_retracted_rows_are_not_counted_as_newest(store: SessionStore) -> None:
    await talk(store, "s1", 1)
    await store.apply(sent("t1", Message("user", "look", files=(PHOTO,))))
    await store.apply(started("t2", "s1", said="never mind"), ended("t2"))
    await store.apply(TakeBackTurn("s1", "t2", 5000))
    await store.apply(SetFileResults("s1", 1, (FETCHED,)))
    assert (await store.sessions.history("s1"))[-1].files == (FETCHED,)


async def test_an_unknown_file_is_refused_and_changes_nothing(
    store: SessionStore,
) -> None:
    await store.apply(opened("s1"), sent("t1", Message("user", "look", files=(PHOTO,))))
    with pytest.raises(RecordNotFound, match=r"received/b/v\.ogg is not in the database"):
        await store.apply(SetTitle("s1", "changed"), SetFileResults("s1", 5, (HEARD,)))
    session = await store.sessions.get("s1")
    assert session
    assert session.title is None


async def test_the_cost_does_not_depend_on_the_history_length(store: SessionStore) -> None:
    costs = []
    for session, turns in (("s1", 1), ("s2", 60)):
        await talk(store, session, turns, key=f"telegram:{session}")
        row = Message("user", "look", files=(PHOTO,))
        await store.apply(AppendMessages(session, "t1", (row,), 2000))
        counts = store.count_queries()
        await store.apply(SetFileResults(session, 1, (FETCHED,)))
        costs.append((counts.statements, counts.commits))
    assert costs[0] == costs[1] <= (3, 1)  # one statement begins the transaction


async def test_a_transcribed_request_renames_its_turn_and_session(
    store: SessionStore,
) -> None:
    await store.apply(opened("s1"), started("t1", "s1", said="voice message"))
    await store.apply(SetRequest("t1", "s1", "voice message", "Buy milk\nand bread"))
    turn, session = await store.turns.get("t1"), await store.sessions.get("s1")
    assert turn
    assert session
    assert (turn.request, session.title) == ("Buy milk\nand bread", "Buy milk")
    await store.apply(ended("t1"), started("t2", "s1", said="voice message"))
    await store.apply(SetRequest("t2", "s1", "voice message", "And eggs"))
    turn, session = await store.turns.get("t2"), await store.sessions.get("s1")
    assert turn
    assert session
    assert (turn.request, session.title) == ("And eggs", "Buy milk")
    with pytest.raises(RecordNotFound):
        await store.apply(SetRequest("t9", "s1", "a", "b"))
