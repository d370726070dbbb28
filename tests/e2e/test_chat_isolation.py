"""A hanging turn and download in one chat neither block nor reorder another chat."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat_users import ChatUsers, chat_users, gateway_for, whole
from tests.e2e.test_big_files import length
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock, quickly
from tests.fakes.slow_line import SlowLine

MESSAGES = range(10, 20)


def scripted(body: dict[str, Any]) -> Script:
    said = json.dumps(body["messages"][-1]["content"])
    number = int(re.findall(r"question (\d+)", said)[-1])
    return ok(whole(number)) if number in MESSAGES else 'H T"so far " HANG'


def answers(people: ChatUsers) -> list[str]:
    """Return the answers in the second person's chat, in order."""
    return [text for text in people.shown(1) if text in map(whole, MESSAGES)]


@pytest.mark.parametrize("platform", ["telegram", "discord", "slack"])
def test_a_hanging_turn_and_download_do_not_block_or_reorder_other_chats(
    tmp_path: Path, platform: str
) -> None:
    async def play() -> None:
        line = SlowLine(1_000_000, pause=1e6)
        async with (
            chat_users(platform, 2, together=False, clock=clock()) as people,
            ModelServer(scripted) as model,
            gateway_for(people, tmp_path, model, clock()) as runner,
        ):
            adapter = runner.adapter(platform)
            assert adapter
            people.slow_files(line)
            async with asyncio.TaskGroup() as hanging:
                down = hanging.create_task(length(adapter.fetch(people.file(0, line.size))))
                await people.say(0, "question 0")
                await model.request(1)
                await line.begun.wait()
                for number in MESSAGES:
                    await people.say(1, f"question {number}")
                await people.until(lambda: len(answers(people)) == len(MESSAGES), 60)
                assert answers(people) == [whole(number) for number in MESSAGES]
                assert not down.done()
                assert not model.requests[0].answered.is_set()
                down.cancel()
                line.hurry.set()

    quickly(play())
