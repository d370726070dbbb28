"""The whole gateway in front of one platform's service, with a real store and a scripted model."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from platforms.core.contract import Adapter
from tests.contract.services.contract import PATIENCE, Service
from tests.e2e.gateway_kit import talkative
from tests.fakes.gateway_settings import scripted
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here

SLOWLY = "one two three four five"


def answering(body: dict[str, Any]) -> Script:
    """Writes slowly when asked to tell, else as `talkative`."""
    said = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
    if "tell" in said[-1].rpartition("\n")[2]:
        return (
            "H "
            + " ".join(f'T"{word} " W.15' for word in SLOWLY.split()[:-1])
            + (f' T"{SLOWLY.rsplit(maxsplit=1)[-1]}" F stop U D')
        )
    return talkative({"messages": [{"role": "user", "content": said[-1].rpartition("\n")[2]}]})


class PlatformGateway:
    """A gateway that runs."""

    def __init__(self, runner: GatewayRunner, task: asyncio.Task[None], adapter: Adapter) -> None:
        self.runner = runner
        self.adapter = adapter
        self._task = task

    async def take_access(self) -> None:
        """Remove everyone from the configuration, as a reload does."""
        assert self.runner._open
        self.runner._open.people.apply_settings(AccessSettings(pairing=False))
        await self.runner._open.conversations.enforce_access()

    async def delivered(self) -> None:
        """Wait until all finished items are delivered, and their results stored."""
        assert self.runner._open
        await self.runner._open.conversations._services.delivery.flush(PATIENCE)

    async def crash(self) -> None:
        """End without a word: nothing is drained, told or suspended."""
        self._task.cancel()
        await asyncio.wait({self._task})


@contextlib.asynccontextmanager
async def running_gateway(
    home: Path, service: Service, model: ModelServer, *, tools: Any = (), **changes: Any
) -> AsyncIterator[PlatformGateway]:
    """Run a gateway on a state folder until the block ends; then it drains."""
    access = AccessSettings(allow=service.allow, admins=service.allow)
    runner = GatewayRunner(
        scripted(model, {service.name: service.config()}, access, **changes),
        home,
        specs={service.name: service.spec()},
        serve_http=service.served,
        tools=tools,
        clock=clock_here(),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await runner.ready.wait()
            adapter = runner.adapter(service.name)
            assert adapter
            async with service.meeting(adapter, runner.url or ""):
                yield PlatformGateway(runner, task, adapter)
        finally:
            runner.stopping.set()
            runner.skip_drain.set()
