"""Tests of behaviour specific to Discord: the real library against the fake server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Delete,
    Edit,
    File,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    MenuEntry,
    Post,
    React,
    Text,
    Typing,
    Upload,
)
from platforms.core.errors import (
    ChatGone,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from tests.fakes.discord.life import Life
from tests.fakes.discord.server import CONTENT_INTENT, Fault, Interaction, discord_server
from tests.fakes.door import door
from tests.fakes.inbox import Inbox


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    async with discord_server() as discord:
        yield Life(discord)


# --- receiving ---------------------------------------------------------------------------------


async def test_a_direct_message_has_its_sender_and_address(life: Life) -> None:
    async with life.running():
        said = await life.discord.say(life.direct, life.ann, "Hello")
        (message,) = await life.inbox.wait(1)
    assert isinstance(message, InboundMessage)
    assert message.id == said
    assert message.address == life.address(life.direct)
    assert (message.sender.id, message.sender.name) == (life.ann["id"], "Ann")
    assert message.parts == (Text("Hello"),)
    assert message.direct
    assert abs(message.at - life.clock.now()) < 5_000


async def test_in_a_room_only_mentions_replies_commands_and_the_bots_role_are_addressed(
    life: Life,
) -> None:
    discord, room = life.discord, life.room
    ours = discord.world.write(room, discord.world.bot, "I said something")
    role = life.guild.roles[0]["id"]
    async with life.running():
        await discord.say(room, life.ann, "among ourselves")
        await discord.say(room, life.ann, f"{life.call} by mention")
        await discord.say(room, life.ann, "by reply", reply_to=ours["id"])
        await discord.say(room, life.ann, f"<@&{role}> by role")
        await discord.say(room, life.ann, "@everyone look")
        await discord.say(room, life.ann, "!STOP all")
        await discord.say(room, life.ann, "!important")
        await life.inbox.wait(7)
    found = [(event.text, event.addressed) for event in life.inbox.events]  # type: ignore[union-attr]
    assert found == [
        ("among ourselves", False),
        ("by mention", True),
        ("by reply", True),
        ("by role", True),
        ("@everyone look", False),
        ("!STOP all", True),
        ("!important", False),
    ]


async def test_a_message_has_its_reply_and_the_earlier_messages_as_context(life: Life) -> None:
    discord, room = life.discord, life.room
    bob = discord.world.user("Bob")
    old = discord.world.write(room, bob, "before you came")
    async with life.running():
        said = await discord.say(room, bob, "the sky is green")
        await discord.say(room, life.ann, f"{life.call} is it?", reply_to=said)
        events = await life.inbox.wait(2)
        await discord.say(room, bob, "of course")
        await discord.say(room, life.ann, f"{life.call} and now?")
        await life.inbox.wait(4)
    first, second = events[1], events[3]
    assert isinstance(first, InboundMessage)
    assert isinstance(second, InboundMessage)
    assert first.reply_to
    assert (first.reply_to.sender, first.reply_to.text) == ("Bob", "the sky is green")
    assert [quote.text for quote in first.context] == ["before you came", "the sky is green"]
    assert first.context[0].id == old["id"]
    assert [quote.text for quote in second.context] == ["of course"]


async def test_a_thread_in_use_needs_no_further_mentions(life: Life) -> None:
    thread = life.discord.world.thread(life.room)
    async with life.running():
        await life.discord.say(thread, life.ann, "hm")
        await life.discord.say(thread, life.ann, f"{life.call} come in")
        await life.discord.say(thread, life.ann, "and stay")
        events = await life.inbox.wait(3)
    assert [each.addressed for each in events if isinstance(each, InboundMessage)] == [
        False,
        True,
        True,
    ]
    assert {each.address for each in events} == {life.address(thread)}
    assert events[0].address.chat == life.room.id


async def test_an_unknown_thread_is_looked_up(life: Life) -> None:
    async with life.running():
        thread = life.discord.world.thread(life.room)
        await life.discord.say(thread, life.ann, f"{life.call} here")
        (event,) = await life.inbox.wait(1)
    assert event.address == life.address(thread)
    assert life.discord.called("GET channel") == ["GET channel"]


async def test_roles_and_membership_are_known_in_rooms_and_in_private(life: Life) -> None:
    life.guild.members[life.ann["id"]]["roles"] = ["77"]
    expected = (f"{life.guild.id}/*", f"{life.guild.id}/role:77")
    async with life.running():
        await life.discord.say(life.room, life.ann, life.call)
        await life.discord.say(life.direct, life.ann, "Hello")
        events = await life.inbox.wait(2)
    assert [event.sender.memberships for event in events] == [expected, expected]


async def test_memberships_are_not_looked_up_when_no_rule_needs_them(life: Life) -> None:
    life.memberships = False
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.inbox.wait(1)
    life.discord.forget_sessions()
    await life.discord.say(life.direct, life.ann, "away")
    async with life.running():
        events = await life.inbox.wait(2)
    assert [event.sender.memberships for event in events] == [(), ()]
    assert life.discord.called("GET member") == []


async def test_the_last_known_memberships_count_while_a_lookup_fails(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platforms.discord.lookup._MEMBER_CACHE_SECONDS", 0.0)
    monkeypatch.setattr("platforms.discord.lookup.PARTIAL_CACHE_SECONDS", 0.0)
    expected = (f"{life.guild.id}/*",)
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.inbox.wait(1)
        life.discord.fail("GET member", Fault(status=500))
        await life.discord.say(life.direct, life.ann, "two")
        events = await life.inbox.wait(2)
    assert [event.sender.memberships for event in events] == [expected, expected]


async def test_a_failed_membership_lookup_is_repeated_soon(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platforms.discord.lookup.PARTIAL_CACHE_SECONDS", 0.0)
    life.discord.fail("GET member", Fault(status=500))
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.inbox.wait(1)
        await life.discord.say(life.direct, life.ann, "two")
        events = await life.inbox.wait(2)
    assert events[1].sender.memberships == (f"{life.guild.id}/*",)


class MembersOnly(Inbox):
    """An inbox whose access rules name memberships only."""

    def __init__(self) -> None:
        super().__init__()
        self.undecided = 0

    async def __call__(self, event: Inbound) -> Accepted:
        if event.sender.memberships_unknown:
            self.undecided += 1
            return Accepted.UNDECIDED
        return await super().__call__(event)


async def test_a_message_of_an_undecided_person_is_stored_after_the_lookup(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("lookup", "receive"):
        monkeypatch.setattr(f"platforms.discord.{module}.PARTIAL_CACHE_SECONDS", 0.01)
    life.inbox = inbox = MembersOnly()
    for _ in range(2):
        life.discord.fail("GET member", Fault(status=500))
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.discord.say(life.direct, life.ann, "two")
        assert await inbox.texts(2) == ["one", "two"]
    assert inbox.undecided == 2
    assert inbox.message(0).sender.memberships == (f"{life.guild.id}/*",)


async def test_bots_and_webhooks_are_marked_and_own_messages_are_ignored(
    life: Life,
) -> None:
    robot = life.discord.world.user("Robot", bot=True)
    async with life.running():
        await life.adapter.deliver(Post("a.0", life.address(life.room), "mine"))
        await life.discord.say(life.room, robot, f"{life.call} hello")
        await life.discord.say(life.room, life.ann, f"{life.call} hook", webhook_id="5")
        events = await life.inbox.wait(2)
    assert [event.sender.is_bot for event in events] == [True, True]
    assert len(events) == 2
    assert events[1].sender.memberships == ()


UNREADABLE: list[tuple[str, dict[str, object]]] = [
    ("MESSAGE_CREATE", {"id": "5", "channel_id": "None", "guild_id": "7", "content": "x"}),
    ("MESSAGE_CREATE", {"id": "5", "guild_id": "7", "content": "x"}),
    ("MESSAGE_CREATE", {"id": "5", "channel_id": "6", "content": 5, "author": {"id": "1"}}),
    ("MESSAGE_CREATE", {"id": "5", "channel_id": "6", "content": "x", "author": "Ann"}),
    ("MESSAGE_CREATE", {"channel_id": "6", "content": "x", "author": {"id": "1"}}),
    ("MESSAGE_UPDATE", {"id": "5", "channel_id": "6", "author": "Ann"}),
    ("MESSAGE_DELETE_BULK", {"ids": 5, "channel_id": "6"}),
    ("MESSAGE_DELETE", {"ids": 5, "channel_id": "None"}),
    ("INTERACTION_CREATE", {"id": "5", "channel_id": "6", "token": "t"}),
    ("INTERACTION_CREATE", {"id": "5", "channel_id": "None", "token": "t", "type": 3}),
    ("INTERACTION_CREATE", {"id": "5", "channel_id": "6", "token": "t", "type": 2}),
    ("GUILD_CREATE", {"id": "5", "channels": [5]}),
]


@pytest.mark.parametrize(("kind", "data"), UNREADABLE)
async def test_a_dispatch_that_cannot_be_read_does_not_end_the_connection(
    life: Life, kind: str, data: dict[str, object]
) -> None:
    async with life.running():
        await life.discord._tell(kind, data)
        await life.discord.say(life.direct, life.ann, "Hello")
        assert await life.inbox.texts(1) == ["Hello"]
    assert life.discord.identified == 1


async def test_system_messages_are_ignored(life: Life) -> None:
    async with life.running():
        await life.discord.say(life.direct, life.ann, "", type=7)  # a member joined
        await life.discord.say(life.direct, life.ann, "Hello")
        assert await life.inbox.texts(1) == ["Hello"]


async def test_edits_and_deletes_of_addressed_messages_are_submitted(life: Life) -> None:
    discord = life.discord
    async with life.running():
        aside = await discord.say(life.room, life.ann, "among ourselves")
        said = await discord.say(life.direct, life.ann, "Hello")
        await life.inbox.wait(2)
        await discord.preview(life.direct, said)
        await discord.rewrite(life.room, aside, "still among ourselves")
        await discord.rewrite(life.direct, said, "Hello you")
        await discord.erase(life.room, aside)
        await discord.erase(life.direct, said)
        events = (await life.inbox.wait(4))[2:]
    edit, delete = events
    assert isinstance(edit, InboundEdit)
    assert (edit.message, edit.parts) == (said, (Text("Hello you"),))
    assert isinstance(delete, InboundDelete)
    assert (delete.message, delete.sender.id) == (said, life.ann["id"])
    assert delete.direct


async def test_edits_and_deletes_of_messages_before_a_restart_are_submitted(
    life: Life,
) -> None:
    discord = life.discord
    async with life.running():
        changed = await discord.say(life.direct, life.ann, "Hlelo")
        gone = await discord.say(life.room, life.ann, f"{life.call} look")
        await life.inbox.wait(2)
    async with life.running():
        await discord.rewrite(life.direct, changed, "Hello")
        await discord.erase(life.room, gone)
        edit, delete = (await life.inbox.wait(4))[2:]
    assert isinstance(edit, InboundEdit)
    assert (edit.message, edit.parts) == (changed, (Text("Hello"),))
    assert isinstance(delete, InboundDelete)
    assert (delete.message, delete.sender.id) == (gone, life.ann["id"])


async def test_a_text_split_by_the_client_becomes_one_message(life: Life) -> None:
    life.options["join_seconds"] = 5.0
    first = "a" * 1_990
    async with life.running():
        await life.discord.say(life.direct, life.ann, first)
        await life.discord.say(life.direct, life.ann, "the end")
        assert await life.inbox.texts(1) == [f"{first}\nthe end"]


async def test_a_long_text_without_a_follower_is_submitted(life: Life) -> None:
    async with life.running():
        await life.discord.say(life.direct, life.ann, "b" * 1_990)
        assert await life.inbox.texts(1) == ["b" * 1_990]


async def test_a_held_piece_of_a_long_text_survives_a_restart(life: Life) -> None:
    life.options["join_seconds"] = 60.0
    async with life.running():
        await life.discord.say(life.direct, life.ann, "c" * 1_990)
        await life.shelf.holds("seen")
    assert life.inbox.events == []
    async with life.running():
        assert await life.inbox.texts(1) == ["c" * 1_990]


@pytest.mark.quick
async def test_a_slow_membership_lookup_delays_a_message_only_briefly(life: Life) -> None:
    gate = asyncio.Event()
    life.discord.fail("GET member", Fault(gate=gate))
    async with life.running():
        await life.discord.say(life.direct, life.ann, "Hello")
        (event,) = await life.inbox.wait(1)
        gate.set()
    assert event.sender.memberships == ()


async def test_chats_are_processed_concurrently_and_each_in_order(
    life: Life,
) -> None:
    bob = life.discord.world.user("Bob")
    other = life.discord.world.direct(bob)
    waiting = asyncio.Event()
    order: list[tuple[str, str]] = []

    async def inbox(event: Inbound) -> Accepted:
        assert isinstance(event, InboundMessage)
        if event.text == "0":
            await waiting.wait()  # this chat is blocked
        order.append((event.address.chat, event.text))
        if event.address.chat == other.id:
            waiting.set()
        if len(order) == 4:
            done.set()
        return Accepted.STORED

    done = asyncio.Event()
    life.inbox = inbox  # type: ignore[assignment]
    async with life.running():
        for number in range(3):
            await life.discord.say(life.direct, life.ann, str(number))
        await life.discord.say(other, bob, "meanwhile")
        async with asyncio.timeout(5):
            await done.wait()
    mine = [text for chat, text in order if chat == life.direct.id]
    assert order[0] == (other.id, "meanwhile")
    assert mine == ["0", "1", "2"]


async def test_files_can_be_downloaded_after_their_url_expired(
    life: Life,
) -> None:
    files = (("cat.png", b"picture" * 1000, "image/png"),)
    async with life.running():
        said = await life.discord.say(life.direct, life.ann, "look", files=files)
        (message,) = await life.inbox.wait(1)
        assert isinstance(message, InboundMessage)
        text, file = message.parts
        assert text == Text("look")
        assert isinstance(file, File)
        assert (file.name, file.media_type, file.size) == ("cat.png", "image/png", 7000)
        async with asyncio.timeout(5):
            assert b"".join([each async for each in life.adapter.fetch(file)]) == files[0][1]
            shown = life.direct.messages[said]["attachments"][0]
            shown["url"] = shown["url"].replace(shown["id"], "999")
            life.discord.world.files["999"] = life.discord.world.files.pop(shown["id"])
            assert b"".join([each async for each in life.adapter.fetch(file)]) == files[0][1]


# --- backfill and reconnects -------------------------------------------------------------------


async def test_messages_sent_during_downtime_are_backfilled_once(life: Life) -> None:
    life.guild.members[life.ann["id"]]["roles"] = ["77"]
    thread = life.discord.world.thread(life.room)
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.discord.say(thread, life.ann, f"{life.call} one")
        await life.inbox.wait(2)
    life.discord.forget_sessions()
    for number in range(120):
        await life.discord.say(life.direct, life.ann, f"away {number}")
    await life.discord.say(thread, life.ann, "in the thread")
    async with life.running():
        await life.discord.say(life.direct, life.ann, "back")
        events = await life.inbox.wait(124)
    direct = [e.text for e in events if isinstance(e, InboundMessage) and e.direct]
    assert direct == ["one", *(f"away {number}" for number in range(120)), "back"]
    (there,) = [e for e in events if isinstance(e, InboundMessage) and e.text == "in the thread"]
    assert there.addressed
    assert there.address == life.address(thread)
    assert f"{life.guild.id}/role:77" in there.sender.memberships


async def test_a_message_that_could_not_be_stored_is_read_again(life: Life) -> None:
    life.inbox.fails = 2
    async with life.running():
        await life.discord.say(life.direct, life.ann, "first")
        await life.discord.say(life.direct, life.ann, "second")
        assert await life.inbox.texts(2) == ["first", "second"]


async def test_a_message_being_stored_when_the_process_died_is_read_again(
    life: Life,
) -> None:
    life.inbox.may_store.clear()
    async with life.running():
        await life.discord.say(life.direct, life.ann, "Hello")
        await life.shelf.holds("seen")
    life.inbox.may_store.set()
    async with life.running():
        assert await life.inbox.texts(1) == ["Hello"]


async def test_an_unreadable_channel_loses_its_mark_and_blocks_nothing(
    life: Life,
) -> None:
    async with life.running():
        await life.discord.say(life.room, life.ann, f"{life.call} one")
        await life.inbox.wait(1)
    life.room.readable = False
    async with life.running():
        await life.discord.say(life.direct, life.ann, "Hello")
        await life.inbox.wait(2)
        await life.discord.until(lambda: "GET messages" in life.discord.called()[-3:])
    assert life.room.id not in life.shelf.values["seen"]


async def test_a_broken_socket_is_resumed_without_loss(life: Life) -> None:
    async with life.running():
        await life.discord.cut()
        await life.discord.say(life.direct, life.ann, "in between")
        assert await life.inbox.texts(1) == ["in between"]
    assert (life.discord.identified, life.discord.resumed) == (1, 1)


async def test_a_reconnect_request_is_followed_by_a_resume(life: Life) -> None:
    async with life.running():
        await life.discord.ask_to_reconnect()
        await life.discord.say(life.direct, life.ann, "in between")
        assert await life.inbox.texts(1) == ["in between"]
        await life.discord.until(lambda: life.discord.resumed == 1)


async def test_after_an_invalid_session_channels_in_use_are_backfilled(life: Life) -> None:
    async with life.running():
        await life.discord.say(life.direct, life.ann, "one")
        await life.inbox.wait(1)
        await life.discord.invalidate()
        await life.discord.say(life.direct, life.ann, "unheard")
        assert await life.inbox.texts(2) == ["one", "unheard"]
    assert life.discord.identified == 2


async def test_a_silent_socket_is_detected_and_replaced() -> None:
    async with discord_server(heartbeat=0.1) as discord:
        life = Life(discord, heartbeat_timeout_seconds=0.3)
        async with life.running():
            discord.fall_silent()
            await discord.say(life.direct, life.ann, "can you hear me?")
            await discord.until(lambda: discord.resumed >= 1)
            assert await life.inbox.texts(1) == ["can you hear me?"]


@pytest.mark.quick
async def test_closing_a_silent_socket_does_not_wait_for_a_close_frame(life: Life) -> None:
    async with door(life.discord.url) as between:
        life.discord.door = between.port
        life.config = msgspec.structs.replace(life.config, base_url=between.url)
        async with life.running() as adapter:
            client = adapter._sender.client
            assert client
            between.fall_silent()
            async with asyncio.timeout(10):
                await client.ws.close(4000)  # as the library does after a heartbeat timeout
                await client.disconnected.wait()
            between.speak_again()
            await life.discord.say(life.direct, life.ann, "can you hear me?")
            assert await life.inbox.texts(1) == ["can you hear me?"]


async def test_a_gateway_gone_for_too_long_leads_to_a_new_connection(
    life: Life,
) -> None:
    life.options["reconnect_timeout_seconds"] = 0.05
    async with life.running():
        life.discord.refuses_gateway = True
        await life.discord.cut()
        async with asyncio.timeout(5):
            await life.ended.wait()
        assert isinstance(life.error, Unavailable)
        life.discord.refuses_gateway = False
        await life.discord.until(lambda: life.discord.identified == 2)


@pytest.mark.quick
async def test_an_unreachable_gateway_at_the_start_is_unavailable(
    life: Life,
) -> None:
    life.discord.refuses_gateway = True
    assert isinstance(await life.once(), Unavailable)


async def test_a_refused_token_stops_the_adapter(life: Life) -> None:
    life.discord.accepts_token = False
    error = await life.once()
    assert isinstance(error, Unauthorized)
    assert "token" in str(error)


async def test_a_token_refused_by_the_gateway_stops_the_adapter(life: Life) -> None:
    async with life.running():
        pass
    error: list[object] = []

    async def run() -> None:
        error.append(await life.once())

    life.ready.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(run())
        await life.ready.wait()
        await life.discord.close_gateway(4004)
    assert isinstance(error[0], Unauthorized)


@pytest.mark.parametrize("call", ["PUT commands", "GET channel", "GET member"])
async def test_a_token_refused_by_any_call_stops_the_adapter_with_one_report(
    life: Life, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    life.discord.fail(call, Fault(status=401))
    error: list[object] = []

    async def run() -> None:
        error.append(await life.once())

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(run())
        await life.ready.wait()
        await life.discord.until(lambda: life.discord.online)
        if call == "GET channel":  # only a channel that no event has described is looked up
            await life.discord.say(life.discord.world.room(life.guild), life.ann, "Hello")
        elif call == "GET member":
            await life.discord.say(life.direct, life.ann, "Hello")
    assert isinstance(error[0], Unauthorized)
    assert life.discord.unmet == []
    assert [line for line in caplog.messages if "token" in line] == []  # the caller reports it


async def test_a_missing_intent_is_reported() -> None:
    async with discord_server(allowed_intents=~CONTENT_INTENT) as discord:
        error = await Life(discord).once()
    assert isinstance(error, Unauthorized)
    assert "Message Content Intent" in str(error)


async def test_the_gateway_url_is_derived_when_the_api_does_not_name_it() -> None:
    async with discord_server(names_gateway=False) as discord:
        life = Life(discord)
        async with life.running():
            await discord.say(life.direct, life.ann, "Hello")
            assert await life.inbox.texts(1) == ["Hello"]


# --- buttons and commands ----------------------------------------------------------------------


async def test_a_button_is_acknowledged_at_once_and_works_after_a_restart(life: Life) -> None:
    buttons = (Button("Approve", "approve:c1"), Button("Deny", "deny:c1"))
    address = life.address(life.room)
    async with life.running():
        receipt = await life.adapter.deliver(Ask("a.0", address, text="May I?", buttons=buttons))
    assert life.discord.buttons(life.room) == ["Approve", "Deny"]
    life.inbox.may_store.clear()
    async with life.running():
        pressed = await life.discord.press(life.room, life.ann, "Deny")
        async with asyncio.timeout(5):
            await pressed.answered.wait()
        life.inbox.may_store.set()
        (action,) = await life.inbox.wait(1)
    assert isinstance(action, InboundAction)
    assert (action.action, action.message) == ("deny:c1", receipt.message)
    assert (action.sender.id, action.address) == (life.ann["id"], address)
    assert b"token" not in action.raw


async def test_a_foreign_button_is_only_acknowledged(life: Life) -> None:
    row = {"type": 1, "components": [{"type": 2, "label": "x", "custom_id": "theirs"}]}
    life.discord.world.write(life.room, life.discord.world.bot, "old", components=[row])
    async with life.running():
        pressed = await life.discord.press(life.room, life.ann, "x")
        async with asyncio.timeout(5):
            await pressed.answered.wait()
        await life.discord.say(life.direct, life.ann, "Hello")
        await life.inbox.wait(1)
    assert [type(event) for event in life.inbox.events] == [InboundMessage]


async def test_slash_commands_are_registered_and_arrive_as_messages(life: Life) -> None:
    async with life.running():
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.room, life.ann, "btw", "what time is it?")
        (message,) = await life.inbox.wait(1)
        async with asyncio.timeout(5):
            await given.settled.wait()
    assert isinstance(message, InboundMessage)
    assert (message.text, message.addressed) == ("/btw what time is it?", True)
    assert message.address == life.address(life.room)
    assert given.shown is None


async def test_a_private_answer_is_shown_only_to_the_person_who_asked(life: Life) -> None:
    address = life.address(life.room)
    async with life.running() as adapter:
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.room, life.ann, "status")
        (message,) = await life.inbox.wait(1)
        for number, text in enumerate(("**First**", "Second")):
            post = Post(f"n.{number}", address, text, reply_to=message.id, only_for=life.ann["id"])
            receipt = await adapter.deliver(post)
            assert receipt.message
            await adapter.deliver(msgspec.structs.replace(post, again=True, since=1))
    assert given.shown == "**First**"
    assert given.more == ["Second", "Second"]  # Discord cannot tell whether a follow-up was sent
    assert life.discord.shown(life.room) == []


async def test_a_private_answer_to_a_typed_command_is_a_reply_in_the_room(life: Life) -> None:
    async with life.running() as adapter:
        said = await life.discord.say(life.room, life.ann, "!status")
        await life.inbox.wait(1)
        address = life.address(life.room)
        await adapter.deliver(Post("n.0", address, "idle", reply_to=said, only_for=life.ann["id"]))
    (shown,) = life.discord.shown(life.room)
    assert shown["message_reference"]["message_id"] == said


def give_up_waiting(given: Interaction) -> None:
    """Let the client show, as after 15 minutes, that the bot did not respond."""
    assert given.shown == "thinking"
    given.shown = None


async def ask_status_and_restart(life: Life) -> Post:
    """Use /status in a room, end the adapter, and return the answer that was not sent."""
    async with life.running():
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.room, life.ann, "status")
        (message,) = await life.inbox.wait(1)
        async with asyncio.timeout(5):
            await given.answered.wait()
    give_up_waiting(given)
    return Post(
        "n.0", life.address(life.room), "idle", reply_to=message.id, only_for=life.ann["id"]
    )


async def test_a_private_answer_that_was_pending_at_a_restart_is_a_direct_message(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "platforms.discord.send")
    post = await ask_status_and_restart(life)
    async with life.running() as adapter:
        receipt = await adapter.deliver(post)
        repeated = await adapter.deliver(msgspec.structs.replace(post, again=True, since=1))
    assert repeated == receipt
    assert life.discord.shown(life.room) == []
    direct = life.discord.world.direct(life.ann)
    assert [shown["content"] for shown in life.discord.shown(direct)] == ["idle"]
    assert "n.0 is sent as a direct message" in caplog.text


async def test_a_private_answer_is_dropped_if_the_person_takes_no_direct_messages(
    life: Life,
) -> None:
    post = await ask_status_and_restart(life)
    life.discord.fail("POST message", Fault(status=403, body={"code": 50007, "message": "no DMs"}))
    async with life.running() as adapter:
        with pytest.raises(Rejected) as refused:
            await adapter.deliver(post)
    assert not isinstance(refused.value, ChatGone)  # the room is not gone
    assert life.discord.shown(life.room) == []


@pytest.mark.parametrize(("status", "code"), [(401, 50027), (404, 10015)])
async def test_a_private_answer_to_an_expired_command_is_a_direct_message(
    life: Life, status: int, code: int
) -> None:
    async with life.running() as adapter:
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.room, life.ann, "status")
        (message,) = await life.inbox.wait(1)
        life.discord.fail(
            "PATCH original", Fault(status=status, body={"code": code, "message": "?"})
        )
        await adapter.deliver(
            Post(
                "n.0", life.address(life.room), "idle", reply_to=message.id, only_for=life.ann["id"]
            )
        )
    give_up_waiting(given)
    assert life.discord.shown(life.room) == []
    direct = life.discord.world.direct(life.ann)
    assert [shown["content"] for shown in life.discord.shown(direct)] == ["idle"]


class Judge(Inbox):
    """An inbox that accepts nothing, or everything."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__()
        self._accepted = accepted

    def judged(self, event: Inbound) -> Accepted:
        return self._accepted


