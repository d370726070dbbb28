"""A stop signal before the gateway is ready."""

import asyncio
import socket
from pathlib import Path

import pytest

from agent.settings import ModelSettings
from gateway.errors import CannotStart
from gateway.process.starting import run_unless_stopped
from gateway.runner import GatewayRunner
from gateway.settings import Settings
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret


async def _return(value: str) -> str:
    await asyncio.sleep(0)
    return value


async def _fail() -> str:
    await asyncio.sleep(0)
    msg = "The port is taken."
    raise CannotStart(msg)


async def _hang() -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def test_the_result_is_returned_without_a_stop() -> None:
    assert await run_unless_stopped(_return("done"), asyncio.Event()) == "done"


async def test_an_error_is_raised_without_a_group() -> None:
    with pytest.raises(CannotStart, match="The port is taken"):
        await run_unless_stopped(_fail(), asyncio.Event())


async def test_a_stop_ends_work_that_hangs() -> None:
    stopping = asyncio.Event()
    stopping.set()
    async with asyncio.timeout(5):
        assert await run_unless_stopped(_hang(), stopping) is None


async def test_cancelling_the_start_cancels_its_work() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_unless_stopped(_hang(), asyncio.Event())


async def test_a_gateway_stops_while_the_model_server_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)  # noqa: FBT003 - as the standard library has it
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = ModelSettings(provider="openai", base_url=url, api_key=Secret("sk-none"))
        runner = GatewayRunner(
            Settings(model=model), tmp_path, specs={}, clock=SystemClock(), serve_http=False
        )
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(runner.run())
            connection, _ = await asyncio.get_running_loop().sock_accept(silent)
            runner.stopping.set()
        connection.close()
    assert not runner.ready.is_set()
