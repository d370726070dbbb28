import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    PingChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
    WholeChunk,
)
from agent.providers.openai.chat_wire import (
    OPTIONAL_FEATURES,
    ChatDialect,
    ChatReader,
    encode_request,
    event_chunks,
)
from agent.providers.transport.sse import SseComment, SseEvent
from agent.verdict import Cut, judge_attempt
from sessions.records import Message, ToolCall
from tests.fakes.model_script import body_of


def body(request: ModelRequest, dialect: ChatDialect | None = None) -> Any:
    return json.loads(encode_request(request, dialect or ChatDialect()))


def test_a_plain_request_has_no_optional_fields() -> None:
    assert body(ModelRequest("m", "", (Message("user", "hi"),))) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
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
    )
    assert body(request, ChatDialect("max_completion_tokens", frozenset({"stream_options"}))) == {
        "model": "m",
        "messages": [{"role": "system", "content": "sys"}],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Reads.",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "max_completion_tokens": 100,
        "temperature": 0.5,
        "reasoning_effort": "low",
    }


def test_calls_and_results_are_replayed_exactly() -> None:
    arguments = '{ "path":\t"ä" }'
    call = ToolCall("c1", "read", arguments, b'{"google":{"signature":"x"}}')
    rows = (
        Message("user", "go", sender="somebody"),
        Message("assistant", "", (call, ToolCall("c2", "", "{}")), interrupted="x"),
        Message("tool", "result", tool_call_id="c1"),
        Message("assistant", "done"),
    )
    assert body(ModelRequest("m", "", rows))["messages"] == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": arguments},
                    "extra_content": {"google": {"signature": "x"}},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "unnamed", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "result"},
        {"role": "assistant", "content": "done"},
    ]


DETAIL = {"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}


def test_unsupported_features_are_omitted_or_renamed() -> None:
    kept = encode_reasoning(ReasoningBlocks("openai/m", "hm", (DETAIL,)))
    rows = (Message("assistant", "hi", reasoning=kept),)
    request = ModelRequest("m", "", messages=rows, tools=(), max_output_tokens=7)
    assert body(request)["messages"] == [
        {"role": "assistant", "content": "hi", "reasoning_details": [DETAIL]}
    ]
    assert body(request, ChatDialect(omitted_features=frozenset(OPTIONAL_FEATURES))) == {
        "model": "m",
        "messages": [{"role": "assistant", "content": "hi"}],
        "stream": True,
        "max_completion_tokens": 7,
    }


def test_a_request_without_streaming_has_no_stream_fields() -> None:
    request = ModelRequest("m", "", (Message("user", "hi"),), stream=False)
    assert body(request).keys() == {"model", "messages"}


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("Unknown field: stream_options", "stream_options"),
        ("Use 'max_completion_tokens' instead.", "max_tokens"),
        ("messages.1.reasoning_details: Extra inputs are not permitted", "thoughts"),
        ("Failed to initialize samplers: failed to parse grammar", "grammar"),
        ("JSON schema conversion failed: Pattern must start with '^'", "grammar"),
        ("no such model", None),
    ],
)
def test_an_error_names_the_feature_to_omit(said: str, option: str | None) -> None:
    named = [name for name, words in OPTIONAL_FEATURES.items() if words.search(said.lower())]
    assert next(iter(named), None) == option


CALL = (ToolCall("c1", "read", "{}"),)


@pytest.mark.parametrize(
    ("model", "by", "calls", "given_back"),
    [
        ("deepseek-reasoner", "openai/deepseek-reasoner", CALL, "hm"),
        ("Kimi-K2", "openai/Kimi-K2", CALL, "hm"),
        ("deepseek-reasoner", "openai/deepseek-reasoner", (), None),
        ("deepseek-reasoner", "openai/other", CALL, None),
        ("gpt", "openai/gpt", CALL, None),
    ],
    ids=["deepseek", "kimi", "no call", "reasoning of another model", "model without replay"],
)
def test_only_models_that_need_reasoning_text_get_it(
    model: str, by: str, calls: tuple[ToolCall, ...], given_back: str | None
) -> None:
    row = Message("assistant", "x", calls, reasoning=encode_reasoning(ReasoningBlocks(by, "hm")))
    (message,) = body(ModelRequest(model, "", (row,)))["messages"]
    assert message.get("reasoning_content") == given_back


def read(fields: object, name: str = "") -> list[Chunk]:
    return list(event_chunks(SseEvent(name, json.dumps(fields).encode())))


