"""Twenty concurrent streams on each platform, within the platform's rate limits.

The fake servers enforce the documented limits and measure how much of the remaining allowance for
live updates the gateway uses.
"""

from pathlib import Path

import pytest

from tests.e2e.chat_users import Speaker, all_speak, chat_users, gateway_for, nothing_left
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock, quickly

SIZE = 20

PLACES = [
    pytest.param("telegram", False, 20.0, id="telegram, private chats"),
    pytest.param("telegram", True, 60.0, id="telegram, topics of one group"),
    pytest.param("discord", False, 20.0, id="discord, direct chats"),
    pytest.param("discord", True, 20.0, id="discord, threads of one channel"),
    pytest.param("slack", False, 60.0, id="slack, direct messages"),
    pytest.param("slack", True, 60.0, id="slack, threads of one channel"),
]


@pytest.mark.parametrize(("platform", "together", "seconds"), PLACES)
def test_twenty_concurrent_answers_stream_within_the_rate_limits(
    tmp_path: Path, platform: str, together: bool, seconds: float
) -> None:
    async def play() -> None:
        speaker = Speaker(seconds)
        async with (
            chat_users(platform, SIZE, together=together, clock=clock()) as people,
            ModelServer(speaker) as model,
        ):
            async with gateway_for(people, tmp_path, model, clock()) as runner:
                share = await all_speak(people, speaker, SIZE, seconds + 200)
                await nothing_left(runner)
            assert people.complaints() == []
            for number in range(SIZE):
                assert people.shown(number) == [speaker.answer(number)]
        assert share.refused == 0
        assert share.used_part >= 0.7

    quickly(play())
