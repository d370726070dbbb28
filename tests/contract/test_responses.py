"""The provider for the Responses API against a real server, compared with the SDK."""

import asyncio
import json
from functools import partial
from typing import Any

import msgspec
import openai
import pytest
from openai.types import responses as sdk

from agent import errors
from agent.answer.accumulate import Accumulator
from agent.answer.reasoning_blocks import ReasoningBlocks, encode_reasoning
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    ModelRequest,
    OpaqueChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
)
from agent.verdict import Complete, Cut, judge_attempt
from sessions.records import Message, ToolCall
from tests.contract import provider_kit
from tests.contract.provider_kit import OPENED, REQUEST, accumulate, collect, without_pings
from tests.fakes.http_client import local_client
from tests.fakes.model_script import Script, body_of, cut, ok, status
from tests.fakes.model_server import Handler, always

pytestmark = pytest.mark.quick

serving = partial(provider_kit.serving, "responses")


FULL = (
    'H R"hm" T"Hel" P T"lo" C(0,c1,read,-) C(0,-,-,\'{"path":\') C(0,-,-,\'"a"}\') '
    'C(1,c2,pay,{"amount": 5}) F tool_calls U(7,20,4) D'
)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "JSON response"])
async def test_a_complete_response_is_read_completely(stream: bool) -> None:
    request = msgspec.structs.replace(REQUEST, stream=stream)
    async with serving(FULL) as (provider, server):
        first, *chunks = await collect(provider, request)
        assert first == OPENED
        assert server.requests[0].body["stream"] is stream
    step = accumulate(chunks)
    assert (step.text, step.reasoning) == ("Hello", "hm")
    assert [(c.id, c.name, c.arguments, c.sealed) for c in step.calls] == [
        ("c1", "read", '{"path":"a"}', True),
        ("c2", "pay", '{"amount": 5}', True),
    ]
    assert step.usage == UsageChunk(20, 7, cached_tokens=4)
    (thought,) = step.opaque_parts
    assert thought["type"] == "reasoning"
    assert thought["encrypted_content"]
    assert "status" not in thought
    assert judge_attempt(step) == Complete()
    assert chunks[-1] == DoneChunk()


@pytest.mark.parametrize(
    ("script", "chunks"),
    [
        pytest.param("H P B EOF", [], id="pings only"),
        pytest.param('H T"a" EOF', [TextChunk("a")], id="end of body without end marker"),
        pytest.param(
            'H T"a" F stop HANG',
            [TextChunk("a"), FinishChunk("stop"), DoneChunk()],
            id="open after the end",
        ),
        pytest.param(
            'H T"a" F stop RST',
            [TextChunk("a"), FinishChunk("stop"), DoneChunk()],
            id="reset after the end",
        ),
        pytest.param(
            'H T"a" F length',
            [TextChunk("a"), FinishChunk("length"), DoneChunk()],
            id="the output limit",
        ),
        pytest.param(
            'H R"a" T"b" EOF',
            [
                ReasoningChunk("a"),
                OpaqueChunk(
                    0,
                    {
                        "id": "rs_0",
                        "type": "reasoning",
                        "summary": [{"type": "summary_text", "text": "a"}],
                        "encrypted_content": "sealed-0",
                    },
                ),
                TextChunk("b"),
            ],
            id="reasoning is kept from the item",
        ),
        pytest.param(
            "H C(0,c1,read,{}) EOF",
            [CallChunk(0, "c1", "read"), CallChunk(0, arguments="{}")],
            id="an unsealed complete call",
        ),
    ],
)
async def test_the_stream_is_converted_to_chunks(script: str, chunks: list[Chunk]) -> None:
    async with serving(script) as (provider, server):
        assert without_pings(await collect(provider)) == [OPENED, *chunks]
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param(
            'S400"Your input exceeds the context window"',
            errors.ContextTooLong,
            "context window",
            id="too long",
        ),
        pytest.param('H T"a" F failed', errors.Overloaded, "scripted error", id="failed"),
        pytest.param('H E429"slow"', errors.RateLimited, "slow", id="an error as an event"),
        pytest.param('H E400"odd"', errors.BadRequest, "odd", id="an unknown error"),
    ],
)
async def test_an_error_of_this_protocol_is_a_provider_error_and_nothing_is_retried(
    script: str, error: type[errors.ProviderError], words: str
) -> None:
    async with serving(script) as (provider, server):
        with pytest.raises(error, match=words):
            await collect(provider)
        assert len(server.requests) == 1


WHOLE_BODY = body_of(FULL, "responses")