def delta(fields: object, finish: object = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def calls(*entries: dict[str, object]) -> dict[str, object]:
    return delta({"tool_calls": list(entries)})


PING = [PingChunk()]


@pytest.mark.parametrize(
    ("fields", "chunks"),
    [
        pytest.param(delta({"content": "hi"}), [TextChunk("hi")], id="text"),
        pytest.param(delta({"content": ""}), PING, id="empty text"),
        pytest.param(delta({"role": "assistant"}), PING, id="only the role"),
        pytest.param(delta(None), PING, id="delta null"),
        pytest.param({"choices": None}, PING, id="choices null"),
        pytest.param({"choices": []}, PING, id="choices empty"),
        pytest.param({}, PING, id="nothing"),
        pytest.param(None, PING, id="null"),
        pytest.param([1], PING, id="a list"),
        pytest.param("a word", PING, id="a word"),
        pytest.param(7, PING, id="a number"),
        pytest.param({"choices": [None]}, PING, id="only null among choices"),
        pytest.param({"choices": [{"index": 0}]}, PING, id="no delta"),
        pytest.param(delta({"content": None, "tool_calls": None}), PING, id="fields null"),
        pytest.param(delta({"tool_calls": []}), PING, id="no calls"),
        pytest.param({"choices": "x"}, PING, id="choices of another type"),
        pytest.param(
            delta({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}),
            [TextChunk("ab")],
            id="content as a list",
        ),
        pytest.param(delta({"content": {"text": "a"}}), [TextChunk("a")], id="content as a record"),
        pytest.param(delta({"content": ["a"]}), [TextChunk("a")], id="content as a list of texts"),
        pytest.param(delta({"content": 7}), [TextChunk("")], id="content as a number"),
        pytest.param(
            delta({"reasoning_content": "a", "reasoning": "a", "content": "b"}),
            [ReasoningChunk("a"), TextChunk("b")],
            id="reasoning under two names",
        ),
        pytest.param(delta({"reasoning": "a"}), [ReasoningChunk("a")], id="reasoning"),
        pytest.param(delta({"reasoning_text": "a"}), [ReasoningChunk("a")], id="reasoning_text"),
        pytest.param(delta({"thinking": "a"}), [ReasoningChunk("a")], id="thinking"),
        pytest.param(
            delta({"content": "x"}, "stop"), [TextChunk("x"), FinishChunk("stop")], id="both"
        ),
        pytest.param(delta({}, 7), [FinishChunk("7")], id="finish reason as a number"),
        pytest.param(delta({"content": "x"}, ""), [TextChunk("x")], id="finish reason null"),
        pytest.param(
            delta({"refusal": "no"}), [TextChunk("no"), FinishChunk("refusal")], id="refusal"
        ),
        pytest.param(
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            [UsageChunk(3, 2, alone=True)],
            id="usage alone",
        ),
        pytest.param(
            {**delta({"content": "x"}), "usage": {"prompt_tokens": 3, "completion_tokens": None}},
            [TextChunk("x"), UsageChunk(3, 0)],
            id="usage with choices",
        ),
        pytest.param({"choices": [], "lastOne": True}, [DoneChunk()], id="lastOne"),
        pytest.param(
            {"choices": [{"delta": {"content": "a"}}, {"delta": {"tool_calls": [{"index": 0}]}}]},
            [TextChunk("a"), CallChunk(0)],
            id="several choices for one answer",
        ),
        pytest.param(
            calls({"index": 0, "id": "c1", "function": {"name": "read", "arguments": ""}}),
            [CallChunk(0, "c1", name="read", arguments="")],
            id="call",
        ),
        pytest.param(
            calls({"index": "1", "id": 7, "function": {"arguments": {"a": 1}}}),
            [CallChunk(1, "7", name=None, arguments='{"a":1}')],
            id="call of odd types",
        ),
        pytest.param(
            calls({"index": "x", "function": None}), [CallChunk(None)], id="an invalid index"
        ),
        pytest.param(
            calls({"function": {"arguments": "a"}}, {"function": {"arguments": "b"}}),
            [CallChunk(0, arguments="a"), CallChunk(1, arguments="b")],
            id="two anonymous calls in one chunk",
        ),
        pytest.param(
            calls({"function": {"name": "a"}}, {"function": {"name": "b"}}),
            [CallChunk(name="a"), CallChunk(name="b")],
            id="two named calls in one chunk",
        ),
        pytest.param(
            calls({"index": 0, "extra_content": {"s": 1}}),
            [CallChunk(0, extra=b'{"s":1}')],
            id="extra_content alone",
        ),
        pytest.param(
            delta({"function_call": {"name": "read", "arguments": "{}"}}),
            [CallChunk(0, None, name="read", arguments="{}")],
            id="legacy function_call",
        ),
        pytest.param(
            delta({"tool_calls": {"index": 0, "id": "c1"}}),
            [CallChunk(0, "c1")],
            id="tool_calls without a list",
        ),
        pytest.param(
            {"choices": [None, {"delta": {"content": "a", "tool_calls": [None]}}]},
            [TextChunk("a")],
            id="null among choices and calls",
        ),
        pytest.param(delta({}, "STOP"), [FinishChunk("STOP")], id="finish reason in capitals"),
        pytest.param(
            {
                **delta({}),
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 5},
                    "cost": 0.25,
                },
            },
            [UsageChunk(9, 2, cached_tokens=5, cost=0.25)],
            id="cached tokens and cost",
        ),
        pytest.param(
            {
                "usage": {
                    "prompt_tokens": 9,
                    "prompt_tokens_details": None,
                    "prompt_cache_hit_tokens": 5,
                    "cost": "free",
                }
            },
            [UsageChunk(9, 0, alone=True, cached_tokens=5)],
            id="cached tokens under another name",
        ),
        pytest.param(
            delta(
                {
                    "reasoning": "a",
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "a", "index": 1, "signature": None}
                    ],
                }
            ),
            [
                OpaqueChunk(4, {"type": "reasoning.text", "text": "a", "index": 1}),
                ReasoningChunk("a"),
            ],
            id="details beside reasoning",
        ),
        pytest.param(
            delta(
                {
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "a", "index": 0},
                        {"type": "reasoning.summary", "summary": "b", "index": 0},
                        {"type": "reasoning.encrypted", "data": "x", "index": 0},
                        {"type": "odd"},
                        "nonsense",
                    ]
                }
            ),
            [
                OpaqueChunk(0, {"type": "reasoning.text", "text": "a", "index": 0}),
                OpaqueChunk(1, {"type": "reasoning.summary", "summary": "b", "index": 0}),
                OpaqueChunk(2, {"type": "reasoning.encrypted", "data": "x", "index": 0}),
                OpaqueChunk(15, {"type": "odd"}),
                ReasoningChunk("ab"),
            ],
            id="details alone",
        ),
        pytest.param({"error": None, **delta({"content": "a"})}, [TextChunk("a")], id="no error"),
    ],
)
def test_an_event_is_converted_to_chunks(fields: object, chunks: list[Chunk]) -> None:
    assert read(fields) == chunks


