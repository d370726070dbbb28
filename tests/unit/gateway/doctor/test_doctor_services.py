"""Doctor checks of platforms and models, made by their own probes."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from agent.settings import ModelSettings, TargetSettings
from gateway.operate.doctor.chats import platform_checks
from gateway.operate.doctor.checks import all_checks
from gateway.operate.doctor.context import DaemonInfo, DoctorContext
from gateway.operate.doctor.fixes import apply_fixes
from gateway.operate.doctor.models import model_checks
from gateway.operate.doctor.run import run_checks
from platforms.core.contract import PlatformSpec
from platforms.discord import DiscordConfig
from platforms.slack import SlackConfig
from platforms.telegram import TelegramConfig
from sessions.values.finding import Finding
from sessions.values.secret import Secret
from tests.fakes.case import case_of, only, told
from tests.fakes.discord.server import discord_server
from tests.fakes.model_script import calls, ok
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.kit import config_for, slack_server
from tests.fakes.telegram.faults import too_many
from tests.fakes.telegram.server import TOKEN, serving

CALLED = calls(("c1", "report_word", '{"word":"ready"}'))


async def visited(case: DoctorContext) -> dict[str, tuple[Finding, ...]]:
    groups = await run_checks([*platform_checks(case), *model_checks(case)], case)
    return {group.name: group.findings for group in groups}


def with_platforms(home: Path, platforms: Mapping[str, Struct]) -> DoctorContext:
    return case_of(home, platforms=dict(platforms))


def telegram_at(url: str, token: str = TOKEN, **more: Any) -> TelegramConfig:
    return TelegramConfig(token=Secret(token), base_url=url, **more)


async def test_all_configured_services_are_probed_concurrently(tmp_path: Path) -> None:
    async with serving() as telegram, discord_server() as discord, slack_server() as slack:
        discord.world.guild(discord.world.user("Ann"))
        telegram.say(1001, "waits, so others are not looked for, which takes seconds")
        found = await visited(
            with_platforms(
                tmp_path,
                {
                    "telegram": telegram_at(telegram.url),
                    "discord": DiscordConfig(token=Secret(discord.token), base_url=discord.url),
                    "slack": config_for(slack),
                },
            )
        )
    assert {name: found[name][0].level for name in ("telegram", "discord", "slack")} == {
        "telegram": "ok",
        "discord": "ok",
        "slack": "ok",
    }
    assert only(found["telegram"], "link").text == "https://t.me/holdfast_bot"
    assert [each for each in found["discord"] if each.level != "ok"] == []


async def test_a_refused_token_shows_where_to_set_another(tmp_path: Path) -> None:
    async with serving() as telegram, slack_server() as slack:
        bad = SlackConfig(bot_token=Secret("x"), app_token=Secret("y"), base_url=slack.url)
        found = await visited(
            with_platforms(
                tmp_path, {"telegram": telegram_at(telegram.url, "1:wrong"), "slack": bad}
            )
        )
    token = only(found["telegram"], "token")
    assert token.level == "fail"
    assert "platforms.telegram.token (TELEGRAM_BOT_TOKEN)" in token.fix
    assert "platforms.slack.bot_token or platforms.slack.app_token" in (
        only(found["slack"], "token").fix
    )


async def test_unreachable_services_and_rate_limits_are_reported(tmp_path: Path) -> None:
    async with serving() as telegram:
        telegram.fail("getMe", too_many(9))
        case = with_platforms(tmp_path, {"telegram": telegram_at(telegram.url)})
        waits = only((await visited(case))["telegram"], "service")
    gone = only((await visited(case))["telegram"], "service")
    assert (waits.level, waits.fix) == ("warn", "Run this again in 9 s.")
    assert (gone.level, "refused" in gone.text) == ("fail", True)


async def test_other_receivers_are_looked_for_only_if_no_gateway_runs(tmp_path: Path) -> None:
    async with serving() as telegram:
        telegram.say(1001, "waits, so that it is known at once")
        case = with_platforms(tmp_path, {"telegram": telegram_at(telegram.url)})
        alone = await visited(case)
        beside = await visited(replace(case, daemon=DaemonInfo(lock_held=True)))
    subjects = [each.subject for each in alone["telegram"]]
    assert "other programs" in subjects
    assert "other programs" not in [each.subject for each in beside["telegram"]]


async def test_without_a_platform_the_report_shows_how_to_add_one(tmp_path: Path) -> None:
    (found,) = (await visited(case_of(tmp_path)))["platforms"]
    assert "TELEGRAM_BOT_TOKEN" in found.text
    assert "SLACK_BOT_TOKEN and SLACK_APP_TOKEN" in found.text


async def test_a_webhook_is_removed_only_with_fix(tmp_path: Path) -> None:
    async with serving() as telegram:
        telegram.webhook = {"url": "https://elsewhere.example/hook"}
        case = with_platforms(tmp_path, {"telegram": telegram_at(telegram.url)})
        groups = await run_checks(list(platform_checks(case)), case)
        assert told(groups[0].problems) == [("fail", "webhook")]
        assert telegram.webhook
        done = await apply_fixes(groups, case)
        assert told(done.findings) == [("ok", "mended")]
        assert "removed the webhook" in done.findings[0].text
        assert not telegram.webhook
        gone = case
    refused = await apply_fixes(groups, gone)
    assert told(refused.findings) == [("warn", "not mended")]
    no_hands: PlatformSpec = replace(case.specs["telegram"], mend=None)
    bare = replace(case, specs={**case.specs, "telegram": no_hands})
    assert told((await apply_fixes(groups, bare)).findings) == [("warn", "not mended")]


async def test_a_model_is_summarized_in_one_line(tmp_path: Path) -> None:
    async with ModelServer(ok("ready"), CALLED) as server:
        settings = ModelSettings(provider="openai", name="scripted", base_url=server.url)
        found = await visited(case_of(tmp_path, model=settings))
    assert found["model"][0].subject == "in short"
    assert found["model"][0].text.startswith("openai/scripted answers in ")
    assert len(found["model"]) == 5


async def test_fallback_models_are_probed(tmp_path: Path) -> None:
    async with ModelServer(ok("ready"), ok("no")) as server, ModelServer() as other:
        other.key = "another"
        spare = TargetSettings(provider="openai", name="scripted", base_url=other.url)
        settings = ModelSettings(
            provider="openai", name="scripted", base_url=server.url, fallback=(spare,)
        )
        found = await visited(case_of(tmp_path, model=settings))
    assert only(found["model"], "tool call").level == "warn"
    assert found["model"][0].subject == "service"  # no summary, because a check failed
    assert only(found["fallback 1"], "key").level == "fail"


async def test_offline_contacts_no_service(tmp_path: Path) -> None:
    async with ModelServer() as server, serving() as telegram:
        settings = ModelSettings(provider="openai", name="scripted", base_url=server.url)
        case = case_of(tmp_path, model=settings, platforms={"telegram": telegram_at(telegram.url)})
        found = await visited(replace(case, offline=True))
        assert telegram.calls == []
        assert server.connections_made == 0
    assert {name: told(each) for name, each in found.items()} == {
        "telegram": [("ok", "telegram")],
        "model": [("ok", "model")],
    }


@pytest.mark.quick
async def test_hanging_services_delay_the_report_by_half_a_minute_at_most(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = TargetSettings(provider="openai", name="m", base_url=f"{url}/v1")
        case = case_of(
            tmp_path,
            {"PATH": str(tmp_path)},
            platforms={
                "telegram": telegram_at(url),
                "discord": DiscordConfig(token=Secret("x"), base_url=url),
                "slack": SlackConfig(
                    bot_token=Secret("x"), app_token=Secret("y"), base_url=f"{url}/api/"
                ),
            },
            model=ModelSettings(
                provider="openai", name="m", base_url=f"{url}/v1", fallback=(slow, slow)
            ),
        )
        loop = asyncio.get_running_loop()
        since = loop.time()
        groups = {group.name: group for group in await run_checks(all_checks(case), case)}
        assert loop.time() - since < 30
    assert "did not answer within" in only(groups["telegram"].findings, "service").text
    assert "did not answer within" in only(groups["discord"].findings, "service").text
    assert groups["slack"].level == "fail"
    assert "no answer within" in only(groups["fallback 2"].findings, "service").text


@pytest.mark.quick
async def test_a_model_that_hangs_after_listing_is_aborted_in_time(tmp_path: Path) -> None:
    async with ModelServer("H HANG") as server:
        settings = ModelSettings(provider="openai", name="scripted", base_url=server.url)
        loop = asyncio.get_running_loop()
        since = loop.time()
        found = await visited(case_of(tmp_path, model=settings))
        assert loop.time() - since < 30
    assert "no answer within" in only(found["model"], "answer").text
