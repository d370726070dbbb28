"""slack-bolt as the dispatcher: the same app behind Socket Mode and behind signed requests."""

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette

from gateway.http.server import HttpServer
from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Inbound,
    InboundAction,
    InboundMessage,
)
from platforms.slack.adapter import SlackAdapter
from platforms.slack.webhook import EVENTS_PATH
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


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with asyncio.timeout(15), slack_server() as slack:
        slack.add_channel("C1")
        yield slack


@pytest.fixture
def inbox() -> TracingInbox:
    return TracingInbox()


@pytest.fixture(params=["socket", "http"])
async def adapter(
    slack: SlackServer, request: pytest.FixtureRequest
) -> AsyncIterator[SlackAdapter]:
    """An adapter in each mode; in `http` mode a server hosts its route."""
    if request.param == "socket":
        yield adapter_for(slack)
        return
    adapter = adapter_for(slack, mode="http", app_token=None)
    server = HttpServer("127.0.0.1", 0)
    server.bind()
    slack.requests_to = f"{server.url.rstrip('/')}{EVENTS_PATH}"
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(Starlette(routes=adapter.routes())))
        yield adapter
        serving.cancel()


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


def test_bolt_is_not_imported_before_slack_is_built() -> None:
    program = (
        "import sys, gateway.operate.cli, gateway.runner, platforms.slack\n"
        "loaded = {'slack_bolt', 'slack_sdk', 'aiohttp'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
