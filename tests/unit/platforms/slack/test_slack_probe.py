"""Findings about a Slack app, made without connecting it."""

import asyncio
from typing import Any

import pytest

from platforms.core.errors import Unauthorized, Unavailable
from platforms.core.probed import Finding, ProbeResult
from platforms.slack import SPEC
from platforms.slack.probe import probe
from sessions.values.secret import Secret
from tests.fakes.slack.kit import config_for, slack_server
from tests.fakes.slack.server import Fault, SlackServer


def of(probed: ProbeResult, subject: str) -> list[Finding]:
    return [each for each in probed.findings if each.subject == subject]


async def asked(server: SlackServer, **changes: Any) -> ProbeResult:
    assert SPEC.probe
    return await SPEC.probe(config_for(server, **changes), alone=True)


async def test_an_app_that_works_is_named_and_nothing_is_wrong() -> None:
    async with slack_server() as slack:
        found = await asked(slack)
        assert (found.name, found.handle) == ("holdfast", "@holdfast")
        assert found.link.startswith("slack://user?team=T")
        assert "Acme" in of(found, "token")[0].text
        assert [each for each in found.findings if each.level != "ok"] == []
        assert slack.connections == 0
        assert [method for method, _ in slack.calls] == ["auth.test", "apps.connections.open"]


async def test_the_refused_token_is_named() -> None:
    async with slack_server() as slack:
        with pytest.raises(Unauthorized) as bot:
            await asked(slack, bot_token=Secret("xoxb-another"))
        with pytest.raises(Unauthorized, match="Slack refused the app token"):
            await asked(slack, app_token=Secret("xapp-another"))
    assert "app token" not in str(bot.value)


async def test_missing_scopes_are_named_with_a_fix() -> None:
    async with slack_server() as slack:
        slack.workspace.scopes -= {"files:write", "im:history"}
        (found,) = of(await asked(slack), "scopes")
    assert found.level == "fail"
    assert "files:write, im:history" in found.text
    assert "slack-manifest" in found.fix


async def test_an_answer_without_scopes_gives_no_finding() -> None:
    class Silent(SlackServer):
        async def _answer(self, *given: Any) -> Any:
            answer = await super()._answer(*given)
            answer.headers.popall("x-oauth-scopes", None)
            return answer

    async with Silent() as slack:
        assert of(await asked(slack), "scopes") == []


async def test_an_app_token_without_its_scope_is_reported() -> None:
    async with slack_server() as slack:
        slack.app_scopes = ""
        (found,) = of(await asked(slack), "events")
    assert (found.level, "connections:write" in found.text) == ("fail", True)


async def test_an_app_without_socket_mode_is_reported() -> None:
    async with slack_server() as slack:
        slack.fail("apps.connections.open", Fault(error="access_denied"))
        (found,) = of(await asked(slack), "events")
    assert found.level == "fail"
    assert "Switch Socket Mode on" in found.fix


async def test_http_mode_asks_for_no_connection() -> None:
    async with slack_server() as slack:
        (found,) = of(await asked(slack, mode="http", app_token=None), "events")
        assert found.level == "ok"
        assert [method for method, _ in slack.calls] == ["auth.test"]


async def test_the_token_of_a_person_is_reported() -> None:
    async with slack_server() as slack:
        slack.workspace.token_of_app = False
        (found,) = of(await asked(slack), "token")
    assert found.level == "fail"
    assert "xoxb" in found.fix


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(Fault(status=503), "503", id="unavailable"),
        pytest.param(Fault(page=True), "Slack", id="web page"),
        pytest.param(Fault(drop="before"), "Slack", id="cut"),
        pytest.param(
            Fault(status=429, error="ratelimited", retry_after=3), "rate-limited", id="rate limit"
        ),
    ],
)
async def test_a_failing_slack_is_reported_with_the_reason(fault: Fault, words: str) -> None:
    async with slack_server() as slack:
        slack.fail("auth.test", fault, fault)
        slack.workspace.forbid = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match=words):
            await asked(slack)


async def test_the_probe_ends_at_its_timeout() -> None:
    gate = asyncio.Event()
    async with slack_server() as slack:
        slack.fail("auth.test", Fault(gate=gate))
        with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
            await probe(config_for(slack), seconds=0.1)
        gate.set()


async def test_an_unreachable_server_is_reported() -> None:
    async with slack_server() as slack:
        gone = config_for(slack)
    with pytest.raises(Unavailable, match="connection was refused"):
        await probe(gone)


async def test_a_server_that_is_not_slack_is_reported() -> None:
    async with slack_server() as slack:
        slack.workspace.carry_out = lambda *_: {}  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="is not Slack"):
            await asked(slack)
