"""The next op for an item and its shown state."""

import msgspec
import pytest

from gateway.delivery import plan
from gateway.delivery.plan import (
    DeliveryStep,
    ItemPhase,
    ItemPlanner,
    ItemResult,
    MessageKind,
    WantedMessage,
    wanted_messages,
)
from gateway.delivery.view import (
    DUPLICATE_MARK,
    ItemBody,
    ShownItem,
    ShownMessage,
    ShownState,
    message_digest,
    write_body,
)
from platforms.core.contract import (
    Address,
    Ask,
    Button,
    Capabilities,
    Delete,
    Edit,
    Live,
    Post,
    Receipt,
    Repeat,
    Unit,
    Upload,
)
from sessions.records import ItemKind, ItemState, OutboxItem

HERE = Address("memory", "1")
CAN = Capabilities(4000, Unit.CHARACTERS, live=Live.EDIT, repeat=Repeat.NONCE, buttons=3)


def _item(kind: str = "answer") -> OutboxItem:
    return OutboxItem(
        id="a",
        address=HERE,
        kind=ItemKind(kind),
        state=ItemState.PENDING,
        body=write_body(ItemBody()),
        created_at=0,
        reply_to="5",
    )


def _looks(text: str, *, streaming: bool = False) -> str:
    return message_digest(text, (), streaming=streaming)


def _part(
    number: int, text: str, fate: ShownState = ShownState.SHOWN, *, streaming: bool = False
) -> ShownMessage:
    message = str(number) if fate in {ShownState.SHOWN, ShownState.LOST} else ""
    return ShownMessage(
        op=f"a.{number}",
        fate=fate,
        message=message,
        looks=_looks(text, streaming=streaming),
        since=9,
    )


def _next(
    *texts: str,
    shown: tuple[ShownMessage, ...] = (),
    phase: ItemPhase = ItemPhase.FINAL,
    kind: str = "answer",
    can: Capabilities = CAN,
    before: dict[str, str] | None = None,
) -> DeliveryStep | ItemResult | None:
    item = _item(kind)
    want = wanted_messages(item, ItemBody(), texts, can, streaming=phase is ItemPhase.LIVE)
    return ItemPlanner(item, ItemBody(), can, phase).next_step(want, ShownItem(shown), before)


def _op(step: DeliveryStep | ItemResult | None) -> object:
    assert isinstance(step, DeliveryStep)
    return step.op


MARKING = msgspec.structs.replace(CAN, repeat=Repeat.MARK)
STREAMING = msgspec.structs.replace(CAN, live=Live.STREAM)
RIGID = msgspec.structs.replace(CAN, edit=False, delete=False, reply=False)
LOOKING = msgspec.structs.replace(CAN, repeat=Repeat.LOOKUP)
UNKNOWN = _part(0, "one", ShownState.UNKNOWN)


def test_messages_are_posted_one_by_one_before_the_item_is_sent() -> None:
    assert _op(_next("one", "two")) == Post("a.0", HERE, "one", reply_to="5")
    shown = (_part(0, "one"),)
    assert _op(_next("one", "two", shown=shown)) == Post("a.1", HERE, "two")
    assert _next("one", "two", shown=(*shown, _part(1, "two"))) == ItemResult(ItemState.SENT)


def test_every_message_of_a_question_is_marked_as_a_notice() -> None:
    post = _op(_next("a long", "question", kind="ask"))
    assert isinstance(post, Post)
    assert post.notice
    edit = _op(_next("answered", shown=(_part(0, "asked"),), kind="ask"))
    assert isinstance(edit, Edit)
    assert edit.notice
    can = msgspec.structs.replace(CAN, delete=False)
    shown = (_part(0, "answered"), _part(1, "left over"))
    gone = _op(_next("answered", shown=shown, kind="ask", can=can))
    assert isinstance(gone, Edit)
    assert gone.notice


def test_notices_are_marked_in_posts_and_edits() -> None:
    assert _op(_next("one", kind="notice", can=RIGID)) == Post("a.0", HERE, "one", notice=True)
    edit = Edit("a.0.e", HERE, message="0", text="new", notice=True)
    assert _op(_next("new", kind="notice", shown=(_part(0, "one"),))) == edit


def test_the_final_edit_is_made_even_if_the_text_is_unchanged() -> None:
    live = _part(0, "one", streaming=True)
    assert _next("one", shown=(live,), phase=ItemPhase.LIVE) is None
    edit = _next("one two", shown=(live,), phase=ItemPhase.LIVE)
    assert _op(edit) == Edit("a.0.e", HERE, message="0", text="one two", streaming=True)
    assert _op(_next("one", shown=(live,))) == Edit("a.0.e", HERE, message="0", text="one")


def test_a_full_live_message_is_finished_before_the_next_one_starts() -> None:
    live = _part(0, "one", streaming=True)
    step = _next("one", "two", shown=(live,), phase=ItemPhase.LIVE)
    assert _op(step) == Edit("a.0.e", HERE, message="0", text="one")
    step = _next("one", "two", shown=(_part(0, "one"),), phase=ItemPhase.LIVE)
    assert _op(step) == Post("a.1", HERE, "two", streaming=True)