@pytest.mark.quick
@pytest.mark.parametrize("accepted", [Accepted.STORED, Accepted.IGNORED])
async def test_a_private_command_without_an_answer_stops_thinking(
    life: Life, accepted: Accepted
) -> None:
    life.inbox = Judge(accepted)
    async with life.running():
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.room, life.ann, "status")
        async with asyncio.timeout(100):
            await given.settled.wait()
    assert given.shown is None


async def test_in_a_private_chat_the_answer_is_an_ordinary_message(life: Life) -> None:
    async with life.running():
        await life.discord.until(lambda: bool(life.discord.world.commands))
        given = await life.discord.command(life.direct, life.ann, "status")
        async with asyncio.timeout(5):
            await given.settled.wait()
    assert given.shown is None


async def test_a_command_that_could_not_be_stored_shows_an_error(life: Life) -> None:
    async with life.running():
        await life.discord.until(lambda: bool(life.discord.world.commands))
        life.inbox.fails = 1
        given = await life.discord.command(life.direct, life.ann, "stop")
        async with asyncio.timeout(5):
            await given.settled.wait()
    assert given.shown
    assert "try again" in given.shown


async def test_slash_commands_are_registered_only_when_changed(life: Life) -> None:
    async with life.running():
        await life.shelf.holds("menu")
    async with life.running():
        await life.discord.say(life.direct, life.ann, "Hello")
        await life.inbox.wait(1)
    assert life.discord.called("PUT commands") == ["PUT commands"]
    life.menu = life.menu[:1]
    async with life.running():
        await life.discord.until(lambda: len(life.discord.called("PUT commands")) == 2)
    assert [each["name"] for each in life.discord.world.commands] == ["stop"]


