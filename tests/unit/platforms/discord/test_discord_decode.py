"""Tests of Discord's pure modules: decoding, payloads, read marks, context and rate limit."""

import msgspec
import pytest

from platforms.core.contract import Address, Button, MenuEntry, Quote, Sender, Text
from platforms.discord import payloads
from platforms.discord.authors import load_authors
from platforms.discord.decode import (
    BotAccount,
    MessageContext,
    join_messages,
    membership_of,
    own_roles,
    read_command,
    read_edit,
    read_message,
    read_press,
)
from platforms.discord.rate_limit import PER_SECOND, RestRateLimit, RouteBucket
from platforms.discord.read_marks import MAX_CHANNELS, ReadMarks, id_at, load_marks, sent_at
from platforms.discord.receive import group_parts
from platforms.discord.rooms import (
    ChannelDirectory,
    DiscordChannel,
    Payload,
    RecentMessage,
    RecentMessages,
    channel_address,
)

ME = BotAccount("900", "Holdfast", "901")
PLACE = Address("discord", "10")
ANN = {"id": "1", "username": "ann", "global_name": "Ann"}


def reading(room: DiscordChannel | None = None, **more: object) -> MessageContext:
    given: dict[str, object] = {
        "own_roles": frozenset({"77"}),
        "channel_name": lambda channel: {"10": "general"}.get(channel, channel),
        "is_in_use": False,
        "require_mention": True,
        **more,
    }
    return MessageContext(account=ME, address=PLACE, channel=room or DiscordChannel("5"), **given)  # type: ignore[arg-type]


def message(content: str, **more: object) -> Payload:
    return {"id": str(id_at(1_700_000_000_000)), "channel_id": "10", "author": ANN, "type": 0,
            "content": content, **more}  # fmt: skip


# --- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        ("<@900> hello", "hello"),
        ("<@!900>   /stop now", "/stop now"),
        ("<@&77> hello", "hello"),
        ("ask <@900> or <@1>", "ask @Holdfast or @Ann"),
        ("<@&78> and <@2>", "<@&78> and <@2>"),
        ("in <#10> or <#11>", "in #general or #11"),
        ("<:wave:123> <a:dance:5>", ":wave: :dance:"),
        ("use </model pick:12>", "use /model pick"),
        ("a < b > c", "a < b > c"),
    ],
)
def test_mentions_are_shown_with_names_instead_of_ids(content: str, plain: str) -> None:
    told = message(content, mentions=[ANN])
    assert read_message(told, reading()).text == plain


@pytest.mark.parametrize(
    ("told", "how", "addressed"),
    [
        (message("x"), reading(), False),
        (message("x"), reading(DiscordChannel()), True),
        (message("x", mentions=[{"id": "900", "username": "h"}]), reading(), True),
        (message("x", mention_roles=["77"]), reading(), True),
        (message("x", mention_roles=["78"]), reading(), False),
        (message("x", mention_everyone=True), reading(), False),
        (message("x", referenced_message=message("y")), reading(), False),
        (
            message("x", referenced_message=message("y", author={"id": "900", "username": "h"})),
            reading(),
            True,
        ),
        (message("x", referenced_message=None, type=19), reading(), False),
        (message("x"), reading(DiscordChannel("5", "10"), is_in_use=True), True),
        (message("x"), reading(DiscordChannel("5", "10")), False),
        (message("x"), reading(is_in_use=True), False),
        (message("x"), reading(require_mention=False), True),
    ],
)
def test_messages_are_addressed_by_mention_role_reply_or_thread(
    told: Payload, how: MessageContext, addressed: bool
) -> None:
    assert read_message(told, how).addressed is addressed


def test_a_sender_has_the_server_nickname_and_the_permanent_id() -> None:
    told = message("x", member={"nick": "Annie", "roles": ["7"]})
    found = read_message(told, reading()).sender
    assert found == Sender("1", "Annie", memberships=("5/*", "5/role:7"))
    assert read_message(message("x"), reading(DiscordChannel())).sender == Sender("1", "Ann")
    assert membership_of("5", {"roles": []}) == ("5/*",)


