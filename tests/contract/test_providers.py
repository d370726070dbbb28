"""The contract of all providers, and the provider for Chat Completions against a real server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
import msgspec
import pytest

from agent import errors
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpenedChunk,
    PingChunk,
    Provider,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
    WholeChunk,
)
from agent.providers.demo import DemoProvider
from agent.providers.openai.chat import OpenAIChat, build
from agent.providers.openai.responses import OpenAIResponses
from agent.providers.registry import SupportsListModels
from agent.providers.transport.connections import (
    STREAMS_PER_CLIENT,
    enable_keepalive,
    socket_timeouts,
)
from agent.settings import TargetSettings, Timeouts
from sessions.records import Message
from tests.fakes.agent_kit import openai_settings, settings_for
from tests.fakes.model_script import End, Head, Raw, Script, ok, status
from tests.fakes.model_server import Handler, ModelServer, Received, always

pytestmark = pytest.mark.quick

Available = Callable[[], AbstractAsyncContextManager[Provider]]
REQUEST = ModelRequest("scripted", "Be kind.", (Message("user", "hello"),))


async def collect(provider: Provider, request: ModelRequest = REQUEST) -> list[Chunk]:
    async with asyncio.timeout(5), provider.stream(request) as chunks:
        return [chunk async for chunk in chunks]


@asynccontextmanager
async def serving(*scripts: Script | Handler) -> AsyncIterator[tuple[OpenAIChat, ModelServer]]:
    async with ModelServer(*scripts) as server:
        provider = OpenAIChat(openai_settings(server.url))
        try:
            yield provider, server
        finally:
            await provider.aclose()


@asynccontextmanager
async def demo() -> AsyncIterator[Provider]:
    yield DemoProvider(word_seconds=0)


@asynccontextmanager
async def openai() -> AsyncIterator[Provider]:
    async with serving(always(ok("You wrote: hello"))) as (provider, _):
        yield provider


@asynccontextmanager
async def responses() -> AsyncIterator[Provider]:
    async with ModelServer(always(ok("You wrote: hello"))) as server:
        provider = OpenAIResponses(settings_for("responses", server.url))
        try:
            yield provider
        finally:
            await provider.aclose()


@pytest.mark.parametrize("available", [demo, openai, responses])
class TestEveryProvider:
    async def test_an_answer_opens_yields_text_and_finishes(self, available: Available) -> None:
        async with available() as provider:
            first, *chunks = await collect(provider)
            assert isinstance(first, OpenedChunk)
            assert "hello" in "".join(c.text for c in chunks if isinstance(c, TextChunk))
            assert FinishChunk("stop") in chunks
            assert chunks[-1] == DoneChunk()
            assert provider.name

    async def test_a_stream_can_be_left_at_any_point_and_the_next_one_works(
        self, available: Available
    ) -> None:
        async with available() as provider:
            whole = await collect(provider)
            for left_after in range(1, 4):
                async with asyncio.timeout(5), provider.stream(REQUEST) as chunks:
                    read = [await anext(chunks) for _ in range(left_after)]
                assert read == whole[:left_after]

    async def test_exceptions_of_the_reader_pass_through_unchanged(
        self, available: Available
    ) -> None:
        async def fail(provider: Provider) -> None:
            async with asyncio.timeout(5), provider.stream(REQUEST) as chunks:
                async for _ in chunks:
                    msg = "mine"
                    raise LookupError(msg)

        async with available() as provider:
            with pytest.raises(LookupError, match="mine"):
                await fail(provider)


OPENED = OpenedChunk("req_scripted")


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
        pytest.param("S400", errors.BadRequest, "scripted error", id="400"),
        pytest.param("S401", errors.ApiKeyRejected, "scripted error", id="401"),
        pytest.param("S402", errors.OutOfCredit, "scripted error", id="402"),
        pytest.param("S404", errors.BadRequest, "scripted error", id="404"),
        pytest.param("S429", errors.RateLimited, "scripted error", id="429"),
        pytest.param("S500", errors.Overloaded, "scripted error", id="500"),
        pytest.param("S503", errors.Overloaded, "scripted error", id="503"),
        pytest.param("RST", errors.ConnectionLost, "reset by peer", id="reset before the headers"),
        pytest.param("FIN", errors.ConnectionLost, "disconnected", id="closed before the headers"),
        pytest.param('H T"a" RST', errors.ConnectionLost, "reset by peer", id="reset in the body"),
        pytest.param('H T"a" FIN', errors.ConnectionLost, "incomplete", id="closed in the body"),
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
        pytest.param(
            'H X"event: error\ndata: upstream\n\n" EOF',
            errors.ConnectionLost,
            "upstream",
            id="in plain text",
        ),
        pytest.param('H X"data: {]\n\n" EOF', errors.ConnectionLost, "unreadable", id="not JSON"),
    ],
)
async def test_every_failure_is_a_provider_error_and_nothing_is_retried(
    script: str, error: type[errors.ProviderError], words: str
) -> None:
    async with serving(script) as (provider, server):
        with pytest.raises(error, match=words):
            await collect(provider)
        assert len(server.requests) == 1


async def test_retry_after_is_kept() -> None:
    async with serving('S503:{"retry-after-ms":"2500"}') as (provider, _):
        with pytest.raises(errors.Overloaded) as raised:
            await collect(provider)
        assert raised.value.retry_after == 2.5


async def test_an_unreachable_server_is_named_in_the_error() -> None:
    async with ModelServer() as server:
        url = server.url
    provider = OpenAIChat(openai_settings(url))
    with pytest.raises(errors.Overloaded, match=f"no connection to {url}"):
        await collect(provider)
    with pytest.raises(errors.Overloaded, match=f"no connection to {url}"):
        await provider.list_models()
    await provider.aclose()


async def test_an_unsupported_url_is_a_bad_request() -> None:
    provider = OpenAIChat(openai_settings("gopher://127.0.0.1"))
    with pytest.raises(errors.BadRequest, match=r"gopher://127\.0\.0\.1 is not a supported URL"):
        await collect(provider)
    await provider.aclose()


async def test_text_before_an_error_is_yielded_first() -> None:
    async with (
        asyncio.timeout(5),
        serving('H T"half" RST') as (provider, _),
        provider.stream(REQUEST) as chunks,
    ):
        assert await anext(chunks) == OPENED
        assert await anext(chunks) == TextChunk("half")
        with pytest.raises(errors.ConnectionLost):
            await anext(chunks)


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


async def until_left(server: ModelServer, number: int = 1) -> Received:
    received = await server.request(number)
    await received.closed.wait()
    return received


@pytest.mark.parametrize("script", ["HANG", "H HANG", 'H T"abc" HANG', 'H [T"a" W.005]*'])
async def test_cancelling_the_reader_closes_the_socket_at_once(script: str) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5), serving(script) as (provider, server):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(collect(provider))
            await server.request(1)
            told = loop.time()
            task.cancel()
        received = await until_left(server)
        assert task.cancelled()
        assert received.left
        assert received.closed_at is not None
        assert received.closed_at - told < 0.1


async def test_leaving_the_context_closes_the_socket_at_once() -> None:
    async with asyncio.timeout(5), serving('H T"abc" HANG') as (provider, server):
        async with provider.stream(REQUEST) as chunks:
            assert await anext(chunks) == OPENED
            assert await anext(chunks) == TextChunk("abc")
        assert (await until_left(server)).left


async def test_a_connection_is_reused_after_a_complete_response() -> None:
    async with serving(always(ok("x"))) as (provider, server):
        for _ in range(3):
            await collect(provider)
        assert not any(request.closed.is_set() for request in server.requests)
        assert server.connections_made == 1


async def test_many_concurrent_streams_use_several_clients() -> None:
    count = STREAMS_PER_CLIENT + 10
    async with asyncio.timeout(10), serving(always('H T"a" HANG')) as (provider, server):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(collect(provider)) for _ in range(count)]
            await server.request(count)
            assert sorted(provider._clients.stream_counts) == [10, STREAMS_PER_CLIENT]
            for task in tasks:
                task.cancel()
        assert sorted(provider._clients.stream_counts) == [0, 0]


async def test_the_models_of_the_server_are_listed() -> None:
    async with ModelServer(models=["a", "b"]) as server:
        provider = OpenAIChat(openai_settings(server.url))
        assert isinstance(provider, SupportsListModels)
        assert await provider.list_models() == ("a", "b")
        await provider.aclose()


async def test_a_page_instead_of_the_model_list_is_an_error() -> None:
    async with ModelServer() as server:
        url = server.url.replace("/v1", "/nonsense/v1")
        provider = OpenAIChat(openai_settings(url))
        with pytest.raises(errors.BadRequest, match="does not return a list of models"):
            await provider.list_models()
        await provider.aclose()


def test_tcp_keepalive_is_enabled_on_the_socket_of_a_response() -> None:
    class Stream:
        def __init__(self, sock: socket.socket | None) -> None:
            self.sock = sock

        def get_extra_info(self, name: str) -> socket.socket | None:
            return self.sock if name == "socket" else None

    with socket.socket() as sock:
        enable_keepalive(httpx2.Response(200, extensions={"network_stream": Stream(sock)}))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    # Behind some proxies there is no socket; this is no error.
    enable_keepalive(httpx2.Response(200, extensions={"network_stream": Stream(None)}))
    enable_keepalive(httpx2.Response(200))


def test_socket_timeouts_are_longer_than_the_model_timeouts() -> None:
    timeouts = Timeouts(lifetime=30.0, connect=4.0)
    assert socket_timeouts(timeouts).as_dict() == {
        "connect": 4.0,
        "read": 35.0,
        "write": 35.0,
        "pool": 35.0,
    }
