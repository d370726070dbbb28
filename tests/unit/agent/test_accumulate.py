import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.accumulate import (
    Accumulator,
    FinishReason,
    ProgressKind,
    StepResult,
    normalize_finish_reason,
)
from agent.answer.call_slots import ArgumentsState
from agent.events import ReasoningDelta, TextDelta
from agent.model.contract import (
    CallChunk,
    Chunk,
    DoneChunk,
    FinishChunk,
    OpaqueChunk,
    OpenedChunk,
    PingChunk,
    ReasoningChunk,
    TextChunk,
    ToolSchema,
    UsageChunk,
    WholeChunk,
)

TOOLS = (ToolSchema("read", "", {"type": "object", "required": ["path"]}),)


def collect(*chunks: Chunk) -> tuple[StepResult, list[TextDelta | ReasoningDelta]]:
    accumulator = Accumulator(TOOLS, "call_t_1")
    shown = [delta for chunk in chunks for delta in accumulator.feed(chunk)]
    shown += accumulator.close()
    return accumulator.result(), shown


def test_a_complete_answer_is_accumulated_and_emitted_piece_by_piece() -> None:
    step, shown = collect(
        OpenedChunk("req_1"),
        ReasoningChunk("hm"),
        TextChunk("Hel"),
        TextChunk(""),
        TextChunk("lo"),
        FinishChunk("stop"),
        UsageChunk(3, 2, alone=True),
        DoneChunk(),
    )
    assert step == StepResult(
        text="Hello",
        reasoning="hm",
        finish_reason=FinishReason.STOP,
        raw_finish_reason="stop",
        end_marker_seen=True,
        usage=UsageChunk(3, 2, alone=True),
        received_characters=7,
        request_id="req_1",
        opened=True,
    )
    assert shown == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo")]


def test_think_tags_in_the_text_become_reasoning() -> None:
    step, shown = collect(TextChunk("<thi"), TextChunk("nk>a</think>"), TextChunk("b"))
    assert (step.text, step.reasoning) == ("b", "a")
    assert shown == [ReasoningDelta("a"), TextDelta("b")]


def test_held_text_is_emitted_on_close() -> None:
    step, shown = collect(TextChunk("<th"))
    assert step.text == "<th"
    assert shown == [TextDelta("<th")]


def test_text_and_a_tool_call_are_both_kept() -> None:
    step, shown = collect(
        TextChunk("Let me see. "),
        CallChunk(0, "c1", name="read", arguments='{"path":'),
        CallChunk(0, arguments='"a"}'),
        TextChunk("ok"),
        FinishChunk("tool_calls"),
    )
    assert step.text == "Let me see. ok"
    (call,) = step.calls
    assert (call.id, call.arguments, call.arguments_state, call.sealed) == (
        "c1",
        '{"path":"a"}',
        ArgumentsState.COMPLETE,
        True,
    )
    assert shown == [TextDelta("Let me see. "), TextDelta("ok")]


