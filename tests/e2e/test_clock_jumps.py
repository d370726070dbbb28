"""Changes of the system clock by a day, forwards and back, during conversations."""

from pathlib import Path

import pytest

from platforms.core.contract import Live
from sessions.values.clock import Clock
from tests.e2e.gateway_kit import Screen, gateway, talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here

pytestmark = pytest.mark.quick

CHAT, OTHER = "1001", "1002"
DAY = 86_400_000 + 60_000  # one day and a minute


class SetClock:
    """A clock that the test sets forwards or back."""

    def __init__(self) -> None:
        self._here: Clock = clock_here()
        self.off = 0

    def now(self) -> int:
        return self._here.now() + self.off

    def monotonic(self) -> float:
        return self._here.monotonic()


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forwards", "back"])
async def test_messages_are_answered_during_and_after_a_wrong_clock(
    tmp_path: Path, jump: int
) -> None:
    clock = SetClock()
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, clock=clock),
    ):
        await screen.say(CHAT, "before")
        await screen.shows(CHAT, "echo: before")
        await screen.say(CHAT, "hang")
        await screen.shows(CHAT, "so far")
        await screen.say(CHAT, "waiting")
        clock.off = jump
        await screen.say(OTHER, "meanwhile")  # the platform's clock stays correct
        await screen.shows(OTHER, "echo: meanwhile")
        await screen.say(CHAT, "/stop")
        await screen.shows(CHAT, "⏹ Stopped")
        await screen.say(CHAT, "/resume")
        await screen.shows(CHAT, "echo: waiting")
        clock.off = 0
        await screen.say(CHAT, "after")
        await screen.shows(CHAT, "echo: after")
