"""Tests of receiving by polling and webhook: no update is lost or acknowledged before storage."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette

from gateway.http.server import HttpServer
from platforms.core.contract import (
    Accepted,
    File,
    Inbound,
    InboundAction,
    InboundEdit,
    InboundMessage,
    MenuEntry,
    Text,
)
from platforms.core.errors import PlatformError, Rejected, Unauthorized, Unavailable
from platforms.telegram.adapter import TelegramAdapter
from sessions.values.secret import Secret
from tests.fakes.archive import MemoryShelf
from tests.fakes.inbox import Inbox
from tests.fakes.telegram.faults import (
    Fault,
    cut_after,
    cut_before,
    failed,
    gateway_page,
    hanging,
    too_many,
)
from tests.fakes.telegram.kit import telegram
from tests.fakes.telegram.server import BOT_NAME, Shown, TelegramServer

pytestmark = pytest.mark.quick

GROUP = -1001234


class WatchedShelf(MemoryShelf):
    """Shelf on which a test can await a key."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    async def put(self, name: str, value: str) -> None:
        await super().put(name, value)
        self._news.set()

    async def has(self, name: str) -> None:
        async with asyncio.timeout(5):
            while name not in self.values:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextlib.asynccontextmanager
async def running(adapter: TelegramAdapter, inbox: Inbox) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        task = group.create_task(adapter.run(inbox, ready.set))
        async with asyncio.timeout(5):
            await ready.wait()
        yield
        task.cancel()


async def ends(adapter: TelegramAdapter, inbox: Inbox | None = None) -> BaseException:
    """Run the adapter and return the error that ends it."""
    with pytest.raises((PlatformError, OSError)) as caught:
        async with asyncio.timeout(5):
            await adapter.run(inbox or Inbox(), lambda: None)
    return caught.value


# --- polling -----------------------------------------------------------------------------------


