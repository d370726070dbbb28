"""Probe of a configured model."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.probe import ProbedModel, ProbeTimeouts, probe_model
from agent.settings import ProviderName, TargetSettings
from sessions.values.finding import Finding
from sessions.values.secret import Secret
from tests.fakes.agent_kit import LoopClock
from tests.fakes.certificates import certified
from tests.fakes.model_script import calls, ok, status
from tests.fakes.model_server import ModelServer

CALLED = calls(("c1", "report_word", '{"word":"ready"}'))
PROTOCOLS: tuple[ProviderName, ...] = ("openai", "openai-responses", "anthropic")


def settings(server: ModelServer, **more: Any) -> TargetSettings:
    given: dict[str, Any] = {"provider": "openai", "name": "scripted", "base_url": server.url}
    return TargetSettings(**{**given, "api_key": Secret("k"), **more})


async def asked(given: TargetSettings, **more: Any) -> ProbedModel:
    async with asyncio.timeout(30):
        return await probe_model(given, clock=LoopClock(), **more)


def of(probed: ProbedModel, subject: str) -> Finding:
    (found,) = (each for each in probed.findings if each.subject == subject)
    return found


@pytest.mark.parametrize("provider", PROTOCOLS)
async def test_a_working_model_passes_all_checks(
    provider: ProviderName,
) -> None:
    async with ModelServer(ok("ready"), CALLED) as server:
        found = await asked(settings(server, provider=provider))
    subjects = [each.subject for each in found.findings]
    assert subjects == ["service", "key", "model", "answer", "tool call"]
    assert [each for each in found.findings if each.level != "ok"] == []
    assert (found.name, found.offered, found.works) == ("scripted", ("scripted",), True)
    timed = [each.subject for each in found.findings if each.seconds is not None]
    assert timed == ["service", "answer", "tool call"]


async def test_requests_are_small_and_limited_to_the_wanted_checks() -> None:
    async with ModelServer(ok("ready"), CALLED) as server:
        await asked(settings(server), request_answers=False)
        assert server.requests == []
        await asked(settings(server, max_output_tokens=64))
    first, second = server.requests
    assert (first.max_tokens, first.stream, first.tools) == (64, True, {})
    assert list(second.tools) == ["report_word"]
    assert len(first.raw) < 1000


async def test_a_rejected_key_is_reported_with_its_settings() -> None:
    async with ModelServer() as server:
        server.key = "another"
        found = await asked(settings(server))
    (key,) = found.findings
    assert (key.subject, key.level) == ("key", "fail")
    assert "OPENAI_API_KEY" in key.fix
    assert not found.works


async def test_a_key_rejected_only_by_the_answer_request_is_reported() -> None:
    async with ModelServer((status(401, message="no such key"),)) as server:
        found = await asked(settings(server))
    assert (found.findings[-1].subject, found.findings[-1].level) == ("key", "fail")


async def test_an_unlisted_model_is_reported_with_the_nearest_names_first() -> None:
    models = ("alpha", "scripted-2", "zeta", *(f"more-{number}" for number in range(20)))
    async with ModelServer((status(404, message="no such model"),), models=models) as server:
        found = await asked(settings(server))
    model = of(found, "model")
    assert model.level == "warn"
    assert model.fix.startswith("Set model.name to one of: scripted-2, alpha, zeta")
    assert "and 11 more" in model.fix
    assert of(found, "answer").level == "fail"


async def test_without_a_name_the_only_listed_model_is_used() -> None:
    async with ModelServer(ok("ready"), CALLED) as server:
        found = await asked(settings(server, name=None))
    assert (found.name, found.works) == ("scripted", True)


async def test_without_a_name_the_first_of_several_listed_models_is_used() -> None:
    async with ModelServer(ok("ready"), CALLED, models=("one", "two")) as server:
        found = await asked(settings(server, name=None))
    assert (found.name, found.offered) == ("one", ("one", "two"))
    assert of(found, "model").level == "warn"
    assert "one, two" in of(found, "model").fix


async def test_a_service_without_a_model_list_is_still_probed() -> None:
    async with ModelServer(ok("ready"), CALLED) as server:
        url = server.url.replace("/v1", "/other/v1")
        found = await asked(settings(server, base_url=url))
    assert "does not list its models" in of(found, "service").text
    assert found.works


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(ok("I cannot."), "does not call tools", id="text instead"),
        pytest.param(
            (status(400, message="this model does not support tools"),),
            "support tools",
            id="tools not supported",
        ),
        pytest.param(
            calls(("c", "report_word", '{"word"')), "incomplete JSON", id="truncated call"
        ),
    ],
)
async def test_missing_tool_calls_are_only_a_warning(script: Any, words: str) -> None:
    async with ModelServer(ok("ready"), script) as server:
        found = await asked(settings(server))
    tool = of(found, "tool call")
    assert (tool.level, found.works) == ("warn", True)
    assert words in tool.text
    assert "tools.enabled" in tool.fix


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("H EOF", "ended without an answer", id="no answer"),
        pytest.param(ok(" "), "the answer was empty", id="empty"),
        pytest.param("H F content_filter U D EOF", "declined", id="content filter"),
        pytest.param((status(500, message="oops"),), "service failed", id="server error"),
        pytest.param(
            (status(402, message="insufficient_quota"),), "no credit left", id="no_credit"
        ),
        pytest.param((status(429, message="rate limit"),), "limits the rate", id="rate_limited"),
        pytest.param("H HANG", "no answer within", id="silence"),
    ],
)
async def test_a_failed_answer_is_reported_and_skips_the_tool_check(
    script: Any, words: str
) -> None:
    async with ModelServer(script) as server:
        found = await asked(settings(server), timeouts=ProbeTimeouts(answer=0.3))
        assert len(server.requests) == 1
    answer = of(found, "answer")
    assert words in answer.text
    assert answer.level != "ok"
    assert answer.fix


async def test_an_unstreamed_answer_is_reported() -> None:
    whole = status(200, {"content-type": "application/json"}, "")
    body = b'{"id":"1","choices":[{"message":{"role":"assistant","content":"ready"},"finish_reason":"stop"}]}'
    async with ModelServer((type(whole)(200, whole.headers, body),), CALLED) as server:
        found = await asked(settings(server))
    assert "in one piece" in of(found, "answer").text


async def test_a_refused_connection_is_reported() -> None:
    async with ModelServer() as server:
        gone = settings(server)
    found = await asked(gone)
    (service,) = found.findings
    assert (service.subject, service.level) == ("service", "fail")
    assert "connection was refused" in service.text


async def test_an_unknown_host_name_is_reported() -> None:
    async with ModelServer() as server:
        found = await asked(settings(server, base_url="http://nowhere.invalid/v1"))
    assert "(DNS)" in of(found, "service").text


async def test_an_untrusted_certificate_is_reported(tmp_path: Path) -> None:
    theirs, _ = certified(tmp_path, "127.0.0.1")
    listening = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs
    )
    async with ModelServer() as server, listening:
        port = listening.sockets[0].getsockname()[1]
        found = await asked(settings(server, base_url=f"https://127.0.0.1:{port}/v1"))
    assert "certificate is not trusted" in of(found, "service").text


async def test_a_silent_service_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        given = TargetSettings(provider="openai", name="m", base_url=url)
        found = await asked(given, timeouts=ProbeTimeouts(list=0.2))
    assert "no answer within 0.2 s" in of(found, "service").text


async def test_the_demo_model_needs_no_request() -> None:
    found = await asked(TargetSettings())
    assert (found.label, found.works) == ("demo", True)


async def test_an_unknown_or_missing_provider_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = TargetSettings(provider="elsewhere")
    found = await asked(unknown)
    assert "no model provider 'elsewhere'" in of(found, "service").text
    monkeypatch.setitem(sys.modules, "anthropic", None)
    for name in ("messages", "clients"):
        monkeypatch.delitem(sys.modules, f"agent.providers.anthropic.{name}", raising=False)
    found = await asked(TargetSettings(provider="anthropic", api_key=Secret("k")))
    assert "holdfast[anthropic]" in of(found, "service").fix
