"""slack-bolt as the dispatcher: the same app behind Socket Mode and behind signed requests."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Inbound,
    InboundAction,
    InboundMessage,
)
from platforms.core.errors import Unavailable
from platforms.slack.adapter import SlackAdapter
from platforms.slack.calls import Json
from platforms.slack.decode import SlackIdentity
from platforms.slack.dispatch import SlackDispatcher
from platforms.slack.webhook import EVENTS_PATH
from tests.fakes.hosted import hosted
from tests.fakes.inbox import Inbox
from tests.fakes.slack.kit import adapter_for, running, slack_server
from tests.fakes.slack.server import SlackServer
from tests.fakes.slack.workspace import BOT_USER

pytestmark = pytest.mark.quick

DISPATCHER = "slack_bolt.app.async_app"


class TracingInbox(Inbox):
    """An inbox that records which modules stand between Slack's event and the inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: dict[str, set[str]] = {}

    def judged(self, event: Inbound) -> Accepted:
        modules = {str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_stack(None)}
        self.callers[event.id] = modules
        return super().judged(event)


@pytest.fixture(params=["socket mode", "signed requests"])
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackServer]:
    over_http = request.param == "signed requests"
    async with asyncio.timeout(15), slack_server(over_http=over_http) as slack:
        slack.add_channel("C1")
        yield slack


@pytest.fixture
def inbox() -> TracingInbox:
    return TracingInbox()


@pytest.fixture
async def adapter(slack: SlackServer) -> AsyncIterator[SlackAdapter]:
    """An adapter in the mode of `slack`; a server hosts its route, if it has one."""
    adapter = adapter_for(slack)
    if not slack.over_http:
        yield adapter
        return
    async with hosted(Starlette(routes=adapter.routes())) as server:
        slack.listen_at(f"{server.url.rstrip('/')}{EVENTS_PATH}")
        yield adapter


