"""Events for an open page: each change is sent once."""

import json
from typing import Any

import msgspec
import pytest

from platforms.core.contract import Button, RowAuthor, TranscriptRow
from platforms.web.scene import LiveChatState, PageView
from platforms.web.wire import encode_event, is_chat, normalize_text


def parse_events(chunks: Any) -> list[tuple[str, dict[str, Any]]]:
    events = []
    for chunk in chunks:
        fields = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n"))
        events.append((fields["event"], json.loads(fields["data"])))
    return events


def row(seq: int, name: str = "", **fields: Any) -> TranscriptRow:
    author = RowAuthor.USER if "state" in fields else RowAuthor.ANSWER
    return TranscriptRow(seq=seq, id=name or f"r{seq}", at=0, author=author, text="t", **fields)


@pytest.fixture
def scene() -> LiveChatState:
    return LiveChatState()


@pytest.fixture
def viewer(scene: LiveChatState) -> PageView:
    return PageView(scene, after=0)


def test_a_growing_draft_sends_only_the_appended_text(
    scene: LiveChatState, viewer: PageView
) -> None:
    scene.on_draft("x", "Hello", "", now=0)
    assert parse_events(viewer.live_events(scene, 0)) == [
        ("draft", {"id": "x", "status": "", "text": "Hello"})
    ]
    scene.on_draft("x", "Hello, wor", "busy", now=0)
    scene.on_draft("x", "Hello, world", "busy", now=0)
    assert parse_events(viewer.live_events(scene, 0)) == [
        ("draft", {"id": "x", "status": "busy", "add": ", world"})
    ]
    assert parse_events(viewer.live_events(scene, 0)) == []


def test_a_rewritten_draft_is_sent_as_a_whole(scene: LiveChatState, viewer: PageView) -> None:
    scene.on_draft("x", "Hello", "", now=0)
    parse_events(viewer.live_events(scene, 0))
    scene.on_draft("x", "Goodbye", "", now=0)
    assert parse_events(viewer.live_events(scene, 0)) == [
        ("draft", {"id": "x", "status": "", "text": "Goodbye"})
    ]


def test_a_new_page_gets_the_whole_draft(scene: LiveChatState) -> None:
    scene.on_draft("x", "Hello", "", now=0)
    scene.on_draft("x", "Hello, you", "", now=0)
    late = PageView(scene, after=0)
    assert parse_events(late.live_events(scene, 0)) == [
        ("draft", {"id": "x", "status": "", "text": "Hello, you"})
    ]


@pytest.mark.parametrize("end", ["emptied", "posted", "forgotten"])
def test_the_end_of_a_draft_is_sent_once(scene: LiveChatState, viewer: PageView, end: str) -> None:
    scene.on_draft("x", "Hello", "", now=0)
    parse_events(viewer.live_events(scene, 0))
    if end == "emptied":
        scene.on_draft("x", "", "", now=1)
    elif end == "posted":
        scene.on_posted("x")
    now = 601 if end == "forgotten" else 1
    assert parse_events(viewer.live_events(scene, now)) == [("draft", {"id": "x", "gone": True})]
    assert parse_events(viewer.live_events(scene, now)) == []


def test_a_draft_may_consist_of_its_status_only(scene: LiveChatState, viewer: PageView) -> None:
    scene.on_draft("x", "", "reading a file", now=0)
    assert parse_events(viewer.live_events(scene, 0)) == [
        ("draft", {"id": "x", "status": "reading a file", "text": ""})
    ]


def test_a_slow_page_gets_only_the_newest_edit(scene: LiveChatState, viewer: PageView) -> None:
    scene.on_changed("a", "one")
    scene.on_changed("b", "two", (Button("Yes", "y"),))
    scene.on_changed("a", "three")
    yes = [{"label": "Yes", "action": "y"}]
    assert parse_events(viewer.live_events(scene, 0)) == [
        ("edit", {"id": "b", "text": "two", "buttons": yes}),
        ("edit", {"id": "a", "text": "three", "buttons": []}),
    ]
    scene.on_changed("b", None)
    assert parse_events(viewer.live_events(scene, 0)) == [("delete", {"id": "b"})]


