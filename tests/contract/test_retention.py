"""What is not to be kept goes, whatever stands in the way for a while."""

import logging

import pytest
import sqlalchemy as sa

from gateway.retention import Retention
from gateway.turns.choices import ModelChoices
from sessions.changes import SetSession
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import ConversationState, DeleteSession, Event
from sessions.records import SessionReason, SessionState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import opened, started, talk

CLOSED = SessionState.CLOSED


async def broken(key: str, _: Event) -> ConversationState:
    msg = f"the owner of {key} broke"
    raise EventNotHandled(msg)


async def nothing(_: str) -> None:
    pass


async def test_the_model_of_a_conversation_is_forgotten_with_its_last_session(
    store: SessionStore,
) -> None:
    async def close(_: str, event: Event) -> ConversationState:
        assert isinstance(event, DeleteSession)
        await store.apply(SetSession(event.session, CLOSED, SessionReason.DELETED, 5000))
        return ConversationState(key="any")

    choices = ModelChoices(store)
    for key, sessions in (("web:gone", 1), ("web:stays", 2)):
        await choices.set_model(key, "big")
        for number in range(sessions):
            session = f"s{number}_{key}"
            await talk(store, session, 1, key=key)
            await store.apply(SetSession(session, CLOSED, SessionReason.NEW, 5000))
    await talk(store, "s9", 1, key="web:stays")  # active, so it is kept
    await Retention(store, SystemClock(), close, lambda: 1, choices.forget).run_once()
    assert list(await store.values("choices")) == ["web:stays"]
    assert choices.get("web:gone").model is None


async def test_what_a_dead_process_left_of_a_deleted_session_goes(store: SessionStore) -> None:
    await talk(store, "s1", 2)
    await talk(store, "s2", 2, key="web:a")
    await store.apply(SetSession("s1", CLOSED, SessionReason.DELETED, 5000))
    await Retention(store, SystemClock(), broken, lambda: None, nothing).run_once()
    assert await store.sessions.history("s1") == ()
    assert len(await store.sessions.history("s2")) == 2


async def test_a_session_whose_owner_is_broken_stays(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await talk(store, "s1", 2)
    await store.apply(SetSession("s1", CLOSED, SessionReason.NEW, 5000))
    await Retention(store, SystemClock(), broken, lambda: 1, nothing).run_once()
    assert len(await store.sessions.history("s1")) == 2
    assert "session s1 not deleted: the owner of telegram:1001 broke" in caplog.text


async def test_words_that_cannot_be_taken_now_are_left_to_the_next_round(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.close()
    with caplog.at_level(logging.WARNING):
        await Retention(store, SystemClock(), broken, lambda: None, nothing).erase_text("s1")
    assert "session s1: text not erased yet: The database" in caplog.text


async def test_checkpoints_that_older_versions_kept_are_deleted_once(
    store: SessionStore, store_url: str
) -> None:
    texts = {f"t_s1_{number:05d}": "x" * 20_000 for number in range(150)}
    await talk(store, "s1", len(texts))
    await store.apply(opened("s2", key="web:a"), started("t_now", "s2", key="web:a"))
    await store.save_texts({"t_now": "so far"})
    rows = [{"turn": turn, "text": text} for turn, text in texts.items()]
    old = sa.text("UPDATE turns SET partial = :text WHERE id = :turn")
    await store.database.write(lambda c: c.execute(old, rows).rowcount)
    retention = Retention(store, SystemClock(), broken, lambda: None, nothing)
    await retention.run_once()
    turns = [*await store.turns.of_session("s1"), *await store.turns.of_session("s2")]
    assert {turn.partial for turn in turns} == {"", "so far"}
    if store_url.startswith("sqlite"):
        pages = await store.database.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
        assert (pages or 0) * 4096 < 1_000_000, "the space of the texts is not released"
    assert await store.values("retention")
    await store.database.write(lambda c: c.execute(old, rows[:1]).rowcount)
    await retention.run_once()  # does not search all turns again
    assert (await store.turns.of_session("s1"))[0].partial
