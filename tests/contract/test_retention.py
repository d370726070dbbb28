"""What is not to be kept goes, whatever stands in the way for a while."""

import logging

import pytest

from gateway.retention import Retention
from sessions.changes import SetSession
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import ConversationState, Event
from sessions.records import SessionReason, SessionState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import talk

CLOSED = SessionState.CLOSED


async def broken(key: str, _: Event) -> ConversationState:
    msg = f"the owner of {key} broke"
    raise EventNotHandled(msg)


async def test_what_a_dead_process_left_of_a_deleted_session_goes(store: SessionStore) -> None:
    await talk(store, "s1", 2)
    await talk(store, "s2", 2, key="web:a")
    await store.apply(SetSession("s1", CLOSED, SessionReason.DELETED, 5000))
    await Retention(store, SystemClock(), broken, lambda: None).run_once()
    assert await store.sessions.history("s1") == ()
    assert len(await store.sessions.history("s2")) == 2


async def test_a_session_whose_owner_is_broken_stays(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await talk(store, "s1", 2)
    await store.apply(SetSession("s1", CLOSED, SessionReason.NEW, 5000))
    await Retention(store, SystemClock(), broken, lambda: 1).run_once()
    assert len(await store.sessions.history("s1")) == 2
    assert "session s1 not deleted: the owner of telegram:1001 broke" in caplog.text


async def test_words_that_cannot_be_taken_now_are_left_to_the_next_round(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.close()
    with caplog.at_level(logging.WARNING):
        await Retention(store, SystemClock(), broken, lambda: None).erase_text("s1")
    assert "session s1: text not erased yet: The database" in caplog.text
