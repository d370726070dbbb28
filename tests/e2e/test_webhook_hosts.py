"""Webhooks of Telegram and Slack arrive under the daemon's public host without further settings."""

import json
import time
from pathlib import Path

import aiohttp

from tests.e2e.daemon import Daemon
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.server import BOT_TOKEN, SIGNING_SECRET, SlackServer, sign
from tests.fakes.slack.workspace import TEAM
from tests.fakes.telegram.server import TOKEN, serving

SECRET = "shown-by-telegram"


async def posted(daemon: Daemon, path: str, host: str, body: str, headers: dict[str, str]) -> int:
    sent = {"Host": host, "Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{daemon.url}{path}", data=body, headers=sent) as response,
    ):
        return response.status


async def test_webhooks_are_accepted_only_under_their_own_path_and_public_host(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, serving() as telegram, SlackServer() as slack:
        daemon = Daemon(
            tmp_path,
            "model.name=scripted",
            f"model.base_url={model.url}",
            f"platforms.telegram.base_url={telegram.url}",
            "platforms.telegram.mode=webhook",
            "platforms.telegram.webhook_url=https://bot.example.org:8443/telegram",
            f"platforms.telegram.webhook_secret={SECRET}",
            f"platforms.slack.base_url={slack.url}",
            "platforms.slack.mode=http",
            f"platforms.slack.signing_secret={SIGNING_SECRET}",
            'access.allow=["telegram:1001", "slack:T1/U1"]',
            env={
                "OPENAI_API_KEY": "sk-none",
                "TELEGRAM_BOT_TOKEN": TOKEN,
                "SLACK_BOT_TOKEN": BOT_TOKEN,
            },
            warm=True,
        )
        async with daemon:
            message = telegram.message(1001, "by webhook", date=int(time.time()))  # noqa: TID251 - the daemon uses the machine's clock
            update = json.dumps({"update_id": 1, "message": message})
            headers = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
            hosts = [
                ("bot.example.org", 200),
                ("bot.example.org:8443", 200),
                ("evil.example.org", 403),
            ]
            for host, status in hosts:
                assert await posted(daemon, "/telegram", host, update, headers) == status
            await telegram.shows(1001, "echo: by webhook")

            ts = f"{time.time():.6f}"  # noqa: TID251 - likewise
            event = {"type": "message", "channel": "D1", "user": "U1", "text": "signed", "ts": ts}
            event["channel_type"] = "im"
            callback = json.dumps({"type": "event_callback", "team_id": TEAM, "event": event})
            signed = sign(callback, int(time.time()))  # noqa: TID251 - likewise
            host = "whatever.example.net"
            assert await posted(daemon, "/slack/events", host, callback, {}) == 401
            assert await posted(daemon, "/slack/events", host, callback, signed) == 200
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: signed"])

            for host in ("bot.example.org", "whatever.example.net"):
                async with (
                    aiohttp.ClientSession() as http,
                    http.get(f"{daemon.url}/", headers={"Host": host}) as page,
                ):
                    assert page.status == 403
            assert await daemon.stop() == 0