async def test_slash_commands_that_come_while_it_runs_are_registered(life: Life) -> None:
    async with life.running() as adapter:
        await life.shelf.holds("menu")
        life.prompts = (MenuEntry("digest", "Digest a text. (post)", "TEXT [style=STYLE]"),)
        await adapter.refresh_menu()
        await life.discord.until(lambda: len(life.discord.called("PUT commands")) == 2)
    (digest,) = [each for each in life.discord.world.commands if each["name"] == "digest"]
    assert digest["options"][0]["description"] == "TEXT [style=STYLE]"


# --- sending -----------------------------------------------------------------------------------


async def test_a_streaming_answer_has_a_stop_button_until_it_ends(life: Life) -> None:
    address = life.address(life.direct)
    async with life.running():
        stop = (Button("Stop", "stop:t_1"),)
        receipt = await life.adapter.deliver(
            Post("a.0", address, text="So", reply_to=None, buttons=stop, streaming=True)
        )
        assert life.discord.buttons(life.direct) == ["Stop"]
        await life.discord.press(life.direct, life.ann, "Stop")
        (action,) = await life.inbox.wait(1)
        assert isinstance(action, InboundAction)
        assert action.action == "stop:t_1"
        await life.adapter.deliver(Edit("a.0.e", address, message=receipt.message, text="So be it"))
        assert life.discord.buttons(life.direct) == []
    assert life.discord.screen(life.direct) == ["So be it"]


