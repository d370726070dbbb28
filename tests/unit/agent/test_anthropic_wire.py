import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent import errors
from agent.answer.accumulate import Accumulator, FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    OpaqueChunk,
    PingChunk,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from agent.providers.anthropic.refusals import classify_error_event, classify_response
from agent.providers.anthropic.wire import MessageReader
from tests.fakes.model_script import body_of

PING = PingChunk()
BEAT = PingChunk(beat=True)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begun(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def added(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def ended(index: int) -> bytes:
    return event("content_block_stop", index=index)


def read(*pieces: bytes) -> list[Chunk]:
    reader = MessageReader()
    chunks = [chunk for piece in pieces for chunk in reader.feed(piece)]
    return chunks + list(reader.close())


def told(*pieces: bytes) -> list[Chunk]:
    return [chunk for chunk in read(*pieces) if not isinstance(chunk, PingChunk)]


def result_of(*pieces: bytes) -> StepResult:
    accumulator = Accumulator((), "call")
    for chunk in read(*pieces):
        accumulator.feed(chunk)
    return accumulator.result()


# --- events ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "chunks"),
    [
        pytest.param([event("ping")], [BEAT], id="ping"),
        pytest.param([b": comment\n\n"], [BEAT], id="comment"),
        pytest.param([event("message_start", message={"usage": None})], [PING], id="no usage"),
        pytest.param([event("message_start")], [PING], id="message_start without usage"),
        pytest.param([begun(0, "text", text="")], [PING], id="empty text block"),
        pytest.param(
            [begun(0, "text", text="Hi")], [TextChunk("Hi")], id="text block with initial text"
        ),
        pytest.param([added(0, "text_delta", text="a")], [TextChunk("a")], id="text"),
        pytest.param([added(0, "text_delta", text="")], [PING], id="empty text"),
        pytest.param([added(0, "text_delta", text=None)], [PING], id="null for a text"),
        pytest.param([added(0, "thinking_delta", thinking="")], [PING], id="empty thinking"),
        pytest.param([added(0, "signature_delta", signature="")], [PING], id="empty signature"),
        pytest.param([added(0, "citations_delta", citation={})], [PING], id="unknown addition"),
        pytest.param([begun(0, "server_tool_use", id="s", name="x")], [PING], id="unknown block"),
        pytest.param([event("something_new", field=1)], [PING], id="unknown event"),
        pytest.param([b"data: null\n\n"], [PING], id="null"),
        pytest.param([b"data: {}\n\n"], [PING], id="nothing"),
        pytest.param([b"data: []\n\n"], [PING], id="a list"),
        pytest.param([b"data: [DONE]\n\n"], [DoneChunk()], id="[DONE]"),
        pytest.param([ended(0)], [PING], id="end of a text block"),
        pytest.param([event("message_stop")], [DoneChunk()], id="the end"),
        pytest.param(
            [begun(0, "redacted_thinking", data="xyz")],
            [OpaqueChunk(0, {"type": "redacted_thinking", "data": "xyz"})],
            id="redacted thinking",
        ),
        pytest.param(
            [event("message_delta", delta={"stop_reason": None}, usage=None)],
            [PING],
            id="empty message_delta",
        ),
        pytest.param([event("message_delta")], [PING], id="message_delta without fields"),
        pytest.param(
            [event("message_delta", delta={"stop_reason": "max_tokens"})],
            [FinishChunk("max_tokens")],
            id="a reason without usage",
        ),
        pytest.param(
            [added(3, "input_json_delta", partial_json='{"a"')],
            [PING],
            id="arguments without a call",
        ),
        pytest.param(
            [
                b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"\\ud83d"}}\n\n'
            ],
            [TextChunk("\ufffd")],
            id="half of a character",
        ),
        pytest.param(
            [added(0, "text_delta", text="torn")[:-2]],
            [TextChunk("torn")],
            id="a last event without its blank line",
        ),
        pytest.param([added(0, "text_delta", text="torn")[:-9]], [], id="an incomplete last event"),
    ],
)
def test_an_event_is_converted_to_chunks(pieces: list[bytes], chunks: list[Chunk]) -> None:
    assert read(*pieces) == chunks


def test_nothing_is_read_after_the_end_event() -> None:
    reader = MessageReader()
    assert list(reader.feed(event("message_stop") + added(0, "text_delta", text="more"))) == [
        DoneChunk()
    ]
    assert reader.done


