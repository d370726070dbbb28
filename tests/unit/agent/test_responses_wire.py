import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import errors
from agent.answer.accumulate import Accumulator, FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState
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
    ToolSchema,
    UsageChunk,
    WholeChunk,
)
from agent.providers.openai.responses_wire import OPTIONAL_FEATURES, ResponsesReader, encode_request
from agent.providers.transport.sse import EventTooLong
from agent.verdict import Capped, Complete, Cut, ModelRefused, judge_attempt
from sessions.records import Message, ToolCall


def body(request: ModelRequest, *without: str) -> Any:
    return json.loads(encode_request(request, frozenset(without)))


def test_a_plain_request_has_no_optional_fields() -> None:
    assert body(ModelRequest("m", "", (Message("user", "hi"),))) == {
        "model": "m",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
            }
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


def test_every_option_has_its_field() -> None:
    tool = ToolSchema("read", "Reads.", {"type": "object"})
    request = ModelRequest(
        "m",
        "sys",
        messages=(),
        tools=(tool,),
        max_output_tokens=100,
        temperature=0.5,
        reasoning_effort="low",
        stream=False,
    )
    assert body(request) == {
        "model": "m",
        "instructions": "sys",
        "input": [],
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
        "max_output_tokens": 100,
        "temperature": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": False,
    }


def test_unsupported_features_are_omitted() -> None:
    kept = encode_reasoning(ReasoningBlocks("openai-responses/m", "hm", (THOUGHT,)))
    rows = (Message("assistant", "hi", reasoning=kept),)
    request = ModelRequest("m", "", rows, reasoning_effort="high")
    assert body(request)["input"][0] == THOUGHT
    without = body(request, *OPTIONAL_FEATURES)
    assert without.keys() == {"model", "input", "reasoning", "stream"}
    assert without["reasoning"] == {"effort": "high"}
    assert [item["type"] for item in without["input"]] == ["message"]


def test_without_reasoning_no_summary_is_requested() -> None:
    request = ModelRequest("m", "", (), reasoning_effort="none")
    assert body(request)["reasoning"] == {"effort": "none"}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


def test_calls_results_and_reasoning_are_replayed_exactly() -> None:
    arguments = '{ "path":\t"ä" }'
    only_a_name = {"type": "reasoning", "id": "rs_2", "summary": []}
    mine = encode_reasoning(ReasoningBlocks("openai-responses/m", "hm", (THOUGHT, only_a_name)))
    others = encode_reasoning(ReasoningBlocks("openai-responses/n", "hm", (THOUGHT,)))
    rows = (
        Message("user", "go", sender="somebody"),
        Message(
            "assistant",
            "",
            (ToolCall("c1", "read", arguments), ToolCall("c2", "", "{}")),
            reasoning=mine,
        ),
        Message("tool", "result", tool_call_id="c1"),
        Message("tool", "", tool_call_id="c2"),
        Message("assistant", "done", reasoning=others),
        Message("assistant", "", reasoning=mine),
    )
    assert body(ModelRequest("m", "", rows))["input"][1:] == [
        THOUGHT,
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": arguments},
        {"type": "function_call", "call_id": "c2", "name": "unnamed", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "result"},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "done"}],
        },
    ]


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("Encrypted content is not supported with this model. (include)", "include"),
        ("Unknown parameter: 'include'.", "include"),
        ("Unsupported parameter: 'store'", "store"),
        (
            (
                "Your organization must be verified to generate reasoning summaries. "
                "(reasoning.summary)"
            ),
            "summary",
        ),
        ("Unsupported parameter: 'reasoning.summary'", "summary"),
        ("The encrypted content gAAA...Qw== could not be verified.", "thoughts"),
        ("reasoning `encrypted_content` was not issued to this caller", "thoughts"),
        (
            "Item with id 'rs_07' not found. Items are not persisted when `store` is false.",
            "thoughts",
        ),
        (
            "Item 'x' of type 'reasoning' was provided without its required following item.",
            "thoughts",
        ),
        ("Missing required parameter: 'input'.", None),
        ("Restored nothing, included nothing.", None),
    ],
)
def test_the_first_feature_that_an_error_names_is_omitted(said: str, option: str | None) -> None:
    named = [name for name, words in OPTIONAL_FEATURES.items() if words.search(said.lower())]
    assert next(iter(named), None) == option


