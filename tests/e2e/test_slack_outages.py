"""Slack refuses some or all of its methods while messages arrive."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.gateway_kit import slack_gateway
from tests.fakes.slack.kit import slack_server
from tests.fakes.slack.server import SlackServer
from tests.fakes.slack.workspace import BOT_USER, METHOD_SCOPES, TEAM

pytestmark = pytest.mark.quick

METHODS = sorted(METHOD_SCOPES)
RETRY_AFTER = 2.0
ALLOWED = RETRY_AFTER + 2.0  # seconds until the answer


async def answered(slack: SlackServer, channel: str, text: str, seconds: float) -> None:
    await slack.until(lambda: len(answers(slack, channel, text)) > 0, seconds)


def answers(slack: SlackServer, channel: str, text: str) -> list[str]:
    screen = slack.workspace.screen(channel)
    return [shown for shown in screen if shown.startswith("echo: ") and shown.endswith(text)]


def new_chat(slack: SlackServer, number: int) -> tuple[str, str]:
    """Add a person whom the gateway does not know yet; return the person and their chat."""
    user, channel = f"U{number}", f"D{number}"
    slack.workspace.add_user(user, f"Person{number}")
    slack.workspace.channels.setdefault(channel, [])
    return user, channel


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("rule", ["slack:*", f"slack:{TEAM}/*"])
async def test_a_message_is_answered_while_one_method_after_the_other_is_refused(
    tmp_path: Path, status: int, rule: str
) -> None:
    async with (
        slack_server() as slack,
        ModelServer(talkative) as model,
        slack_gateway(tmp_path, slack, model, allow=(rule,)),
    ):
        for number, method in enumerate(METHODS, start=100):
            user, channel = new_chat(slack, number)
            slack.refuse_for(RETRY_AFTER, status, method)
            slack.write(channel, f"Hello {number}", user=user)
            await answered(slack, channel, f"Hello {number}", ALLOWED)
            await asyncio.sleep(RETRY_AFTER)


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("rule", ["slack:*", f"slack:{TEAM}/*"])
@pytest.mark.parametrize("in_room", [False, True])
async def test_a_message_is_answered_while_all_methods_are_refused(
    tmp_path: Path, status: int, rule: str, *, in_room: bool
) -> None:
    async with (
        slack_server() as slack,
        ModelServer(talkative) as model,
        slack_gateway(tmp_path, slack, model, allow=(rule,)),
    ):
        user, channel = new_chat(slack, 100)
        slack.add_channel("C1")
        slack.refuse_for(RETRY_AFTER, status, *METHODS)
        if in_room:
            channel = "C1"
            slack.write(channel, f"<@{BOT_USER}> Hello", user=user)
        else:
            slack.write(channel, "Hello", user=user)
        await answered(slack, channel, "Hello", ALLOWED)
    assert len(answers(slack, channel, "Hello")) == 1