def test_a_webhook_has_no_memberships() -> None:
    told = message("x", webhook_id="4", member={"roles": ["7"]})
    assert read_message(told, reading()).sender == Sender("1", "Ann", is_bot=True)


def test_forwarded_text_stickers_and_files_are_included() -> None:
    inner = {"content": "far away", "attachments": [{"id": "3", "url": "u", "filename": "f"}]}
    told = message("", message_snapshots=[{"message": inner}], sticker_items=[{"name": "Yay"}])
    found = read_message(told, reading())
    assert found.reply_to == Quote("forwarded message", "far away")
    assert found.parts[0] == Text("[sticker: Yay]")
    assert [part.name for part in found.parts[1:]] == ["f"]  # type: ignore[union-attr]
    assert read_message(message(""), reading()).parts == (Text(""),)


def test_an_added_preview_is_not_an_edit() -> None:
    assert read_edit(message("x", edited_timestamp=None), reading()) is None
    edit = read_edit(message("x", edited_timestamp="2026-11-18T12:00:00.5+00:00"), reading())
    assert edit
    assert edit.id.endswith(f".e{edit.at}")


def test_pieces_of_a_long_text_become_one_message_with_the_first_id() -> None:
    first = read_message(message("one", id="1"), reading())
    second = read_message(message("two", id="2", mention_roles=["77"]), reading())
    both = join_messages([first, second])
    assert (both.id, both.text, both.addressed) == ("1", "one\ntwo", True)


def test_messages_from_history_are_joined_by_their_timestamps() -> None:
    long, at = "x" * 1_950, 1_700_000_000_000
    other = {"id": "2", "username": "bob"}
    page = [
        message(long, id=str(id_at(at))),
        message("its end", id=str(id_at(at + 400))),
        message("later", id=str(id_at(at + 900))),
        message(long, id=str(id_at(at + 1_000))),
        message("somebody else", id=str(id_at(at + 1_100)), author=other),
        message(long, id=str(id_at(at + 5_000))),
        message("too late", id=str(id_at(at + 6_500))),
    ]
    assert [len(each) for each in group_parts(page, 1.0)] == [2, 1, 1, 1, 1, 1]


def test_own_roles_are_the_bots_managed_roles() -> None:
    roles = [
        {"id": "7", "tags": {"bot_id": "900"}},
        {"id": "8", "tags": {"bot_id": "901"}},
        {"id": "9", "tags": None},
    ]
    assert own_roles({"id": "5", "roles": roles}, "900") == {"7"}


# --- interactions ------------------------------------------------------------------------------


def test_a_slash_command_becomes_a_text_message() -> None:
    given: Payload = {
        "id": "99", "token": "secret", "type": 2, "member": {"user": ANN, "roles": ["7"]},
        "data": {"name": "model", "options": [{"name": "text", "value": " big one "}]},
    }  # fmt: skip
    found = read_command(given, PLACE, DiscordChannel("5"))
    assert (found.text, found.addressed, found.direct) == ("/model big one", True, False)
    assert found.sender.memberships == ("5/*", "5/role:7")
    assert b"secret" not in found.raw


def test_presses_of_foreign_buttons_are_ignored() -> None:
    pressed: Payload = {"id": "99", "type": 3, "user": ANN, "data": {"custom_id": "hf:deny:c1"}}
    found = read_press(pressed, PLACE, DiscordChannel())
    assert found
    assert (found.action, found.direct, found.sender.id) == ("deny:c1", True, "1")
    assert read_press({**pressed, "data": {"custom_id": "other"}}, PLACE, DiscordChannel()) is None


# --- payloads ----------------------------------------------------------------------------------


