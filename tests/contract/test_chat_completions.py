"""The provider for the Chat Completions API against a real server."""

import asyncio
from functools import partial

import msgspec
import pytest

from agent import errors
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    PingChunk,
    Provider,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
    WholeChunk,
)
from agent.providers.openai.chat import OpenAIChat, build
from agent.settings import TargetSettings
from tests.contract import provider_kit
from tests.contract.provider_kit import OPENED, REQUEST, collect
from tests.fakes.agent_kit import openai_settings
from tests.fakes.model_script import End, Head, Raw, Script, ok, status
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

serving = partial(provider_kit.serving, "chat")


@pytest.mark.parametrize(
    ("script", "chunks"),
    [
        pytest.param(
            'H R"hm" T"Hel" T"lo" F stop U(7) D',
            [
                ReasoningChunk("hm"),
                TextChunk("Hel"),
                TextChunk("lo"),
                FinishChunk("stop"),
                UsageChunk(10, 7, alone=True),
                DoneChunk(),
            ],
            id="a complete response",
        ),
        pytest.param(
            "H C(0,c1,read,-) C(0,-,-,'{\"path\":') C(0,-,-,'\"a\"}') F tool_calls D",
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, None, name=None, arguments='{"path":'),
                CallChunk(0, None, name=None, arguments='"a"}'),
                FinishChunk("tool_calls"),
                DoneChunk(),
            ],
            id="a call in deltas",
        ),
        pytest.param("H P B EOF", [PingChunk(beat=True), PingChunk()], id="pings only"),
        pytest.param('H T"a" EOF', [TextChunk("a")], id="end of body without end marker"),
        pytest.param(
            'H T"a" D HANG', [TextChunk("a"), DoneChunk()], id="open after the end marker"
        ),
        pytest.param(
            'H T"a" D RST', [TextChunk("a"), DoneChunk()], id="reset after the end marker"
        ),
        pytest.param(
            'H X"\ufeffdata:{\\"choices\\":[{\\"delta\\":{\\"content\\":\\"ä\\"}}]}\r\n\r\n" EOF',
            [TextChunk("ä")],
            id="byte order mark, no space, CRLF",
        ),
        pytest.param(
            'H X"data: {\\"choices\\":[{\\"delta\\":{\\"content\\":\\"a\\"}}]}" EOF',
            [TextChunk("a")],
            id="a last event without its blank line",
        ),
    ],
)
async def test_the_stream_is_converted_to_chunks(script: str, chunks: list[Chunk]) -> None:
    async with serving(script) as (provider, server):
        assert await collect(provider) == [OPENED, *chunks]
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param(
            'H J{"error":"connection lost"} EOF',
            errors.ConnectionLost,
            "lost",
            id="a network error",
        ),
        pytest.param('H J{"error":"odd"} EOF', errors.BadRequest, "odd", id="an error as an event"),
        pytest.param('S413"too big"', errors.ContextTooLong, "too big", id="413"),
        pytest.param(
            'S400"max_tokens: 9 > 5"', errors.OutputTooLong, "9 > 5", id="output limit too high"
        ),
        pytest.param(
            'S400"Streaming is not supported"',
            errors.CannotStream,
            "Stream",
            id="streaming unsupported",
        ),
    ],
)
async def test_an_error_of_this_protocol_is_a_provider_error_and_nothing_is_retried(
    script: str, error: type[errors.ProviderError], words: str
) -> None:
    async with serving(script) as (provider, server):
        with pytest.raises(error, match=words):
            await collect(provider)
        assert len(server.requests) == 1


async def test_the_request_has_the_required_fields() -> None:
    async with serving(ok("x")) as (provider, server):
        await collect(provider)
        (request,) = server.requests
        assert (request.method, request.path) == ("POST", "/v1/chat/completions")
        assert request.headers["authorization"] == "Bearer sk-test"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["content-type"] == "application/json"
        assert request.body["messages"] == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hello"},
        ]


async def test_rejected_stream_options_are_omitted() -> None:
    def picky(body: dict[str, object]) -> Script:
        if "stream_options" in body:
            return (status(400, message="Unknown field: stream_options"),)
        return ok("fine")

    async with serving(picky) as (provider, server):
        for _ in range(2):
            assert TextChunk("fine") in await collect(provider)
        asked = ["stream_options" in request.body for request in server.requests]
        assert asked == [True, False, False]


async def test_a_response_without_streaming_is_requested_and_read() -> None:
    request = msgspec.structs.replace(REQUEST, stream=False)
    script = 'H R"hm" T"Hello" C(0,c1,read,{"path":"a"}) F tool_calls U(7,20,4) D'
    async with serving(script) as (provider, server):
        chunks = await collect(provider, request)
        assert not server.requests[0].body.keys() & {"stream", "stream_options"}
    assert [chunk for chunk in chunks if not isinstance(chunk, PingChunk)] == [
        OPENED,
        WholeChunk(),
        ReasoningChunk("hm"),
        TextChunk("Hello"),
        CallChunk(None, "c1", name="read", arguments='{"path":"a"}'),
        FinishChunk("tool_calls"),
        UsageChunk(20, 7, cached_tokens=4),
        DoneChunk(),
    ]


async def test_a_json_response_to_a_streaming_request_is_read() -> None:
    whole = '{"choices":[{"message":{"content":"all"},"finish_reason":"stop"}]}'
    async with serving((Head(bare=True), Raw(whole.encode()), End())) as (provider, _):
        chunks = await collect(provider)
    assert chunks[:3] == [OPENED, PingChunk(), WholeChunk()]
    assert chunks[3:] == [TextChunk("all"), FinishChunk("stop"), DoneChunk()]


async def test_an_error_after_the_finish_reason_is_raised_after_it() -> None:
    seen: list[Chunk] = []

    async def read(provider: Provider) -> None:
        async with asyncio.timeout(5), provider.stream(REQUEST) as chunks:
            async for chunk in chunks:
                seen.append(chunk)  # noqa: PERF401 - what came before the error is kept

    async with serving('H T"all" F stop RST') as (provider, _):
        with pytest.raises(errors.ConnectionLost):
            await read(provider)
    assert seen == [OPENED, TextChunk("all"), FinishChunk("stop")]


async def test_the_output_limit_is_renamed_when_a_service_asks_for_it() -> None:
    def picky(body: dict[str, object]) -> Script:
        if "max_tokens" in body:
            return (status(400, message="'max_tokens': use 'max_completion_tokens' instead."),)
        return ok("fine")

    async with serving(picky) as (provider, server):
        request = msgspec.structs.replace(REQUEST, max_output_tokens=9)
        assert TextChunk("fine") in await collect(provider, request)
        assert server.requests[1].body["max_completion_tokens"] == 9


async def test_the_official_service_gets_the_output_limit_by_its_newer_name() -> None:
    provider = build(TargetSettings(provider="openai", base_url="https://api.openai.com/v1"))
    request = msgspec.structs.replace(REQUEST, max_output_tokens=9)
    assert b'"max_completion_tokens":9' in provider._protocol.encode_request(request, frozenset())
    await provider.aclose()


async def test_a_page_instead_of_the_model_list_is_an_error() -> None:
    async with ModelServer() as server:
        url = server.url.replace("/v1", "/nonsense/v1")
        provider = OpenAIChat(openai_settings(url))
        with pytest.raises(errors.BadRequest, match="does not return a list of models"):
            await provider.list_models()
        await provider.aclose()
