import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.delivery.plan import ItemPhase
from gateway.delivery.queue import QueueEntry
from gateway.delivery.view import (
    DUPLICATE_MARK,
    ItemBody,
    ShownItem,
    ShownMessage,
    ShownState,
    mark_duplicate,
    may_be_streaming,
    message_digest,
    read_body,
    read_shown,
    render_final,
    render_live,
    write_body,
    write_shown,
)
from platforms.core.contract import Address, Button, Capabilities, Live, Repeat, Unit
from platforms.core.markdown import has_open_fence
from platforms.core.split import text_length
from sessions.records import ItemKind, ItemState, OutboxItem
from tests.unit.platforms.core.samples import SAMPLES
from tests.unit.platforms.core.test_split import markdown

HERE = Address("slack", "T1/D1", "second", "7.5")


def _can(
    live: Live = Live.EDIT, repeat: Repeat = Repeat.NONCE, limit: int = 200, unit: Unit = Unit.UTF16
) -> Capabilities:
    return Capabilities(text_limit=limit, unit=unit, live=live, repeat=repeat)


def test_stored_bodies_and_states_are_decoded_unchanged() -> None:
    body = ItemBody(
        text="text",
        buttons=(Button("Yes", "yes"),),
        path="/x",
        name="x",
        media_type="text/plain",
        urgent=True,
    )
    shown = ShownItem(
        (
            ShownMessage(
                op="a.0",
                fate=ShownState.SHOWN,
                message="7",
                looks="digest",
                since=5,
                marked=True,
                repeats=2,
            ),
        )
    )
    item = OutboxItem(
        id="a",
        address=HERE,
        kind=ItemKind.ANSWER,
        state=ItemState.PENDING,
        body=write_body(body),
        created_at=0,
        shown=write_shown(shown),
    )
    assert read_body(item) == body
    assert read_shown(item) == shown


def test_an_item_without_stored_state_has_shown_nothing() -> None:
    item = OutboxItem(
        id="a",
        address=HERE,
        kind=ItemKind.ANSWER,
        state=ItemState.PENDING,
        body=write_body(ItemBody()),
        created_at=0,
    )
    assert read_shown(item) == ShownItem()


def test_digests_are_equal_only_for_equal_text_buttons_and_state() -> None:
    yes, no = (Button("Yes", "y"),), (Button("No", "n"),)
    variants = [
        message_digest(text, buttons, streaming=streaming)
        for text in ("a", "b", "\ud83d")
        for buttons in ((), yes, no)
        for streaming in (False, True)
    ]
    assert len(set(variants)) == len(variants)
    assert message_digest("a", yes, streaming=False) == variants[2]


@pytest.mark.parametrize(("digest", "may"), [("", True), ("1f~", True), ("1f", False)])
def test_a_message_may_be_streaming_unless_it_is_known_to_have_ended(
    digest: str, may: bool
) -> None:
    assert may_be_streaming(ShownMessage(op="a.0", fate=ShownState.SHOWN, looks=digest)) is may


def test_a_duplicate_mark_never_makes_a_message_too_long() -> None:
    can = _can(repeat=Repeat.MARK)
    parts = render_final("word " * 200, can)
    assert all(text_length(mark_duplicate(part), can.unit) <= can.text_limit for part in parts)
    assert mark_duplicate("Text").startswith(DUPLICATE_MARK)
    assert max(map(len, render_final("word " * 200, _can()))) > max(map(len, parts))


@pytest.mark.parametrize(
    ("live", "text", "status", "expected"),
    [
        (Live.EDIT, "**bold", "", ("**bold**",)),
        (Live.EDIT, "**bold", "reading", ("**bold**\n\nreading",)),
        (Live.EDIT, "```py\nx", "reading", ("```py\nx\n```\n\nreading",)),
        (Live.EDIT, "word " * 38, "x" * 50, (("word " * 38).strip(),)),  # no room for the status
        (Live.DRAFT, "**bold", "reading", ("**bold**",)),  # a draft shows the status separately
        (Live.STREAM, "**bold", "reading", ("**bold",)),
        (Live.STREAM, "```py\nx", "", ("```py\nx",)),
        (Live.EDIT, " \n", "reading", ("reading",)),
        (Live.STREAM, " \n", "reading", ()),  # streamed text cannot be removed
        (Live.EDIT, "**", "", ()),
    ],
)
def test_open_marks_of_a_live_answer_are_closed_where_it_can_be_edited(
    live: Live, text: str, status: str, expected: tuple[str, ...]
) -> None:
    assert render_live(text, _can(live), status) == expected


def test_marks_without_space_to_close_them_stay_open() -> None:
    text = "**" + "x" * 198
    assert render_live(text, _can()) == (text,)


@given(markdown, st.sampled_from(Live), st.sampled_from(Unit), st.sampled_from(["", "⏳ busy"]))
@settings(max_examples=200, deadline=None)
def test_every_live_text_fits_without_an_open_code_block(
    md: str, live: Live, unit: Unit, status: str
) -> None:
    can = _can(live, limit=80, unit=unit)
    parts = render_live(md, can, status)
    assert all(text_length(part, unit) <= 80 for part in parts)
    shown = parts[:-1] if live is Live.STREAM else parts
    assert not any(has_open_fence(part) for part in shown)


@pytest.mark.parametrize(
    "name", ["prose", "long code", "one long line", "two fences", "list with code"]
)
def test_a_stream_only_grows_until_its_message_is_full(name: str) -> None:
    md, can = SAMPLES[name][:1200], _can(Live.STREAM)
    before: tuple[str, ...] = ()
    shrunk = 0
    for length in range(1, len(md)):
        parts = render_live(md[:length], can)
        if before and len(parts) == len(before):
            shrunk += not parts[-1].startswith(before[-1])
        before = parts
    assert shrunk == 0


_QUESTION = "🔐 May I use **pay**?\n```json\n{}\n```\n✅ Allowed by telegram:1."


@pytest.mark.parametrize("kind", ["notice", "ask"])
def test_questions_and_notices_of_the_gateway_have_no_mark(kind: str) -> None:
    can = _can(limit=4000)
    for item_kind, marked in ((kind, False), ("answer", True), ("upload", True)):
        item = OutboxItem(
            id="a_1",
            address=HERE,
            kind=ItemKind(item_kind),
            state=ItemState.PENDING,
            body=write_body(ItemBody(text=_QUESTION)),
            created_at=1,
        )
        entry = QueueEntry(item, ItemPhase.FINAL, stored=True)
        (shown, *_) = entry.final_messages(can, str)
        assert shown.text.startswith("(from the model) 🔐" if marked else "🔐")