async def test_updates_pending_before_the_start_arrive_in_order(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    last = 0
    for number in range(150):
        last = server.say(1001, f"{number}")
    async with running(adapter, inbox):
        await server.acknowledged(last)
    assert inbox.said == [f"{number}" for number in range(150)]


async def test_chats_are_processed_independently_and_each_in_order(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    last = 0
    for number in range(5):
        for chat in range(1, 6):
            last = server.say(chat, f"{number}", user=chat)
    async with running(adapter, inbox):
        await server.acknowledged(last)
    for chat in range(1, 6):
        mine = [each for each in inbox.events if each.address.chat == f"{chat}"]
        assert [each.text for each in mine if isinstance(each, InboundMessage)] == [*"01234"]


async def test_an_update_that_could_not_be_stored_is_not_acknowledged(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    inbox.fails = 1
    number = server.say(1001, "hello")
    assert isinstance(await ends(adapter, inbox), OSError)
    assert server.waiting == [number]
    async with running(adapter, inbox):
        await server.acknowledged(number)
    assert inbox.said == ["hello"]


async def test_a_malformed_update_does_not_block_the_others(
    server: TelegramServer,
    adapter: TelegramAdapter,
    inbox: Inbox,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.say(1001, "before")
    number = server.put(message={"message_id": "no number", "chat": 7, "text": "private words"})
    last = server.say(1001, "after")
    async with running(adapter, inbox):
        await server.acknowledged(last)
    assert inbox.said == ["before", "after"]
    assert f"skipped malformed update {number} of" in caplog.text
    assert "private words" not in caplog.text


async def test_the_stored_offset_is_used_only_for_the_same_bot_and_within_a_day(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf = MemoryShelf()
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        number = server.say(1001, "one")
        await server.acknowledged(number)
    asked = server.called("getUpdates")
    assert "offset" not in asked[0]
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        pass
    assert server.called("getUpdates")[len(asked)]["offset"] == number + 1
    for kept in (
        shelf.values["offset"].replace('"bot":123456789', '"bot":99'),
        '{"bot":123456789,"next":9000000,"at":1}',
        "what is this",
    ):
        before = len(server.called("getUpdates"))
        shelf.values["offset"] = kept
        async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
            pass
        assert "offset" not in server.called("getUpdates")[before]


async def test_polling_continues_after_a_transient_failure(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    faults = (failed(), gateway_page(), cut_before(), cut_after())
    async with running(adapter, inbox):
        for number, fault in enumerate(faults):
            server.fail("getUpdates", fault)
            last = server.say(1001, f"{number}")
            await server.acknowledged(last)
    assert inbox.said == [*"0123"]


async def test_polling_uses_a_new_connection_after_a_failure(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    async with running(adapter, inbox):
        server.fail("getUpdates", failed())
        await server.acknowledged(server.say(1001, "hello"))
    peers = [call.peer for call in server.calls if call.method == "getUpdates"]
    assert len(set(peers)) > 1


async def test_an_outage_ends_the_adapter_as_unavailable(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.fail("getUpdates", failed(), times=2)
    assert isinstance(await ends(adapter), Unavailable)


async def test_a_dead_but_open_connection_is_replaced(server: TelegramServer, inbox: Inbox) -> None:
    never = asyncio.Event()
    async with telegram(server, patience=1.0, grace=0.1) as adapter, running(adapter, inbox):
        server.fail("getUpdates", hanging(never))
        number = server.say(1001, "can you hear me")
        await server.acknowledged(number)
    assert inbox.said == ["can you hear me"]


async def test_a_server_that_stays_silent_ends_the_adapter_as_unavailable(
    server: TelegramServer,
) -> None:
    async with telegram(server, grace=0.1) as adapter:
        server.fail("getUpdates", hanging(asyncio.Event()), times=2)
        error = await ends(adapter)
    assert isinstance(error, Unavailable)
    assert "does not respond" in str(error)


async def test_two_pollers_with_one_token_report_it_and_lose_no_message(
    server: TelegramServer, inbox: Inbox
) -> None:
    one: list[str] = []
    two: list[str] = []
    async with (
        telegram(server, patience=1.0, trouble=one.append) as first,
        telegram(server, trouble=two.append) as second,
        running(first, inbox),
    ):
        other = Inbox()
        async with running(second, other):
            await server.until(lambda: bool(one and two))
            said = [server.say(1001, f"{number}") for number in range(20)]
            await server.acknowledged(said[-1])
        assert {*inbox.said, *other.said} == {f"{number}" for number in range(20)}
        await server.until(lambda: one[-1] == "")
        await server.acknowledged(server.say(1001, "alone again"))
    assert inbox.said[-1] == "alone again"
    assert "another program receives this bot's messages" in one[0]
    assert set(one) == {one[0], ""}
    assert set(two) == {one[0]}
    server.violations.clear()


async def test_a_refused_token_stops_the_adapter(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.token_works = False
    error = await ends(adapter)
    assert isinstance(error, Unauthorized)
    assert "TELEGRAM_BOT_TOKEN" in str(error)
    assert "AAFake" not in str(error)


async def test_a_server_that_is_not_telegram_is_reported_with_base_url(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.fail("getMe", Fault(404, "Not Found"))
    error = await ends(adapter)
    assert isinstance(error, Unauthorized)
    assert "base_url" in str(error)


async def test_a_revoked_token_is_noticed_at_the_next_start(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    async with running(adapter, inbox):
        pass
    server.token_works = False
    assert isinstance(await ends(adapter), Unauthorized)


async def test_a_rate_limit_on_polling_carries_its_retry_after(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.fail("getUpdates", too_many(9))
    error = await ends(adapter)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 9


async def test_a_foreign_webhook_is_reported_and_left_alone(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.webhook = {"url": "https://elsewhere.example/hook"}
    error = await ends(adapter)
    assert "https://elsewhere.example/hook" in str(error)
    assert server.webhook


async def test_a_webhook_set_by_an_earlier_run_is_removed(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf = MemoryShelf()
    shelf.values["webhook"] = server.webhook["url"] = "https://ours.example/hook"
    async with telegram(server, shelf=shelf) as adapter:
        assert isinstance(await ends(adapter), Unavailable)
        number = server.say(1001, "hello")
        async with running(adapter, inbox):
            await server.acknowledged(number)
    assert inbox.said == ["hello"]


# --- actions of people -------------------------------------------------------------------------


async def test_a_button_press_is_answered_before_it_is_stored(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    inbox.may_store.clear()
    async with running(adapter, inbox):
        server.press(1001, Shown(5), "stop:t_1")
        await server.until(lambda: bool(server.called("answerCallbackQuery")))
        assert inbox.events == []
        inbox.may_store.set()
        (event,) = await inbox.wait(1)
    assert isinstance(event, InboundAction)
    assert event.action == "stop:t_1"


async def test_a_button_press_too_old_to_answer_still_works(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    server.fail("answerCallbackQuery", Fault(400, "Bad Request: query is too old"))
    async with running(adapter, inbox):
        server.press(1001, Shown(5), "stop:t_1")
        await inbox.wait(1)
    server._unanswered.clear()


async def test_an_album_and_a_split_text_become_one_message_each(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    photo = [{"file_id": "p", "file_unique_id": "p", "width": 9, "height": 9}]
    async with running(adapter, inbox):
        for number in range(3):
            more: dict[str, Any] = {"caption": "Look"} if number == 0 else {}
            server.say(1001, photo=photo, media_group_id="g", **more)
        (album,) = await inbox.wait(1)
        server.say(1001, "a" * 4096)
        last = server.say(1001, "b")
        await server.acknowledged(last)
        _, text = await inbox.wait(2)
    assert isinstance(album, InboundMessage)
    assert isinstance(text, InboundMessage)
    assert [type(part) for part in album.parts[1:]] == [File, File, File]
    assert text.text == "a" * 4096 + "b"


async def test_acknowledged_pieces_survive_a_restart(server: TelegramServer, inbox: Inbox) -> None:
    shelf = MemoryShelf()
    async with telegram(server, shelf=shelf, joining=1000.0) as adapter, running(adapter, inbox):
        number = server.say(1001, "a" * 4000)
        await server.acknowledged(number)
    assert inbox.events == []
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        await inbox.wait(1)
    assert inbox.said == ["a" * 4000]
    assert shelf.values["held"] == "[]"


async def test_held_pieces_survive_while_other_messages_are_stored(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf, refused = MemoryShelf(), asyncio.Event()

    async def picky(event: Inbound) -> Accepted:
        if isinstance(event, InboundMessage) and len(event.text) == 4000:
            refused.set()
            await asyncio.Event().wait()  # the process ends before the message is stored
        return await inbox(event)

    async with telegram(server, shelf=shelf) as adapter, asyncio.TaskGroup() as group:
        task = group.create_task(adapter.run(picky, lambda: None))
        await server.acknowledged(server.say(1001, "a" * 4000))
        await refused.wait()
        await server.acknowledged(server.say(3003, "other", user=3003))
        task.cancel()
    assert inbox.said == ["other"]
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        await inbox.wait(2)
    assert inbox.said == ["other", "a" * 4000]
    assert shelf.values["held"] == "[]"


async def test_a_held_piece_is_submitted_when_no_other_follows(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    async with running(adapter, inbox):
        server.say(1001, "a" * 4000)
        await inbox.wait(1)


async def test_an_edit_arrives_after_the_message_it_changes(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    first = server.message(1001, "old")
    server.put(message=first)
    server.put(edited_message={**first, "text": "new", "edit_date": 1_790_000_009})
    async with running(adapter, inbox):
        message, edit = await inbox.wait(2)
    assert isinstance(edit, InboundEdit)
    assert edit.message == message.id


async def test_an_edit_of_a_stored_piece_edits_the_joined_message(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    pieces = [server.message(1001, text) for text in ("a" * 4096, "end")]
    async with running(adapter, inbox):
        for piece in pieces:
            server.put(message=piece)
        (whole,) = await inbox.wait(1)
        server.put(edited_message={**pieces[1], "text": "END", "edit_date": 1_790_000_009})
        _, edit = await inbox.wait(2)
    assert isinstance(edit, InboundEdit)
    assert edit.message == whole.id
    assert edit.parts == (Text("a" * 4096 + "END"),)


async def test_group_membership_is_looked_up_once_and_only_for_addressed_messages(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    server.room(GROUP).members[1001] = "member"
    mention = {"entities": [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]}
    async with running(adapter, inbox):
        server.say(GROUP, "just talking")
        for user in (1001, 1001, 2002):
            server.say(GROUP, f"@{BOT_NAME} hello", user=user, **mention)
        events = await inbox.wait(4)
    assert [each.sender.memberships for each in events] == [(), (f"{GROUP}",), (f"{GROUP}",), ()]
    assert len(server.called("getChatMember")) == 2


async def test_the_last_known_membership_counts_while_a_lookup_fails(
    server: TelegramServer,
    adapter: TelegramAdapter,
    inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platforms.telegram.adapter._MEMBER_CACHE_SECONDS", 0.0)
    server.room(GROUP).members[1001] = "member"
    mention = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]
    async with running(adapter, inbox):
        server.say(GROUP, f"@{BOT_NAME} one", entities=mention)
        await inbox.wait(1)
        server.fail("getChatMember", Fault(500))
        server.say(GROUP, f"@{BOT_NAME} two", entities=mention)
        events = await inbox.wait(2)
    assert [each.sender.memberships for each in events] == [(f"{GROUP}",)] * 2


class MembersOnly(Inbox):
    """An inbox whose access depends on memberships alone."""

    def __init__(self) -> None:
        super().__init__()
        self.undecided: list[Inbound] = []

    async def __call__(self, event: Inbound) -> Accepted:
        if event.sender.memberships_unknown:
            self.undecided.append(event)
            async with self._changed:
                self._changed.notify_all()
            return Accepted.UNDECIDED
        return await super().__call__(event)


MENTION = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]


@pytest.mark.parametrize("fault", [Fault(500), too_many(1), hanging(asyncio.Event())])
async def test_a_message_waits_while_the_membership_of_its_sender_is_unknown(
    server: TelegramServer, fault: Fault
) -> None:
    inbox, shelf = MembersOnly(), MemoryShelf()
    server.room(GROUP).members[1001] = "member"
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        server.fail("getChatMember", fault)
        server.say(GROUP, f"@{BOT_NAME} one", entities=MENTION)
        await inbox.until(lambda: bool(inbox.undecided))
        server.say(GROUP, f"@{BOT_NAME} two", entities=MENTION)
        last = server.say(GROUP, "aside", user=2002)
        await server.acknowledged(last)  # nothing else waits
        events = await inbox.wait(3)
    said = [each for each in events if each.sender.id == "1001"]
    assert [each.text for each in said if isinstance(each, InboundMessage)] == ["one", "two"]
    assert [each.sender.memberships for each in said] == [(f"{GROUP}",)] * 2
    assert shelf.values["undecided"] == "[]"


async def test_an_undecided_message_survives_a_restart(server: TelegramServer) -> None:
    inbox, shelf = MembersOnly(), MemoryShelf()
    server.room(GROUP).members[1001] = "member"
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        server.fail("getChatMember", Fault(500), times=1000)
        last = server.say(GROUP, f"@{BOT_NAME} one", entities=MENTION)
        await server.acknowledged(last)
        assert inbox.events == []
    server._faults.clear()
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        (event,) = await inbox.wait(1)
    assert event.sender.memberships == (f"{GROUP}",)


async def test_a_listed_person_does_not_wait_for_a_lookup(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf = MemoryShelf()
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        server.fail("getChatMember", Fault(500))
        server.say(GROUP, f"@{BOT_NAME} one", entities=MENTION)
        (event,) = await inbox.wait(1)
    assert event.sender.memberships_unknown
    assert "undecided" not in shelf.values


async def test_a_person_whom_telegram_does_not_know_is_no_member(
    server: TelegramServer,
) -> None:
    inbox = MembersOnly()
    async with telegram(server) as adapter, running(adapter, inbox):
        server.fail("getChatMember", Fault(400, "Bad Request: PARTICIPANT_ID_INVALID"))
        server.say(GROUP, f"@{BOT_NAME} one", entities=MENTION)
        (event,) = await inbox.wait(1)
    assert event.sender.memberships == ()
    assert inbox.undecided == []


@pytest.mark.parametrize("call", ["setMyCommands", "getChatMember"])
async def test_a_token_refused_by_any_call_stops_the_adapter_with_one_report(
    server: TelegramServer, inbox: Inbox, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail(call, Fault(401, "Unauthorized"))
    mention = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]
    async with telegram(server, commands=(MenuEntry("start", "begins"),)) as adapter:
        if call == "getChatMember":
            server.say(GROUP, f"@{BOT_NAME} hello", entities=mention)
        assert isinstance(await ends(adapter, inbox), Unauthorized)
    assert [line for line in caplog.messages if "token" in line] == []  # the caller reports it


async def test_group_membership_is_not_looked_up_when_no_rule_needs_it(
    server: TelegramServer, inbox: Inbox
) -> None:
    server.room(GROUP).members[1001] = "member"
    mention = [{"type": "mention", "offset": 0, "length": len(BOT_NAME) + 1}]
    async with telegram(server, memberships=False) as adapter, running(adapter, inbox):
        server.say(GROUP, f"@{BOT_NAME} hello", entities=mention)
        (event,) = await inbox.wait(1)
    assert event.sender.memberships == ()
    assert server.called("getChatMember") == []


async def test_earlier_room_messages_are_passed_as_context_once(
    server: TelegramServer, adapter: TelegramAdapter, inbox: Inbox
) -> None:
    async with running(adapter, inbox):
        for number in range(25):
            server.say(GROUP, f"talk {number}", user=2002)
        server.say(GROUP, "/status")
        server.say(GROUP, "/status")
        events = await inbox.wait(27)
    first, second = events[25:]
    assert isinstance(first, InboundMessage)
    assert isinstance(second, InboundMessage)
    assert [quote.text for quote in first.context] == [f"talk {number}" for number in range(5, 25)]
    assert second.context == ()


async def test_an_active_topic_stays_active_after_a_restart(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf = MemoryShelf()
    topic: dict[str, Any] = {"message_thread_id": 7, "is_topic_message": True}
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        server.say(GROUP, "before", **topic)
        server.say(GROUP, "/status", **topic)
        await inbox.wait(2)
    async with telegram(server, shelf=shelf) as adapter, running(adapter, inbox):
        server.say(GROUP, "after", **topic)
        events = await inbox.wait(3)
    assert [each.addressed for each in events if isinstance(each, InboundMessage)] == [
        False,
        True,
        True,
    ]


async def test_the_command_menu_is_published_only_when_it_changed(
    server: TelegramServer, inbox: Inbox
) -> None:
    shelf = WatchedShelf()
    commands = (
        MenuEntry("start", "begins"),
        MenuEntry("stop", "stops"),
        MenuEntry("restart", "restarts", admin=True),
    )
    for _ in range(2):
        async with (
            telegram(server, shelf=shelf, commands=commands) as adapter,
            running(adapter, inbox),
        ):
            await shelf.has("menu")
    assert server.commands == {"default": ["start", "stop"], "all_group_chats": ["stop"]}
    assert len(server.called("setMyCommands")) == 2


async def test_commands_that_come_while_it_runs_are_shown_and_understood_in_groups(
    server: TelegramServer, inbox: Inbox
) -> None:
    later: list[MenuEntry] = []
    async with (
        telegram(
            server, commands=(MenuEntry("stop", "stops"),), prompts=lambda: tuple(later)
        ) as adapter,
        running(adapter, inbox),
    ):
        later.append(MenuEntry("digest", "Digest a text. (post)", "TEXT", aliases=("post_digest",)))
        await adapter.refresh_menu()
        server.say(GROUP, "/digest a text")
        (event,) = await inbox.wait(1)
    assert server.commands["default"] == ["stop", "digest"]
    assert isinstance(event, InboundMessage)
    assert event.addressed


# --- files -------------------------------------------------------------------------------------


async def read(adapter: TelegramAdapter, file: File) -> list[bytes]:
    return [piece async for piece in adapter.fetch(file)]


async def test_a_file_is_downloaded_in_chunks(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    server.offer("abc", b"0123456789" * 100_000)
    found = await read(adapter, File("a.bin", "application/octet-stream", "abc"))
    assert b"".join(found) == b"0123456789" * 100_000
    assert len(found) > 1


async def test_a_file_over_the_download_limit_is_rejected(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    with pytest.raises(Rejected, match="20 MB"):
        await read(adapter, File("a.bin", "x/y", "abc", size=20_000_001))
    server.offer("abc", b"x" * 20_000_001)
    with pytest.raises(Rejected, match="too big"):
        await read(adapter, File("a.bin", "x/y", "abc"))
    server.sizes_hidden = True
    with pytest.raises(Rejected, match="20 MB"):
        await read(adapter, File("a.bin", "x/y", "abc"))


async def test_cancellation_wins_over_a_simultaneous_failure(
    server: TelegramServer, adapter: TelegramAdapter
) -> None:
    storing = asyncio.Event()

    async def breaks_when_cancelled(_: Inbound) -> Accepted:
        storing.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            msg = "the disk is full"
            raise OSError(msg) from None
        return Accepted.STORED

    for chat in (1, 2):  # two chats, so that a task group runs them concurrently
        server.say(chat, "hello", user=chat)
    task = asyncio.ensure_future(adapter.run(breaks_when_cancelled, lambda: None))  # noqa: TID251 - ended below
    async with asyncio.timeout(5):
        await storing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# --- webhook -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def hooked(
    server: TelegramServer, inbox: Inbox, **more: Any
) -> AsyncIterator[tuple[TelegramAdapter, str, Callable[[], asyncio.Task[PlatformError | None]]]]:
    """Yield an adapter in webhook mode, its webhook URL, and a function that runs the adapter.

    The adapter's routes are served on a local HTTP port.
    """
    http = HttpServer("127.0.0.1", 0)
    http.bind()
    url = f"{http.url}telegram"
    async with (
        telegram(server, mode="webhook", webhook_url=url, **more) as adapter,
        asyncio.TaskGroup() as group,
    ):
        port = group.create_task(http.serve(Starlette(routes=list(adapter.routes()))))

        async def run() -> PlatformError | None:
            try:
                await adapter.run(inbox, lambda: None)
            except PlatformError as error:
                return error
            return None

        def start() -> asyncio.Task[PlatformError | None]:
            return group.create_task(run())

        yield adapter, url, start
        port.cancel()


async def test_a_webhook_request_is_answered_after_the_update_is_stored(
    server: TelegramServer, inbox: Inbox
) -> None:
    inbox.may_store.clear()
    async with hooked(server, inbox) as (_, url, start):
        task = start()
        number = server.say(1001, "hello")
        await server.until(lambda: server.webhook.get("url") == url)
        assert server.waiting == [number]
        inbox.may_store.set()
        await server.acknowledged(number)
        task.cancel()
    assert inbox.said == ["hello"]
    assert "stopped_message_generation" in server.webhook["allowed_updates"]
    assert len(server.webhook["secret_token"]) == 64


async def test_a_webhook_request_with_a_wrong_secret_is_refused(
    server: TelegramServer, inbox: Inbox
) -> None:
    async with hooked(server, inbox, webhook_secret=Secret("right")) as (_, url, start):
        task = start()
        await server.until(lambda: server.webhook.get("url") == url)
        server.webhook["secret_token"] = "wrong"
        number = server.say(1001, "hello")
        await server.until(lambda: server.turned_away > 1)
        assert server.waiting == [number]
        server.webhook["secret_token"] = "right"
        await server.acknowledged(number)
        task.cancel()
    assert inbox.said == ["hello"]


async def test_a_webhook_update_that_could_not_be_stored_is_delivered_again(
    server: TelegramServer, inbox: Inbox
) -> None:
    inbox.fails = 1
    async with hooked(server, inbox) as (_, _url, start):
        task = start()
        number = server.say(1001, "hello")
        assert isinstance(await task, Unavailable)
        assert server.waiting == [number]
        task = start()
        await server.acknowledged(number)
        task.cancel()
    assert inbox.said == ["hello"]


async def test_a_webhook_replaced_by_another_program_is_reported(
    server: TelegramServer, inbox: Inbox
) -> None:
    async with hooked(server, inbox) as (adapter, url, start):
        assert adapter._webhook is not None
        adapter._webhook._check_seconds = 0.02
        server.complaint = "Connection refused"
        task = start()
        await server.until(lambda: server.webhook.get("url") == url)
        await server.until(lambda: bool(server.called("getWebhookInfo")))
        server.webhook["url"] = "https://elsewhere.example"
        error = await task
    assert isinstance(error, Unavailable)
    assert "another program" in str(error)