async def test_mass_mentions_by_the_model_notify_no_one(life: Life) -> None:
    async with life.running():
        post = Post("a.0", life.address(life.room), "@everyone <@&1> listen")
        receipt = await life.adapter.deliver(post)
        edit = Edit("a.0.e", life.address(life.room), message=receipt.message, text="@here too")
        await life.adapter.deliver(edit)
    for name, _, payload in life.discord.calls:
        if name.endswith(" message"):
            assert payload["allowed_mentions"] == {"parse": [], "replied_user": False}


async def test_an_answer_is_posted_even_if_its_question_was_deleted(life: Life) -> None:
    async with life.running():
        said = await life.discord.say(life.room, life.ann, f"{life.call} hello")
        await life.inbox.wait(1)
        address = life.address(life.room)
        await life.adapter.deliver(Post("a.0", address, "One", reply_to=said))
        await life.discord.erase(life.room, said)
        await life.adapter.deliver(Post("b.0", address, "Two", reply_to=said))
    first, second = life.discord.shown(life.room)
    assert first["message_reference"]["message_id"] == said
    assert "message_reference" not in second


async def test_typing_reactions_and_deletes_are_shown(life: Life) -> None:
    address = life.address(life.direct)
    async with life.running():
        said = await life.discord.say(life.direct, life.ann, "Hello")
        await life.adapter.deliver(Typing("a.t", address))
        assert life.discord.typing(life.direct)
        await life.adapter.deliver(React("r.0", address, said, "👀"))
        await life.adapter.deliver(React("r.1", address, said, "✅"))
        assert life.discord.reactions(life.direct, said) == ["✅"]
    async with life.running():  # the adapter forgets its reactions at a restart
        await life.adapter.deliver(React("r.2", address, said, ""))
        assert life.discord.reactions(life.direct, said) == []
        receipt = await life.adapter.deliver(Post("a.0", address, "One"))
        for _ in range(2):
            await life.adapter.deliver(Delete("a.0.d", address, receipt.message))
    assert life.discord.screen(life.direct) == []