# --- answers ---------------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def added(index: int | None, **item: Any) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def item_done(index: int | None, **item: Any) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


def said(text: str, index: int | None = 0, part: int | None = 0) -> bytes:
    return event("response.output_text.delta", output_index=index, content_index=part, delta=text)


def arguments(text: str, index: int | None = 0, **more: Any) -> bytes:
    return event("response.function_call_arguments.delta", output_index=index, delta=text, **more)


def call(index: int | None, call_id: str, name: str = "read", **more: Any) -> bytes:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
    return added(index, **item, **{"arguments": "", **more})


def call_done(index: int | None, call_id: str, text: str, **more: Any) -> bytes:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "read"}
    return item_done(index, **item, arguments=text, **more)


def ended(status: str = "completed", output: Iterable[Any] = (), **more: Any) -> bytes:
    response = {"object": "response", "status": status, "output": list(output), **more}
    return event(f"response.{status}", response=response)


USED = {
    "input_tokens": 9,
    "output_tokens": 5,
    "input_tokens_details": {"cached_tokens": 4},
    "total_tokens": 14,
}


def chunks_of(*pieces: bytes) -> Iterator[Chunk]:
    reader = ResponsesReader()
    for piece in pieces:
        yield from reader.feed(piece)
        if reader.done:
            return
    yield from reader.close()


def read(*pieces: bytes) -> list[Chunk]:
    return list(chunks_of(*pieces))


def telling(*pieces: bytes) -> list[Chunk]:
    return [chunk for chunk in read(*pieces) if not isinstance(chunk, PingChunk)]


def collected(*pieces: bytes) -> StepResult:
    accumulator = Accumulator((), "call")
    for chunk in read(*pieces):
        accumulator.feed(chunk)
    return accumulator.result()


END = [FinishChunk("stop"), DoneChunk()]
CALLED = [FinishChunk("tool_calls"), DoneChunk()]


