"""One item's place in its chat's queue."""

from gateway.delivery.plan import Phase
from gateway.delivery.queue import Entry
from gateway.delivery.view import Body, write_body
from sessions.records import Item, ItemState


def item(text: str, *, final: bool) -> Item:
    body = write_body(Body(text=text))
    return Item("a_1", "{}", "answer", ItemState.PENDING, body, 0, final=final)


def test_an_abandoned_answer_that_somebody_finishes_waits_no_longer() -> None:
    entry = Entry(item("so far", final=False), Phase.ABANDONED, stored=True)
    entry.not_before = 100.0
    entry.finish(item("whole", final=True))
    assert (entry.phase, entry.not_before, entry.body.text) == (Phase.FINAL, 0.0, "whole")


def test_a_pause_that_the_platform_asked_for_is_kept_when_the_text_changes() -> None:
    entry = Entry(item("first", final=True), Phase.FINAL, stored=True)
    entry.not_before = 100.0
    entry.finish(item("second", final=True))
    assert entry.not_before == 100.0
