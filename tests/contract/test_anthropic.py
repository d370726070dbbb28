"""The provider for Anthropic's Messages API against a real server."""

import json
import subprocess
import sys
from functools import partial
from typing import Any

import anthropic
import httpx2
import msgspec
import pytest

from agent import errors
from agent.answer.reasoning_blocks import ReasoningBlocks, encode_reasoning
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    PingChunk,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from agent.providers.anthropic.messages import AnthropicProvider
from sessions.records import Message
from tests.contract import provider_kit
from tests.contract.provider_kit import OPENED, REQUEST, collect, without_pings
from tests.fakes.agent_kit import settings_for
from tests.fakes.model_script import Script, body_of, ok, status
from tests.fakes.model_server import Handler, ModelServer, always

pytestmark = pytest.mark.quick

serving = partial(provider_kit.serving, "anthropic")


# --- answers ---------------------------------------------------------------------------------

BEGUN = UsageChunk(10, 1)


@pytest.mark.parametrize(
    ("script", "chunks"),
    [
        pytest.param(
            'H R"hm" T"Hel" T"lo" F stop U(7,100,60) D',
            [
                UsageChunk(100, 1, cached_tokens=60),
                OpaqueChunk(0, {"type": "thinking", "thinking": "", "signature": ""}),
                ReasoningChunk("hm"),
                OpaqueChunk(0, {"thinking": "hm"}),
                OpaqueChunk(0, {"signature": "signature-0"}),
                TextChunk("Hel"),
                TextChunk("lo"),
                FinishChunk("end_turn"),
                UsageChunk(100, 7, cached_tokens=60),
                DoneChunk(),
            ],
            id="a complete response",
        ),
        pytest.param(
            "H C(0,c1,read,-) C(0,-,-,'{\"path\":') C(0,-,-,'\"a\"}') C(1,c2,read,{}) F tool_calls D",
            [
                UsageChunk(10, 1),
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"path":'),
                CallChunk(0, arguments='"a"}'),
                CallChunk(0, ended=True),
                CallChunk(1, "c2", "read"),
                CallChunk(1, arguments="{}"),
                CallChunk(1, ended=True),
                FinishChunk("tool_use"),
                UsageChunk(10, 5),
                DoneChunk(),
            ],
            id="two calls",
        ),
        pytest.param("H P B P EOF", [BEGUN], id="pings only"),
        pytest.param('H T"a" EOF', [BEGUN, TextChunk("a")], id="end of body without end marker"),
        pytest.param(
            'H T"a" D HANG', [BEGUN, TextChunk("a"), DoneChunk()], id="open after the end marker"
        ),
        pytest.param(
            'H T"a" D RST', [BEGUN, TextChunk("a"), DoneChunk()], id="reset after the end marker"
        ),
    ],
)
async def test_the_stream_is_converted_to_chunks(script: str, chunks: list[Chunk]) -> None:
    async with serving(script) as (provider, server):
        assert without_pings(await collect(provider)) == [OPENED, *chunks]
        assert len(server.requests) == 1


async def test_every_ping_is_passed_on() -> None:
    async with serving("H [P]*5 EOF") as (provider, _):
        assert (await collect(provider)).count(PingChunk(beat=True)) == 5


# --- comparison with the SDK -----------------------------------------------------------------

RECORDED = 'H R"hm, ä" P T"Hel" T"lo 🙂" C(0,c1,read,-) C(0,-,-,\'{"pa\') C(0,-,-,\'th":"ß"}\') '
RECORDED += 'C(1,c2,read,{"path":"b"}) F tool_calls U(7,100,60) D'


async def sdk_reads(raw: bytes) -> list[tuple[str, ...]]:
    """Return the content that the SDK's own iterator reads from a recorded body."""

    async def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": "text/event-stream"})

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    read: list[tuple[str, ...]] = []
    async with anthropic.AsyncAnthropic(api_key="x", http_client=http) as client:
        async for event in await client.messages.create(
            model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}], stream=True
        ):
            read += sdk_says(event)
    return read