async def test_a_file_is_sent_with_its_caption_and_a_large_one_is_rejected(
    life: Life, tmp_path: Path
) -> None:
    small, large = tmp_path / "a.txt", tmp_path / "b.bin"
    small.write_bytes(b"content")
    with large.open("wb") as file:
        file.truncate(11 * 2**20)
    address = life.address(life.direct)
    async with life.running():
        op = Upload(
            "u.0",
            address,
            path=str(small),
            name="a b.txt",
            media_type="text/plain",
            caption="**Here**",
        )
        first = await life.adapter.deliver(op)
        again = await life.adapter.deliver(op)
        with pytest.raises(Rejected, match="11 MiB"):
            await life.adapter.deliver(
                Upload("u.1", address, path=str(large), name="b.bin", media_type="x/y")
            )
        with pytest.raises(Rejected):
            await life.adapter.deliver(
                Upload("u.2", address, path=str(tmp_path / "no"), name="no", media_type="x/y")
            )
    assert again == first
    (message,) = life.discord.shown(life.direct)
    assert message["content"] == "**Here**"
    (attached,) = message["attachments"]
    assert (attached["filename"], attached["content_type"]) == ("a_b.txt", "text/plain")
    assert life.discord.world.files[attached["id"]] == b"content"


async def test_a_person_can_be_addressed_by_user_id(life: Life) -> None:
    bob = life.discord.world.user("Bob")
    to_bob = Address("discord", bob["id"])
    async with life.running():
        for op in ("a.0", "b.0"):
            await life.adapter.deliver(Post(op, to_bob, "Somebody asks"))
    assert life.discord.screen(life.discord.world.direct(bob)) == ["Somebody asks"] * 2
    assert life.discord.called("POST channel") == ["POST channel"]


