"""The contract of all providers against a real server; each protocol has a file for its own cases."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from agent import errors
from agent.answer.accumulate import FinishReason
from agent.answer.call_slots import ArgumentsState
from agent.model.contract import (
    AnswerFormat,
    DoneChunk,
    FinishChunk,
    OpenedChunk,
    Provider,
    SamplingOptions,
    TextChunk,
    ToolChoice,
)
from agent.providers.anthropic.messages import AnthropicProvider
from agent.providers.demo import DemoProvider
from agent.providers.openai.chat import OpenAIChat
from agent.providers.openai.responses import OpenAIResponses
from agent.providers.registry import SupportsListModels, build_provider
from agent.providers.transport.connections import (
    STREAMS_PER_CLIENT,
    enable_keepalive,
    socket_timeouts,
)
from agent.settings import Timeouts
from tests.contract.provider_kit import (
    OPENED,
    REQUEST,
    accumulate,
    collect,
    collect_until_error,
    serving,
    wait_until_left,
)
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import End, Head, Raw, Text, Wait, body_of, ok, steps
from tests.fakes.model_server import ModelServer, always

pytestmark = pytest.mark.quick

Available = Callable[[], AbstractAsyncContextManager[Provider]]


@asynccontextmanager
async def demo() -> AsyncIterator[Provider]:
    yield DemoProvider(word_seconds=0)


@asynccontextmanager
async def answering(protocol: ProtocolName) -> AsyncIterator[Provider]:
    async with serving(protocol, always(ok("You wrote: hello"))) as (provider, _):
        yield provider


_FORCED: dict[ProtocolName, tuple[object, object]] = {
    "chat": ("required", {"type": "function", "function": {"name": "read"}}),
    "responses": ("required", {"type": "function", "name": "read"}),
    "anthropic": ({"type": "any"}, {"type": "tool", "name": "read"}),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_demanded_call_is_sent_in_the_form_of_the_protocol(protocol: ProtocolName) -> None:
    async with serving(protocol, ok("a"), ok("b"), ok("c")) as (provider, server):
        for choice in (ToolChoice(), ToolChoice("read"), None):
            await collect(provider, replace(REQUEST, tool_choice=choice))
        *forced, free = (each.body.get("tool_choice") for each in server.requests)
        assert (tuple(forced), free) == (_FORCED[protocol], None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_parallel_calls_can_be_switched_off(protocol: ProtocolName) -> None:
    async with serving(protocol, ok("a")) as (provider, server):
        await collect(provider, replace(REQUEST, parallel_tool_calls=False))
        (request,) = server.requests
        if protocol == "anthropic":
            sent = {"type": "auto", "disable_parallel_tool_use": True}
            assert request.body["tool_choice"] == sent
        else:
            assert request.body["parallel_tool_calls"] is False


_OPTIONS = SamplingOptions(
    top_p=0.5, stop=("END",), seed=7, verbosity="low", service_tier="flex", user="ada"
)
_SENT_OPTIONS: dict[ProtocolName, dict[str, object]] = {
    "chat": {
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "verbosity": "low",
        "service_tier": "flex",
        "user": "ada",
    },
    "responses": {
        "top_p": 0.5,
        "text": {"verbosity": "low"},
        "service_tier": "flex",
        "user": "ada",
    },
    "anthropic": {"top_p": 0.5, "stop_sequences": ["END"], "metadata": {"user_id": "ada"}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_options_are_sent_as_far_as_the_protocol_has_them(protocol: ProtocolName) -> None:
    async with serving(protocol, ok("a"), ok("b")) as (provider, server):
        await collect(provider, REQUEST)
        await collect(provider, replace(REQUEST, sampling=_OPTIONS))
        plain, sent = (each.body for each in server.requests)
        added = {name: value for name, value in sent.items() if plain.get(name) != value}
        assert added == _SENT_OPTIONS[protocol]


_FORMAT = AnswerFormat(schema={"type": "object"}, name="state")
_SENT_FORMAT: dict[ProtocolName, tuple[str, object]] = {
    "chat": (
        "response_format",
        {
            "type": "json_schema",
            "json_schema": {"name": "state", "schema": {"type": "object"}, "strict": False},
        },
    ),
    "responses": (
        "text",
        {
            "format": {
                "type": "json_schema",
                "name": "state",
                "schema": {"type": "object"},
                "strict": False,
            }
        },
    ),
    "anthropic": (
        "output_config",
        {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_format_is_sent_until_the_service_refuses_it(protocol: ProtocolName) -> None:
    refusal = 'S400"json_schema is not supported by this model"'
    # The OpenAI protocols first leave the format out beside tools only.
    refusals = [refusal] * (1 if protocol == "anthropic" else 2)
    async with serving(protocol, ok("a"), *refusals, *([ok("b")] * 2)) as (provider, server):
        await collect(provider, replace(REQUEST, answer_format=_FORMAT, tools=()))
        name, value = _SENT_FORMAT[protocol]
        assert server.requests[0].body[name] == value
        for _ in range(2):
            await collect_until_error(provider, replace(REQUEST, answer_format=_FORMAT))
        assert name not in server.requests[-1].body


@pytest.mark.parametrize(
    ("effort", "instead"), [("xhigh", "high"), ("minimal", "low"), ("none", None), ("low", "")]
)
@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_an_unknown_effort_becomes_the_nearest_one(
    protocol: ProtocolName, effort: str, instead: str | None
) -> None:
    refusal = f'S400"Unsupported value: reasoning_effort {effort}"'
    async with serving(protocol, refusal, ok("a")) as (provider, server):
        _, error = await collect_until_error(provider, replace(REQUEST, reasoning_effort=effort))
        sent = server.requests[-1].body
        found = sent.get("reasoning_effort") or sent.get("reasoning", {}).get("effort")
        assert (found, bool(error)) == ((effort, True) if instead == "" else (instead, False))


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_service_without_tool_choice_is_asked_without_it(protocol: ProtocolName) -> None:
    refusal = 'S400"tool_choice is not supported"'
    async with serving(protocol, refusal, ok("a"), ok("b")) as (provider, server):
        for _ in range(2):
            await collect(provider, replace(REQUEST, tool_choice=ToolChoice()))
        sent = ["tool_choice" in each.body for each in server.requests]
        assert sent == [True, False, False]


@pytest.mark.parametrize(
    "available",
    [
        pytest.param(demo, id="demo"),
        *(pytest.param(partial(answering, each), id=each) for each in PROTOCOLS),
    ],
)
class TestEveryProvider:
    async def test_an_answer_opens_yields_text_and_finishes(self, available: Available) -> None:
        async with available() as provider:
            first, *chunks = await collect(provider)
            assert isinstance(first, OpenedChunk)
            assert "hello" in "".join(c.text for c in chunks if isinstance(c, TextChunk))
            assert any(isinstance(chunk, FinishChunk) for chunk in chunks)
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


every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)

# --- answers ---------------------------------------------------------------------------------

COMPLETE = 'H R"hm" T"Hel" T"lo" C(0,c1,read,-) C(0,-,-,\'{"path":\') C(0,-,-,\'"a"}\') '
COMPLETE += "F tool_calls U(7,20,4) D"


@every_protocol
async def test_a_json_response_gives_the_same_as_a_stream(protocol: ProtocolName) -> None:
    async with serving(protocol, COMPLETE, COMPLETE) as (provider, server):
        streamed = accumulate(await collect(provider))
        request = msgspec.structs.replace(REQUEST, stream=False)
        whole = accumulate(await collect(provider, request))
        assert [request.stream for request in server.requests] == [True, False]
    assert whole == msgspec.structs.replace(
        streamed,
        received_characters=whole.received_characters,
        unstreamed=True,
        usage=whole.usage,  # compared below: in a stream of `chat` usage has a chunk of its own
    )
    for step in (streamed, whole):
        assert (step.text, step.reasoning) == ("Hello", "hm")
        assert step.finish_reason is FinishReason.TOOL_CALLS
        assert step.usage is not None
        usage = (step.usage.input_tokens, step.usage.output_tokens, step.usage.cached_tokens)
        assert usage == (20, 7, 4)
        (call,) = step.calls
        assert (call.id, call.name, call.arguments) == ("c1", "read", '{"path":"a"}')
        assert (call.arguments_state, call.sealed) == (ArgumentsState.COMPLETE, True)


@every_protocol
@pytest.mark.parametrize("ending", ["EOF", "RST", "FIN"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "JSON response"])
async def test_a_truncated_call_is_never_sealed(
    protocol: ProtocolName, ending: str, stream: bool
) -> None:
    script = f'H C(0,c1,read,\'{{"path":"a"\') {ending}'
    request = msgspec.structs.replace(REQUEST, stream=stream)
    async with serving(protocol, script) as (provider, _):
        chunks, _ = await collect_until_error(provider, request)
    step = accumulate(chunks)
    assert not step.ended
    assert not any(call.sealed for call in step.calls)


@every_protocol
@pytest.mark.parametrize(
    ("script", "is_done"),
    [
        pytest.param('H T"a" EOF', False, id="end of body without end marker"),
        pytest.param('H T"a" F stop D HANG', True, id="open after the end marker"),
        pytest.param('H T"a" F stop D RST', True, id="reset after the end marker"),
    ],
)
async def test_only_the_end_marker_completes_an_answer(
    protocol: ProtocolName, script: str, is_done: bool
) -> None:
    async with serving(protocol, script) as (provider, _):
        chunks = await collect(provider)
    assert chunks[0] == OPENED
    assert [chunk for chunk in chunks if isinstance(chunk, TextChunk)] == [TextChunk("a")]
    assert (chunks[-1] == DoneChunk()) == is_done


GREETING = "Grüße, 世界 👋"
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "carriage returns": lambda body: body.replace(b"\n", b"\r\n"),
    "no space after the colon": lambda body: body.replace(b"data: ", b"data:"),
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "comments everywhere": lambda body: b": hi\n\n" + body.replace(b"\n\n", b"\n\n:\n\n"),
    "null in between": lambda body: body.replace(b"\n\n", b"\n\ndata: null\n\n", 1),
    "empty records in between": lambda body: body.replace(b"\n\n", b"\n\ndata: {}\n\n", 1),
    "no blank line at the end": lambda body: body.rstrip(b"\n"),
    "unescaped characters": lambda body: body.replace(
        json.dumps(GREETING).encode(), json.dumps(GREETING, ensure_ascii=False).encode()
    ),
}


@every_protocol
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_equivalent_encodings_give_the_same_answer(
    protocol: ProtocolName, encoding: str
) -> None:
    body = ENCODINGS[encoding](body_of((Head(), Text(GREETING), *steps("F stop U D")), protocol))
    async with serving(protocol, (Head(bare=True), Raw(body), End())) as (provider, _):
        step = accumulate(await collect(provider))
    assert (step.text, step.finish_reason) == (GREETING, FinishReason.STOP)


@every_protocol
async def test_multibyte_characters_may_be_split_between_reads(protocol: ProtocolName) -> None:
    script = (Head(), Text(GREETING), *steps("F stop U D"))
    body = ENCODINGS["unescaped characters"](body_of(script, protocol))
    first, second = body.index("ü".encode()) + 1, body.index("👋".encode()) + 2
    pieces = (body[:first], body[first:second], body[second:])
    sent = (
        Head(bare=True),
        *(step for piece in pieces for step in (Raw(piece), Wait(0.01))),
        End(),
    )
    async with serving(protocol, sent) as (provider, _):
        assert accumulate(await collect(provider)).text == GREETING


# --- failures --------------------------------------------------------------------------------


@every_protocol
@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param("S400", errors.BadRequest, "scripted error", id="400"),
        pytest.param("S401", errors.ApiKeyRejected, "scripted error", id="401"),
        pytest.param("S402", errors.OutOfCredit, "scripted error", id="402"),
        pytest.param("S403", errors.ApiKeyRejected, "scripted error", id="403"),
        pytest.param("S404", errors.BadRequest, "scripted error", id="404"),
        pytest.param("S413", errors.ContextTooLong, "scripted error", id="413"),
        pytest.param("S429", errors.RateLimited, "scripted error", id="429"),
        pytest.param("S500", errors.Overloaded, "scripted error", id="500"),
        pytest.param("S503", errors.Overloaded, "scripted error", id="503"),
        pytest.param("S529", errors.Overloaded, "scripted error", id="529"),
        pytest.param("RST", errors.ConnectionLost, "reset by peer", id="reset before the headers"),
        pytest.param("FIN", errors.EndedEarly, "disconnected", id="closed before the headers"),
        pytest.param('H T"a" RST', errors.ConnectionLost, "reset by peer", id="reset in the body"),
        pytest.param('H T"a" FIN', errors.EndedEarly, "incomplete", id="closed in the body"),
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
    protocol: ProtocolName, script: str, error: type[errors.ProviderError], words: str
) -> None:
    async with serving(protocol, script) as (provider, server):
        with pytest.raises(error, match=words) as raised:
            await collect(provider)
        assert type(raised.value) is error
        assert len(server.requests) == 1


@every_protocol
@pytest.mark.parametrize(
    ("header", "seconds"), [('"retry-after-ms":"2500"', 2.5), ('"retry-after":"2"', 2.0)]
)
async def test_retry_after_is_kept(protocol: ProtocolName, header: str, seconds: float) -> None:
    async with serving(protocol, f"S503:{{{header}}}") as (provider, _):
        with pytest.raises(errors.Overloaded) as raised:
            await collect(provider)
        assert raised.value.retry_after == seconds


@every_protocol
async def test_text_before_an_error_is_yielded_first(protocol: ProtocolName) -> None:
    async with serving(protocol, 'H T"half" RST') as (provider, _):
        chunks, error = await collect_until_error(provider)
    assert (chunks[0], chunks[-1]) == (OPENED, TextChunk("half"))
    assert type(error) is errors.ConnectionLost


@every_protocol
async def test_an_unreachable_server_is_named_in_the_error(protocol: ProtocolName) -> None:
    async with ModelServer() as server:
        settings = settings_for(protocol, server.url)
    provider = build_provider(settings)
    assert isinstance(provider, SupportsListModels)
    with pytest.raises(errors.Overloaded, match=f"no connection to {settings.base_url}"):
        await collect(provider)
    with pytest.raises(errors.Overloaded, match=f"no connection to {settings.base_url}"):
        await provider.list_models()
    await provider.aclose()


@every_protocol
async def test_an_unsupported_url_is_a_bad_request(protocol: ProtocolName) -> None:
    provider = build_provider(settings_for(protocol, "gopher://127.0.0.1"))
    with pytest.raises(errors.BadRequest, match=r"gopher://127\.0\.0\.1 is not a supported URL"):
        await collect(provider)
    await provider.aclose()


# --- the list of models ----------------------------------------------------------------------


@every_protocol
async def test_the_models_of_the_server_are_listed(protocol: ProtocolName) -> None:
    async with ModelServer(models=["a", "b"]) as server:
        provider = build_provider(settings_for(protocol, server.url))
        assert isinstance(provider, SupportsListModels)
        assert await provider.list_models() == ("a", "b")
        await provider.aclose()


@every_protocol
@pytest.mark.parametrize("path", ["/nothing", "/nonsense"])
async def test_a_server_without_a_model_list_is_an_error(protocol: ProtocolName, path: str) -> None:
    async with ModelServer() as server:
        url = server.url.removesuffix("/v1") + path
        provider = build_provider(settings_for(protocol, f"{url}/v1"))
        assert isinstance(provider, SupportsListModels)
        with pytest.raises(errors.BadRequest):
            await provider.list_models()
        await provider.aclose()


# --- connections -----------------------------------------------------------------------------


@every_protocol
@pytest.mark.parametrize("script", ["HANG", "H HANG", 'H T"abc" HANG', 'H [T"a" W.005]*'])
async def test_cancelling_the_reader_closes_the_socket_at_once(
    protocol: ProtocolName, script: str
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5), serving(protocol, script) as (provider, server):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(collect(provider))
            await server.request(1)
            cancelled_at = loop.time()
            task.cancel()
        received = await wait_until_left(server)
        assert task.cancelled()
        assert received.left
        assert received.closed_at is not None
        assert received.closed_at - cancelled_at < 0.1


@every_protocol
async def test_leaving_the_context_during_a_silence_closes_the_socket_at_once(
    protocol: ProtocolName,
) -> None:
    async with asyncio.timeout(5), serving(protocol, 'H T"abc" HANG') as (provider, server):
        async with provider.stream(REQUEST) as chunks:
            async for chunk in chunks:
                if chunk == TextChunk("abc"):
                    break
        assert (await wait_until_left(server)).left


@every_protocol
async def test_a_connection_is_reused_after_a_complete_response(protocol: ProtocolName) -> None:
    async with serving(protocol, always(ok("x"))) as (provider, server):
        for _ in range(3):
            await collect(provider)
        assert not any(request.closed.is_set() for request in server.requests)
        assert server.connections_made == 1


@every_protocol
async def test_many_concurrent_streams_use_several_clients(protocol: ProtocolName) -> None:
    count = STREAMS_PER_CLIENT + 10
    async with (
        asyncio.timeout(10),
        serving(protocol, always('H T"a" HANG')) as (provider, server),
    ):
        assert isinstance(provider, OpenAIChat | OpenAIResponses | AnthropicProvider)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(collect(provider)) for _ in range(count)]
            await server.request(count)
            assert sorted(provider._clients.stream_counts) == [10, STREAMS_PER_CLIENT]
            for task in tasks:
                task.cancel()
        assert sorted(provider._clients.stream_counts) == [0, 0]


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