async def test_bolt_dispatches_messages_mentions_commands_and_buttons(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        await slack.say("D1", "hello")
        await slack.say("C1", f"<@{BOT_USER}> hi")
        await slack.command("D1", "status")
        ask = Ask("q.0", Address("slack", "T1/D1"), "May I?", (Button("Yes", "yes:1"),))
        await slack.press("D1", (await adapter.deliver(ask)).message, "Yes")
        await slack.open_home("D2", user="U2")
    kinds = [type(event) for event in inbox.events]
    assert kinds == [InboundMessage, InboundMessage, InboundMessage, InboundAction, InboundMessage]
    missing = [event.id for event in inbox.events if DISPATCHER not in inbox.callers[event.id]]
    assert missing == []
    assert slack.pending == 0


async def test_a_shortcut_is_acknowledged_and_reaches_no_inbox(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        await slack.shortcut()
    assert slack.pending == 0
    assert inbox.deliveries == 0


async def test_events_of_no_interest_are_acknowledged(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    slack.subscribed.add("team_join")
    async with running(adapter, inbox):
        await slack.event({"type": "team_join", "user": {"id": "U7"}})
    assert slack.pending == 0
    assert inbox.deliveries == 0


async def test_own_messages_are_acknowledged_and_reach_no_inbox(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        await slack.say("D1", "written by the app itself", user=BOT_USER)
    assert slack.pending == 0
    assert inbox.deliveries == 0


async def test_a_command_may_contain_the_word_payload(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        await slack.command("D1", "btw what is a payload")
    assert slack.pending == 0
    assert inbox.said == ["/btw what is a payload"]


async def test_no_event_asks_slack_who_the_app_is(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        await slack.say("D1", "hello")
        await slack.command("D1", "status")
    assert len(slack.workspace.calls("auth.test")) == 1


async def test_a_payload_that_bolt_cannot_read_does_not_end_the_connection(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    async with running(adapter, inbox):
        slack._queue("interactive", {"type": "block_actions", "actions": []})
        slack.write("D1", "fine")
        await inbox.wait(1)
    assert inbox.said == ["fine"]
    slack._sent.clear()  # the first one stays without an acknowledgement


async def test_an_event_that_the_store_refuses_comes_again(
    slack: SlackServer, adapter: SlackAdapter, inbox: TracingInbox
) -> None:
    inbox.fails = 1
    with contextlib.suppress(ExceptionGroup):  # ends a Socket Mode connection, as it should
        async with running(adapter, inbox):
            slack.write("D1", "hello")
            await slack.until(lambda: inbox.fails == 0)
    assert slack.pending == 1 or inbox.said == ["hello"]
    async with running(adapter, inbox):
        await slack.pass_time(61)
        await inbox.wait(1)
        await slack.settle()
    assert inbox.said == ["hello"]


# --- the dispatcher by itself --------------------------------------------------------------------


class Receiver:
    """Receives events for a dispatcher under test."""

    def __init__(self, error: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self._error = error

    async def on_event(self, event: Json, team: str) -> None:
        self.texts.append(f"{team} {event['text']}")
        await self.may_commit.wait()
        if self._error:
            raise self._error

    async def on_action(self, payload: Json) -> None:
        raise NotImplementedError

    async def on_command(self, payload: Json) -> None:
        self.texts.append(str(payload["text"]))
        await self.may_commit.wait()


EVENT = {
    "type": "event_callback",
    "team_id": "T1",
    "event": {"type": "message", "channel": "D1", "user": "U1", "text": "hello", "ts": "1.0"},
}
SLASH_COMMAND = {"command": "/holdfast", "text": "stop", "channel_id": "D1", "user_id": "U1"}
IDENTITY = SlackIdentity("T1", "UBOT", "BBOT")


@pytest.fixture
def dispatcher() -> SlackDispatcher:
    return SlackDispatcher("http://127.0.0.1:1/api/")


async def test_a_renamed_command_works(dispatcher: SlackDispatcher) -> None:
    receiver = Receiver()
    with dispatcher.receiving(receiver, IDENTITY):
        response = await dispatcher.dispatch_envelope({**SLASH_COMMAND, "command": "/ask"})
    assert (response.status, receiver.texts) == (200, ["stop"])


@pytest.mark.parametrize("payload", [EVENT, SLASH_COMMAND], ids=["event", "command"])
async def test_bolt_awaits_the_commit_in_the_task_of_the_caller(
    dispatcher: SlackDispatcher, payload: Json
) -> None:
    receiver = Receiver()
    receiver.may_commit.clear()
    with dispatcher.receiving(receiver, IDENTITY):
        before = asyncio.all_tasks()
        dispatched = dispatcher.dispatch_envelope(payload)
        waits_for = dispatched.send(None)  # runs until something has to wait
        assert receiver.texts  # bolt itself waited for nothing, so events stay in order
        assert asyncio.all_tasks() == before
        receiver.may_commit.set()
        assert waits_for is not None
        with pytest.raises(StopIteration) as ended:
            dispatched.send(None)
    assert ended.value.value.status == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, 200), (Unavailable("no answer"), 503)],
    ids=["stored", "not stored"],
)
async def test_only_a_committed_event_is_answered_with_200(
    dispatcher: SlackDispatcher, error: Exception | None, status: int
) -> None:
    with dispatcher.receiving(Receiver(error), IDENTITY):
        assert (await dispatcher.dispatch_envelope(EVENT)).status == status
    assert (await dispatcher.dispatch_envelope(EVENT)).status == 503  # nothing receives


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError("a defect"), KeyError("x")])
async def test_errors_of_the_receiver_are_raised_and_not_swallowed_by_bolt(
    dispatcher: SlackDispatcher, error: Exception
) -> None:
    with dispatcher.receiving(Receiver(error), IDENTITY), pytest.raises(type(error)) as raised:
        await dispatcher.dispatch_envelope(EVENT)
    assert raised.value is error


@pytest.mark.parametrize(
    "payload",
    [{"type": "block_actions", "actions": []}, {"team": 5}, {"type": "event_callback", "event": 5}],
    ids=["no action", "team is a number", "event is a number"],
)
async def test_a_payload_in_another_form_is_refused(
    dispatcher: SlackDispatcher, payload: Json
) -> None:
    with dispatcher.receiving(Receiver(), IDENTITY):
        assert (await dispatcher.dispatch_envelope(payload)).status == 400


def test_bolts_own_client_has_no_token_and_retries_nothing(dispatcher: SlackDispatcher) -> None:
    client = dispatcher._app.client
    assert (client.token, client.retry_handlers) == (None, [])


async def test_bolt_logs_no_contents_at_debug_level(
    dispatcher: SlackDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with dispatcher.receiving(Receiver(), IDENTITY):
        await dispatcher.dispatch_envelope(EVENT)
        await dispatcher.dispatch_envelope({"type": "view_submission", "view": {"secret": "1"}})
    assert caplog.text == ""


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_bolts_environment_variables_change_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("BOT_TOKEN", "CLIENT_ID", "CLIENT_SECRET", "SIGNING_SECRET", "VERIFICATION_TOKEN"):
        monkeypatch.setenv(f"SLACK_{name}", "xoxb-other")
    dispatcher = SlackDispatcher("http://127.0.0.1:1/api/")
    with dispatcher.receiving(Receiver(), IDENTITY):
        assert (await dispatcher.dispatch_envelope(EVENT)).status == 200
    assert caplog.text == ""
    assert entries(tmp_path) == []


# --- imports -------------------------------------------------------------------------------------


@pytest.mark.process
def test_bolt_is_not_imported_before_slack_is_built() -> None:
    program = (
        "import sys, gateway.operate.cli, gateway.runner, platforms.slack\n"
        "loaded = {'slack_bolt', 'slack_sdk', 'aiohttp'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