def sdk_says(event: Any) -> list[tuple[str, ...]]:
    match event.type:
        case "content_block_start" if event.content_block.type == "tool_use":
            return [("call", event.content_block.id, event.content_block.name)]
        case "content_block_delta":
            (said,) = (v for k, v in event.delta if k != "type")
            return [(event.delta.type, said)]
        case "message_delta":
            return [("finish", event.delta.stop_reason, str(event.usage.output_tokens))]
        case "message_stop":
            return [("done",)]
        case _:
            return []


def we_say(chunks: list[Chunk]) -> list[tuple[str, ...]]:
    said: list[tuple[str, ...]] = []
    for at, chunk in enumerate(chunks):
        match chunk:
            case TextChunk(text):
                said.append(("text_delta", text))
            case ReasoningChunk(text):
                said.append(("thinking_delta", text))
            case OpaqueChunk(_, {"signature": str(signature)}) if signature:
                said.append(("signature_delta", signature))
            case CallChunk(id=str(call_id), name=str(name)):
                said.append(("call", call_id, name))
            case CallChunk(arguments=str(piece)):
                said.append(("input_json_delta", piece))
            case FinishChunk(reason):
                usage = chunks[at + 1]
                assert isinstance(usage, UsageChunk)
                said.append(("finish", reason, str(usage.output_tokens)))
            case DoneChunk():
                said.append(("done",))
            case _:
                pass
    return said


async def test_the_content_matches_that_of_the_sdk() -> None:
    async with serving(RECORDED) as (provider, _):
        ours = we_say(await collect(provider))
    theirs = await sdk_reads(body_of(RECORDED, "anthropic"))
    assert ours == theirs
    assert len(ours) == 11


# --- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param('S400"credit balance is too low"', errors.OutOfCredit, "low", id="credit"),
        pytest.param('H E529"busy" EOF', errors.Overloaded, "busy", id="overloaded inside"),
        pytest.param('H E429"slow" EOF', errors.RateLimited, "slow", id="rate limit inside"),
        pytest.param('H E401"no" EOF', errors.ApiKeyRejected, "no", id="key rejected inside"),
    ],
)
async def test_an_error_of_this_protocol_is_a_provider_error_and_nothing_is_retried(
    script: str, error: type[errors.ProviderError], words: str
) -> None:
    async with serving(script) as (provider, server):
        with pytest.raises(error, match=words) as raised:
            await collect(provider)
        assert type(raised.value) is error
        assert len(server.requests) == 1


@pytest.mark.parametrize("place", ['S400"{}"', 'H E400"{}" EOF'], ids=["status", "stream"])
async def test_limits_are_read_from_error_messages(place: str) -> None:
    long = place.format("prompt is too long: 210000 tokens > 200000 maximum")
    much = place.format("max_tokens: 999999 > 64000, which is the maximum allowed number")
    async with serving(long, much) as (provider, _):
        with pytest.raises(errors.ContextTooLong) as too_long:
            await collect(provider)
        with pytest.raises(errors.OutputTooLong) as too_much:
            await collect(provider)
    assert (too_long.value.limit, too_much.value.limit) == (200_000, 64_000)


# --- requests --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_request_has_the_required_headers_for_every_base_url(ending: str) -> None:
    async with ModelServer(ok("x")) as server:
        settings = settings_for("anthropic", server.url.removesuffix("/v1") + ending)
        provider = AnthropicProvider(settings)
        await collect(provider)
        await provider.aclose()
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["anthropic-version"]
    assert "anthropic-beta" not in request.headers
    assert "sk-test" in {
        request.headers.get("x-api-key"),
        request.headers.get("authorization", "").removeprefix("Bearer "),
    }
    assert (request.system, request.last_user_text) == ("Be kind.", "hello")
    assert request.tools == {"read": {"type": "object"}}
    assert request.body["tools"][0]["eager_input_streaming"] is True
    assert request.max_tokens == 8192


async def test_the_environment_does_not_change_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer(ok("x")) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-other")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other")
        settings = msgspec.structs.replace(settings_for("anthropic", server.url), api_key=None)
        provider = AnthropicProvider(settings)
        await collect(provider)
        await provider.aclose()
        assert not any("other" in value for value in server.requests[0].headers.values())
        official = AnthropicProvider(msgspec.structs.replace(settings, base_url=None))
        with official._clients.lease() as client:
            assert client.base_url.host == "api.anthropic.com"
        await official.aclose()


