"""What is found out about a bot of Discord without connecting it."""

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


async def test_a_bot_that_works_is_named_and_nothing_is_wrong() -> None:
    async with discord_server() as server:
        server.world.guild(server.world.user("Ann"))
        found = await asked(server)
        assert found.name == "Holdfast"
        assert found.handle == "@holdfast"
        assert found.link == invite_link(server.world.bot["id"])
        assert [each for each in found.findings if each.level != "ok"] == []
        assert server.identified == 0  # no connection is used up
        assert all(name.startswith("GET") for name in server.called())


async def test_a_refused_token_is_no_matter_of_the_network() -> None:
    async with discord_server() as server:
        with pytest.raises(Unauthorized, match="does not accept the bot's token"):
            await asked(server, "another-token")


async def test_without_the_intent_it_says_where_to_switch_it_on() -> None:
    async with discord_server(allowed_intents=~CONTENT_INTENT) as server:
        (found,) = of(await asked(server), "message content")
    assert found.level == "fail"
    assert "discord.com/developers" in found.fix


async def test_a_large_bot_is_granted_the_intent_by_another_flag() -> None:
    class Large(DiscordServer):
        async def _own_application(self, *given: Any) -> Any:
            return await super()._own_application(*given) | {"flags": 1 << 18}

    async with Large(allowed_intents=~CONTENT_INTENT) as server:
        (found,) = of(await asked(server), "message content")
    assert found.level == "ok"


async def test_a_bot_in_no_server_gets_the_link_that_lets_it_in() -> None:
    async with discord_server() as server:
        (found,) = of(await asked(server), "servers")
        assert found.level == "warn"
        assert invite_link(server.world.bot["id"]) in found.fix


async def test_buttons_that_go_elsewhere_are_found() -> None:
    async with discord_server() as server:
        assert not of(await asked(server), "buttons")
        server.interactions_url = "https://elsewhere.example/"
        (found,) = of(await asked(server), "buttons")
    assert found.level == "fail"
    assert "Interactions Endpoint URL" in found.fix


@pytest.mark.parametrize(("left", "level"), [(999, "ok"), (20, "warn"), (0, "fail")])
async def test_how_often_it_may_still_connect_is_looked_at(left: int, level: str) -> None:
    async with discord_server() as server:
        server.starts_left = left
        (found,) = of(await asked(server), "connections")
    assert found.level == level


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(Fault(status=502), "(502, 0)", id="it is down"),
        pytest.param(Fault(cut_before=True), "connection", id="it hangs up"),
    ],
)
async def test_when_discord_does_not_answer_well_the_reason_is_told(
    fault: Fault, words: str
) -> None:
    async with discord_server() as server:
        server.fail("GET me", fault, times=2)
        with pytest.raises(Unavailable) as raised:
            await asked(server)
    assert words in str(raised.value)


async def test_it_waits_for_no_answer_longer_than_told() -> None:
    async with discord_server() as server:
        server.fail("GET gateway", Fault(gate=asyncio.Event()))
        with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
            await probe(config(server), seconds=0.1)


async def test_where_nothing_listens_the_reason_is_told() -> None:
    async with discord_server() as server:
        gone = config(server)
    with pytest.raises(Unavailable, match="connection was refused"):
        await probe(gone)


async def test_what_is_no_discord_is_told() -> None:
    class Odd(DiscordServer):
        async def _me(self, *_: Any) -> Any:
            return {"hello": "world"}

    async with Odd() as server:
        with pytest.raises(Unavailable, match="is not Discord"):
            await asked(server)
