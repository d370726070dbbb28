"""Start of the gateway with working and with failing platforms."""

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from gateway.runner import GatewayRunner
from tests.e2e.all_platforms import PLATFORMS, daemon_in, three_platforms
from tests.e2e.chat_users import gateway_on
from tests.e2e.test_big_files import brief
from tests.e2e.test_three_platforms import standing
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock, quickly

COVERAGE_FACTOR = 1.5 if "coverage" in sys.modules else 1.0  # coverage slows the start down
TOKENS = {"telegram": "token", "discord": "token", "slack": "bot_token"}


def cpu_wait_seconds(pid: int) -> float:
    """Return the seconds that a process was runnable but waited for a CPU."""
    told = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
    return int(told.split()[1]) / 1e9


# --- in a daemon process -------------------------------------------------------------------------


async def test_daemon_with_three_platforms_is_ready_within_two_seconds(tmp_path: Path) -> None:
    async with three_platforms() as place, ModelServer(brief) as model:
        began = time.monotonic()
        async with daemon_in(place, tmp_path, model) as running:
            told = await standing(running)
            took = time.monotonic() - began - cpu_wait_seconds(running.pid)
            assert told == {"status": 200, "ready": True, "not_ready": []}
            assert took < 2.0 * COVERAGE_FACTOR
            await place.answered(*PLATFORMS)
            assert await running.stop() == 0


@pytest.mark.parametrize("silent", PLATFORMS)
async def test_unresponsive_platform_does_not_delay_the_start(tmp_path: Path, silent: str) -> None:
    others = [name for name in PLATFORMS if name != silent]
    async with three_platforms() as place, ModelServer(brief) as model:
        place.doors[silent].silent = True
        began = time.monotonic()
        async with daemon_in(place, tmp_path, model) as running:
            took = time.monotonic() - began - cpu_wait_seconds(running.pid)
            told = await standing(running)
            assert (told["status"], told["not_ready"]) == (
                503,
                [f"{silent}: connecting, no answer so far"],
            )
            assert took < 3.0 * COVERAGE_FACTOR  # slow platforms get one second
            await place.answered(*others)
            assert await running.stop() == 0


# --- in this process, with accelerated time ------------------------------------------------------


async def problem_of(runner: GatewayRunner, name: str) -> str:
    """Wait until exactly this platform has a problem, and return the problem."""
    async with asyncio.timeout(60):
        while True:
            found = await runner.condition.problems()
            named = [each for each in found if each.startswith(f"{name}: ")]
            if len(found) == len(named) == 1 and "so far" not in found[0]:
                return named[0].partition(": ")[2]
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", PLATFORMS)
@pytest.mark.parametrize("trouble", ["refuses connections", "never answers", "knows no such token"])
def test_failing_platform_is_reported_isolated_and_recovers(
    tmp_path: Path, name: str, trouble: str
) -> None:
    others = [each for each in PLATFORMS if each != name]

    async def play() -> None:
        async with three_platforms(quick=True) as place, ModelServer(brief) as model:
            tables = place.tables()
            if trouble == "refuses connections":
                await place.doors[name].shut()
            elif trouble == "never answers":
                place.doors[name].silent = True
            else:
                tables[name][TOKENS[name]] = "123:not-a-token-of-ours"
            async with gateway_on(tables, tmp_path, model, clock()) as runner:
                await place.answered(*others)
                said = await problem_of(runner, name)
                assert len(said.split()) >= 4
                assert not re.search(r"Error|Exception|0x|not-a-token|None", said), said
                if trouble == "knows no such token":
                    assert "token" in said
                    return
                if trouble == "refuses connections":
                    await place.doors[name].open()
                place.doors[name].silent = False
                async with asyncio.timeout(120):
                    while await runner.condition.problems():  # noqa: ASYNC110 - the runner has no event
                        await asyncio.sleep(0.1)
                await place.answered(name, number=1)

    quickly(play())