def test_cached_tokens_are_counted() -> None:
    start = {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5}
    counted = told(
        event("message_start", message={"usage": {**start, "output_tokens": 1}}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 42}),
    )
    assert counted == [
        UsageChunk(115, 1, cached_tokens=100),
        FinishChunk("end_turn"),
        UsageChunk(115, 42, cached_tokens=100),
    ]


def test_counts_in_the_last_event_replace_those_of_the_first() -> None:
    counted = told(
        event("message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}}),
        event("message_delta", usage={"input_tokens": 30, "output_tokens": 2}),
    )
    assert counted[-1] == UsageChunk(30, 2)


def test_thinking_is_shown_and_collected_for_replay() -> None:
    step = result_of(
        begun(0, "thinking", thinking="", signature=""),
        added(0, "thinking_delta", thinking="Let me "),
        added(0, "thinking_delta", thinking="see."),
        added(0, "signature_delta", signature="c2ln"),
        ended(0),
        begun(1, "redacted_thinking", data="xyz"),
        ended(1),
        begun(2, "thinking", thinking="", signature=""),
        added(2, "signature_delta", signature="b25seQ"),
        ended(2),
        added(3, "text_delta", text="Yes."),
    )
    assert step.reasoning == "Let me see."
    assert step.text == "Yes."
    assert step.opaque_parts == (
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "", "signature": "b25seQ"},
    )


def test_thinking_text_in_the_start_event_is_kept() -> None:
    pieces = begun(0, "thinking", thinking="Hm", signature=None), ended(0)
    assert told(*pieces) == [
        ReasoningChunk("Hm"),
        OpaqueChunk(0, {"type": "thinking", "thinking": "Hm", "signature": ""}),
    ]


def call(index: int, *pieces: str, given: object = None) -> bytes:
    fields = {"id": f"toolu_{index}", "name": "read", "input": given or {}}
    deltas = (added(index, "input_json_delta", partial_json=piece) for piece in pieces)
    return begun(index, "tool_use", **fields) + b"".join(deltas)


def test_arguments_pass_unchanged_and_only_the_block_stop_seals_the_call() -> None:
    pieces = ('{"path": ', '"ä\\u00e4"', ", 1.0, ")
    assert told(call(1, *pieces), ended(1)) == [
        CallChunk(1, "toolu_1", "read"),
        *(CallChunk(1, arguments=piece) for piece in pieces),
        CallChunk(1, ended=True),
    ]


@pytest.mark.parametrize(
    ("pieces", "shape", "sealed"),
    [
        pytest.param(
            [call(0, '{"path":"a"}'), ended(0)], ArgumentsState.COMPLETE, True, id="complete"
        ),
        pytest.param([call(0, '{"path":"a"}')], ArgumentsState.COMPLETE, False, id="no block stop"),
        pytest.param([call(0, '{"path":')], ArgumentsState.TRUNCATED, False, id="cut"),
        pytest.param([call(0, ""), ended(0)], ArgumentsState.NONE, True, id="no arguments"),
        pytest.param(
            [call(0, given={"path": "a"})],
            ArgumentsState.NONE,
            False,
            id="initial input, not sealed",
        ),
        pytest.param(
            [call(0, given={"path": "a"}), ended(0)],
            ArgumentsState.COMPLETE,
            True,
            id="initial input",
        ),
    ],
)
def test_a_call_is_complete_only_when_all_of_it_has_arrived(
    pieces: list[bytes], shape: ArgumentsState, sealed: bool
) -> None:
    (made,) = result_of(*pieces).calls
    assert (made.id, made.arguments_state, made.sealed) == ("toolu_0", shape, sealed)


@pytest.mark.parametrize("given", [None, "text", [1], {}], ids=repr)
def test_an_initial_input_that_is_no_object_is_ignored(given: object) -> None:
    block = begun(0, "tool_use", id="toolu_0", name="read", input=given)
    assert told(block, ended(0)) == [CallChunk(0, "toolu_0", "read"), CallChunk(0, ended=True)]


def test_the_initial_input_is_not_repeated_after_deltas() -> None:
    (made,) = result_of(call(0, '{"path":"b"}', given={"path": "a"}), ended(0)).calls
    assert made.arguments == '{"path":"b"}'


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        pytest.param("end_turn", FinishReason.STOP, id="end of turn"),
        pytest.param("stop_sequence", FinishReason.STOP, id="stop sequence"),
        pytest.param("tool_use", FinishReason.TOOL_CALLS, id="tools"),
        pytest.param("max_tokens", FinishReason.LENGTH, id="output limit"),
        pytest.param("refusal", FinishReason.REFUSED, id="refusal"),
    ],
)
def test_each_stop_reason_maps_to_a_finish_reason(word: str, finish: FinishReason) -> None:
    step = result_of(event("message_delta", delta={"stop_reason": word, "stop_sequence": None}))
    assert (step.finish_reason, step.raw_finish_reason, step.end_marker_seen) == (
        finish,
        word,
        False,
    )


