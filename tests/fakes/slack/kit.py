"""Builders of an adapter in front of the fake Slack."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from platforms.core.contract import Surroundings
from platforms.slack import SlackConfig
from platforms.slack.adapter import SlackAdapter
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.secret import Secret
from tests.fakes.archive import EmptyArchive, MemoryShelf
from tests.fakes.inbox import Inbox
from tests.fakes.quick_time import TimerClock
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, SlackServer


class ShiftedClock:
    """A clock plus an offset that a test sets."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> int:
        return TimerClock().now() + int(self.offset * 1000)

    def monotonic(self) -> float:
        return TimerClock().monotonic() + self.offset


def config_for(slack: SlackServer, **changes: Any) -> SlackConfig:
    given: dict[str, Any] = {
        "bot_token": Secret(BOT_TOKEN),
        "app_token": Secret(APP_TOKEN),
        "signing_secret": Secret(SIGNING_SECRET),
        "base_url": slack.url,
        "mode": "http" if slack.over_http else "socket",
    }
    return SlackConfig(**{**given, **changes})


def adapter_for(
    slack: SlackServer,
    *,
    clock: Clock | None = None,
    shelf: MemoryShelf | None = None,
    account: str = "",
    trouble: Callable[[str], None] = lambda _: None,
    **changes: Any,
) -> SlackAdapter:
    clock = clock or TimerClock()
    surroundings = Surroundings(
        clock=clock,
        ids=Ids(clock),
        shelf=shelf or MemoryShelf(),
        archive=EmptyArchive(),
        account=account,
        trouble=trouble,
    )
    return SlackAdapter(config_for(slack, **changes), surroundings)


@contextlib.asynccontextmanager
async def slack_server(*, over_http: bool = False) -> AsyncIterator[SlackServer]:
    """Run a Slack that must have found no violation at the end."""
    async with SlackServer(over_http=over_http) as slack:
        yield slack
        found = slack.violations()
        assert found == [], found


@contextlib.asynccontextmanager
async def running(adapter: SlackAdapter, inbox: Inbox) -> AsyncIterator[None]:
    """Run the adapter inside the block."""
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(adapter.run(inbox, ready.set))
        await ready.wait()
        yield
        task.cancel()
