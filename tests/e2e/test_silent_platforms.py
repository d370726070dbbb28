"""Platforms whose connections stay open but go silent.

Each real adapter talks to a fake server through a proxy; only its timeouts are shorter.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.runner import GatewayRunner
from platforms.core.contract import PlatformSpec, Surroundings
from platforms.discord import DiscordConfig
from platforms.discord.adapter import DiscordAdapter
from platforms.slack import SlackConfig
from platforms.slack.adapter import SlackAdapter
from platforms.telegram.adapter import TelegramAdapter
from platforms.telegram.config import TelegramConfig
from platforms.telegram.polling import PollTiming
from tests.e2e.chat_users import ChatUsers, chat_users, gateway_on, whole
from tests.e2e.test_big_files import brief
from tests.fakes.door import door
from tests.fakes.model_server import ModelServer

PATIENCE = 20.0


def _telegram(config: TelegramConfig, given: Surroundings) -> TelegramAdapter:
    return TelegramAdapter(config, given, poll_timing=PollTiming(poll=0.2, grace=0.3))


def _discord(config: DiscordConfig, given: Surroundings) -> DiscordAdapter:
    return DiscordAdapter(
        config,
        given,
        heartbeat_timeout_seconds=0.5,
        reconnect_timeout_seconds=0.5,
        join_seconds=0.05,
    )


SPECS = {
    "telegram": PlatformSpec("telegram", TelegramConfig, _telegram),
    "discord": PlatformSpec("discord", DiscordConfig, _discord),
    "slack": PlatformSpec("slack", SlackConfig, SlackAdapter),
}


async def readiness(runner: GatewayRunner) -> tuple[int, list[str]]:
    assert runner.url
    async with aiohttp.ClientSession() as http, http.get(f"{runner.url}readyz") as response:
        return response.status, json.loads(await response.text())["not_ready"]


async def connected(runner: GatewayRunner, name: str) -> str:
    assert runner.url
    key = (runner._home / "api_key").read_text().strip()
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{runner.url}metrics") as response,
    ):
        found = re.search(
            rf'^holdfast_platform_connected\{{platform="{name}"\}} (\S+)$',
            await response.text(),
            re.MULTILINE,
        )
        assert found
        return found[1]


async def until_ready(runner: GatewayRunner, *, ready: bool) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        while True:
            status, problems = await readiness(runner)
            assert status == (503 if problems else 200)
            if ready == (not problems):
                return problems
            await asyncio.sleep(0.02)


def table(people: ChatUsers, url: str) -> dict[str, dict[str, Any]]:
    return {people.platform: {**people.config(), "base_url": url}}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("telegram", "Telegram is connected but does not respond"),
        ("discord", "Discord's gateway has been gone for 0.5 s"),
        ("slack", "Slack did not answer in time"),
    ],
)
async def test_a_silent_connection_is_reported_until_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    monkeypatch.setattr("platforms.slack.socket_mode.PING_SECONDS", 0.2)
    monkeypatch.setattr("platforms.slack.socket_mode._TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr("gateway.connections.supervision.FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("gateway.connections.supervision.MAX_PAUSE_SECONDS", 0.1)
    async with chat_users(name, 1, together=False) as people, ModelServer(brief) as model:
        server: Any = people.server  # type: ignore[attr-defined]  # every implementation has one
        server.heartbeat = 0.1
        async with door(people.config()["base_url"]) as between:
            server.door = between.port
            tables, known = table(people, between.url), {name: SPECS[name]}
            async with gateway_on(tables, tmp_path, model, known=known, served=True) as runner:
                await people.say(0, "question 0")
                await people.until(lambda: whole(0) in people.shown(0), PATIENCE)
                await until_ready(runner, ready=True)
                between.fall_silent()
                (problem,) = await until_ready(runner, ready=False)
                assert problem == f"{name}: {sentence}"
                assert await connected(runner, name) == "0.0"
                await people.say(0, "question 1")
                between.speak_again()
                assert await until_ready(runner, ready=True) == []
                assert await connected(runner, name) == "1.0"
                await people.until(lambda: whole(1) in people.shown(0), PATIENCE)
