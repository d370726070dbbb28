"""A gateway connected to the fake Slack."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent.tools.contract import Tool
from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from platforms.slack import SPEC
from platforms.slack.webhook import EVENTS_PATH
from sessions.values.clock import Clock
from tests.fakes.gateway_settings import scripted
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.slack.kit import config_for
from tests.fakes.slack.server import SlackServer

PATIENCE = 8.0


class SlackHouse:
    """A running gateway."""

    def __init__(self, runner: GatewayRunner, task: asyncio.Task[None]) -> None:
        self.runner = runner
        self._task = task

    async def crash(self) -> None:
        """Cancel the gateway without draining, notices or suspending sessions."""
        self._task.cancel()
        await asyncio.wait({self._task})


@contextlib.asynccontextmanager
async def slack_gateway(
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
    """Run a gateway inside the block, and stop it at the end."""
    served = served or slack.over_http
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
            if slack.over_http:
                slack.listen_at(f"{(runner.url or '').rstrip('/')}{EVENTS_PATH}")
            elif not served:
                await slack.connected.wait()
        try:
            yield SlackHouse(runner, task)
        finally:
            if slack.over_http:
                slack.listen_at("")
            runner.stopping.set()
            runner.skip_drain.set()