def test_comments_and_the_end_marker_are_read() -> None:
    assert list(event_chunks(SseComment())) == [PingChunk(beat=True)]
    assert list(event_chunks(SseEvent("", b" [DONE] "))) == [DoneChunk()]


@pytest.mark.parametrize(
    ("name", "data", "error", "words"),
    [
        (
            "",
            b'{"error":{"message":"Network connection lost."}}',
            errors.ConnectionLost,
            "Network connection",
        ),
        ("", b'{"error":{"message":"odd"}}', errors.BadRequest, "odd"),
        ("", b'{"object":"error","message":"no","code":400}', errors.BadRequest, "no"),
        ("", b'{"error":{"code":"content_filter","message":"no"}}', errors.Declined, "no"),
        ("error", b'{"message":"x","n":NaN}', errors.BadRequest, "x"),
        (
            "",
            (
                b'{"choices":[{"delta":{"content":"data: {\\"error\\":{\\"message\\":\\"why\\",'
                b'\\"code\\":503}}\\n\\n"},"finish_reason":"ERROR"}]}'
            ),
            errors.Overloaded,
            "^why$",
        ),
        ("", b'{"error":"Rate limit reached"}', errors.RateLimited, "Rate limit"),
        ("", b'{"error":{"code":502,"message":"bad"}}', errors.Overloaded, "bad"),
        (
            "",
            b'{"error_type":"invalid_request","error_message":"no such field"}',
            errors.BadRequest,
            "no such field",
        ),
        ("error", b'{"message":"overloaded_error"}', errors.Overloaded, "overloaded"),
        ("error", b"upstream went away", errors.ConnectionLost, "upstream went away"),
        ("", b"<html>", errors.ConnectionLost, "unreadable"),
        (
            "",
            (
                b'{"choices":[{"delta":{"content":"maximum context length is 8"},'
                b'"finish_reason":"error"}]}'
            ),
            errors.ContextTooLong,
            "maximum context",
        ),
        ("", b'{"choices":[{"finish_reason":"error"}]}', errors.ConnectionLost, "error"),
    ],
)
def test_an_error_inside_the_stream_is_raised_with_its_message(
    name: str, data: bytes, error: type[errors.ProviderError], words: str
) -> None:
    with pytest.raises(error, match=words):
        list(event_chunks(SseEvent(name, data)))