def test_a_message_carries_the_nonce_of_its_op_and_mentions_no_one() -> None:
    payload = payloads.message_payload("@everyone", op="a.0", reply_to="12")
    assert payload["nonce"] == payloads.message_nonce("a.0") != payloads.message_nonce("a.1")
    assert len(payload["nonce"]) <= 25
    assert payload["enforce_nonce"] is True
    assert payload["allowed_mentions"]["parse"] == []
    assert payload["message_reference"] == {"message_id": "12", "fail_if_not_exists": False}
    assert "nonce" not in payloads.message_payload("an edit")
    assert "message_reference" not in payloads.message_payload("x", reply_to="i_notdiscord")


def test_buttons_are_laid_out_in_rows_with_their_action_as_id() -> None:
    rows = payloads.button_rows([Button(f"{number}" * 90, f"do:{number}") for number in range(7)])
    assert [len(row["components"]) for row in rows] == [5, 2]
    first = rows[0]["components"][0]
    assert first["label"] == "0" * 80
    assert payloads.parse_custom_id(first["custom_id"]) == "do:0"
    with pytest.raises(ValueError, match="97"):
        payloads.custom_id("x" * 98)


def test_the_command_menu_omits_names_discord_refuses() -> None:
    menu = payloads.command_payloads(
        [MenuEntry("pair", "let people in", "list | approve CODE"), MenuEntry("Ü", "no")]
    )
    assert [each["name"] for each in menu] == ["pair"]
    assert menu[0]["options"][0]["required"] is True
    assert (
        payloads.command_payloads([MenuEntry("stop", "stop", "[all]")])[0]["options"][0]["required"]
        is False
    )


def test_the_command_menu_says_which_arguments_are_for_admins() -> None:
    menu = payloads.command_payloads([MenuEntry("stop", "stop", admin_args="[all]")])
    assert menu[0]["options"] == [
        {"type": 3, "name": "text", "description": "[all] (admins)", "required": False}
    ]


def test_the_invite_link_asks_for_no_moderation_rights() -> None:
    link = payloads.invite_link("901")
    permissions = int(link.rpartition("=")[2])
    assert "client_id=901" in link
    assert permissions & (1 << 3 | 1 << 13 | 1 << 28) == 0  # administrator, others' messages, roles


# --- rooms and marks ---------------------------------------------------------------------------


def test_a_thread_is_addressed_within_its_channel() -> None:
    rooms = ChannelDirectory()
    thread = {"id": "11", "type": 11, "parent_id": "10", "name": "t"}
    text = {"id": "10", "type": 0, "parent_id": "3", "name": "general"}
    rooms.on_event("GUILD_CREATE", {"id": "5", "channels": [text], "threads": [thread]})
    found = rooms.find("11", "5")
    assert found == DiscordChannel("5", "10", "t")
    assert channel_address("discord", "", "11", found) == Address("discord", "10", "", "11")
    plain = rooms.find("10", "5")
    assert plain
    assert channel_address("discord", "", "10", plain) == Address("discord", "10")
    assert rooms.find("12", "5") is None
    assert rooms.find("12", "") == DiscordChannel()


def test_read_marks_only_advance_and_only_for_channels_in_use() -> None:
    marks = ReadMarks()
    marks.mark_read("1", 50)
    assert marks.get("1") is None
    assert marks.start("1", DiscordChannel("5", "9"), 50)
    assert not marks.start("1", DiscordChannel(), 60)
    assert not marks.is_read("1", 50)
    marks.mark_read("1", 50)
    marks.mark_read("1", 40)
    assert marks.is_read("1", 50)
    again = load_marks(marks.dump())
    assert again.channels() == marks.channels()
    mark = again.get("1")
    assert mark
    assert mark.channel == DiscordChannel("5", "9")
    assert load_marks(None).channels() == {}


def test_authors_of_the_newest_messages_survive_a_restart() -> None:
    authors = load_authors(None)
    for number in range(150):
        authors.add(str(number), Sender(f"9{number}"))
    again = load_authors(authors.dump())
    assert not again.dirty
    assert authors.find("0") == Sender("90")
    assert [number for number in range(150) if again.find(str(number))] == list(range(50, 150))