# --- duplicates --------------------------------------------------------------------------------


async def test_the_nonce_prevents_a_duplicate_after_a_restart(life: Life) -> None:
    address = life.address(life.direct)
    async with life.running():
        life.discord.fail("POST message", Fault(cut_after=True))
        with pytest.raises(Unconfirmed):
            await life.adapter.deliver(Post("a.0", address, "Once"))
    async with life.running():
        again = Post("a.0", address, "Once", again=True, since=life.clock.now())
        await life.adapter.deliver(again)
    assert life.discord.screen(life.direct) == ["Once"]


@pytest.mark.parametrize("shown", [True, False])
async def test_after_the_nonce_expired_the_history_is_searched_first(
    life: Life, shown: bool
) -> None:
    address, since = life.address(life.direct), life.clock.now()
    fault = Fault(cut_after=True) if shown else Fault(cut_before=True)
    async with life.running():
        await life.adapter.deliver(Post("z.0", address, "Something else"))
        life.discord.fail("POST message", fault)
        with pytest.raises(Unconfirmed):
            await life.adapter.deliver(Post("a.0", address, "**Once** and for all"))
    life.discord.forget_nonces()
    life.clock.ahead = 200_000
    async with life.running():
        again = Post("a.0", address, "**Once** and for all", again=True, since=since)
        await life.adapter.deliver(again)
    assert life.discord.screen(life.direct) == ["Something else", "**Once** and for all"]
    assert "GET messages" in life.discord.called()


