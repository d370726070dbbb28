"""Payloads of Slack, decoded as inbound events."""

from typing import Any

import pytest

from platforms.core.contract import (
    File,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Text,
)
from platforms.slack.decode import SlackEvent, SlackEventDecoder, SlackIdentity
from platforms.slack.read_marks import SlackPlaces

OWN = SlackIdentity("T1", "U0", "B0")


def decoder(places: SlackPlaces | None = None, **changes: Any) -> SlackEventDecoder:
    return SlackEventDecoder(OWN, places or SlackPlaces(), {"U2": "Gus"}, **changes)


def posted(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U1",
        "ts": "1700000000.000100",
        "text": text,
        **more,
    }


def message(
    event: dict[str, Any], places: SlackPlaces | None = None, **changes: Any
) -> InboundMessage:
    found = decoder(places, **changes).decode_event(event, "T1")
    assert isinstance(found, SlackEvent)
    assert isinstance(found.event, InboundMessage)
    return found.event


def test_a_dm_is_addressed_and_one_session() -> None:
    event = message(posted(channel="D1", channel_type="im"))
    assert (event.direct, event.addressed) == (True, True)
    assert (event.address.chat, event.address.thread) == ("T1/D1", "")
    assert event.at == 1_700_000_000_000
    assert event.id == "D1:1700000000.000100"


def test_a_thread_in_a_dm_is_its_own_session_but_its_root_is_not() -> None:
    ts = "1700000000.000100"
    assert message(posted(channel="D1", thread_ts="16.0")).address.thread == "16.0"
    assert message(posted(channel="D1", thread_ts=ts)).address.thread == ""


def test_the_two_forms_of_a_mention_are_one_event() -> None:
    text = "<@U0> hello"
    first, second = message(posted(text)), message(posted(text, type="app_mention"))
    assert first == second
    assert first.addressed
    assert first.address.thread == "1700000000.000100"
    assert first.text == "hello"


def test_a_message_to_others_is_not_addressed() -> None:
    event = message(posted())
    assert not event.addressed
    assert event.address.thread == ""
    assert not message(posted(thread_ts="16.0")).addressed


def test_no_mention_is_needed_in_a_thread_in_use_or_without_require_mention() -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0")
    assert message(posted(thread_ts="16.0"), places).addressed
    assert message(posted(), require_mention=False).addressed


@pytest.mark.parametrize(
    ("text", "addressed"), [("!stop", True), ("!reset", True), ("!important", False)]
)
def test_only_our_own_commands_need_no_mention(text: str, addressed: bool) -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0", "U1")
    event = message(posted(text), places, command_words=frozenset({"stop", "reset"}))
    assert event.addressed is addressed
    assert event.address.thread == ("16.0" if addressed else "")


@pytest.mark.parametrize(
    "event",
    [
        posted(user="U0"),
        posted(bot_id="B0"),
        posted(subtype="channel_join"),
        posted(hidden=True),
        {"type": "reaction_added"},
        {"type": "message", "subtype": "message_changed", "message": posted(user="U0")},
    ],
)
def test_own_messages_and_service_messages_are_ignored(event: dict[str, Any]) -> None:
    assert decoder().decode_event(event) is None


def test_the_author_of_a_bot_message_is_marked_as_a_bot() -> None:
    found = decoder().decode_event(posted(user=None, bot_id="B9", subtype="bot_message"), "T1")
    assert found
    assert (found.user, found.is_bot) == ("B9", True)


def test_a_person_of_another_workspace_keeps_that_workspace() -> None:
    found = decoder().decode_event(posted(user_team="T9"), "T1")
    assert found
    assert found.team == "T9"


def test_files_are_parts_with_their_ids() -> None:
    file = {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 3}
    event = message(
        posted("look", subtype="file_share", files=[file, {"id": "F2", "mode": "tombstone"}])
    )
    assert event.parts == (Text("look"), File("a.png", "image/png", ref="F1", size=3))


def test_a_forwarded_message_is_quoted() -> None:
    shared = {"is_share": True, "author_name": "Eve", "text": "secret &amp; sauce"}
    event = message(posted(attachments=[shared]))
    assert [(quote.sender, quote.text) for quote in event.context] == [("Eve", "secret & sauce")]


def edited(**more: Any) -> dict[str, Any]:
    now = posted("after", edited={"user": "U1", "ts": "1700000009.000000"}, **more)
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": "C1",
        "ts": "1700000009.000200",
        "message": now,
        "previous_message": posted("before"),
    }


def test_an_edit_names_its_message() -> None:
    found = decoder().decode_event(edited(), "T1")
    assert found
    assert isinstance(found.event, InboundEdit)
    assert found.event.message == "C1:1700000000.000100"
    assert found.event.parts == (Text("after"),)
    assert found.is_ordered


def test_a_link_preview_is_not_an_edit() -> None:
    event = edited()
    event["previous_message"]["text"] = "after"
    assert decoder().decode_event(event) is None


@pytest.mark.parametrize(
    "event",
    [
        {"subtype": "message_deleted", "deleted_ts": "17.0", "previous_message": posted(ts="17.0")},
        {
            "subtype": "message_changed",
            "message": {"subtype": "tombstone", "ts": "17.0"},
            "previous_message": posted(ts="17.0"),
        },
    ],
    ids=["gone", "with replies"],
)
def test_a_delete_names_its_message(event: dict[str, Any]) -> None:
    found = decoder().decode_event(
        {"type": "message", "channel": "C1", "ts": "18.0", **event}, "T1"
    )
    assert found
    assert isinstance(found.event, InboundDelete)
    assert found.event.message == "C1:17.0"
    assert found.user == "U1"


def pressed(**more: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": "U1", "team_id": "T1"},
        "container": {"channel_id": "C1", "message_ts": "18.0", "thread_ts": "17.0"},
        "actions": [{"action_id": "holdfast.0", "value": "approve:1", "action_ts": "19.5"}],
        **more,
    }


def test_a_button_press_names_its_message_and_person() -> None:
    found = decoder().decode_action(pressed())
    assert found
    assert isinstance(found.event, InboundAction)
    assert (found.event.action, found.event.message) == ("approve:1", "18.0")
    assert found.event.address.thread == "17.0"
    assert not found.is_ordered


def test_buttons_of_other_apps_are_ignored() -> None:
    other = [{"action_id": "feedback", "value": "x"}]
    assert decoder().decode_action(pressed(actions=other)) is None
    assert decoder().decode_action({"type": "view_submission"}) is None


@pytest.mark.parametrize(
    ("typed", "text"),
    [("stop", "/stop"), ("", "/help"), ("!stop now", "/stop now"), ("/new", "/new")],
)
def test_a_slash_command_acts_on_the_last_thread_of_its_person(typed: str, text: str) -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0", "U1")
    payload = {"channel_id": "C1", "user_id": "U1", "text": typed, "trigger_id": "1.2.3"}
    found = decoder(places).decode_command(payload, 5_000)
    assert found
    assert isinstance(found.event, InboundMessage)
    assert (found.event.text, found.event.at) == (text, 5_000)
    assert found.event.address.thread == "16.0"
    assert found.event.addressed


def test_slacks_native_stop_button_is_the_stop_command() -> None:
    event = {"type": "agent_session_stopped", "channel": "D1", "user": "U1", "event_ts": "17.0"}
    found = decoder().decode_event({**event, "thread_ts": "16.0"}, "T1")
    assert found
    assert isinstance(found.event, InboundMessage)
    assert found.event.text == "!stop"
    assert found.event.address.thread == "16.0"
