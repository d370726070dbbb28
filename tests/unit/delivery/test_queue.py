"""The order of a chat's items."""

import msgspec

from gateway.delivery.pacing import Pace
from gateway.delivery.plan import ItemPhase
from gateway.delivery.queue import CarryOut, ChatQueue, QueueEntry
from gateway.delivery.view import ItemBody, write_address, write_body
from platforms.core.contract import Address, Capabilities, Live, Repeat, Unit
from sessions.records import ItemState, OutboxItem

ADDRESS = write_address(Address("memory", "7"))


def item(text: str, *, final: bool) -> OutboxItem:
    body = write_body(ItemBody(text=text))
    return OutboxItem(
        id="a_1",
        address="{}",
        kind="answer",
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


def test_answers_in_one_chat_take_turns() -> None:
    can = Capabilities(
        4096, Unit.CHARACTERS, live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.0
    )
    queue = ChatQueue(can, str)
    for number in range(3):
        written = msgspec.structs.replace(item("", final=False), id=f"a_{number}")
        entry = QueueEntry(
            msgspec.structs.replace(written, address=ADDRESS), ItemPhase.LIVE, stored=False
        )
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