def test_edits_before_the_page_opened_come_from_the_archive(scene: LiveChatState) -> None:
    scene.on_changed("a", "one")
    assert parse_events(PageView(scene, after=0).live_events(scene, 0)) == []


def test_the_number_of_remembered_edits_is_bounded(scene: LiveChatState, viewer: PageView) -> None:
    for number in range(1_000):
        scene.on_changed(f"m{number}", "text")
    assert len(parse_events(viewer.live_events(scene, 0))) == 64


def test_several_typing_signs_are_sent_as_one(scene: LiveChatState, viewer: PageView) -> None:
    scene.typing_version += 1
    scene.typing_version += 1
    assert parse_events(viewer.live_events(scene, 0)) == [("typing", {})]
    assert parse_events(viewer.live_events(scene, 0)) == []


def test_a_row_is_sent_again_only_after_a_change(viewer: PageView) -> None:
    first = [row(1), row(2, state="waiting")]
    assert [data["id"] for _, data in parse_events(viewer.row_events(first))] == ["r1", "r2"]
    assert parse_events(viewer.row_events(first)) == []
    changed = parse_events(viewer.row_events([row(1), row(2, state="done")]))
    assert [(data["id"], data["state"]) for _, data in changed] == [("r2", "done")]


def test_the_delivery_state_of_an_answer_is_not_sent(viewer: PageView) -> None:
    answer = TranscriptRow(seq=1, id="a", at=0, author=RowAuthor.ANSWER, text="t", state="pending")
    [(_, data)] = parse_events(viewer.row_events([answer]))
    assert data["state"] == ""
    assert parse_events(viewer.row_events([msgspec.structs.replace(answer, state="sent")])) == []


def test_a_row_that_becomes_visible_late_is_still_found(viewer: PageView) -> None:
    parse_events(viewer.row_events([row(1), row(5), row(9)]))
    assert viewer.reread_after < 3
    assert [data["id"] for _, data in parse_events(viewer.row_events([row(3, "late")]))] == ["late"]
    assert viewer.last_seq == 9


def test_old_rows_are_rechecked_only_while_their_message_waits(viewer: PageView) -> None:
    parse_events(viewer.row_events([row(number) for number in range(1, 50)]))
    assert viewer.reread_after == 49 - 16
    parse_events(viewer.row_events([row(20, state="held")]))
    assert viewer.reread_after == 19


def test_the_number_of_remembered_rows_is_bounded(viewer: PageView) -> None:
    parse_events(viewer.row_events([row(number, state="held") for number in range(1, 1_001)]))
    assert viewer.reread_after == 1_000 - 64


def test_the_archive_is_read_again_only_after_a_change(
    scene: LiveChatState, viewer: PageView
) -> None:
    assert viewer.needs_rows(scene)
    assert not viewer.needs_rows(scene)
    scene.on_posted("x")
    assert viewer.needs_rows(scene)
    scene.on_draft("y", "beginning", "", now=0)
    assert viewer.needs_rows(scene)
    scene.on_draft("y", "beginning, more", "", now=0)
    assert not viewer.needs_rows(scene)
    viewer.force_reread()
    assert viewer.needs_rows(scene)


def test_an_event_is_always_one_line_of_json() -> None:
    chunk = encode_event("row", {"text": "a\n\nb\r\u2028"}, 7)
    assert chunk.startswith(b"id: 7\nevent: row\ndata: ")
    assert chunk.count(b"\n") == 4
    assert chunk.endswith(b"\n\n")


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("abcd", True),
        ("A-b_9" * 8, True),
        ("abc", False),
        ("x" * 41, False),
        ("ab/cd", False),
        ("abcd\n", False),
        ("äbcd", False),
    ],
)
def test_conversation_names_are_short_and_plain(name: str, *, good: bool) -> None:
    assert is_chat(name) is good


def test_text_is_normalized_for_the_database() -> None:
    assert normalize_text("a\r\nb\0c") == "a\nb\ufffdc"
