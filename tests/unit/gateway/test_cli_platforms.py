"""The commands that prepare Discord and Slack."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli.config import config
from platforms.core.errors import Unavailable
from platforms.discord.invite import fetch_invite_link
from platforms.discord.payloads import invite_link
from tests.fakes.discord.server import TOKEN, DiscordServer, Fault, discord_server

PATIENCE = 10.0


def ask(folder: Path, *words: str, **environ: str) -> Any:
    """Run a command with no other variables than `environ`."""
    given: dict[str, str | None] = {
        "HOME": str(folder),
        "HOLDFAST_HOME": str(folder / "state"),
        "HOLDFAST_CONFIG": None,
        "DISCORD_BOT_TOKEN": None,
        **environ,
    }
    return CliRunner().invoke(config, words, env=given)


async def invited(server: DiscordServer, folder: Path, token: str = TOKEN) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(
            ask,
            folder,
            "discord-invite",
            "--set",
            f"platforms.discord.base_url={server.url}",
            DISCORD_BOT_TOKEN=token,
        )


# --- Discord ---------------------------------------------------------------------------------


async def test_the_invite_link_belongs_to_the_tokens_application(tmp_path: Path) -> None:
    async with discord_server() as server:
        found = await invited(server, tmp_path)
        assert found.output == invite_link(server.world.bot["id"]) + "\n"
        assert server.called() == ["GET app"]


async def test_an_invalid_token_is_a_configuration_error(tmp_path: Path) -> None:
    async with discord_server() as server:
        found = await invited(server, tmp_path, "another-token")
    assert isinstance(found.exception, ConfigError)
    assert "does not accept the bot's token" in str(found.exception)
    assert "another-token" not in str(found.exception)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(Fault(status=502), "(502, 0)", id="it is down"),
        pytest.param(Fault(status=429, retry_after=1.0), "(429, 0)", id="it has had enough of us"),
        pytest.param(Fault(cut_before=True), "connection to Discord broke", id="it hangs up"),
    ],
)
async def test_an_error_of_discord_is_reported_in_one_sentence(
    tmp_path: Path, fault: Fault, words: str
) -> None:
    async with discord_server() as server:
        # The library retries a broken connection once, because the request changes nothing.
        server.fail("GET app", fault, times=2)
        found = await invited(server, tmp_path)
    assert isinstance(found.exception, CannotStart)
    assert words in str(found.exception)


async def test_a_hanging_discord_is_aborted() -> None:
    async with discord_server() as server:
        server.fail("GET app", Fault(gate=asyncio.Event()))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
                await fetch_invite_link(TOKEN, server.url, seconds=0.05)


@pytest.mark.parametrize(
    "answer",
    [{}, {"id": None}, {"id": 12}, {"id": "1&scope=all"}, ["12"]],
    ids=["nothing", "null", "a number", "more than a number", "a list"],
)
async def test_an_invalid_application_gives_no_link(answer: Any) -> None:
    class Odd(DiscordServer):
        async def _application(self, *_: Any) -> Any:
            return answer

    async with Odd() as server, asyncio.timeout(PATIENCE):
        with pytest.raises(Unavailable, match="does not name the application"):
            await fetch_invite_link(TOKEN, server.url)


def test_a_missing_token_is_named(tmp_path: Path) -> None:
    found = ask(tmp_path, "discord-invite")
    assert isinstance(found.exception, ConfigError)
    assert "DISCORD_BOT_TOKEN" in str(found.exception)


# --- Slack -----------------------------------------------------------------------------------


def test_a_socket_mode_manifest_contains_no_url(tmp_path: Path) -> None:
    made = json.loads(ask(tmp_path, "slack-manifest").output)
    assert made["display_information"]["name"] == "Holdfast"
    assert made["settings"]["socket_mode_enabled"] is True
    assert "https://" not in json.dumps(made)


def test_a_manifest_accepts_a_name_and_a_url(tmp_path: Path) -> None:
    url = "https://bot.example.org/slack/events"
    made = json.loads(ask(tmp_path, "slack-manifest", "--name", "Bob", "--url", url).output)
    assert made["features"]["bot_user"]["display_name"] == "Bob"
    assert made["settings"]["event_subscriptions"]["request_url"] == url
    assert made["settings"]["socket_mode_enabled"] is False


def test_an_unencrypted_url_is_refused(tmp_path: Path) -> None:
    found = ask(tmp_path, "slack-manifest", "--url", "http://bot.example.org/slack/events")
    assert found.exit_code == 2
    assert "https://" in found.output


@pytest.mark.parametrize(
    ("command", "library"), [("discord-invite", "discord"), ("slack-manifest", "slack_sdk")]
)
def test_a_missing_platform_package_is_named(
    tmp_path: Path, command: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = command.partition("-")[0]
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"platforms.{platform}")
    found = ask(tmp_path, command)
    assert isinstance(found.exception, CannotStart)
    assert f"needs {library}, which is not installed" in str(found.exception)
    assert f"holdfast[{platform}]" in str(found.exception)