def message(*texts: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": t} for t in texts]}


@pytest.mark.parametrize(
    ("pieces", "chunks"),
    [
        pytest.param(
            [
                event("response.created", response={"object": "response", "output": []}),
                b": ping\n\n",
                said("Hel"),
                said("lo"),
                event("response.output_text.done", output_index=0, content_index=0, text="Hello"),
                item_done(0, **message("Hello")),
                ended(output=[message("Hello")], usage=USED),
            ],
            [
                PingChunk(),
                PingChunk(beat=True),
                TextChunk("Hel"),
                TextChunk("lo"),
                PingChunk(),
                PingChunk(),
                FinishChunk("stop"),
                UsageChunk(9, 5, cached_tokens=4),
                DoneChunk(),
            ],
            id="text",
        ),
        pytest.param(
            [
                event("response.output_text.done", output_index=0, content_index=0, text="a"),
                event("response.output_text.done", output_index=0, content_index=1, text="b"),
                item_done(0, **message("a", "b")),
                ended(output=[message("a", "b")]),
            ],
            [TextChunk("a"), TextChunk("b"), PingChunk(), *END],
            id="text only in the done event",
        ),
        pytest.param(
            [item_done(0, **message("a", "b")), ended(output=[message("a", "b")])],
            [TextChunk("a"), TextChunk("b"), *END],
            id="text only in the item",
        ),
        pytest.param(
            [ended(output=[message("a"), message("b")])],
            [TextChunk("a"), TextChunk("b"), *END],
            id="text only in the last event",
        ),
        pytest.param(
            [said("a", None, None), item_done(0, **message("a")), ended(output=[message("a")])],
            [TextChunk("a"), PingChunk(), *END],
            id="deltas without a position are not repeated",
        ),
        pytest.param(
            [said("a", 0, None), item_done(0, **message("a")), ended()],
            [TextChunk("a"), PingChunk(), *END],
            id="deltas with only an item are not repeated",
        ),
        pytest.param(
            [said(""), ended(output=[message("")])], [PingChunk(), *END], id="nothing at all"
        ),
        pytest.param(
            [
                event("response.refusal.delta", output_index=0, content_index=0, delta="no"),
                event("response.refusal.done", output_index=0, content_index=0, refusal="no"),
                ended(),
            ],
            [TextChunk("no"), PingChunk(), FinishChunk("refusal"), DoneChunk()],
            id="a refusal",
        ),
        pytest.param(
            [
                event("response.refusal.done", output_index=0, content_index=0, refusal="no"),
                ended(),
            ],
            [TextChunk("no"), FinishChunk("refusal"), DoneChunk()],
            id="a refusal only in the done event",
        ),
        pytest.param(
            [item_done(0, type="message", content=[{"type": "refusal", "refusal": "no"}]), ended()],
            [TextChunk("no"), FinishChunk("refusal"), DoneChunk()],
            id="a refusal only in the item",
        ),
        pytest.param(
            [ended("incomplete", incomplete_details={"reason": "max_output_tokens"})],
            [FinishChunk("length"), DoneChunk()],
            id="the output limit",
        ),
        pytest.param(
            [ended("incomplete", incomplete_details={"reason": "content_filter"})],
            [FinishChunk("content_filter"), DoneChunk()],
            id="the content filter",
        ),
        pytest.param(
            [ended("incomplete")],
            [FinishChunk("length"), DoneChunk()],
            id="incomplete without a reason",
        ),
        pytest.param(
            [event("response.completed", response={"status": "incomplete"})],
            [FinishChunk("length"), DoneChunk()],
            id="the status overrides the event name",
        ),
        pytest.param(
            [event("response.completed", response={"status": "in_progress"})],
            END,
            id="an outdated status",
        ),
        pytest.param([event("response.completed")], END, id="a last event without a response"),
        pytest.param([b"data: [DONE]\n\n"], [DoneChunk()], id="[DONE]"),
        pytest.param([b"data: null\n\n"], [PingChunk()], id="null"),
        pytest.param([b"data: NaN\n\n"], [PingChunk()], id="NaN"),
        pytest.param([b"data: []\n\n"], [PingChunk()], id="a list"),
        pytest.param([b"data: {}\n\n"], [PingChunk()], id="nothing"),
        pytest.param([b'data: {"type":7}\n\n'], [PingChunk()], id="a number as the type"),
        pytest.param([added(0)], [PingChunk()], id="an item without a type"),
        pytest.param([event("response.output_item.done", item=None)], [PingChunk()], id="no item"),
        pytest.param(
            [item_done(0, type="web_search_call", status="completed")],
            [PingChunk()],
            id="a built-in tool of the service",
        ),
        pytest.param([arguments("x")], [PingChunk()], id="arguments without a call"),
        pytest.param(
            [event("response.function_call_arguments.done", output_index=0, arguments="{}")],
            [PingChunk()],
            id="full arguments without a call",
        ),
        pytest.param(
            [b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n'],
            [TextChunk("a")],
            id="type only in the event name",
        ),
        pytest.param(
            [b'data: {"type":"response.output_text.delta","delta":"\\ud83d","x":NaN}\n\n'],
            [TextChunk("\ufffd")],
            id="an unpaired surrogate and NaN",
        ),
        pytest.param(
            [b'data: {"type":"response.output_text.delta","delta":"a"}'],
            [TextChunk("a")],
            id="a last event without its blank line",
        ),
        pytest.param(
            [b'data: {"type":"response.output_text.delta","del'], [], id="an incomplete last event"
        ),
    ],
)
def test_events_are_converted_to_chunks(pieces: list[bytes], chunks: list[Chunk]) -> None:
    got = read(*pieces)
    # Usage stands beside the reason; which of the two is first does not matter.
    assert sorted(map(repr, got)) == sorted(map(repr, chunks))
    assert [c for c in got if isinstance(c, TextChunk)] == [
        c for c in chunks if isinstance(c, TextChunk)
    ]
    assert (got[-1] if got else None) == (chunks[-1] if chunks else None)


def summary(text: str, item: int = 0, part: int = 0) -> bytes:
    kind = "response.reasoning_summary_text.delta"
    return event(kind, output_index=item, summary_index=part, delta=text)


def reasoning(text: str, item: int = 0) -> bytes:
    return event("response.reasoning_text.delta", output_index=item, content_index=0, delta=text)


@pytest.mark.parametrize(
    ("pieces", "text", "parts"),
    [
        pytest.param(
            [
                summary("a"),
                summary("b"),
                summary("c", 0, 1),
                summary("d", 1),
                item_done(0, **THOUGHT, status="completed"),
            ],
            "ab\n\nc\n\nd",
            (THOUGHT,),
            id="summaries",
        ),
        pytest.param(
            [reasoning("a"), summary("short"), reasoning("b")],
            "ab",
            (),
            id="summary and full reasoning",
        ),
        pytest.param(
            [item_done(2, **{**THOUGHT, "summary": [{"text": "x"}, {"text": "y"}]})],
            "x\n\ny",
            ({**THOUGHT, "summary": [{"text": "x"}, {"text": "y"}]},),
            id="summary only in the item",
        ),
        pytest.param(
            [
                item_done(None, type="reasoning", content=[{"text": "x"}]),
                item_done(None, **THOUGHT),
            ],
            "x",
            ({"type": "reasoning", "content": [{"text": "x"}]}, THOUGHT),
            id="reasoning without a position",
        ),
        pytest.param(
            [ended(output=[THOUGHT, message("hi")])],
            "",
            (THOUGHT,),
            id="reasoning only in the last event",
        ),
        pytest.param(
            [summary("a", 3), ended(output=[{**THOUGHT, "summary": [{"text": "a"}]}])],
            "a",
            ({**THOUGHT, "summary": [{"text": "a"}]},),
            id="shown from deltas, kept from the last event",
        ),
        pytest.param(
            [item_done(0, **THOUGHT), ended(output=[THOUGHT])], "", (THOUGHT,), id="kept once"
        ),
        pytest.param([summary("")], "", (), id="an empty delta"),
    ],
)
def test_reasoning_is_shown_once_and_kept_for_replay(
    pieces: list[bytes], text: str, parts: tuple[Any, ...]
) -> None:
    step = collected(*pieces)
    assert step.reasoning == text
    assert step.opaque_parts == parts


@pytest.mark.parametrize(
    ("pieces", "chunks"),
    [
        pytest.param(
            [
                call(0, "c1"),
                arguments('{"path":'),
                arguments('"a"}'),
                event(
                    "response.function_call_arguments.done",
                    output_index=0,
                    arguments='{"path":"a"}',
                ),
                call_done(0, "c1", '{"path":"a"}'),
                call(1, "c2", "pay"),
                arguments("{}", 1),
                call_done(1, "c2", "{}"),
                ended(output=[{"type": "function_call", "call_id": "c1", "arguments": "{}"}]),
            ],
            None,
            id="a contradicting last event",
        ),
        pytest.param(
            [
                call(0, "c1"),
                arguments('{"a":'),
                arguments("1}"),
                call_done(0, "c1", '{"a":1}'),
                ended(
                    output=[json.loads(call_done(0, "c1", '{"a":1}').split(b"data: ")[1])["item"]]
                ),
            ],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"a":'),
                CallChunk(0, arguments="1}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="a call in deltas",
        ),
        pytest.param(
            [call(0, "c1"), call_done(0, "c1", "{}"), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="arguments only in the done event",
        ),
        pytest.param(
            [call(0, "c1", arguments='{"a":1}'), call_done(0, "c1", ""), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"a":1}'),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="arguments only in the announcement",
        ),
        pytest.param(
            [call_done(3, "c1", "{}"), ended()],
            [
                CallChunk(3, "c1", "read"),
                CallChunk(3, arguments="{}"),
                CallChunk(3, ended=True),
                *CALLED,
            ],
            id="a call without an announcement",
        ),
        pytest.param(
            [ended(output=[{"type": "function_call", "id": "x", "name": "f", "arguments": "{}"}])],
            [
                CallChunk(0, "x", "f"),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="a call only in the last event, with the item id",
        ),
        pytest.param(
            [call(0, "c1"), arguments('{"a":1'), call_done(0, "c1", '{"a":1}'), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"a":1'),
                CallChunk(0, arguments="}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="a lost delta: the longer version counts",
        ),
        pytest.param(
            [call(0, "c1"), arguments('{"a":1}'), call_done(0, "c1", '{"a":1'), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"a":1}'),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="the repetition is shorter and invalid",
        ),
        pytest.param(
            [call(0, "c1"), arguments('{"a":1}'), call_done(0, "c1", '{"a":1}}'), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments='{"a":1}'),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="the repetition is longer and invalid",
        ),
        pytest.param(
            [
                call(0, "c1"),
                call(0, "c2", "pay"),
                call_done(0, "c1", "{}"),
                call_done(0, "c2", "{}"),
                ended(),
            ],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, "c2", "pay"),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="all calls at one position",
        ),
        pytest.param(
            [
                call(None, "c1"),
                call(None, "c2"),
                arguments("{}", None, item_id="fc_c1"),
                arguments("{}", None),
                call_done(None, "c1", "{}"),
                call_done(None, "c2", "{}"),
                ended(),
            ],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(1, "c2", "read"),
                CallChunk(0, arguments="{}"),
                CallChunk(1, arguments="{}"),
                CallChunk(0, ended=True),
                CallChunk(1, ended=True),
                *CALLED,
            ],
            id="calls without positions",
        ),
        pytest.param(
            [call(0, "c1"), arguments('{"a'), call_done(0, "c1", '{"a', status="incomplete")],
            [CallChunk(0, "c1", "read"), CallChunk(0, arguments='{"a')],
            id="a call cut by the output limit is not sealed",
        ),
        pytest.param(
            [call(0, "c1"), call_done(0, "c1", "{}"), call_done(0, "c1", "{}"), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="done twice",
        ),
        pytest.param(
            [call(0, "c1"), call_done(0, "c1", "{}"), arguments('{"a":1}'), ended()],
            [
                CallChunk(0, "c1", "read"),
                CallChunk(0, arguments="{}"),
                CallChunk(0, ended=True),
                *CALLED,
            ],
            id="events after the end of a call are ignored",
        ),
    ],
)
def test_calls_are_read_from_deltas_and_full_items(
    pieces: list[bytes], chunks: list[Chunk] | None
) -> None:
    if chunks is None:
        with pytest.raises(
            errors.ConnectionLost, match="two different versions of the arguments of read"
        ):
            read(*pieces)
        return
    assert telling(*pieces) == chunks


@pytest.mark.parametrize(
    ("came", "stated"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}}', '{"a":1}'),  # it is too late to take the brace back
        ('{"a":', '{"b":'),
    ],
)
def test_contradicting_versions_of_the_arguments_are_an_error(came: str, stated: str) -> None:
    got: list[Chunk] = []
    with pytest.raises(errors.ConnectionLost, match="arguments of read"):
        got.extend(chunks_of(call(0, "c1"), arguments(came), call_done(0, "c1", stated)))
    assert not any(isinstance(chunk, CallChunk) and chunk.ended for chunk in got)


def test_a_call_is_sealed_only_by_the_end_of_its_item() -> None:
    stated = event("response.function_call_arguments.done", output_index=0, arguments="{}")
    begun = [call(0, "c1"), arguments("{}"), stated]
    (unsealed,) = collected(*begun).calls
    assert (unsealed.arguments_state, unsealed.sealed) == (ArgumentsState.COMPLETE, False)
    (sealed,) = collected(*begun, call_done(0, "c1", "{}")).calls
    assert sealed.sealed


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (ended(), Complete),
        (ended("incomplete"), Capped),
        (ended("incomplete", incomplete_details={"reason": "content_filter"}), ModelRefused),
        (b"", Cut),
    ],
)
def test_the_last_event_decides_the_outcome(last: bytes, kind: type) -> None:
    assert type(judge_attempt(collected(said("hi"), last))) is kind


def test_a_call_cut_off_by_the_output_limit_is_incomplete() -> None:
    step = collected(
        call(0, "c1"),
        arguments('{"a":1}'),
        call_done(0, "c1", '{"a":1}', status="incomplete"),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    assert step.finish_reason is FinishReason.LENGTH
    assert not step.calls[0].sealed


@pytest.mark.parametrize(
    ("last", "error", "words"),
    [
        (
            ended("failed", error={"code": "server_error", "message": "broken"}),
            errors.Overloaded,
            "broken",
        ),
        (
            ended("failed", error={"code": "rate_limit_exceeded", "message": "Try again in 2s"}),
            errors.RateLimited,
            "Try again",
        ),
        (
            ended("failed", error={"code": "bio_policy", "message": "no"}),
            errors.Declined,
            "no",
        ),
        (ended("failed"), errors.ConnectionLost, "as failed"),
        (ended("cancelled"), errors.ConnectionLost, "as cancelled"),
        (
            event("error", code="context_length_exceeded", message="long", param="input"),
            errors.ContextTooLong,
            "long",
        ),
        (
            event("error", error={"type": "insufficient_quota"}),
            errors.OutOfCredit,
            "no credit left",
        ),
        (b'data: {"error":{"message":"odd"}}\n\n', errors.BadRequest, "odd"),
        (b"event: error\ndata: went away\n\n", errors.ConnectionLost, "went away"),
        (b"event: error\ndata: torn of", errors.ConnectionLost, "torn of"),
        (b"data: {]\n\n", errors.ConnectionLost, "unreadable"),
        (b'data: {"object":"error","message":"odd"}\n\n', errors.BadRequest, "odd"),
    ],
)
def test_a_failure_is_raised_with_its_message_after_earlier_chunks(
    last: bytes, error: type[errors.ProviderError], words: str
) -> None:
    got: list[Chunk] = []
    with pytest.raises(error, match=words):
        got.extend(chunks_of(said("half"), last))
    assert got == [TextChunk("half")]


def test_the_usage_of_a_failed_response_is_reported() -> None:
    chunks = ResponsesReader().feed(ended("failed", usage=USED))
    assert next(chunks) == UsageChunk(9, 5, cached_tokens=4)
    with pytest.raises(errors.ConnectionLost):
        next(chunks)


# --- in one piece ----------------------------------------------------------------------------

WHOLE = {
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [
        {**THOUGHT, "summary": [{"text": "hm"}]},
        message("hi"),
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    ],
    "usage": USED,
}


def test_a_json_response_to_a_streaming_request_is_accepted() -> None:
    raw = b"\n \xef\xbb\xbf" + json.dumps(WHOLE).encode()
    assert telling(raw[:1], raw[1:9], raw[9:]) == [
        WholeChunk(),
        ReasoningChunk("hm"),
        OpaqueChunk(0, {**THOUGHT, "summary": [{"text": "hm"}]}),
        TextChunk("hi"),
        CallChunk(2, "c1", "f"),
        CallChunk(2, arguments="{}"),
        CallChunk(2, ended=True),
        UsageChunk(9, 5, cached_tokens=4),
        FinishChunk("tool_calls"),
        DoneChunk(),
    ]


@pytest.mark.parametrize(
    ("whole", "error"),
    [
        ({**WHOLE, "status": "failed", "error": {"code": "server_error"}}, errors.Overloaded),
        ({**WHOLE, "status": "in_progress"}, errors.ConnectionLost),
        ({"error": {"message": "prompt is too long"}}, errors.ContextTooLong),
        ([{"error": {"code": 429, "message": "slow"}}], errors.RateLimited),
    ],
)
def test_a_failure_in_a_json_response_is_raised(
    whole: object, error: type[errors.ProviderError]
) -> None:
    with pytest.raises(error):
        read(json.dumps(whole).encode())


@pytest.mark.parametrize("raw", [b"<html>busy</html>", b'{"object":"response"', b"[1"])
def test_a_body_that_is_no_response_is_an_error(raw: bytes) -> None:
    with pytest.raises(errors.ConnectionLost):
        read(raw)


def test_a_json_response_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.providers.transport.body.MAX_EVENT_BYTES", 5)
    with pytest.raises(EventTooLong):
        read(b"{12", b"345")


# --- any order, any split --------------------------------------------------------------------

STREAM = b"".join(
    [
        event("response.created", response={}),
        summary("hm"),
        item_done(0, **THOUGHT),
        said("ä😀", 1),
        item_done(1, **message("ä😀")),
        call(2, "c1"),
        arguments('{"x":', 2),
        arguments("1}", 2),
        call_done(2, "c1", '{"x":1}'),
        ended(output=[THOUGHT, message("ä😀")], usage=USED),
    ]
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_the_chunks_do_not_depend_on_how_the_body_is_split(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(edges))) == read(STREAM)


@given(st.integers(0, len(STREAM)))
def test_a_stream_cut_anywhere_gives_a_prefix_of_the_chunks(cut: int) -> None:
    whole, part = collected(STREAM), collected(STREAM[:cut])
    assert whole.text.startswith(part.text)
    assert whole.reasoning.startswith(part.reasoning)
    for ours, theirs in zip(part.calls, whole.calls, strict=False):
        assert theirs.arguments.startswith(ours.arguments)
        assert not ours.sealed or ours.arguments == theirs.arguments
    assert part.finish_reason is None or part == whole


PIECES = st.sampled_from(
    [
        said("a"),
        said("b", 1),
        summary("t"),
        item_done(0, **THOUGHT),
        item_done(1, **message("b")),
        call(0, "c1"),
        call(1, "c2"),
        arguments("{"),
        arguments("}"),
        call_done(0, "c1", "{}"),
        call_done(None, "c2", "{}"),
        event("response.refusal.delta", delta="r"),
        b'data: {"type":"response.output_item.added","item":[]}\n\n',
    ]
)


@given(st.lists(PIECES, max_size=12), st.sampled_from([ended(), ended("incomplete"), b""]))
def test_events_in_any_order_are_handled_and_seal_only_complete_calls(
    pieces: list[bytes], last: bytes
) -> None:
    reader = ResponsesReader()
    chunks: list[Chunk] = []
    with suppress(errors.ConnectionLost):  # arguments that contradict each other
        for piece in (*pieces, last):
            chunks.extend(reader.feed(piece))
        assert reader.done == bool(last)
    assert all("".join(call.pieces) == "{}" for call in reader._calls if call.ended)
    assert sum(isinstance(chunk, FinishChunk) for chunk in chunks) == reader.done
