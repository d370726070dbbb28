"""Refusals: the messages that a person gets when the same thing is refused once and three times."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, LimitSettings, Settings, UserLimits
from tests.e2e.gateway_kit import Nothing, gateway, talkative
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.memory import VisibleMessage
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT = "1001"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A refused text, and the messages that follow it."""

    text: str = "please"
    before: tuple[tuple[str, str], ...] = ()  # texts that are not refused, and their answers
    model: Script | None = None
    limits: LimitSettings = LimitSettings()
    queue_limit: int = 20
    allow: tuple[str, ...] = ("memory:1001",)
    admins: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # a part of each message, after the first time
    repeats: int = 1  # how often `told` is there after three times


MINE = "memory:1001"
TOKENS = UserLimits(tokens_per_day=0)

REFUSALS = {
    "the model declines with words": Refusal(
        model='H T"I would rather not." F content_filter U D',
        told=("I would rather not.", "⚠️ The model declined to go on."),
        repeats=3,
    ),
    "the model declines without a word": Refusal(
        model="H F content_filter U D",
        told=("⚠️ The model declined: no reason given",),
        repeats=3,
    ),
    "the service declines": Refusal(
        model='H J{"error":{"code":"content_filter","message":"Flagged."}}',
        told=("⚠️ The model declined: Flagged.",),
        repeats=3,
    ),
    "no budget": Refusal(
        limits=LimitSettings(users={MINE: TOKENS}), told=("⛔ Not answered: the limit",), repeats=3
    ),
    "no budget for a side question": Refusal(
        text="/btw why",
        limits=LimitSettings(users={MINE: TOKENS}),
        told=("💬 Sorry, I couldn't answer your side question: the limit",),
        repeats=3,
    ),
    "too many messages": Refusal(
        before=(("hello", "echo: hello"),),
        limits=LimitSettings(messages_per_minute=1),
        told=("⛔ That was more than 1 message in a minute",),
    ),
    "too many commands": Refusal(
        text="/whoami",
        before=(("/usage", "tokens in"),),
        limits=LimitSettings(messages_per_minute=1),
        told=("⛔ That was more than 1 message in a minute",),
    ),
    "a full queue": Refusal(
        before=(("hang", "so far"), ("one", "1 message is queued")),
        queue_limit=1,
        told=("⛔ 1 message is already queued",),
        repeats=3,
    ),
    "a command for admins": Refusal(
        text="/pair list", told=("Only an admin can do that.",), repeats=3
    ),
    "an unknown command": Refusal(text="/frob", told=("I don't know /frob.",), repeats=3),
    "no access": Refusal(allow=(), told=("👋 Hello! I don't know you yet.",)),
    "a wrong claim code": Refusal(
        text="claim ABCD-EFGH", allow=(), told=("This code is not valid (any more).",), repeats=3
    ),
}


def told_at_least(told: tuple[str, ...], times: int, seen: list[VisibleMessage]) -> bool:
    return all(sum(part in each.text for each in seen) >= times for part in told)


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_told_once_for_each_message_or_once_for_all(
    tmp_path: Path, name: str
) -> None:
    row = REFUSALS[name]

    def answering(body: dict[str, Any]) -> Script:
        return row.model or talkative(body)

    async with ModelServer(answering) as model:
        settings = Settings(
            gateway=GatewaySettings(drain_seconds=0, queue_limit=row.queue_limit),
            model=scripted_model(model),
            access=AccessSettings(allow=row.allow, admins=row.admins),
            limits=row.limits,
            platforms={"memory": Nothing()},
        )
        async with gateway(tmp_path, model, settings=settings) as kit:
            for text, answer in row.before:
                await kit.screen.say(CHAT, text)
                await kit.screen.shows(CHAT, answer)
            for count in range(1, 4):
                await kit.screen.say(CHAT, row.text)
                expected = count if row.repeats == 3 else 1
                await kit.screen.until(CHAT, partial(told_at_least, row.told, expected))
            shown = [each.text for each in kit.screen.messages(CHAT)]
    found = Counter(part for part in row.told for text in shown if part in text)
    assert found == dict.fromkeys(row.told, row.repeats), shown
    assert len(shown) <= row.repeats * len(row.told) + 2, shown