def refusing(*fields: str) -> Handler:
    """A server that rejects requests with certain fields and names the first of them."""

    def answer(body: dict[str, Any]) -> Script:
        written = json.dumps(body)
        unknown = next((field for field in fields if f'"{field}"' in written), None)
        return ok("fine") if unknown is None else (status(400, message=f"{unknown}: unknown"),)

    return answer


@pytest.mark.parametrize(
    "fields",
    [
        ("eager_input_streaming",),
        ("cache_control",),
        ("thinking",),
        ("eager_input_streaming", "cache_control", "output_config", "thinking", "temperature"),
    ],
    ids="+".join,
)
async def test_unsupported_features_are_omitted_and_remembered(
    fields: tuple[str, ...],
) -> None:
    request = msgspec.structs.replace(REQUEST, reasoning_effort="high", temperature=0.5)
    async with serving(refusing(*fields)) as (provider, server):
        assert TextChunk("fine") in await collect(provider, request)
        first = len(server.requests)
        assert 2 <= first <= 1 + len(fields) * 2
        assert TextChunk("fine") in await collect(provider, request)
        assert len(server.requests) == first + 1
        last = json.dumps(server.requests[-1].body)
        assert not any(f'"{field}"' in last for field in fields)


async def test_an_adaptive_model_gets_an_effort_instead_of_a_budget() -> None:
    def newer(body: dict[str, Any]) -> Script:
        if body["thinking"]["type"] == "enabled":
            said = '"thinking.type.enabled" is not supported. Use "thinking.type.adaptive"'
            return (status(400, message=said),)
        return ok("fine")

    request = msgspec.structs.replace(REQUEST, reasoning_effort="high")
    async with serving(newer) as (provider, server):
        assert TextChunk("fine") in await collect(provider, request)
        assert server.requests[-1].body["output_config"] == {"effort": "high"}


async def test_rejected_thinking_is_omitted_only_in_its_conversation() -> None:
    def answer(body: dict[str, Any]) -> Script:
        if "stale" in json.dumps(body):
            said = "messages.1.content.0: Invalid `signature` in `thinking` block"
            return (status(400, message=said),)
        return ok("fine")

    def conversation(signature: str) -> ModelRequest:
        part = {"type": "thinking", "thinking": "Hm.", "signature": signature}
        row = encode_reasoning(ReasoningBlocks("anthropic/scripted", parts=(part,)))
        said = Message("assistant", "Hello.", reasoning=row)
        return msgspec.structs.replace(
            REQUEST, messages=(*REQUEST.messages, said, Message("user", "x"))
        )

    async with serving(answer) as (provider, server):
        for signature in ("stale", "fresh"):
            assert TextChunk("fine") in await collect(provider, conversation(signature))
        sent = [len(request.body["messages"][1]["content"]) for request in server.requests]
        assert sent == [2, 1, 2]


async def test_the_request_asks_to_drop_thinking_whose_prefix_has_changed() -> None:
    request = msgspec.structs.replace(REQUEST, model="claude-sonnet-5-5")
    async with serving(ok("x")) as (provider, server):
        await collect(provider, request)
        (received,) = server.requests
    assert received.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    assert received.body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}


async def test_an_error_without_a_simpler_request_is_final() -> None:
    async with serving(always((status(400, message="cache_control, temperature: bad"),))) as (
        provider,
        server,
    ):
        for _ in range(2):
            with pytest.raises(errors.BadRequest):
                await collect(provider)
        assert len(server.requests) == 4
        assert "cache_control" in server.requests[2].body


# --- connections -----------------------------------------------------------------------------


def test_the_sdk_is_imported_only_when_the_provider_is_built() -> None:
    code = (
        "import sys, agent.providers.registry, agent.providers.anthropic.request, "
        "agent.providers.anthropic.wire; print('anthropic' in sys.modules); "
        "from agent.settings import TargetSettings; "
        "agent.providers.registry.build_provider(TargetSettings(provider='anthropic')); "
        "print('anthropic' in sys.modules, 'openai' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=20
    ).stdout.split()
    assert shown == ["False", "True", "False"]