def test_marks_of_the_least_recently_used_channels_are_dropped() -> None:
    marks = ReadMarks()
    for number in range(MAX_CHANNELS):
        marks.start(str(number), DiscordChannel(), 1)
    marks.mark_read("0", 5)
    marks.start("new", DiscordChannel(), 1)
    assert "0" in marks
    assert "1" not in marks


def test_ids_convert_to_times_and_back() -> None:
    assert sent_at(175928847299117063) == 1462015105796
    assert sent_at(id_at(1_700_000_000_123)) == 1_700_000_000_123
    assert id_at(0) == 0


def test_context_contains_only_messages_outside_the_conversation() -> None:
    listening = RecentMessages()
    said = [
        RecentMessage(id="1", author="ann", name="Ann", text="hi"),
        RecentMessage(id="2", author="bob", name="Bob", text="bot, what?", addressed=True),
        RecentMessage(id="3", author="bot", name="Holdfast", text="that", reply_to_author="bob"),
        RecentMessage(id="4", author="ann", name="Ann", text="see?"),
    ]
    listening.add("c", said)

    def texts(author: str, *, shared: bool = False) -> list[str]:
        return [quote.text for quote in listening.context_for("c", author, shared=shared)]

    assert texts("bob") == ["see?"]
    assert texts("ann") == ["hi", "bot, what?", "that", "see?"]
    assert texts("ann", shared=True) == ["see?"]
    listening.edit("c", "4", "look")
    listening.delete("c", "1")
    assert texts("ann") == ["bot, what?", "that", "look"]
    listening.add_history(
        "c", [RecentMessage(id="0", author="eve", name="Eve", text="before"), said[3]]
    )
    assert texts("ann") == ["before", "bot, what?", "that", "look"]


# --- rate limit --------------------------------------------------------------------------------


def test_a_bucket_waits_for_its_reset_only_when_empty() -> None:
    bucket = RouteBucket()
    assert bucket.wait_seconds(0.0) == 0.0
    bucket.take()
    bucket.update(1, 4.0, 0.0)
    assert bucket.wait_seconds(1.0) == 0.0
    bucket.take()
    assert bucket.wait_seconds(1.0) == 3.0
    bucket.update(3, 3.0, 1.0)  # a response that arrives out of order
    assert bucket.wait_seconds(1.0) == 3.0
    assert bucket.wait_seconds(4.0) == 0.0


@pytest.mark.parametrize("busy", [0.0, 0.4])
def test_calls_stay_below_fifty_in_any_second(busy: float) -> None:
    """The limit also holds if the event loop is `busy` for part of every second."""
    gate, now = RestRateLimit(0.0), 0.0
    moments: list[float] = []
    while len(moments) < 500:
        while not gate.wait_seconds(now):
            gate.take(now)
            moments.append(now)
        now += max(gate.wait_seconds(now), busy if int(now + busy) > int(now) else 0.0)
    for place, moment in enumerate(moments):
        assert sum(other < moment + 1.0 for other in moments[place:]) < 50
    assert moments[-1] <= 500 / PER_SECOND / (1 - busy) + 1


def test_waiting_calls_are_counted_until_they_go_out() -> None:
    gate = RestRateLimit(0.0)
    with gate.queued(), gate.queued():
        assert gate.queue_seconds() == 2 / PER_SECOND
    assert gate.queue_seconds() == 0.0


def test_a_global_429_blocks_until_its_end() -> None:
    gate = RestRateLimit(0.0)
    gate.block(5.0, 10.0)
    gate.block(1.0, 10.0)
    assert gate.blocked_seconds(12.0) == 3.0
    assert gate.blocked_seconds(15.0) == 0.0


def test_messages_keep_the_raw_payload() -> None:
    told = message("x")
    assert msgspec.json.decode(read_message(told, reading()).raw) == told
