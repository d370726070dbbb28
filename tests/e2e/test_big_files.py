"""Large files over a slow line delay no other chat and are never held in memory as a whole."""

import asyncio
import json
import re
import statistics
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from platforms.core.contract import Adapter, Upload
from tests.e2e.chat_users import ChatUsers, chat_users, gateway_for, whole
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.slow_line import SlowLine, resident

MEGABYTE = 1_000_000
REPLIES = 7

UPLOADS = [
    pytest.param("telegram", (20 * MEGABYTE,), id="telegram"),
    pytest.param("discord", (10 * MEGABYTE, 10 * MEGABYTE), id="discord, 10 MB per file"),
    pytest.param("slack", (20 * MEGABYTE,), id="slack"),
]


def brief(body: dict[str, Any]) -> Script:
    said = json.dumps(body["messages"][-1]["content"])
    return ok(whole(int(re.findall(r"question (\d+)", said)[-1])))


async def reply_to(people: ChatUsers, number: int) -> float:
    """Ask a question as person `number`; return the seconds until the answer is complete."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await people.say(number, f"question {number}")
    await people.until(lambda: people.shown(number) == [whole(number)], 10)
    return loop.time() - began


async def length(pieces: AsyncIterator[bytes]) -> int:
    return sum([len(piece) async for piece in pieces])


async def send(adapter: Adapter, people: ChatUsers, paths: list[Path]) -> None:
    for number, path in enumerate(paths):
        await adapter.deliver(
            Upload(
                f"up.{number}",
                people.address(0),
                path=str(path),
                name=path.name,
                media_type="application/zip",
            )
        )


@pytest.mark.parametrize(("platform", "sizes"), UPLOADS)
async def test_a_large_transfer_delays_no_other_chat_and_uses_little_memory(
    tmp_path: Path, platform: str, sizes: tuple[int, ...]
) -> None:
    paths = [tmp_path / f"big{number}.bin" for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        with path.open("wb") as file:
            file.truncate(size)
    line = SlowLine(20 * MEGABYTE)
    async with (
        chat_users(platform, 2 * REPLIES + 2, together=False) as people,
        ModelServer(brief) as model,
        gateway_for(people, tmp_path, model) as runner,
    ):
        adapter = runner.adapter(platform)
        assert adapter
        await reply_to(people, 2 * REPLIES + 1)  # warm up one-time work
        alone = [await reply_to(people, number + 1) for number in range(REPLIES)]
        people.slow_files(line)
        before = resident()
        async with asyncio.TaskGroup() as both:
            up = both.create_task(send(adapter, people, paths))
            down = both.create_task(length(adapter.fetch(people.file(0, line.size))))
            await line.taking.wait()
            await line.giving.wait()
            beside = [await reply_to(people, REPLIES + number + 1) for number in range(REPLIES)]
            assert not up.done()
            assert not down.done()
            line.hurry.set()
        assert down.result() == line.size
        assert line.taken >= sum(sizes)
        assert statistics.median(beside) - statistics.median(alone) < 0.1
        assert max(beside) < 1.0  # generous, because the machine may be busy
        assert line.most_memory - before < 12 * MEGABYTE