async def test_a_post_seen_on_the_gateway_is_known_without_a_search(life: Life) -> None:
    address, since = life.address(life.direct), life.clock.now()
    async with life.running():
        life.discord.fail("POST message", Fault(cut_after=True))
        with pytest.raises(Unconfirmed):
            await life.adapter.deliver(Post("a.0", address, "Once"))
        await life.discord.say(life.direct, life.ann, "I saw it")
        await life.inbox.wait(1)
        life.discord.forget_nonces()
        life.clock.ahead = 200_000
        receipt = await life.adapter.deliver(Post("a.0", address, "Once", again=True, since=since))
    assert [each["id"] for each in life.discord.shown(life.direct)] == [receipt.message]
    assert "GET messages" not in life.discord.called()


# --- refusals and rate limits ------------------------------------------------------------------


async def test_a_global_429_blocks_every_chat(life: Life) -> None:
    async with life.running():
        life.discord.fail("POST message", Fault(status=429, retry_after=9.0, everything=True))
        for channel in (life.direct, life.room):
            with pytest.raises(Unavailable) as caught:
                await life.adapter.deliver(Post("a.0", life.address(channel), "Hello"))
            assert caught.value.retry_after
            assert caught.value.retry_after > 8.0
    assert len(life.discord.called("POST message")) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(500, Unconfirmed), (502, Unconfirmed), (503, Unavailable)]
)
async def test_the_library_does_not_retry_server_errors(
    life: Life, status: int, kind: type[Exception]
) -> None:
    async with life.running():
        life.discord.fail("POST message", Fault(status=status))
        with pytest.raises(kind):
            await life.adapter.deliver(Post("a.0", life.address(life.direct), "Hello"))
    assert len(life.discord.called("POST message")) == 1


