"""A whole gateway whose platform is Slack."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from agent.settings import ModelSettings, Timeouts
from agent.tools.contract import Tool
from gateway.runner import GatewayRunner
from gateway.settings import (
    AccessSettings,
    GatewaySettings,
    HttpSettings,
    LimitSettings,
    Settings,
)
from platforms.slack import SPEC
from sessions.settings import SessionSettings
from sessions.values.clock import Clock
from sessions.values.secret import Secret
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.slack.kit import config_for
from tests.fakes.slack.server import SlackServer

PATIENCE = 8.0


class SlackHouse:
    """A gateway that runs."""

    def __init__(self, runner: GatewayRunner, task: asyncio.Task[None]) -> None:
        self.runner = runner
        self._task = task

    async def crash(self) -> None:
        """End without a word: nothing is drained, told or suspended."""
        self._task.cancel()
        await asyncio.wait({self._task})


@contextlib.asynccontextmanager
async def slack_house(
    home: Path,
    slack: SlackServer,
    model: ModelServer,
    *,
    allow: tuple[str, ...] = ("slack:T1/U1",),
    admins: tuple[str, ...] = (),
    clock: Clock | None = None,
    platform: dict[str, Any] | None = None,
    served: bool = False,
    tools: tuple[Tool, ...] = (),
    **changes: Any,
) -> AsyncIterator[SlackHouse]:
    """Run a gateway until the block ends; then it drains."""
    settings = Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=ModelSettings(
            provider="openai",
            name="scripted",
            base_url=model.url,
            api_key=Secret("sk-none"),
            timeouts=Timeouts(backoff=0.01),
        ),
        access=AccessSettings(allow=allow, admins=admins),
        http=HttpSettings(port=0),
        limits=LimitSettings(messages_per_minute=10_000),
        sessions=SessionSettings(),
        platforms={"slack": config_for(slack, **(platform or {}))},
    )
    runner = GatewayRunner(
        msgspec.structs.replace(settings, **changes),
        home,
        specs={"slack": SPEC},
        http=served,
        tools=tools,
        clock=clock or clock_here(),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        async with asyncio.timeout(PATIENCE):
            await runner.ready.wait()
            if not served:
                await slack.connected.wait()
        try:
            yield SlackHouse(runner, task)
        finally:
            runner.stopping.set()
            runner.hurry.set()
