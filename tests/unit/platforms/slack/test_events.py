"""What Slack sends, read as events."""

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

US = SlackIdentity("T1", "U0", "B0")


def reader(places: SlackPlaces | None = None, **changes: Any) -> SlackEventDecoder:
    return SlackEventDecoder(US, places or SlackPlaces(), {"U2": "Gus"}, **changes)


def said(text: str = "hello", **more: Any) -> dict[str, Any]:
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
    found = reader(places, **changes).decode_event(event, "T1")
    assert isinstance(found, SlackEvent)
    assert isinstance(found.event, InboundMessage)
    return found.event


def test_a_dm_is_addressed_and_one_session() -> None:
    event = message(said(channel="D1", channel_type="im"))
    assert (event.direct, event.addressed) == (True, True)
    assert (event.address.chat, event.address.thread) == ("T1/D1", "")
    assert event.at == 1_700_000_000_000
    assert event.id == "D1:1700000000.000100"


def test_a_thread_of_a_dm_is_a_session_of_its_own_but_its_root_is_not() -> None:
    ts = "1700000000.000100"
    assert message(said(channel="D1", thread_ts="16.0")).address.thread == "16.0"
    assert message(said(channel="D1", thread_ts=ts)).address.thread == ""


def test_the_two_forms_of_a_mention_are_one_event() -> None:
    text = "<@U0> hello"
    first, second = message(said(text)), message(said(text, type="app_mention"))
    assert first == second
    assert first.addressed
    assert first.address.thread == "1700000000.000100"
    assert first.text == "hello"


def test_what_is_said_to_others_is_not_addressed() -> None:
    event = message(said())
    assert not event.addressed
    assert event.address.thread == ""
    assert not message(said(thread_ts="16.0")).addressed


def test_in_a_thread_in_use_and_without_the_rule_no_mention_is_needed() -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0")
    assert message(said(thread_ts="16.0"), places).addressed
    assert message(said(), require_mention=False).addressed


@pytest.mark.parametrize(
    ("text", "addressed"), [("!stop", True), ("!reset", True), ("!important", False)]
)
def test_only_commands_of_ours_need_no_mention(text: str, addressed: bool) -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0", "U1")
    event = message(said(text), places, command_words=frozenset({"stop", "reset"}))
    assert event.addressed is addressed
    assert event.address.thread == ("16.0" if addressed else "")


@pytest.mark.parametrize(
    "event",
    [
        said(user="U0"),
        said(bot_id="B0"),
        said(subtype="channel_join"),
        said(hidden=True),
        {"type": "reaction_added"},
        {"type": "message", "subtype": "message_changed", "message": said(user="U0")},
    ],
)
def test_what_is_ours_or_no_word_of_anybody_is_left_out(event: dict[str, Any]) -> None:
    assert reader().decode_event(event) is None


def test_another_bot_is_named_as_one() -> None:
    found = reader().decode_event(said(user=None, bot_id="B9", subtype="bot_message"), "T1")
    assert found
    assert (found.user, found.is_bot) == ("B9", True)


def test_somebody_of_another_workspace_comes_from_there() -> None:
    found = reader().decode_event(said(user_team="T9"), "T1")
    assert found
    assert found.team == "T9"


def test_files_are_parts_with_their_ids() -> None:
    file = {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 3}
    event = message(
        said("look", subtype="file_share", files=[file, {"id": "F2", "mode": "tombstone"}])
    )
    assert event.parts == (Text("look"), File("a.png", "image/png", ref="F1", size=3))


def test_a_forwarded_message_is_quoted() -> None:
    shared = {"is_share": True, "author_name": "Eve", "text": "secret &amp; sauce"}
    event = message(said(attachments=[shared]))
    assert [(quote.sender, quote.text) for quote in event.context] == [("Eve", "secret & sauce")]


def edited(**more: Any) -> dict[str, Any]:
    now = said("after", edited={"user": "U1", "ts": "1700000009.000000"}, **more)
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": "C1",
        "ts": "1700000009.000200",
        "message": now,
        "previous_message": said("before"),
    }


def test_an_edit_names_its_message() -> None:
    found = reader().decode_event(edited(), "T1")
    assert found
    assert isinstance(found.event, InboundEdit)
    assert found.event.message == "C1:1700000000.000100"
    assert found.event.parts == (Text("after"),)
    assert found.is_ordered


def test_a_preview_that_slack_adds_is_no_edit() -> None:
    event = edited()
    event["previous_message"]["text"] = "after"
    assert reader().decode_event(event) is None


@pytest.mark.parametrize(
    "event",
    [
        {"subtype": "message_deleted", "deleted_ts": "17.0", "previous_message": said(ts="17.0")},
        {
            "subtype": "message_changed",
            "message": {"subtype": "tombstone", "ts": "17.0"},
            "previous_message": said(ts="17.0"),
        },
    ],
    ids=["gone", "with replies"],
)
def test_a_delete_names_its_message(event: dict[str, Any]) -> None:
    found = reader().decode_event({"type": "message", "channel": "C1", "ts": "18.0", **event}, "T1")
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


def test_a_button_says_where_and_by_whom_it_was_pressed() -> None:
    found = reader().decode("interactive", pressed(), 0)
    assert found
    assert isinstance(found.event, InboundAction)
    assert (found.event.action, found.event.message) == ("approve:1", "18.0")
    assert found.event.address.thread == "17.0"
    assert not found.is_ordered


def test_buttons_of_others_are_left_out() -> None:
    other = [{"action_id": "feedback", "value": "x"}]
    assert reader().decode("interactive", pressed(actions=other), 0) is None
    assert reader().decode("interactive", {"type": "view_submission"}, 0) is None


@pytest.mark.parametrize(
    ("typed", "text"),
    [("stop", "/stop"), ("", "/help"), ("!stop now", "/stop now"), ("/new", "/new")],
)
def test_a_slash_command_becomes_a_command_in_the_last_thread(typed: str, text: str) -> None:
    places = SlackPlaces()
    places.update("C1", "16.0", "16.0", "U1")
    payload = {"channel_id": "C1", "user_id": "U1", "text": typed, "trigger_id": "1.2.3"}
    found = reader(places).decode("slash_commands", payload, 5_000)
    assert found
    assert isinstance(found.event, InboundMessage)
    assert (found.event.text, found.event.at) == (text, 5_000)
    assert found.event.address.thread == "16.0"
    assert found.event.addressed


def test_slacks_own_stop_is_a_stop() -> None:
    event = {"type": "agent_session_stopped", "channel": "D1", "user": "U1", "event_ts": "17.0"}
    found = reader().decode_event({**event, "thread_ts": "16.0"}, "T1")
    assert found
    assert isinstance(found.event, InboundMessage)
    assert found.event.text == "!stop"
    assert found.event.address.thread == "16.0"
