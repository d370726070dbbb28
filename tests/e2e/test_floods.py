"""People who write faster than the limit: how much of it gets a reply, and how long others wait.

`make floods` is the long form of the last test, with a daemon of its own.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gateway.delivery.long_text import IN_FILE
from gateway.inbound.reception import MIN_CONTROLS_PER_MINUTE
from gateway.settings import LimitSettings
from platforms.core.contract import Accepted, Live, Repeat, Sender
from tests.e2e.gateway_kit import ME, Screen, gateway, opened, talkative
from tests.fakes.model_server import ModelServer
from tests.faults.floods import FIRST_STRANGER, LIMIT_SECONDS, talker

LIMITS = LimitSettings(messages_per_minute=5)


async def test_commands_beyond_the_limit_get_one_refusal(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, limits=LIMITS) as kit:
        screen = kit.screen
        for _ in range(150):
            assert await screen.say(ME, "/whoami") is Accepted.STORED
        await screen.shows(ME, "more than 5 messages in a minute")
        await screen.say(ME, "/stop")
        await screen.shows(ME, "No active task to stop.")
        texts = [message.text for message in screen.messages(ME)]
    assert sum("You are memory:1001" in text for text in texts) == 5
    assert sum("more than 5 messages" in text for text in texts) == 1


async def test_unknown_commands_and_buttons_count_as_messages(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, limits=LIMITS) as kit:
        screen = kit.screen
        for _ in range(30):
            await screen.say(ME, "/wohami")
            await screen.press(ME, "retry:t_1")
        await screen.shows(ME, "more than 5 messages in a minute")
        await screen.say(ME, "/stop")
        await screen.shows(ME, "No active task to stop.")
        assert len(screen.messages(ME)) == 5 + 2


async def test_stop_works_beyond_the_limit_and_is_itself_limited(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, limits=LIMITS) as kit:
        screen = kit.screen
        await screen.say(ME, "hang")
        await screen.shows(ME, "so far")
        for _ in range(20):
            await screen.say(ME, "/whoami")
        await screen.say(ME, "/stop")
        await screen.shows(ME, "⏹ Stopped.")
        for _ in range(3 * MIN_CONTROLS_PER_MINUTE):
            await screen.say(ME, "/stop")
            await screen.press(ME, "stop:t_1")
    texts = [message.text for message in screen.messages(ME)]
    replies = sum("No active task" in text for text in texts)
    assert replies <= MIN_CONTROLS_PER_MINUTE
    assert sum("more than 5 messages" in text for text in texts) == 1


async def test_answers_go_before_the_replies_to_commands(tmp_path: Path) -> None:
    screen = Screen(live=Live.NONE, repeat=Repeat.ALWAYS, burst=1, per_second=10.0)
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, limits=LimitSettings(messages_per_minute=100)),
    ):
        for _ in range(60):
            await screen.say(ME, "/whoami")
        await screen.say(ME, "hello")
        await screen.shows(ME, "echo: hello")
        assert len(screen.messages(ME)) < 40


async def test_refused_commands_are_stored_without_being_carried_out_later(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, limits=LIMITS) as kit:
        for _ in range(8):
            await kit.screen.say(ME, "/whoami")
        await kit.screen.shows(ME, "more than 5 messages in a minute")
    async with opened(tmp_path) as store:
        states = [each.entry.state for each in await store.trace(f"memory:{ME}")]
    assert sorted(states) == ["done"] * 5 + ["refused"] * 3


VICTIM, ADMIN, FLOODER = ME, "1009", "1002"
QUESTIONS = 8


async def strangers(screen: Screen) -> None:
    for number in range(FIRST_STRANGER, FIRST_STRANGER + 400):
        await screen.say(str(number), "hello", sender=Sender(id=str(number), name="Stranger"))


async def commands(screen: Screen) -> None:
    for _ in range(150):
        await screen.say(FLOODER, "/whoami", sender=Sender(id=FLOODER))


async def long_answer(screen: Screen) -> None:
    await screen.say(FLOODER, "write 20 MB in lines", sender=Sender(id=FLOODER))
    await screen.shows(FLOODER, IN_FILE)


async def long_line(screen: Screen) -> None:
    await screen.say(FLOODER, "write 20 MB in one line", sender=Sender(id=FLOODER))
    await screen.shows(FLOODER, IN_FILE)


@pytest.mark.parametrize("flood", [strangers, commands, long_answer, long_line])
async def test_a_flood_delays_no_answer_in_another_chat(
    tmp_path: Path, flood: Callable[[Screen], Coroutine[Any, Any, None]]
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.5, burst=1000, messages=10)
    people = (f"memory:{VICTIM}", f"memory:{FLOODER}")
    admins = (f"memory:{ADMIN}",)
    loop = asyncio.get_running_loop()
    seconds: list[float] = []
    async with (
        ModelServer(talker) as model,
        gateway(tmp_path, model, screen, allow=people, admins=admins),
        asyncio.TaskGroup() as group,
    ):
        flooding = group.create_task(flood(screen))
        while len(seconds) < QUESTIONS or not flooding.done():
            began = loop.time()
            await screen.say(VICTIM, f"question {len(seconds)}")
            await screen.shows(VICTIM, f"that was {len(seconds)}.")
            seconds.append(loop.time() - began)
    assert max(seconds) < LIMIT_SECONDS
    assert len(screen.messages(ADMIN)) <= 25