# --- bodies ----------------------------------------------------------------------------------

SCRIPT = """H R"hm, ä" P T"Hel" B T"lo 🙂" C(0,c1,read,{"path":"a"}) C(1,c2,read,'{"pa')
    C(1,-,-,'th":"ß"}') F tool_calls U(7,100,60) D"""
STREAMED = body_of(SCRIPT, "anthropic")


@given(st.lists(st.integers(0, len(STREAMED)), max_size=12))
@example(list(range(len(STREAMED))))
def test_the_result_does_not_depend_on_how_the_stream_is_split(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAMED)]
    pieces = [STREAMED[a:b] for a, b in itertools.pairwise(places)]
    assert read(*pieces) == read(STREAMED)


@given(st.integers(0, len(STREAMED)))
def test_a_stream_cut_anywhere_is_not_complete(after: int) -> None:
    step, whole = result_of(STREAMED[:after]), result_of(STREAMED)
    assert whole.text.startswith(step.text)
    assert whole.reasoning.startswith(step.reasoning)
    for made, meant in zip(step.calls, whole.calls, strict=False):
        assert meant.arguments.startswith(made.arguments)
        assert not made.sealed or made.arguments == meant.arguments
    if after < len(STREAMED) - 2:  # the last event may lack its blank line
        assert not step.end_marker_seen


def test_a_json_response_gives_the_same_as_a_stream() -> None:
    step = result_of(STREAMED)
    whole = result_of(body_of(SCRIPT, "anthropic", stream=False))
    # Only a stream counts the name of a call in `received_characters`.
    assert (
        msgspec.structs.replace(
            whole, received_characters=step.received_characters, unstreamed=False
        )
        == step
    )
    assert whole.unstreamed
    assert step.text == "Hello 🙂"
    assert [made.arguments for made in step.calls] == ['{"path":"a"}', '{"path":"ß"}']
    assert step.usage == UsageChunk(100, 7, cached_tokens=60)
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert step.end_marker_seen


def message(*content: object, reason: str | None = "tool_use") -> bytes:
    fields = {"type": "message", "content": content, "stop_reason": reason}
    return json.dumps(fields).encode()


USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}


@pytest.mark.parametrize(
    ("reason", "sealed"),
    [
        ("tool_use", True),
        ("end_turn", True),
        ("max_tokens", False),
        ("model_context_window_exceeded", False),
        ("refusal", False),
        (None, False),
    ],
)
def test_the_last_call_of_a_json_response_may_be_truncated(
    reason: str | None, sealed: bool
) -> None:
    made = [c for c in read(message(USE, USE, reason=reason)) if isinstance(c, CallChunk)]
    assert [chunk.ended for chunk in made] == [True, sealed]


def test_a_json_response_keeps_arguments_unchanged() -> None:
    raw = message().replace(
        b"[]", b'[{"type":"tool_use","id":"t","name":"n","input":{ "a" :1.0, "b":1e2 }}]'
    )
    assert CallChunk(0, "t", name="n", arguments='{ "a" :1.0, "b":1e2 }', ended=True) in read(raw)


def test_blocks_of_unknown_types_are_skipped() -> None:
    raw = message({"type": "web_search_tool_result"}, {"type": "text", "text": "hi"})
    assert TextChunk("hi") in read(raw)


# --- errors ----------------------------------------------------------------------------------


def complaint(kind: str, said: str = "said so", **details: object) -> dict[str, Any]:
    error = {"type": kind, "message": said, **({"details": details} if details else {})}
    return {"type": "error", "error": error, "request_id": "req_1"}


KINDS = [
    ("invalid_request_error", 400, errors.BadRequest),
    ("authentication_error", 401, errors.ApiKeyRejected),
    ("billing_error", 402, errors.OutOfCredit),
    ("permission_error", 403, errors.ApiKeyRejected),
    ("not_found_error", 404, errors.BadRequest),
    ("request_too_large", 413, errors.ContextTooLong),
    ("rate_limit_error", 429, errors.RateLimited),
    ("api_error", 500, errors.Overloaded),
    ("timeout_error", 504, errors.Overloaded),
    ("overloaded_error", 529, errors.Overloaded),
]


