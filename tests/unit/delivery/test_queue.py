"""The order of a chat's items."""

import msgspec

from gateway.delivery.pacing import Pace
from gateway.delivery.plan import ItemPhase
from gateway.delivery.queue import CarryOut, ChatQueue, QueueEntry, WaitUntil
from gateway.delivery.view import ItemBody, ShownItem, ShownMessage, ShownState, write_body
from platforms.core.contract import Address, Capabilities, Live, Repeat, Unit
from sessions.records import ItemKind, ItemState, OutboxItem

ADDRESS = Address("memory", "7")


def item(text: str, *, final: bool, deferred: bool = False) -> OutboxItem:
    body = write_body(ItemBody(text=text, deferred=deferred))
    return OutboxItem(
        id="a_1",
        address=ADDRESS,
        kind=ItemKind.ANSWER,
        state=ItemState.PENDING,
        body=body,
        created_at=0,
        final=final,
    )


def test_a_finished_abandoned_answer_waits_no_longer() -> None:
    entry = QueueEntry(item("so far", final=False), ItemPhase.ABANDONED, stored=True)
    entry.not_before = 100.0
    entry.finish(item("whole", final=True))
    assert (entry.phase, entry.not_before, entry.body.text) == (ItemPhase.FINAL, 0.0, "whole")


def test_a_pause_of_the_platform_survives_a_change_of_the_text() -> None:
    entry = QueueEntry(item("first", final=True), ItemPhase.FINAL, stored=True)
    entry.not_before = 100.0
    entry.finish(item("second", final=True))
    assert entry.not_before == 100.0


def _queue_with(*kinds: str) -> tuple[ChatQueue, list[QueueEntry]]:
    """Return a queue of finished items: an `answer`, or a deferred `notice`."""
    queue = ChatQueue(
        Capabilities(4096, Unit.CHARACTERS, live=Live.EDIT, repeat=Repeat.ALWAYS), str
    )
    entries = []
    for number, kind in enumerate(kinds):
        text = item("text", final=True, deferred=kind == "notice")
        waiting = msgspec.structs.replace(text, id=f"a_{number}")
        entries.append(QueueEntry(waiting, ItemPhase.FINAL, stored=True))
        queue.add(entries[-1])
    return queue, entries


def _next_item(queue: ChatQueue) -> str:
    move = queue.next_move(urgent=False, now=1.0, pace=Pace(burst=100, per_second=100.0, now=0.0))
    assert isinstance(move, CarryOut)
    return move.entry.item.id


def test_an_answer_goes_before_the_deferred_notices_queued_before_it() -> None:
    queue, entries = _queue_with(*["notice"] * 400, "answer", "notice")
    assert _next_item(queue) == "a_400"
    queue.remove(entries[400])
    assert _next_item(queue) == "a_0"


def test_a_deferred_notice_waits_while_an_answer_waits_for_its_repetition() -> None:
    queue, entries = _queue_with("notice", "answer")
    entries[1].not_before = 5.0
    move = queue.next_move(urgent=False, now=1.0, pace=Pace(burst=9, per_second=9.0, now=0.0))
    assert move == WaitUntil(5.0)


def test_a_deferred_notice_shown_in_part_is_continued_first() -> None:
    queue, entries = _queue_with("notice", "answer")
    part = ShownMessage(op="a_0.0", fate=ShownState.SHOWN, message="1", looks="old")
    entries[0].shown = ShownItem((part,))
    assert _next_item(queue) == "a_0"


def test_answers_in_one_chat_take_turns() -> None:
    can = Capabilities(
        4096, Unit.CHARACTERS, live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.0
    )
    queue = ChatQueue(can, str)
    for number in range(3):
        written = msgspec.structs.replace(item("", final=False), id=f"a_{number}")
        entry = QueueEntry(written, ItemPhase.LIVE, stored=False)
        entry.read_text, entry.dirty = "an answer".strip, True
        queue.add(entry)
    pace = Pace(burst=100, per_second=100.0, now=0.0)
    shown: list[str] = []
    for now in (1.0, 2.0, 3.0):
        move = queue.next_move(urgent=False, now=now, pace=pace)
        assert isinstance(move, CarryOut)
        shown.append(move.entry.item.id)
        move.entry.next_live_at = now  # as the lane sets it; there is always new text
    assert shown == ["a_0", "a_1", "a_2"]
