"""Tests of decoding updates and of joining split messages."""

from typing import Any

import msgspec
import pytest

from platforms.core.contract import (
    File,
    Forward,
    InboundAction,
    InboundEdit,
    InboundMessage,
    Quote,
    Sender,
    Text,
)
from platforms.telegram.decode import TelegramBot, UpdateDecoder
from platforms.telegram.join import ALBUM_JOIN_SECONDS, JOIN_SECONDS, MessageJoiner, MessagePiece
from platforms.telegram.payloads import read_update

ME = TelegramBot(7, "Our_Bot")
READER = UpdateDecoder(
    platform="telegram", account="", bot=ME, commands=lambda: frozenset({"stop", "status"})
)
ADA = {"id": 1001, "is_bot": False, "first_name": "Ada", "last_name": "L."}
PRIVATE = {"id": 1001, "type": "private", "first_name": "Ada"}
GROUP = {"id": -100, "type": "supergroup", "title": "Us"}


def message(text: str = "", chat: dict[str, Any] = PRIVATE, **more: Any) -> dict[str, Any]:
    made = {"message_id": 5, "date": 100, "chat": chat, "from": ADA, **more}
    return {**made, "text": text} if text else made


def read(reader: UpdateDecoder = READER, **update: Any) -> Any:
    raw = msgspec.json.encode({"update_id": 9, **update})
    return reader.decode(read_update(raw), 1_000, {("-100", "3")})


def test_a_private_message_is_addressed_to_the_bot() -> None:
    event = read(message=message("hi"))
    assert isinstance(event, InboundMessage)
    assert (event.id, event.at, event.text) == ("5", 100_000, "hi")
    assert event.address.chat == "1001"
    assert event.sender == Sender("1001", "Ada L.")
    assert event.direct
    assert event.addressed


def mention(name: str, offset: int = 0) -> list[dict[str, Any]]:
    return [{"type": "mention", "offset": offset, "length": len(name)}]


FROM_US = {"message_id": 2, "date": 1, "chat": GROUP, "from": {"id": 7, "is_bot": True}}