def test_only_chunks_with_content_count_as_progress() -> None:
    accumulator = Accumulator(TOOLS, "p")
    silent: list[Chunk] = [
        OpenedChunk(),
        PingChunk(),
        TextChunk(""),
        CallChunk(index=0),
        FinishChunk("stop"),
        UsageChunk(1, 1),
        OpaqueChunk(0, {"signature": "x"}),
        CallChunk(index=0, ended=True),
        WholeChunk(),
        DoneChunk(),
    ]
    for chunk in silent:
        accumulator.feed(chunk)
    assert accumulator.received_characters == 0
    assert accumulator.progress is None


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        (TextChunk("a"), ProgressKind.TEXT),
        (ReasoningChunk("a"), ProgressKind.REASONING),
        (TextChunk("<think>a"), ProgressKind.REASONING),
        (CallChunk(0, "c", "read"), ProgressKind.TOOL),
        (CallChunk(0, arguments="{"), ProgressKind.TOOL),
    ],
)
def test_progress_records_the_kind_of_output(chunk: Chunk, kind: ProgressKind) -> None:
    accumulator = Accumulator(TOOLS, "p")
    accumulator.feed(chunk)
    assert accumulator.progress is kind
    assert accumulator.received_characters > 0


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("STOP", FinishReason.STOP),
        ("end_turn", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("completed", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("pause_turn", FinishReason.STOP),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("tool_call", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("length", FinishReason.LENGTH),
        ("incomplete", FinishReason.LENGTH),
        ("max_output_tokens", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("content_filter", FinishReason.REFUSED),
        ("refusal", FinishReason.REFUSED),
        ("SAFETY", FinishReason.REFUSED),
        ("recitation", FinishReason.REFUSED),
        ("sensitive", FinishReason.REFUSED),
        (" stop\n", FinishReason.STOP),
        ("7", FinishReason.STOP),
        ("whatever", FinishReason.STOP),
    ],
)
def test_finish_reasons_of_all_services_are_normalized(raw: str, finish: FinishReason) -> None:
    assert normalize_finish_reason(raw) is finish


def test_a_refusal_is_not_overwritten_by_a_later_finish_reason() -> None:
    step, _ = collect(FinishChunk("refusal"), FinishChunk("stop"))
    assert step.finish_reason is FinishReason.REFUSED


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        (DoneChunk(), True),
        (UsageChunk(1, 1, alone=True), True),
        (UsageChunk(1, 1), False),  # some services send usage in every chunk
        (FinishChunk("stop"), True),
        (PingChunk(), False),
    ],
)
def test_ended_is_true_after_terminal_evidence(last: Chunk, ended: bool) -> None:
    step, _ = collect(CallChunk(0, "c1", name="read", arguments='{"path":"a"}'), last)
    assert step.ended is ended
    assert step.calls[0].sealed is ended


def test_finish_reason_length_does_not_seal_the_last_call() -> None:
    step, _ = collect(
        CallChunk(0, "c1", name="read", arguments='{"path":"a"}'),
        CallChunk(1, "c2", name="read", arguments='{"path":"a"}'),
        FinishChunk("length"),
        DoneChunk(),
    )
    assert [call.sealed for call in step.calls] == [True, False]


def test_opaque_parts_are_merged_by_index() -> None:
    step, shown = collect(
        OpaqueChunk(3, {"type": "thinking", "signature": "s1"}),
        OpaqueChunk(1, {"type": "redacted"}),
        OpaqueChunk(3, {"signature": "g"}),
    )
    assert step.opaque_parts == ({"type": "redacted"}, {"type": "thinking", "signature": "s1g"})
    assert shown == []


def test_a_call_with_an_end_marker_is_sealed_in_an_unfinished_answer() -> None:
    step, _ = collect(
        CallChunk(0, "c1", name="read", arguments='{"path":"a"}'),
        CallChunk(0, ended=True),
        CallChunk(1, "c2", name="read", arguments='{"path":"b"}'),
    )
    assert [call.sealed for call in step.calls] == [True, False]
    assert not step.ended


def test_an_unstreamed_answer_is_marked() -> None:
    assert collect(TextChunk("x"))[0].unstreamed is False
    assert collect(WholeChunk(), TextChunk("x"))[0].unstreamed is True


def test_the_latest_usage_wins() -> None:
    step, _ = collect(UsageChunk(10, 1), UsageChunk(10, 7, cached_tokens=4, cost=0.5))
    assert step.usage == UsageChunk(10, 7, cached_tokens=4, cost=0.5)


def test_the_result_is_available_at_any_time() -> None:
    accumulator = Accumulator(TOOLS, "p")
    accumulator.feed(TextChunk("a"))
    first = accumulator.result()
    accumulator.feed(TextChunk("b"))
    assert (first.text, accumulator.result().text) == ("a", "ab")


@pytest.mark.process
@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_the_result_does_not_depend_on_how_the_text_is_split(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [TextChunk(text[a:b]) for a, b in itertools.pairwise(edges)]
    step, shown = collect(*pieces)
    whole, _ = collect(TextChunk(text))
    assert (step.text, step.reasoning) == (whole.text, whole.reasoning)
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == step.text