def test_a_stream_is_only_appended_to_until_its_last_edit() -> None:
    live = _part(0, "one", streaming=True)
    grown = _next(
        "one two", shown=(live,), phase=ItemPhase.LIVE, can=STREAMING, before={"a.0": "one"}
    )
    assert _op(grown) == Edit("a.0.e", HERE, message="0", text="one two", streaming=True)
    for before in ({"a.0": "other"}, {}):
        step = _next("one two", shown=(live,), phase=ItemPhase.LIVE, can=STREAMING, before=before)
        assert step is None
    assert _op(_next("else", shown=(live,), can=STREAMING)) == Edit(
        "a.0.e", HERE, message="0", text="else"
    )


def test_surplus_messages_are_deleted_last_first() -> None:
    shown = (_part(0, "one"), _part(1, "two"), _part(2, "three"))
    assert _op(_next("one", shown=shown)) == Delete("a.2.d", HERE, "2")
    assert _op(_next("one", shown=shown[:2])) == Delete("a.1.d", HERE, "1")
    assert _op(_next(shown=shown[:1], phase=ItemPhase.WITHDRAWN)) == Delete("a.0.d", HERE, "0")
    assert isinstance(_next(phase=ItemPhase.WITHDRAWN), ItemResult)


def test_a_message_that_can_be_neither_deleted_nor_edited_stays() -> None:
    assert _next("one", shown=(_part(0, "one"), _part(1, "two")), can=RIGID) == ItemResult(
        ItemState.SENT
    )


@pytest.mark.parametrize("repeat", [Repeat.ALWAYS, Repeat.NONCE, Repeat.LOOKUP])
@pytest.mark.parametrize("phase", [ItemPhase.FINAL, ItemPhase.LIVE])
def test_an_op_in_doubt_is_repeated_where_repeats_are_recognized(
    repeat: Repeat, phase: ItemPhase
) -> None:
    can = msgspec.structs.replace(CAN, repeat=repeat)
    op = _op(_next("one", shown=(UNKNOWN,), can=can, phase=phase))
    assert isinstance(op, Post)
    assert (op.op, op.again, op.since, op.text) == ("a.0", True, 9, "one")


def test_elsewhere_only_important_items_are_repeated_with_a_mark() -> None:
    op = _op(_next("one", shown=(UNKNOWN,), can=MARKING))
    assert isinstance(op, Post)
    assert op.text == f"{DUPLICATE_MARK}\n\none"
    assert _next("one", shown=(UNKNOWN,), can=MARKING, phase=ItemPhase.LIVE) is None
    dead = _next("one", shown=(UNKNOWN,), can=MARKING, kind="notice")
    assert dead == ItemResult(ItemState.DEAD, "the platform did not confirm whether it arrived")
    tired = msgspec.structs.replace(UNKNOWN, repeats=plan.MAX_REPEATS)
    assert isinstance(_next("one", shown=(tired,), can=MARKING), ItemResult)


def test_a_message_that_cannot_be_changed_is_sent_again() -> None:
    lost = _part(0, "one", ShownState.LOST)
    assert _op(_next("new", shown=(lost,))) == Post("a.0n", HERE, "new", reply_to="5")
    assert _next("new", shown=(lost,), phase=ItemPhase.LIVE) is None
    step = _next("new", shown=(_part(0, "one"),), can=RIGID)
    assert _op(step) == Post("a.0n", HERE, "new")
    unsure = msgspec.structs.replace(_part(0, "one"), looks="")
    assert _next("new", shown=(unsure,), can=RIGID) == ItemResult(ItemState.SENT)


def test_an_abandoned_answer_is_left_but_a_stream_is_closed() -> None:
    live = (_part(0, "one", streaming=True),)
    assert _next("o", shown=live, phase=ItemPhase.ABANDONED) == ItemResult(ItemState.SENT)
    assert _next("o", "two", phase=ItemPhase.ABANDONED) == ItemResult(ItemState.SENT)
    closing = _next("o", shown=live, phase=ItemPhase.ABANDONED, can=STREAMING)
    assert _op(closing) == Edit("a.0.e", HERE, message="0", text="o")
    found = _next("one", shown=(UNKNOWN,), phase=ItemPhase.ABANDONED, can=LOOKING)
    assert isinstance(_op(found), Post)
    lost = _next("one", shown=(UNKNOWN,), phase=ItemPhase.ABANDONED, can=MARKING)
    assert isinstance(lost, ItemResult)


def test_an_abandoned_answer_without_text_is_deleted() -> None:
    cards = (_part(0, "", streaming=True),)
    assert _op(_next(shown=cards, phase=ItemPhase.ABANDONED)) == Delete("a.0.d", HERE, "0")
    assert _next(phase=ItemPhase.ABANDONED) == ItemResult(ItemState.SENT)


