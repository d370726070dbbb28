"""Receiving: events from the fake Slack, over the real connection, to an inbox."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from starlette.applications import Starlette

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
)
from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from platforms.slack.adapter import SlackAdapter
from platforms.slack.people import SlackUser
from platforms.slack.socket_mode import OTHER_PROGRAM
from platforms.slack.webhook import EVENTS_PATH
from sessions.values.clock import SystemClock
from tests.fakes.archive import MemoryShelf
from tests.fakes.hosted import hosted
from tests.fakes.inbox import Inbox
from tests.fakes.slack.kit import ShiftedClock, adapter_for, running, slack_server
from tests.fakes.slack.server import Fault, SlackServer, sign
from tests.fakes.slack.workspace import BOT_USER, TEAM

pytestmark = pytest.mark.quick


class Gateway(Inbox):
    """An inbox that ignores strangers, and messages addressed to others.

    With `members_only`, access depends on memberships alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.strangers: set[str] = set()
        self.members_only = False
        self.undecided: list[Inbound] = []

    async def __call__(self, event: Inbound) -> Accepted:
        if self.members_only and event.sender.memberships_unknown:
            self.undecided.append(event)
            async with self._changed:
                self._changed.notify_all()
            return Accepted.UNDECIDED
        return await super().__call__(event)

    def judged(self, event: Inbound) -> Accepted:
        if self.members_only and not event.sender.memberships:
            return Accepted.IGNORED
        unaddressed = isinstance(event, InboundMessage) and not event.addressed
        if unaddressed or event.sender.id in self.strangers:
            return Accepted.IGNORED
        return Accepted.STORED


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with asyncio.timeout(15), slack_server() as slack:
        slack.add_channel("C1")
        yield slack


@pytest.fixture
def inbox() -> Gateway:
    return Gateway()


