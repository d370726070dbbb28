"""Ids of outbox items and of their ops: the stored forms, and reading them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.values import item_ids
from sessions.values.item_ids import ItemId, ItemType, OpAction, OpId
from sessions.values.notices import NoticeId

ORIGIN = "0f6xk2m9t4c81vwzqh"

ITEMS = {
    item_ids.answer_id(ORIGIN): (f"a_{ORIGIN}", ItemId(ItemType.ANSWER, ORIGIN)),
    item_ids.reasoning_id(ORIGIN): (f"r_{ORIGIN}", ItemId(ItemType.REASONING, ORIGIN)),
    item_ids.side_answer_id(ORIGIN): (f"b_{ORIGIN}", ItemId(ItemType.SIDE_ANSWER, ORIGIN)),
    item_ids.notice_id(ORIGIN, NoticeId.QUEUED): (
        f"n_{ORIGIN}.N15",
        ItemId(ItemType.NOTICE, ORIGIN, "N15"),
    ),
    item_ids.notice_id(ORIGIN, NoticeId.EXPIRED_IDLE): (
        f"n_{ORIGIN}.expired.idle",
        ItemId(ItemType.NOTICE, ORIGIN, "expired.idle"),
    ),
    item_ids.restart_report_id("r_01h", 2): (
        "n_r_01h.2.back",
        ItemId(ItemType.NOTICE, "r_01h", "2.back"),
    ),
    item_ids.question_id("p_01h", 11): ("p_01h.11", ItemId(ItemType.QUESTION, "01h", "11")),
    item_ids.file_id("9f86d081"): ("f_9f86d081", ItemId(ItemType.FILE, "9f86d081")),
    f"{ItemType.NOTICE}_01h": ("n_01h", ItemId(ItemType.NOTICE, "01h")),
    f"{ItemType.TEXT}_01h": ("m_01h", ItemId(ItemType.TEXT, "01h")),
}

OPS = {
    item_ids.create_op("a_1", 0): ("a_1.0", OpId("a_1", OpAction.CREATE, 0)),
    item_ids.create_op("n_1.N15", 12): ("n_1.N15.12", OpId("n_1.N15", OpAction.CREATE, 12)),
    item_ids.create_op("n_r_1.2.back", 0): (
        "n_r_1.2.back.0",
        OpId("n_r_1.2.back", OpAction.CREATE, 0),
    ),
    item_ids.replace_op(item_ids.replace_op("p_1.3.0")): (
        "p_1.3.0nn",
        OpId("p_1.3", OpAction.CREATE, 0, 2),
    ),
    item_ids.edit_op("p_1.3.0"): ("p_1.3.0.e", OpId("p_1.3", OpAction.EDIT, 0)),
    item_ids.delete_op("a_1.1n"): ("a_1.1n.d", OpId("a_1", OpAction.DELETE, 1, 1)),
    item_ids.typing_op("a_1"): ("a_1.t", OpId("a_1", OpAction.TYPING)),
    item_ids.draft_op("p_1.3"): ("p_1.3.p", OpId("p_1.3", OpAction.DRAFT)),
}

_NAMES = st.text(st.characters(exclude_characters="."))
_ITEMS = st.builds(ItemId, st.sampled_from(ItemType), _NAMES, st.none() | st.text())
_PIECES = st.integers(min_value=0)
_OPS = st.one_of(
    st.builds(
        OpId,
        st.text(min_size=1),
        st.sampled_from([OpAction.CREATE, OpAction.EDIT, OpAction.DELETE]),
        _PIECES,
        _PIECES.filter(lambda number: number < 9),
    ),
    st.builds(OpId, st.text(min_size=1), st.sampled_from([OpAction.TYPING, OpAction.DRAFT])),
)


@pytest.mark.parametrize(("made", "stored", "parts"), [(k, *v) for k, v in ITEMS.items()])
def test_an_item_id_keeps_its_stored_form_and_is_read(
    made: str, stored: str, parts: ItemId
) -> None:
    assert made == stored
    assert ItemId.parse(stored) == parts
    assert str(parts) == stored


@pytest.mark.parametrize(("made", "stored", "parts"), [(k, *v) for k, v in OPS.items()])
def test_an_op_id_keeps_its_stored_form_and_is_read(made: str, stored: str, parts: OpId) -> None:
    assert made == stored
    assert OpId.parse(stored) == parts
    assert str(parts) == stored


@given(_ITEMS)
def test_every_item_id_is_read_as_written(parts: ItemId) -> None:
    assert ItemId.parse(str(parts)) == parts


@given(_OPS)
def test_every_op_id_is_read_as_written(parts: OpId) -> None:
    assert OpId.parse(str(parts)) == parts


@given(st.text() | st.from_regex(r"[abfmnpr]_[a-z0-9_.]*", fullmatch=True))
def test_any_text_is_an_item_id_without_loss_or_none(text: str) -> None:
    read = ItemId.parse(text)
    assert read is None or str(read) == text


@given(st.text() | st.from_regex(r"[a-z_.0-9]+\.[0-9]+n*(\.[edtp])?", fullmatch=True))
def test_any_text_is_an_op_id_without_loss_or_none(text: str) -> None:
    read = OpId.parse(text)
    assert read is None or str(read) == text


@pytest.mark.parametrize("text", ["", "a", "_1", "x_1", "i_01h", "t_01h", "A_1"])
def test_other_ids_are_no_item_ids(text: str) -> None:
    assert ItemId.parse(text) is None


@pytest.mark.parametrize("text", ["", "a_1", ".0", "a.", "a.00", "a.e", "a.n", "a.0n1", "a.0.t.e"])
def test_other_ids_are_no_op_ids(text: str) -> None:
    assert OpId.parse(text) is None
    assert item_ids.item_of_op(text) == text


@pytest.mark.parametrize("notice", NoticeId)
def test_the_notice_is_read_from_the_item_id(notice: NoticeId) -> None:
    read = ItemId.parse(item_ids.notice_id(ORIGIN, notice))
    assert read
    assert (read.origin, read.notice, read.number) == (ORIGIN, notice, None)


@pytest.mark.parametrize("text", ["n_1", "n_1.N99", "n_r_1.0.back", "a_1", "r_1", "p_1.0"])
def test_other_item_ids_name_no_notice(text: str) -> None:
    read = ItemId.parse(text)
    assert read
    assert read.notice is None


@pytest.mark.parametrize(
    ("text", "approval", "number"),
    [("p_1.0", "p_1", 0), ("p_1.12", "p_1", 12), ("p_1", "p_1", None)],
)
def test_a_question_names_its_approval_and_number(
    text: str, approval: str, number: int | None
) -> None:
    read = ItemId.parse(text)
    assert read
    assert (read.base, read.number) == (approval, number)


@pytest.mark.parametrize("notice", NoticeId)
def test_the_range_holds_all_notices_of_an_origin_and_no_other_item(notice: NoticeId) -> None:
    first, end = item_ids.notice_id_range(ORIGIN)
    assert (first, end) == (f"n_{ORIGIN}.", f"n_{ORIGIN}/")
    assert first <= item_ids.notice_id(ORIGIN, notice) < end
    assert not first <= item_ids.notice_id(f"{ORIGIN}0", notice) < end


@pytest.mark.parametrize("op", [*OPS, "a_1.0.e"])
def test_the_item_of_an_op_is_found(op: str) -> None:
    read = OpId.parse(op)
    assert read
    assert item_ids.item_of_op(op) == read.item


def test_an_edit_names_the_op_that_created_the_message() -> None:
    assert item_ids.creating_op(item_ids.edit_op("a_1.0n")) == "a_1.0n"
    assert item_ids.reaction_op("1001") == "1001.s"
