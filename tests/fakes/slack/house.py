"""A whole gateway whose platform is Slack."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent.tools.contract import Tool
from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from platforms.slack import SPEC
from sessions.values.clock import Clock
from tests.fakes.gateway_settings import scripted
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
    platforms = {"slack": config_for(slack, **(platform or {}))}
    access = AccessSettings(allow=allow, admins=admins)
    runner = GatewayRunner(
        scripted(model, platforms, access, **changes),
        home,
        specs={"slack": SPEC},
        serve_http=served,
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
            runner.skip_drain.set()
