"""Tests of the Discord probe."""

import asyncio
from typing import Any

import pytest

from platforms.core.errors import Unauthorized, Unavailable
from platforms.core.probed import Finding, ProbeResult
from platforms.discord import SPEC, DiscordConfig
from platforms.discord.payloads import invite_link
from platforms.discord.probe import probe
from sessions.values.secret import Secret
from tests.fakes.discord.server import CONTENT_INTENT, TOKEN, DiscordServer, Fault, discord_server


def of(probed: ProbeResult, subject: str) -> list[Finding]:
    return [each for each in probed.findings if each.subject == subject]


def config(server: DiscordServer, token: str = TOKEN) -> DiscordConfig:
    return DiscordConfig(token=Secret(token), base_url=server.url)


async def asked(server: DiscordServer, token: str = TOKEN) -> ProbeResult:
    assert SPEC.probe
    return await SPEC.probe(config(server, token), alone=True)


async def test_probe_of_a_working_bot_reports_its_name_and_no_problem() -> None:
    async with discord_server() as server:
        server.world.guild(server.world.user("Ann"))
        found = await asked(server)
        assert found.name == "Holdfast"
        assert found.handle == "@holdfast"
        assert found.link == invite_link(server.world.bot["id"])
        assert [each for each in found.findings if each.level != "ok"] == []
        assert server.identified == 0  # the probe uses up no gateway connection
        assert all(name.startswith("GET") for name in server.called())


async def test_a_refused_token_is_reported_as_unauthorized() -> None:
    async with discord_server() as server:
        with pytest.raises(Unauthorized, match="does not accept the bot's token"):
            await asked(server, "another-token")


async def test_a_missing_intent_is_reported_with_its_fix() -> None:
    async with discord_server(allowed_intents=~CONTENT_INTENT) as server:
        (found,) = of(await asked(server), "message content")
    assert found.level == "fail"
    assert "discord.com/developers" in found.fix


async def test_the_intent_flag_of_large_bots_is_recognized() -> None:
    class Large(DiscordServer):
        async def _own_application(self, *given: Any) -> Any:
            return await super()._own_application(*given) | {"flags": 1 << 18}

    async with Large(allowed_intents=~CONTENT_INTENT) as server:
        (found,) = of(await asked(server), "message content")
    assert found.level == "ok"


async def test_a_bot_in_no_server_gets_an_invite_link() -> None:
    async with discord_server() as server:
        (found,) = of(await asked(server), "servers")
        assert found.level == "warn"
        assert invite_link(server.world.bot["id"]) in found.fix


async def test_an_interactions_endpoint_url_is_reported() -> None:
    async with discord_server() as server:
        assert not of(await asked(server), "buttons")
        server.interactions_url = "https://elsewhere.example/"
        (found,) = of(await asked(server), "buttons")
    assert found.level == "fail"
    assert "Interactions Endpoint URL" in found.fix


@pytest.mark.parametrize(("left", "level"), [(999, "ok"), (20, "warn"), (0, "fail")])
async def test_few_remaining_connections_are_reported(left: int, level: str) -> None:
    async with discord_server() as server:
        server.starts_left = left
        (found,) = of(await asked(server), "connections")
    assert found.level == level


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(Fault(status=502), "(502, 0)", id="outage"),
        pytest.param(Fault(cut_before=True), "connection", id="connection closed"),
    ],
)
async def test_a_failure_of_discord_is_reported_with_its_reason(fault: Fault, words: str) -> None:
    async with discord_server() as server:
        server.fail("GET me", fault, times=2)
        with pytest.raises(Unavailable) as raised:
            await asked(server)
    assert words in str(raised.value)


async def test_probe_gives_up_after_its_time_limit() -> None:
    async with discord_server() as server:
        server.fail("GET gateway", Fault(gate=asyncio.Event()))
        with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
            await probe(config(server), seconds=0.1)


async def test_a_refused_connection_is_reported() -> None:
    async with discord_server() as server:
        gone = config(server)
    with pytest.raises(Unavailable, match="connection was refused"):
        await probe(gone)


async def test_a_server_that_is_not_discord_is_reported() -> None:
    class Odd(DiscordServer):
        async def _me(self, *_: Any) -> Any:
            return {"hello": "world"}

    async with Odd() as server:
        with pytest.raises(Unavailable, match="is not Discord"):
            await asked(server)
