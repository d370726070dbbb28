"""Secrets in an answer that grows in the chat."""

from pathlib import Path

import pytest

from platforms.core.contract import Live
from tests.e2e.gateway_kit import ME, Screen, gateway
from tests.fakes.model_server import ModelServer


@pytest.mark.parametrize("live", [Live.EDIT, Live.STREAM])
async def test_the_beginning_of_a_secret_is_not_shown(tmp_path: Path, live: Live) -> None:
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    script = 'H T"It is sk-a1b2c3d4" HANG'
    async with ModelServer(lambda _: script) as model, gateway(tmp_path, model, screen) as kit:
        await kit.screen.say(ME, "tell me")
        messages = await kit.screen.shows(ME, "It is")
        assert "sk-" not in messages[0].text


@pytest.mark.parametrize("live", [Live.EDIT, Live.STREAM])
@pytest.mark.parametrize("begun", ["sk-a1b2c3d4a1b2c3d4", "sk-no"])
async def test_a_stopped_answer_does_not_end_with_the_beginning_of_a_secret(
    tmp_path: Path, live: Live, begun: str
) -> None:
    """`sk-no` begins the key of the model, `sk-none`, but could be any word."""
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    script = f'H T"Now it is {begun}" HANG'
    async with ModelServer(lambda _: script) as model, gateway(tmp_path, model, screen) as kit:
        await kit.screen.say(ME, "tell me")
        await kit.screen.shows(ME, "Now it is")
        await kit.screen.say(ME, "/stop")
        await kit.screen.shows(ME, "Stopped")
        messages = await kit.screen.shows(ME, "***" if len(begun) > 8 else begun)
        assert "a1b2" not in messages[0].text