@pytest.mark.parametrize(
    ("text", "more", "addressed", "said"),
    [
        ("hello all", {}, False, "hello all"),
        ("@our_bot hello", {"entities": mention("@our_bot")}, True, "hello"),
        ("@our_bot, /stop", {"entities": mention("@our_bot")}, True, "/stop"),
        ("👍 hey @Our_Bot", {"entities": mention("@Our_Bot", 7)}, True, "👍 hey @Our_Bot"),
        ("@our_bots hello", {"entities": mention("@our_bots")}, False, "@our_bots hello"),
        ("mail x@our_bot.org", {}, False, "mail x@our_bot.org"),
        ("hey", {"reply_to_message": {**FROM_US, "text": "x"}}, True, "hey"),
        ("/stop", {}, True, "/stop"),
        ("/stop@our_bot now", {}, True, "/stop@our_bot now"),
        ("/stop@other_bot", {"reply_to_message": FROM_US}, False, "/stop@other_bot"),
        ("/roll 3d6", {}, False, "/roll 3d6"),
        ("in a known topic", {"message_thread_id": 3, "is_topic_message": True}, True, None),
        ("in another topic", {"message_thread_id": 4, "is_topic_message": True}, False, None),
        (
            "who?",
            {"entities": [{"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 7}}]},
            True,
            "who?",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_group_messages_are_addressed_by_mention_reply_command_or_known_topic(
    text: str, more: dict[str, Any], addressed: bool, said: str | None
) -> None:
    event = read(message=message(text, GROUP, **more))
    assert isinstance(event, InboundMessage)
    assert event.addressed is addressed
    assert not event.direct
    assert event.text == (text if said is None else said)


def test_without_require_mention_all_but_other_bots_commands_are_addressed() -> None:
    reader = msgspec.structs.replace(READER, require_mention=False)
    assert read(reader, message=message("hello all", GROUP)).addressed
    assert not read(reader, message=message("/stop@other_bot", GROUP)).addressed


def test_only_topics_become_threads() -> None:
    topic = {"message_thread_id": 3, "is_topic_message": True}
    assert read(message=message("x", GROUP, **topic)).address.thread == "3"
    assert read(message=message("x", GROUP, message_thread_id=3)).address.thread == ""
    assert read(message=message("x", PRIVATE, **topic)).address.thread == "3"


def test_a_message_in_a_topic_does_not_quote_the_topics_first_message() -> None:
    created = {**FROM_US, "message_id": 4, "forum_topic_created": {"name": "T"}}
    topic = {"message_thread_id": 4, "is_topic_message": True}
    event = read(message=message("x", GROUP, reply_to_message=created, **topic))
    assert event.reply_to is None
    assert not event.addressed


def test_a_reply_quotes_the_whole_message_or_the_selected_part() -> None:
    answered = {**FROM_US, "text": "The whole", "from": {**ADA, "id": 7}}
    event = read(message=message("x", reply_to_message=answered))
    assert event.reply_to == Quote("Ada L.", "The whole", "2")
    event = read(message=message("x", reply_to_message=answered, quote={"text": "whole"}))
    assert event.reply_to == Quote("Ada L.", "whole", "2")


def test_a_forward_is_labelled_and_never_a_command() -> None:
    origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}
    event = read(message=message("/stop", GROUP, forward_origin=origin))
    assert event.text == "[Forwarded from Eve]\n> /stop"
    assert event.parts == (Forward("Eve", "/stop"),)
    assert not event.addressed


def test_code_and_links_are_restored_to_markdown() -> None:
    spans = [
        {"type": "code", "offset": 3, "length": 1},
        {"type": "text_link", "offset": 5, "length": 4, "url": "https://e.org"},
        {"type": "pre", "offset": 10, "length": 3, "language": "py"},
    ]
    event = read(message=message("👍 x here x=1", entities=spans))
    assert event.text == "👍 `x` [here](https://e.org) ```py\nx=1\n```"


def test_the_largest_photo_size_is_taken_with_its_caption() -> None:
    sizes = [
        {"file_id": "small", "width": 90, "height": 90, "file_size": 1},
        {"file_id": "large", "width": 900, "height": 900, "file_size": 9},
    ]
    event = read(message=message(photo=sizes, caption="look"))
    assert event.parts == (Text("look"), File("photo_5.jpg", "image/jpeg", ref="large", size=9))


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (
            {"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}},
            File("a.pdf", "application/pdf", "d"),
        ),
        (
            {"voice": {"file_id": "v", "duration": 3}},
            File("voice_5.ogg", "audio/ogg", "v", voice=True),
        ),
        (
            {"animation": {"file_id": "g"}, "document": {"file_id": "g"}},
            File("animation_5.mp4", "video/mp4", "g"),
        ),
        ({"video_note": {"file_id": "n"}}, File("video_5.mp4", "video/mp4", "n")),
        ({"sticker": {"file_id": "s", "emoji": "😀"}}, Text("[Sticker 😀]")),
        (
            {"location": {"latitude": 1.5, "longitude": 2}},
            Text("[Location: 1.500000, 2.000000]"),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_attachment_becomes_a_part(more: dict[str, Any], part: Any) -> None:
    assert read(message=message(**more)).parts == (part,)


def test_anonymous_admins_are_their_group_and_channel_posts_are_from_bots() -> None:
    as_group = {"sender_chat": GROUP, "from": {"id": 1087968824, "is_bot": True}}
    assert read(message=message("x", GROUP, **as_group)).sender == Sender("-100", "Us")
    posted = {"sender_chat": {"id": -5, "type": "channel"}, "is_automatic_forward": True}
    event = read(message=message("/stop", GROUP, **posted))
    assert event.sender.is_bot
    assert not event.addressed


def test_an_edit_names_the_edited_message_and_has_its_own_id() -> None:
    event = read(edited_message=message("new", edit_date=200))
    assert isinstance(event, InboundEdit)
    assert (event.id, event.message, event.at, event.parts) == ("u9", "5", 200_000, (Text("new"),))


def test_a_button_press_carries_the_action_of_the_button() -> None:
    pressed = {"id": "77", "from": ADA, "message": message("x", GROUP), "data": "stop:t"}
    event = read(callback_query=pressed)
    assert isinstance(event, InboundAction)
    assert (event.id, event.action, event.message, event.at) == ("c77", "stop:t", "5", 1_000)
    assert event.sender.id == "1001"


def test_stop_below_a_draft_is_a_press_by_the_chats_person() -> None:
    event = read(stopped_message_generation={"chat": PRIVATE, "draft_id": 4})
    assert isinstance(event, InboundAction)
    assert (event.action, event.sender.id, event.direct) == ("stop", "1001", True)


@pytest.mark.parametrize(
    "update",
    [
        {"message": message(chat=GROUP, new_chat_members=[ADA])},
        {"message": message("x", {"id": -9, "type": "channel"})},
        {"poll": {"id": "1"}},
        {"callback_query": {"id": "1", "from": ADA, "game_short_name": "g"}},
    ],
    ids=["service", "channel", "poll", "game"],
)
def test_irrelevant_updates_give_no_event(update: dict[str, Any]) -> None:
    assert read(**update) is None


# --- pieces of one utterance -------------------------------------------------------------------


def said(number: int, text: str = "x", **more: Any) -> InboundMessage:
    event = read(message={**message(text, **more), "message_id": number})
    assert isinstance(event, InboundMessage)
    return event


def test_a_message_that_cannot_continue_is_released_at_once() -> None:
    joiner = MessageJoiner()
    assert joiner.add(MessagePiece(said(1)), 0.0) == [said(1)]
    assert joiner.next_due is None


def test_an_album_becomes_one_message() -> None:
    joiner = MessageJoiner()
    for number in (1, 2, 3):
        assert joiner.add(MessagePiece(said(number, f"{number}"), album="a"), number / 10) == []
    assert joiner.release_due(0.3 + ALBUM_JOIN_SECONDS - 0.01) == []
    (whole,) = joiner.release_due(0.3 + ALBUM_JOIN_SECONDS)
    assert whole.id == "1"
    assert whole.text == "1\n2\n3"


def test_a_text_split_by_the_client_is_joined() -> None:
    joiner = MessageJoiner()
    first, second = "a" * 4096, "b" * 4090
    assert joiner.add(MessagePiece(said(1, first)), 0.0) == []
    assert joiner.add(MessagePiece(said(2, second)), 0.2) == []
    (whole,) = joiner.add(MessagePiece(said(3, "end")), 0.4)
    assert whole.parts == (Text(f"{first}{second}\nend"),)


def test_a_single_long_text_is_released_when_its_window_closes() -> None:
    joiner = MessageJoiner()
    assert joiner.add(MessagePiece(said(1, "a" * 4000)), 5.0) == []
    assert joiner.next_due == 5.0 + JOIN_SECONDS
    assert [each.id for each in joiner.release_due(5.0 + JOIN_SECONDS)] == ["1"]


def test_a_command_is_not_joined_to_a_long_text() -> None:
    joiner = MessageJoiner()
    joiner.add(MessagePiece(said(1, "a" * 4000)), 0.0)
    assert [each.id for each in joiner.add(MessagePiece(said(2, "/stop")), 0.1)] == ["1", "2"]


def test_forwards_sent_together_become_one_message() -> None:
    joiner = MessageJoiner()
    for number in (1, 2):
        assert joiner.add(MessagePiece(said(number), forwarded=True), 0.0) == []
    whole, other = joiner.add(MessagePiece(said(3, "and?")), 0.1)
    assert whole.id == "1"
    assert len(whole.parts) == 1
    assert other.id == "3"


def test_pieces_from_different_people_are_not_joined() -> None:
    joiner = MessageJoiner()
    eve: dict[str, Any] = {"from": {**ADA, "id": 1002}}
    joiner.add(MessagePiece(said(1), album="a"), 0.0)
    joiner.add(MessagePiece(said(2, **eve), album="a"), 0.0)
    assert [each.id for each in joiner.release_due(9.0)] == ["1", "2"]


def test_an_edit_of_a_piece_becomes_an_edit_of_the_joined_message() -> None:
    joiner = MessageJoiner()
    joiner.add(MessagePiece(said(1, "a" * 4096)), 0.0)
    joiner.add(MessagePiece(said(2, "end")), 0.0)
    edit = read(edited_message={**message("END"), "message_id": 2})
    changed = joiner.redirect_edit(edit)
    assert changed.message == "1"
    assert changed.parts == (Text("a" * 4096 + "END"),)


def test_an_edit_changes_a_held_piece() -> None:
    joiner = MessageJoiner()
    joiner.add(MessagePiece(said(5, "old"), album="a"), 0.0)
    joiner.redirect_edit(read(edited_message=message("new")))
    assert [each.text for each in joiner.release_due(9.0)] == ["new"]


def test_pieces_held_by_an_earlier_run_are_released_at_once() -> None:
    joiner = MessageJoiner()
    joiner.add(MessagePiece(said(1, "one"), album="a"), 0.0)
    joiner.add(MessagePiece(said(2, "two"), album="a"), 0.0)
    kept = msgspec.json.decode(msgspec.json.encode(joiner.pieces), type=list[MessagePiece])
    (whole,) = MessageJoiner().restore(kept)
    assert whole.text == "one\ntwo"