def test_only_the_last_message_of_a_question_asks_and_a_file_follows_its_text() -> None:
    yes = (Button("Yes", "y"),)
    ask = wanted_messages(_item("ask"), ItemBody(buttons=yes), ("one", "two"), CAN, streaming=False)
    assert ask == (
        WantedMessage(text="one"),
        WantedMessage(text="two", kind=MessageKind.ASK, buttons=yes),
    )
    step = ItemPlanner(_item("ask"), ItemBody(), CAN, ItemPhase.FINAL).next_step(
        ask[1:], ShownItem()
    )
    assert _op(step) == Ask("a.0", HERE, text="two", buttons=yes)
    body = ItemBody(path="/x", name="x", media_type="t/t")
    file = wanted_messages(_item("upload"), body, ("one",), CAN, streaming=False)
    step = ItemPlanner(_item("upload"), body, CAN, ItemPhase.FINAL).next_step(file, ShownItem())
    assert _op(step) == Upload("a.0", HERE, path="/x", name="x", media_type="t/t", caption="one")
    shown = ShownItem((_part(0, "other caption"),))
    assert ItemPlanner(_item("upload"), body, CAN, ItemPhase.FINAL).next_step(
        file, shown
    ) == ItemResult(ItemState.SENT)


@pytest.mark.parametrize(
    ("text", "unit", "repeat", "fits"),
    [
        ("a" * 100, Unit.CHARACTERS, Repeat.NONCE, True),
        ("a" * 101, Unit.CHARACTERS, Repeat.NONCE, False),
        ("𝄞" * 50, Unit.UTF16, Repeat.NONCE, True),
        ("𝄞" * 51, Unit.UTF16, Repeat.NONCE, False),
        ("é" * 50, Unit.BYTES, Repeat.NONCE, True),
        ("é" * 51, Unit.BYTES, Repeat.NONCE, False),
        ("a" * 32, Unit.UTF16, Repeat.MARK, True),
        ("a" * 33, Unit.UTF16, Repeat.MARK, False),
    ],
)
def test_a_caption_is_measured_in_platform_units_with_space_for_a_mark(
    text: str, unit: Unit, repeat: Repeat, fits: bool
) -> None:
    can = msgspec.structs.replace(CAN, unit=unit, repeat=repeat, caption_limit=100)
    (first, *more) = wanted_messages(
        _item("upload"), ItemBody(path="/x"), (text,), can, streaming=False
    )
    assert (first.kind is MessageKind.UPLOAD) is fits
    assert more == ([] if fits else [WantedMessage(text="", kind=MessageKind.UPLOAD)])


# --- the shown state after an op -------------------------------------------------------------


def _step(step: DeliveryStep | ItemResult | None) -> DeliveryStep:
    assert isinstance(step, DeliveryStep)
    return step


def test_an_attempt_is_recorded_before_its_outcome() -> None:
    step = _step(_next("one"))
    trying = plan.record_attempt(ShownItem(), step, 100)
    assert trying.parts == (
        ShownMessage(op="a.0", fate=ShownState.TRYING, looks=_looks("one"), since=100),
    )
    assert plan.record_restart(trying).parts[0].fate is ShownState.UNKNOWN
    assert plan.record_unknown(trying, step).parts[0].fate is ShownState.UNKNOWN
    done = plan.record_success(trying, step, Receipt("77"))
    assert (done.parts[0].fate, done.parts[0].message) == (ShownState.SHOWN, "77")
    assert plan.record_restart(done) == done


def test_after_the_clock_was_set_back_a_repeat_searches_a_whole_day() -> None:
    step = _step(_next("one", shown=(UNKNOWN,)))
    assert plan.fix_future_start(step.op, 9) == step.op
    looked = plan.fix_future_start(step.op, 8)
    assert isinstance(looked, Post)
    assert looked.since == 8 - 86_400_000
    edit = _step(_next("new", "two", shown=(_part(0, "one"), _part(1, "two")))).op
    assert plan.fix_future_start(edit, 0) == edit


def test_after_a_repeat_with_another_text_the_shown_content_is_uncertain() -> None:
    shown = ShownItem((UNKNOWN,))
    for text, known in (("one", _looks("one")), ("more", "")):
        part = plan.record_attempt(shown, _step(_next(text, shown=shown.parts)), 100).parts[0]
        assert (part.looks, part.since, part.repeats) == (known, 9, 1)
    copy = _step(_next("more", shown=shown.parts, can=MARKING))
    part = plan.record_attempt(shown, copy, 100).parts[0]
    assert (part.looks, part.marked) == (_looks("more"), True)  # a separate message


def test_edits_and_deletes_change_the_shown_state() -> None:
    shown = ShownItem((_part(0, "one"), _part(1, "two")))
    edit = _step(_next("new", "two", shown=shown.parts))
    assert plan.record_success(shown, edit, Receipt()).parts[0].looks == _looks("new")
    assert plan.record_unknown(shown, edit).parts[0].looks == ""
    assert plan.record_refusal(shown, edit).parts[0].fate is ShownState.LOST
    delete = _step(_next("one", shown=shown.parts))
    assert plan.record_success(shown, delete, Receipt()) == ShownItem(shown.parts[:1])
    assert plan.record_refusal(shown, delete) == ShownItem(shown.parts[:1])
    assert plan.record_unknown(shown, delete) == shown