def test_parts_of_the_reasoning_are_joined_for_replay() -> None:
    details = [
        {"type": "reasoning.text", "text": "a", "index": 0, "id": None},
        {"type": "reasoning.text", "text": "b", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "c1"},
        {"type": "reasoning.text", "signature": "s", "index": 0, "text": None},
    ]
    accumulator = Accumulator((), "call")
    for detail in details:
        for chunk in read(delta({"reasoning_details": [detail]})):
            accumulator.feed(chunk)
    step = accumulator.result()
    assert step.reasoning == "ab"
    assert step.opaque_parts == (
        {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "c1"},
    )


@pytest.mark.parametrize(
    ("reason", "error"),
    [("network_error", errors.ConnectionLost), ("insufficient_system_resource", errors.Overloaded)],
)
def test_a_finish_reason_that_is_a_failure_is_raised_after_the_text(
    reason: str, error: type[errors.ProviderError]
) -> None:
    chunks = event_chunks(SseEvent("", json.dumps(delta({"content": "half"}, reason)).encode()))
    assert next(chunks) == TextChunk("half")
    with pytest.raises(error, match=reason):
        next(chunks)


@pytest.mark.parametrize("after", ['J{"error":{"message":"odd"}}', 'X"event: error\ndata: x\n\n"'])
@pytest.mark.parametrize("end", ["F stop", "F tool_calls", "F length"])
def test_an_error_after_the_finish_reason_leaves_the_answer_complete(end: str, after: str) -> None:
    accumulator = Accumulator((), "call")
    chunks = ChatReader().feed(body_of(f'T"all" {end} {after}'))
    raised = None
    try:
        for chunk in chunks:
            accumulator.feed(chunk)
    except errors.ProviderError as error:
        raised = error
    assert raised is not None
    without_error = judge_attempt(accumulator.result())
    assert not isinstance(without_error, Cut)
    assert judge_attempt(accumulator.result(), error=raised) == without_error


def test_an_unpaired_surrogate_is_replaced() -> None:
    raw = b'{"choices":[{"delta":{"content":"a\\ud83d"},"logprobs":{"x":-Infinity}}]}'
    assert list(event_chunks(SseEvent("", raw))) == [TextChunk("a\ufffd")]
    assert list(event_chunks(SseEvent("", b'{"y":NaN,"choices":"x"}'))) == PING


def whole(pieces: list[bytes]) -> list[Chunk]:
    reader = ChatReader()
    return [c for piece in pieces for c in reader.feed(piece)] + list(reader.close())


STREAM = body_of('T"ä" P B R"hm" C(0,c1,read,{"path":"a, b"}) C(0,-,-,\'{"x\') F tool_calls U(7) D')


@given(st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_the_chunks_do_not_depend_on_how_the_body_is_split(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert whole(pieces) == whole([STREAM])


def test_chunks_before_an_error_are_yielded_first() -> None:
    chunks = ChatReader().feed(body_of('T"half" J{"error":"connection gone"}'))
    assert next(chunks) == TextChunk("half")
    with pytest.raises(errors.ConnectionLost, match="gone"):
        next(chunks)


def test_nothing_after_the_end_marker_is_read() -> None:
    reader = ChatReader()
    assert list(reader.feed(body_of('D T"more"'))) == [DoneChunk()]
    assert reader.done


@pytest.mark.parametrize(
    ("torn", "chunks"),
    [
        (b"data: [DONE]", [DoneChunk()]),
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', [TextChunk("a")]),
        (b'data: {"choices":[{"delta":{"cont', []),
        (b": pi", []),
        (b"event: x", []),
    ],
)
def test_a_last_event_without_blank_line_counts_if_it_is_complete(
    torn: bytes, chunks: list[Chunk]
) -> None:
    assert whole([torn]) == chunks


def test_a_json_response_to_a_streaming_request_is_accepted() -> None:
    answer = {
        "choices": [
            {
                "message": {
                    "content": "hi",
                    "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    raw = b"\n " + json.dumps(answer).encode()
    chunks = whole([raw[:1], raw[1:9], raw[9:]])
    assert [chunk for chunk in chunks if chunk != PingChunk()] == [
        WholeChunk(),
        TextChunk("hi"),
        CallChunk(None, "c1", name="f", arguments="{}"),
        FinishChunk("stop"),
        UsageChunk(1, 2),
        DoneChunk(),
    ]


@pytest.mark.parametrize(
    "raw", [b'{"error":{"message":"overloaded"}}', b'[{"error":{"message":"overloaded"}}]']
)
def test_an_error_with_status_200_is_raised(raw: bytes) -> None:
    with pytest.raises(errors.Overloaded):
        whole([raw])


def test_an_html_page_is_an_error() -> None:
    with pytest.raises(errors.ConnectionLost, match="unreadable: '<html>"):
        whole([b"<html>\n", b"busy</html>"])