@pytest.mark.parametrize(("kind", "status", "ours"), KINDS)
def test_an_error_maps_the_same_with_a_status_and_inside_a_stream(
    kind: str, status: int, ours: type[errors.ProviderError]
) -> None:
    body = complaint(kind)
    with pytest.raises(errors.ProviderError, match="said so") as raised:
        read(added(0, "text_delta", text="half"), event("error", error=body["error"]))
    assert type(classify_response(status, body, {})) is type(raised.value) is ours


TELLING = [
    pytest.param("prompt is too long: 210000 tokens > 200000 maximum", errors.ContextTooLong(
        "", 200000), id="input too long"),
    pytest.param(
        "max_tokens: 999999 > 64000, which is the maximum allowed number of output tokens for m",
        errors.OutputTooLong("", 64000), id="output limit too high"),
    pytest.param(
        "input length and `max_tokens` exceed context limit: 180000 + 64000 > 200000, decrease "
        "input length or `max_tokens` and try again",
        errors.OutputTooLong("", 20000), id="sum too long"),
    pytest.param(
        "input length and `max_tokens` exceed context limit: 199900 + 64000 > 200000, decrease "
        "input length or `max_tokens` and try again",
        errors.ContextTooLong("", 200000), id="sum too long, no room left"),
    pytest.param("Your credit balance is too low to access the Anthropic API.",
        errors.OutOfCredit(), id="credit"),
    pytest.param("Output blocked by content filtering policy", errors.Declined(), id="filter"),
    pytest.param("messages.1: something is wrong", errors.BadRequest(), id="other bad request"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "ours"), TELLING)
def test_a_bad_request_is_classified_by_its_message(said: str, ours: errors.ProviderError) -> None:
    body = complaint("invalid_request_error", said)
    for found in (classify_response(400, body, {}), classify_error_event(body["error"])):
        assert type(found) is type(ours)
        assert getattr(found, "limit", None) == getattr(ours, "limit", None)
        assert str(found) == said


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        ({"type": "new_error", "message": "m"}, errors.BadRequest),
        ({"type": "new_error", "message": "connection reset"}, errors.ConnectionLost),
        ({"type": "new_error", "message": "content filtering policy"}, errors.BadRequest),
        ("cut", errors.ConnectionLost),
    ],
)
def test_an_event_of_an_unknown_type_is_classified_as_in_any_stream(
    error: object, ours: type[errors.ProviderError]
) -> None:
    assert type(classify_error_event(error)) is ours


def test_a_spend_limit_is_not_a_rate_limit() -> None:
    body = complaint("rate_limit_error", "no more", error_code="enforced_spend_limit_reached")
    assert type(classify_response(429, body, {"retry-after": "5"})) is errors.OutOfCredit


def test_retry_after_is_kept() -> None:
    found = classify_response(529, complaint("overloaded_error"), {"retry-after": "7"})
    assert isinstance(found, errors.Overloaded)
    assert found.retry_after == 7


@pytest.mark.parametrize(
    ("raw", "ours", "said"),
    [
        pytest.param(b"event: error\ndata: upstream died\n\n", errors.ConnectionLost, "upstream", id="text"),
        pytest.param(b"data: <html>\n\n", errors.ConnectionLost, "unreadable.*html", id="not JSON"),
        pytest.param(b'data: {"error":{"type":"api_error","message":"x"}}\n\n', errors.Overloaded,
            "x", id="an error without a type of event"),
        pytest.param(b'event: error\ndata: {"message":"Overloaded"}\n\n', errors.Overloaded,
            "Overloaded", id="an error without the field"),
        pytest.param(event("error"), errors.ProviderError, "without a message", id="an error without a message"),
        pytest.param(b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}',
            errors.Overloaded, "busy", id="an error as JSON"),
        pytest.param(message(USE)[:-9], errors.ConnectionLost, "unreadable", id="truncated JSON"),
    ],
)  # fmt: skip
def test_a_malformed_body_is_a_provider_error(
    raw: bytes, ours: type[errors.ProviderError], said: str
) -> None:
    with pytest.raises(ours, match=said):
        read(raw)


def test_chunks_before_an_error_are_yielded_first() -> None:
    reader = MessageReader()
    chunks = reader.feed(added(0, "text_delta", text="half") + event("error", error={}))
    assert next(chunks) == TextChunk("half")
    with pytest.raises(errors.ProviderError):
        next(chunks)