async def test_an_event_is_acknowledged_once_it_is_stored(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        inbox.may_store.clear()
        slack.write("D1", "Hello")
        await slack.until(lambda: bool(slack.workspace.calls("users.info")))
        assert slack.pending == 1
        inbox.may_store.set()
        await slack.settle()
        assert inbox.said == ["Hello"]
    event = inbox.message()
    assert event.sender.id == f"{TEAM}/U1"
    assert event.sender.name == "Ada"
    assert event.sender.memberships == (f"{TEAM}/*",)


async def test_guests_are_not_members_of_the_workspace(slack: SlackServer, inbox: Gateway) -> None:
    slack.workspace.add_user("U9", "Zoe", is_stranger=True, team_id="T9")
    async with running(adapter_for(slack), inbox):
        await slack.say("D1", "Hello", user="U2")
        await slack.say("D1", "Hello", user="U9", user_team="T9")
    guest, stranger = inbox.message(0).sender, inbox.message(1).sender
    assert (guest.id, guest.memberships) == ("T1/U2", ())
    assert (stranger.id, stranger.memberships) == ("T9/U9", ())


@pytest.mark.parametrize("known", [True, False])
async def test_a_person_whom_an_event_places_in_another_workspace_is_no_member(
    slack: SlackServer, inbox: Gateway, *, known: bool
) -> None:
    if not known:
        slack.fail("users.info", *[Fault(status=503)] * 4)
    async with running(adapter_for(slack), inbox):
        await slack.say("D1", "Hello", user="U1", user_team="T9")
    sender = inbox.message().sender
    assert (sender.id, sender.memberships, sender.memberships_unknown) == ("T9/U1", (), False)


async def test_people_are_looked_up_once_until_the_cache_expires(
    slack: SlackServer, inbox: Gateway
) -> None:
    clock = ShiftedClock()
    async with running(adapter_for(slack, clock=clock), inbox):
        await slack.say("D1", "1")
        await slack.say("D1", "2")
        assert len(slack.workspace.calls("users.info")) == 1
        slack.workspace.users["U1"]["is_restricted"] = True
        clock.offset += 3600
        await slack.say("D1", "3")
    assert inbox.message(1).sender.memberships
    assert not inbox.message(2).sender.memberships


async def test_looked_up_people_survive_a_restart(slack: SlackServer, inbox: Gateway) -> None:
    shelf, clock = MemoryShelf(), ShiftedClock()
    async with running(adapter_for(slack, clock=clock, shelf=shelf), inbox):
        await slack.say("D1", "1")
    async with running(adapter_for(slack, clock=clock, shelf=shelf), inbox):
        await slack.say("D1", "2")
    assert len(slack.workspace.calls("users.info")) == 1
    clock.offset += 3600
    slack.fail("users.info", Fault(status=503), Fault(status=503))
    async with running(adapter_for(slack, clock=clock, shelf=shelf), inbox):
        await slack.say("D1", "3")  # this lookup fails, so the stored one is used
    assert [event.sender.name for event in map(inbox.message, range(3))] == ["Ada"] * 3
    assert all(event.sender.memberships for event in map(inbox.message, range(3)))


async def test_a_listed_person_is_received_while_lookups_fail(
    slack: SlackServer, inbox: Gateway
) -> None:
    slack.fail("users.info", *[Fault(status=503)] * 3)
    async with running(adapter_for(slack), inbox):
        await slack.say("D1", "one")
        await slack.until(lambda: slack.workspace.calls("users.info") != [])
        await slack.say("D1", "two")
    assert inbox.said == ["one", "two"]
    one, two = inbox.message(0).sender, inbox.message(1).sender
    assert (one.id, one.name, one.memberships_unknown) == (f"{TEAM}/U1", "", True)
    assert (two.name, two.memberships) == ("Ada", (f"{TEAM}/*",))


async def test_a_lookup_that_hangs_delays_a_message_only_briefly(
    slack: SlackServer, inbox: Gateway
) -> None:
    gate = asyncio.Event()
    slack.fail("users.info", Fault(gate=gate), Fault(gate=gate))
    async with running(adapter_for(slack), inbox):
        await slack.say("D1", "one")  # acknowledged in time
        await slack.say("D1", "two")
        gate.set()
    assert inbox.said == ["one", "two"]


async def test_a_message_whose_sender_is_undecided_is_read_again_after_the_lookup(
    slack: SlackServer, inbox: Gateway
) -> None:
    inbox.members_only = True
    slack.fail("users.info", *[Fault(status=503)] * 4)
    shelf = MemoryShelf()
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.say("D1", "a secret")
        assert slack.pending == 0  # acknowledged
        assert inbox.undecided
        assert "secret" not in str(shelf.values)
        await inbox.until(lambda: inbox.said == ["a secret"])
    assert inbox.message().sender.memberships == (f"{TEAM}/*",)


async def test_an_undecided_message_survives_a_restart(slack: SlackServer, inbox: Gateway) -> None:
    inbox.members_only = True
    slack.refuse_for(3600, 500, "users.info")
    shelf = MemoryShelf()
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.say("D1", "Hello")
        assert slack.pending == 0
        assert inbox.events == []
    slack.refuse_for(0, 500, "users.info")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await inbox.until(lambda: inbox.said == ["Hello"])


async def test_an_undecided_stranger_does_not_open_a_thread(
    slack: SlackServer, inbox: Gateway
) -> None:
    inbox.members_only = True
    slack.fail("users.info", *[Fault(status=503)] * 4)
    async with running(adapter_for(slack), inbox):
        ts = await slack.say("C1", f"<@{BOT_USER}> hello", user="U2")  # a guest
        await inbox.until(lambda: inbox.said == ["hello"])
        await slack.say("C1", "never mind", thread=ts)
    assert not inbox.message(1).addressed


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_press_of_an_undecided_person_is_acknowledged_and_kept(
    slack: SlackServer, inbox: Gateway, *, restarted: bool
) -> None:
    shelf = MemoryShelf()
    ask = Ask("q.0", Address("slack", "T1/D1"), text="May I?", buttons=(Button("Yes", "yes:1"),))
    adapter = adapter_for(slack, shelf=shelf)
    async with running(adapter, inbox):
        ts = (await adapter.deliver(ask)).message
        inbox.members_only = True
        slack.refuse_for(3600, 500, "users.info")
        await slack.press("D1", ts, "Yes")
        assert slack.pending == 0
        assert inbox.undecided
        assert inbox.events == []
        if not restarted:
            slack.refuse_for(0, 500, "users.info")
            await inbox.until(lambda: len(inbox.events) == 1)
    if restarted:
        slack.refuse_for(0, 500, "users.info")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await inbox.until(lambda: len(inbox.events) == 1)
        await slack.say("D1", "and then")
    press, _ = inbox.events
    assert isinstance(press, InboundAction)
    assert (press.action, press.sender.memberships) == ("yes:1", (f"{TEAM}/*",))


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_command_of_an_undecided_person_is_acknowledged_and_kept(
    slack: SlackServer, inbox: Gateway, *, restarted: bool
) -> None:
    shelf = MemoryShelf()
    inbox.members_only = True
    slack.refuse_for(3600, 500, "users.info")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.command("D1", "btw what time is it")
        assert slack.pending == 0
        assert inbox.undecided
        assert inbox.events == []
        if not restarted:
            slack.refuse_for(0, 500, "users.info")
            await inbox.until(lambda: len(inbox.events) == 1)
    if restarted:
        slack.refuse_for(0, 500, "users.info")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await inbox.until(lambda: len(inbox.events) == 1)
        await slack.say("D1", "and then")
    assert inbox.said == ["/btw what time is it", "and then"]
    assert inbox.message().sender.memberships == (f"{TEAM}/*",)
    assert "what time" not in str(shelf.values)


async def test_the_command_of_a_person_who_turns_out_to_be_a_stranger_is_forgotten(
    slack: SlackServer, inbox: Gateway
) -> None:
    shelf = MemoryShelf()
    inbox.members_only = True
    slack.refuse_for(3600, 500, "users.info")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.command("C1", "btw a secret", user="U2")  # a guest
        assert slack.pending == 0
        slack.refuse_for(0, 500, "users.info")
        await inbox.until(lambda: len(inbox.events) == 1)
    assert inbox.message().sender.memberships == ()
    assert "secret" not in str(shelf.values)


async def test_a_press_of_a_person_who_turns_out_to_be_a_stranger_is_forgotten(
    slack: SlackServer, inbox: Gateway
) -> None:
    shelf = MemoryShelf()
    ask = Ask("q.0", Address("slack", "T1/D1"), text="May I?", buttons=(Button("Yes", "yes:1"),))
    adapter = adapter_for(slack, shelf=shelf)
    async with running(adapter, inbox):
        ts = (await adapter.deliver(ask)).message
        inbox.members_only = True
        slack.refuse_for(3600, 500, "users.info")
        await slack.press("D1", ts, "Yes", user="U2")  # a guest
        slack.refuse_for(0, 500, "users.info")
        await inbox.until(lambda: len(inbox.events) == 1)
    held = next(value for name, value in shelf.values.items() if "press" in name)
    assert held == "[]"


async def test_both_events_of_a_mention_are_one_message(slack: SlackServer, inbox: Gateway) -> None:
    async with running(adapter_for(slack), inbox):
        await slack.say("C1", f"<@{BOT_USER}> hello")
        assert inbox.deliveries == 2
    assert inbox.said == ["hello"]


async def test_earlier_messages_of_a_room_are_quoted_with_the_first_mention(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        await slack.say("C1", "it rains", user="U2")
        ts = await slack.say("C1", f"<@{BOT_USER}> will it stop?")
        await slack.say("C1", "and tomorrow?", thread=ts, user="U2")
    first, second, third = (each for each in inbox.events if isinstance(each, InboundMessage))
    assert (first.addressed, first.sender.id, first.sender.memberships) == (False, "T1/U2", ())
    assert [quote.text for quote in second.context] == ["it rains"]
    assert second.address.thread == third.address.thread == ts
    assert third.addressed
    assert third.context == ()


async def test_a_thread_is_quoted_from_its_beginning_at_the_first_mention(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        ts = await slack.say("C1", "what is the plan?", user="U2")
        await slack.say("C1", "no idea", thread=ts)
        await slack.say("C1", f"<@{BOT_USER}> help us", thread=ts)
    event = inbox.message()
    assert [quote.text for quote in event.context] == ["what is the plan?", "no idea"]
    assert event.address.thread == ts


async def test_a_mention_by_a_stranger_does_not_open_a_thread(
    slack: SlackServer, inbox: Gateway
) -> None:
    inbox.strangers.add("T1/U2")
    async with running(adapter_for(slack), inbox):
        ts = await slack.say("C1", f"<@{BOT_USER}> hello", user="U2")
        await slack.say("C1", "never mind", thread=ts)
    assert inbox.message(0).addressed
    assert not inbox.message(1).addressed


async def test_edits_and_deletes_name_their_message(slack: SlackServer, inbox: Gateway) -> None:
    async with running(adapter_for(slack), inbox):
        ts = await slack.say("D1", "Helo")
        await slack.change("D1", ts, "Hello")
        await slack.erase("D1", ts)
    message, edit, delete = inbox.events
    assert isinstance(edit, InboundEdit)
    assert isinstance(delete, InboundDelete)
    assert edit.message == delete.message == message.id
    assert edit.sender == message.sender


async def test_buttons_and_commands_reach_the_inbox(slack: SlackServer, inbox: Gateway) -> None:
    adapter = adapter_for(slack)
    async with running(adapter, inbox):
        ask = Ask(
            "q.0", Address("slack", "T1/D1"), text="May I?", buttons=(Button("Yes", "yes:1"),)
        )
        ts = (await adapter.deliver(ask)).message
        await slack.press("D1", ts, "Yes")
        await slack.command("D1", "status")
        await slack.say("D1", "!stop")
    action = inbox.events[0]
    assert isinstance(action, InboundAction)
    assert (action.action, action.message, action.direct) == ("yes:1", ts, True)
    assert inbox.said == ["/status", "!stop"]


async def test_messages_of_a_chat_stay_in_order_without_delaying_other_chats(
    slack: SlackServer, inbox: Gateway
) -> None:
    gate = asyncio.Event()
    slack.workspace.channels["D2"] = []
    slack.fail("users.info", Fault(gate=gate))
    async with running(adapter_for(slack), inbox):
        for number in range(3):
            slack.write("D1", f"{number}")
        await slack.until(lambda: bool(slack.workspace.calls("users.info")))
        slack.write("D2", "quick", user="U2")
        await inbox.until(lambda: inbox.said == ["quick"])
        gate.set()
        await slack.settle()
    assert inbox.said == ["quick", "0", "1", "2"]


# --- connections ---------------------------------------------------------------------------------


async def test_a_new_connection_is_opened_when_slack_asks_and_after_a_cut(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        await slack.ask_to_reconnect()
        await slack.until(lambda: slack.connections == 2)
        await slack.say("D1", "1")
        slack.cut()
        await slack.until(lambda: slack.connections == 3)
        await slack.say("D1", "2")
    assert inbox.said == ["1", "2"]


async def test_an_event_unacknowledged_at_a_cut_is_received_over_the_next_connection(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        inbox.may_store.clear()
        slack.write("D1", "Hello")
        await slack.until(lambda: bool(slack.workspace.calls("users.info")))
        slack.cut()
        inbox.may_store.set()
        await slack.until(lambda: slack.connections == 2)
        await slack.settle()
    assert inbox.said == ["Hello"]


async def test_messages_sent_while_disconnected_are_read_even_after_slack_gave_up(
    slack: SlackServer, inbox: Gateway
) -> None:
    shelf = MemoryShelf()
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.say("D1", "1")
        thread = await slack.say("C1", f"<@{BOT_USER}> 2")
    slack.write("D1", "3")
    slack.write("C1", "4", thread=thread, user="U2")
    slack.write("C1", f"<@{BOT_USER}> 5")
    slack.write("C1", "to others")
    for seconds in (1, 60, 300):
        await slack.pass_time(seconds)
    assert slack.pending == 0
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await inbox.until(lambda: len(inbox.events) >= 6)
    addressed = [
        each.text for each in inbox.events if isinstance(each, InboundMessage) and each.addressed
    ]
    assert sorted(addressed) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("place", ["the last chat", "a thread", "an earlier chat"])
async def test_a_connection_that_delivers_nothing_is_replaced(
    slack: SlackServer, inbox: Gateway, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("platforms.slack.catch_up._SILENCE_SECONDS", 0.06)
    slack.add_channel("C1")
    channel, call = ("C1", f"<@{BOT_USER}> ") if place == "a thread" else ("D1", "")
    async with running(adapter_for(slack), inbox):
        first = await slack.say(channel, f"{call}1")
        if place == "an earlier chat":
            await slack.say("D2", "meanwhile", user="U2")
        thread = first if place == "a thread" else ""
        slack.deaf = True
        slack.write(channel, "2", thread=thread)
        await inbox.until(lambda: "2" in inbox.said)
        slack.deaf = False
        await slack.until(lambda: slack.connections == 2)
        await slack.say(channel, "3", thread=thread)
    assert [each for each in inbox.said if each != "meanwhile"] == ["1", "2", "3"]


async def test_another_program_with_the_same_token_is_reported_until_it_is_gone(
    slack: SlackServer, inbox: Gateway
) -> None:
    reports: list[str] = []
    slack.extra_connections = 1
    async with running(adapter_for(slack, trouble=reports.append), inbox):
        assert reports == [OTHER_PROGRAM]
        slack.extra_connections = 0
        await slack.ask_to_reconnect()
        await slack.until(lambda: slack.connections == 2)
        await slack.say("D1", "1")
    assert reports == [OTHER_PROGRAM, ""]


async def test_another_program_that_starts_later_is_found_by_counting_again(
    slack: SlackServer, inbox: Gateway
) -> None:
    reports: list[str] = []
    adapter = adapter_for(slack, trouble=reports.append)
    assert adapter._socket_mode is not None
    adapter._socket_mode._first_check_seconds = 0.05
    adapter._socket_mode._recheck_seconds = 0.05
    async with running(adapter, inbox):
        slack.extra_connections = 1
        await slack.until(lambda: slack.connections >= 2)  # a second one, opened for counting
        slack.write("D1", "1")
        await slack.settle()
        await slack.until(lambda: slack.connections >= 3)
        slack.extra_connections = 0
        await slack.until(lambda: reports[-1] == "")
        await slack.until(lambda: len(slack.sockets) == 1)
        await slack.say("D1", "2")
    assert inbox.said == ["1", "2"]
    assert list(dict.fromkeys(reports)) == [OTHER_PROGRAM, ""]


async def test_a_connection_for_counting_waits_until_its_envelopes_are_acknowledged(
    slack: SlackServer, inbox: Gateway
) -> None:
    adapter = adapter_for(slack)
    assert adapter._socket_mode is not None
    adapter._socket_mode._first_check_seconds = 0.05
    inbox.may_store.clear()  # as if another write took long
    async with running(adapter, inbox):
        await slack.until(lambda: len(slack.sockets) == 2)
        slack.write("D1", "1")
        await asyncio.sleep(1.0)  # the connection has been counted by now
        inbox.may_store.set()
        await slack.settle()
        await slack.until(lambda: len(slack.sockets) == 1)
    assert (inbox.said, inbox.deliveries) == (["1"], 1)


async def test_an_envelope_of_a_cut_connection_comes_over_the_other_one(
    slack: SlackServer, inbox: Gateway
) -> None:
    adapter = adapter_for(slack)
    assert adapter._socket_mode is not None
    adapter._socket_mode._first_check_seconds = 0.05
    slack.extra_connections = 1  # so the next connection for counting comes a minute later
    inbox.may_store.clear()
    async with running(adapter, inbox):
        await slack.until(lambda: len(slack.sockets) == 2)
        async with asyncio.TaskGroup() as group:
            group.create_task(slack.say("D1", "1"))
            await slack.until(lambda: len(slack.sockets) == 1)  # it was not stored in time
            inbox.may_store.set()
    assert inbox.said == ["1"]


async def test_own_connections_are_not_reported_as_another_program(
    slack: SlackServer, inbox: Gateway
) -> None:
    reports: list[str] = []
    adapter = adapter_for(slack, trouble=reports.append)
    assert adapter._socket_mode is not None
    adapter._socket_mode._first_check_seconds = 0.05
    async with running(adapter, inbox):
        await slack.until(lambda: slack.connections >= 2)  # a second one, opened for counting
        await slack.until(lambda: len(slack.sockets) == 1)
        before = slack.connections
        await slack.ask_to_reconnect()
        await slack.until(lambda: slack.connections > before)
        slack.cut()
        slack.extra_connections = 1  # Slack still counts the cut connection
        await slack.until(lambda: bool(slack.sockets))
        await slack.say("D1", "1")
    assert reports == []


@pytest.mark.parametrize(
    ("method", "fault", "error"),
    [
        ("auth.test", Fault(error="invalid_auth"), Unauthorized),
        ("apps.connections.open", Fault(error="invalid_auth"), Unauthorized),
        ("apps.connections.open", Fault(status=500), Unavailable),
        ("auth.test", Fault(drop="before"), Unavailable),
    ],
)
async def test_a_failed_start_raises_an_error_that_tells_whether_to_retry(
    slack: SlackServer, inbox: Gateway, method: str, fault: Fault, error: type[PlatformError]
) -> None:
    slack.fail(method, fault, fault)
    with pytest.raises(error):
        await adapter_for(slack).run(inbox, lambda: None)


async def test_a_connection_that_cannot_be_opened_is_left_to_the_supervisor(
    slack: SlackServer, inbox: Gateway
) -> None:
    slack.accept_sockets = False
    with pytest.raises(Unavailable):
        await adapter_for(slack).run(inbox, lambda: None)


async def test_an_inbox_that_fails_leaves_the_event_unacknowledged(slack: SlackServer) -> None:
    class Broken(Exception):
        """The store fails."""

    async def broken(_: Inbound) -> Accepted:
        raise Broken

    def say() -> None:
        slack.write("D1", "Hello")

    with pytest.raises(Broken):
        await adapter_for(slack).run(broken, say)
    assert slack.pending == 1


# --- signed requests -----------------------------------------------------------------------------


@pytest.fixture
async def signed(slack: SlackServer) -> AsyncIterator[SlackAdapter]:
    """An adapter in HTTP mode, hosted by a server."""
    adapter = adapter_for(slack, mode="http", app_token=None)
    async with hosted(Starlette(routes=adapter.routes())) as server:
        slack.requests_to = f"{server.url.rstrip('/')}{EVENTS_PATH}"
        yield adapter


async def test_without_socket_mode_events_come_as_signed_requests(
    slack: SlackServer, signed: SlackAdapter, inbox: Gateway
) -> None:
    async with running(signed, inbox):
        await slack.say("D1", "Hello & welcome")
        await slack.say("C1", f"<@{BOT_USER}> hi")
        await slack.command("D1", "status")
        ask = Ask(
            "q.0", Address("slack", "T1/D1"), text="May I?", buttons=(Button("Yes", "yes:1"),)
        )
        ts = (await signed.deliver(ask)).message
        await slack.press("D1", ts, "Yes")
    assert slack.pending == 0
    assert inbox.said == ["Hello & welcome", "hi", "/status"]
    assert isinstance(inbox.events[-1], InboundAction)


async def test_slack_repeats_a_request_that_was_not_stored(
    slack: SlackServer, signed: SlackAdapter, inbox: Gateway
) -> None:
    await slack.say("D1", "Hello")  # the adapter does not run yet
    assert slack.pending == 1
    async with running(signed, inbox):
        await slack.pass_time(0)  # the immediate retry
    assert slack.pending == 0
    assert inbox.said == ["Hello"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ('{"type":"url_verification","challenge":"abc"}', {}, 200),
        ('{"type":"url_verification","challenge":"abc"}', {"X-Slack-Signature": "v0=00"}, 401),
        ("not json", {}, 400),
        ("[]", {}, 400),
        ("[]", {"Content-Type": "application/json"}, 400),
        ("{", {}, 400),
        ('{"team":5}', {}, 400),
        ("\xe9", {"Content-Type": "application/x-www-form-urlencoded"}, 503),
        ("payload=[]", {"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ("{}", {"X-Slack-Signature": "v0=00"}, 401),
        ("not json", {"X-Slack-Signature": "v0=00"}, 401),
        ("[]", {"X-Slack-Signature": "v0=00", "Content-Type": "application/json"}, 401),
        ("{", {"X-Slack-Signature": "v0=00"}, 401),
        ("{}", {"X-Slack-Signature": "v0=\xe9"}, 401),
        ("{}", {"X-Slack-Signature": ""}, 401),
        ("{}", {"X-Slack-Request-Timestamp": "now"}, 401),
        ("{}", {"X-Slack-Request-Timestamp": "9" * 5000}, 401),
        ("{}", {"X-Slack-Request-Timestamp": "²"}, 401),
        ("{}", sign("{}", 1_000_000), 401),  # too old
        ("{}", sign("{}", int(SystemClock().now() / 1000), "another secret"), 401),
        ("{}", {}, 503),  # genuine, but the adapter does not run
    ],
)
@pytest.mark.usefixtures("signed")
async def test_only_genuine_requests_are_accepted(
    slack: SlackServer, body: str, headers: dict[str, str], status: int
) -> None:
    given = {**sign(body, int(SystemClock().now() / 1000)), **headers}
    async with aiohttp.ClientSession() as client:
        answer = await client.post(slack.requests_to, data=body.encode(), headers=given)
        assert answer.status == status
        if status == 200:
            assert await answer.json() == {"challenge": "abc"}


@pytest.mark.usefixtures("signed")
async def test_an_ssl_check_of_slack_is_answered(slack: SlackServer) -> None:
    async with aiohttp.ClientSession() as client:
        answer = await client.post(slack.requests_to, data={"ssl_check": "1", "token": "x"})
        assert (answer.status, await answer.text()) == (200, "")


async def test_an_ssl_check_needs_no_signature_and_carries_nothing_else(
    slack: SlackServer, signed: SlackAdapter, inbox: Gateway
) -> None:
    press = (
        '{"type":"block_actions","team":{"id":"T1"},"user":{"id":"U1"},"channel":{"id":"D1"},'
        '"message":{"ts":"1.0"},"actions":[{"action_id":"holdfast.0","value":"yes:1"}]}'
    )
    async with running(signed, inbox), aiohttp.ClientSession() as client:
        answer = await client.post(slack.requests_to, data={"ssl_check": "1", "payload": press})
        assert (answer.status, await answer.text()) == (200, "")
        answer = await client.post(slack.requests_to, data={"payload": press})
        assert answer.status == 401
    assert inbox.events == []


@pytest.mark.usefixtures("signed")
async def test_a_body_that_is_not_utf_8_is_refused(slack: SlackServer) -> None:
    async with aiohttp.ClientSession() as client:
        answer = await client.post(slack.requests_to, data=b'{"type":"\xff"}')
        assert answer.status == 401


# --- greeting ------------------------------------------------------------------------------------


async def test_opening_the_messages_tab_greets_once_and_shows_prompts(
    slack: SlackServer, inbox: Gateway
) -> None:
    shelf = MemoryShelf()
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.open_home("D1", tab="home")
        assert inbox.events == []
        for _ in range(2):
            await slack.open_home("D1")
    async with running(adapter_for(slack, shelf=shelf), inbox):
        await slack.open_home("D1")
    assert inbox.said == ["/start"]
    event = inbox.message()
    assert event.direct
    assert event.address == Address("slack", f"{TEAM}/D1")
    assert event.sender.id == f"{TEAM}/U1"
    assert event.sender.memberships
    assert "!help" in slack.workspace.prompts["D1", ""]
    assert inbox.deliveries == 1


async def test_strangers_see_no_prompts_until_they_have_access(
    slack: SlackServer, inbox: Gateway
) -> None:
    inbox.strangers.add(f"{TEAM}/U1")
    async with running(adapter_for(slack), inbox):
        await slack.open_home("D1")
        await slack.open_home("D1")
        assert slack.workspace.prompts == {}
        inbox.strangers.clear()
        slack.workspace.offset += 86_400
        await slack.open_home("D1")
    assert inbox.said == ["/start"] * 2
    assert slack.workspace.prompts


async def test_a_person_who_already_wrote_is_not_greeted(
    slack: SlackServer, inbox: Gateway
) -> None:
    async with running(adapter_for(slack), inbox):
        await slack.say("D1", "Hello")
        await slack.open_home("D1")
        assert slack.workspace.prompts
        slack.workspace.prompts.clear()
        inbox.strangers.add(f"{TEAM}/U1")  # and loses access
        await slack.say("D1", "Hello?")
        await slack.open_home("D1")
    assert inbox.said == ["Hello", "Hello?", "/start"]
    assert slack.workspace.prompts == {}


async def test_in_older_apps_each_thread_has_prompts_and_one_is_greeted(
    slack: SlackServer, inbox: Gateway
) -> None:
    slack.workspace.is_agent = False
    slack.subscribed.add("assistant_thread_started")
    first, second = "1700000000.000100", "1700000000.000200"
    async with running(adapter_for(slack), inbox):
        for thread in (first, second):
            await slack.start_assistant("D1", thread)
    (event,) = inbox.events
    assert event.address == Address("slack", f"{TEAM}/D1", thread=first)
    assert set(slack.workspace.prompts) == {("D1", first), ("D1", second)}


async def test_prompts_that_slack_refuses_delay_nothing(slack: SlackServer, inbox: Gateway) -> None:
    slack.fail("assistant.threads.setSuggestedPrompts", Fault(error="feature_disabled"))
    gate = asyncio.Event()
    slack.fail("assistant.threads.setSuggestedPrompts", Fault(gate=gate))
    async with running(adapter_for(slack), inbox):
        for _ in range(2):
            await slack.open_home("D1")
    gate.set()
    assert inbox.said == ["/start"]


async def test_stored_profiles_of_people_who_stay_away_are_deleted() -> None:
    now, day = SystemClock().now(), 86_400_000
    profile = SlackUser(name="Ann", team=TEAM, full=True, is_bot=False, at=0)
    shelf = DeletingShelf()
    for user, days in (("U91", 91), ("U89", 89)):
        seen = msgspec.structs.replace(profile, at=now - days * day)
        shelf.values[f"person {user}"] = msgspec.json.encode(seen).decode()
    shelf.values["person U0"] = "damaged"
    shelf.values["greeted"] = '["U91"]'
    async with slack_server() as slack, running(adapter_for(slack, shelf=shelf), Gateway()):
        async with asyncio.timeout(5):
            while shelf.deleted != {"person U91", "person U0"}:
                shelf.changed.clear()
                await shelf.changed.wait()
        assert {"person U89", "greeted"} <= shelf.values.keys()


class DeletingShelf(MemoryShelf):
    def __init__(self) -> None:
        super().__init__()
        self.deleted: set[str] = set()
        self.changed = asyncio.Event()

    async def delete(self, name: str) -> None:
        await super().delete(name)
        self.deleted.add(name)
        self.changed.set()