@pytest.mark.parametrize("ending", ["EOF", "FIN", "RST"])
@pytest.mark.parametrize("after", range(0, len(WHOLE_BODY), len(WHOLE_BODY) // 12))
async def test_a_stream_cut_anywhere_gives_its_chunks_and_is_never_complete(
    after: int, ending: str
) -> None:
    accumulator, error = Accumulator((), "call"), None
    async with serving(cut(FULL, after, ending, "responses")) as (provider, _):
        try:
            async with asyncio.timeout(5), provider.stream(REQUEST) as chunks:
                async for chunk in chunks:
                    accumulator.feed(chunk)
        except errors.ProviderError as raised:
            error = raised
    step = accumulator.result()
    assert "Hello".startswith(step.text)
    assert (error is None) == (ending == "EOF")
    assert isinstance(judge_attempt(step, error=error), Cut)
    assert [c.arguments for c in step.calls if c.sealed] == ['{"path":"a"}', '{"amount": 5}'][
        : sum(c.sealed for c in step.calls)
    ]


# --- the request -----------------------------------------------------------------------------

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
HISTORY = (
    Message("user", "go"),
    Message(
        "assistant",
        "",
        (ToolCall("c1", "read", '{"path":"a"}'),),
        reasoning=encode_reasoning(ReasoningBlocks("openai-responses/scripted", "", (THOUGHT,))),
    ),
    Message("tool", "content", tool_call_id="c1"),
)


async def test_the_request_has_the_required_fields() -> None:
    tool = ToolSchema("read", "Reads.", {"type": "object"})
    request = ModelRequest(
        "scripted", "Be kind.", messages=HISTORY, tools=(tool,), max_output_tokens=500
    )
    async with serving(ok("x")) as (provider, server):
        await collect(provider, request)
        (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v1/responses")
    assert received.headers["authorization"] == "Bearer sk-test"
    assert received.headers["accept-encoding"] == "identity"
    assert received.body["instructions"] == "Be kind."
    assert received.body["store"] is False
    assert received.body["max_output_tokens"] == 500
    assert [item["type"] for item in received.body["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert received.body["input"][1] == THOUGHT


def refusing(**words: str) -> Handler:
    """A service that rejects one feature at a time."""

    def answer(body: dict[str, Any]) -> Script:
        written = json.dumps(body)
        for option, complaint in words.items():
            if f'"{option}"' in written:
                return (status(400, message=complaint),)
        return ok("fine")

    return answer


async def test_unsupported_features_are_omitted_from_all_later_requests() -> None:
    picky = refusing(
        include="Unknown parameter: 'include'.",
        store="Unknown parameter: 'store'.",
        auto="Unsupported parameter: 'reasoning.summary'",  # its value
        encrypted_content="The encrypted content x could not be verified.",
    )
    request = ModelRequest("scripted", "", HISTORY, reasoning_effort="low")
    async with serving(picky) as (provider, server):
        assert TextChunk("fine") in await collect(provider, request)
        assert len(server.requests) == 5
        assert TextChunk("fine") in await collect(provider, request)
        assert len(server.requests) == 6
        last = server.requests[-1].body
        assert last["reasoning"] == {"effort": "low"}
        assert not last.keys() & {"include", "store"}
        # Another model of the same service may support them.
        other = ModelRequest("other", "", HISTORY)
        await collect(provider, other)
        assert "include" in server.requests[6].body


async def test_concurrent_requests_may_both_learn_unsupported_features() -> None:
    picky = refusing(include="Unknown parameter: 'include'.")
    async with serving(picky) as (provider, server):
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            tasks = [group.create_task(collect(provider)) for _ in range(2)]
        assert all(TextChunk("fine") in task.result() for task in tasks)
        assert len(server.requests) == 4


async def test_an_error_about_a_feature_that_was_not_sent_is_final() -> None:
    complaint = status(400, message="Unsupported parameter: 'reasoning.summary'")
    async with serving((complaint,)) as (provider, server):
        with pytest.raises(errors.BadRequest):
            await collect(provider)
        assert len(server.requests) == 1


# --- comparison with the SDK -----------------------------------------------------------------


class SdkView:
    """Return the content that the SDK's own iterator reads."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[tuple[str, str, str]] = []
        self.usage: tuple[int, int] | None = None
        self.status: str | None = None

    def feed(self, event: sdk.ResponseStreamEvent) -> None:
        match event:
            case sdk.ResponseTextDeltaEvent():
                self.text += event.delta
            case sdk.ResponseReasoningSummaryTextDeltaEvent():
                self.reasoning += event.delta
            case sdk.ResponseCompletedEvent() | sdk.ResponseIncompleteEvent():
                self._ended(event.response)
            case _:
                pass

    def _ended(self, response: sdk.Response) -> None:
        self.status = response.status
        used = response.usage
        self.usage = (used.input_tokens, used.output_tokens) if used else None
        for item in response.output:
            if isinstance(item, sdk.ResponseFunctionToolCall):
                self.calls.append((item.call_id, item.name, item.arguments))


@pytest.mark.parametrize(
    "script",
    [
        FULL,
        'H T"only text 😀" F stop U D',
        'H R"think" R" more" T"said" F length U D',
        'H C(0,c1,read,{"path":"ä"}) F tool_calls U(3) D',
    ],
    ids=["everything", "text", "the output limit", "a call"],
)
async def test_the_chunks_match_the_content_that_the_sdk_reads(script: str) -> None:
    async with serving(always(script)) as (provider, server):
        ours = accumulate(await collect(provider))
        view = SdkView()
        async with (
            asyncio.timeout(5),
            openai.AsyncOpenAI(
                api_key="x", base_url=server.url, max_retries=0, http_client=local_client()
            ) as client,
        ):
            stream = await client.responses.create(model="scripted", input="hi", stream=True)
            async for event in stream:
                view.feed(event)
    assert (ours.text, ours.reasoning) == (view.text, view.reasoning)
    assert [(c.id, c.name, c.arguments) for c in ours.calls] == view.calls
    assert ours.usage is not None
    assert (ours.usage.input_tokens, ours.usage.output_tokens) == view.usage
    assert (ours.raw_finish_reason == "length") == (view.status == "incomplete")
