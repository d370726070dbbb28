"""Alerts to admins about lasting problems and their end, across crashes."""

from pathlib import Path
from typing import Any

import pytest

from gateway.access.settings import AccessSettings
from platforms.core.contract import Live, Sender
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, opened, talkative
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHIEF = "9"
ANN = Sender("1001", "Ann")
ADMINS = ("memory:9",)


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


def soon(kit: GatewayKit) -> None:
    """Make the alert delay short."""
    kit.conversations.admin_alerts.alarms.delay_seconds = 0.1


async def test_a_lasting_platform_problem_and_its_end_are_reported_even_after_a_crash(
    tmp_path: Path,
) -> None:
    screen = a_screen()
    began = "🛠 memory has had a problem for 1 minute: Another program uses the token."
    over = "✅ memory works again. The problem lasted 1 minute: Another program uses the token."
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen, admins=ADMINS) as kit:
            soon(kit)
            kit.runner._report_problem("memory", "Another program uses the token.")
            assert await kit.runner.condition.problems() == [
                "memory: Another program uses the token."
            ]
            await screen.shows(CHIEF, began)
            await kit.crash()
        async with gateway(tmp_path, model, screen, admins=ADMINS) as kit:
            assert await kit.runner.condition.problems() == []
            await screen.shows(CHIEF, over)
            soon(kit)
            kit.runner._report_problem("memory", "again")
            await screen.shows(CHIEF, "had a problem for 1 minute: again.")
            kit.runner._report_problem("memory", "")
            await screen.shows(CHIEF, "✅ memory works again. The problem lasted 1 minute: again")
    assert len(screen.messages(CHIEF)) == 4


async def test_a_refusing_model_and_its_recovery_are_reported(tmp_path: Path) -> None:
    screen, refusing = a_screen(), [True]

    def moody(body: dict[str, Any]) -> Script:
        return "S401" if refusing[0] else talkative(body)

    async with ModelServer(moody) as model:
        access = AccessSettings(allow=("memory:1001",), admins=ADMINS)
        async with gateway(tmp_path, model, screen, access=access):
            await screen.say("1001", "hello", sender=ANN)
            await screen.shows(
                "1001", "❌ Sorry, I couldn't finish this", "The administrator has been notified."
            )
            await screen.shows(CHIEF, "🛠 The model can't be used")
        refusing[0] = False
        async with gateway(tmp_path, model, screen, access=access):
            await screen.say("1001", "hello again", sender=ANN)
            await screen.shows("1001", "echo: hello again")
            await screen.shows(
                CHIEF, "✅ The model answers again. It could not be used for 1 minute"
            )
            await screen.say("1001", "and now", sender=ANN)
            await screen.shows("1001", "echo: and now")
    assert len(screen.messages(CHIEF)) == 2
    async with opened(tmp_path) as store:
        assert await store.get_value("operators", "book") == "{}"