async def test_a_missing_chat_and_a_missing_message_give_different_errors(life: Life) -> None:
    async with life.running():
        receipt = await life.adapter.deliver(Post("a.0", life.address(life.room), "Hello"))
        await life.discord.erase(life.room, receipt.message)
        edit = Edit("a.0.e", life.address(life.room), message=receipt.message, text="more")
        with pytest.raises(Rejected) as gone:
            await life.adapter.deliver(edit)
        assert not isinstance(gone.value, ChatGone)
        life.room.writable = False
        with pytest.raises(ChatGone):
            await life.adapter.deliver(Post("b.0", life.address(life.room), "Hello"))
        with pytest.raises(ChatGone):
            await life.adapter.deliver(Post("c.0", Address("discord", "5"), "x"))


async def test_a_token_revoked_while_running_is_unauthorized(life: Life) -> None:
    async with life.running():
        await life.shelf.holds("menu")
        life.discord.accepts_token = False
        with pytest.raises(Unauthorized):
            await life.adapter.deliver(Post("a.0", life.address(life.room), "Hello"))


async def test_an_exhausted_rate_limit_is_waited_out_without_a_429() -> None:
    async with discord_server(pace=(2, 0.2)) as discord:
        life = Life(discord)
        async with life.running():
            async with asyncio.timeout(5):
                for number in range(6):
                    post = Post(f"{number}.0", life.address(life.direct), str(number))
                    await life.adapter.deliver(post)
        assert discord.screen(life.direct) == [str(number) for number in range(6)]


async def test_a_post_during_disconnect_is_unavailable(life: Life) -> None:
    post = Post("a.0", life.address(life.direct), "Hello")
    async with life.running():
        client = life.adapter._sender.client
        assert client
        await client.http.close()
        with pytest.raises(Unavailable):
            await life.adapter.deliver(post)


async def test_a_post_without_a_connection_is_unavailable(life: Life) -> None:
    with pytest.raises(Unavailable):
        await life.build().deliver(Post("a.0", life.address(life.direct), "Hello"))
