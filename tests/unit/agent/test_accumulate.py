import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.accumulate import Accumulator, Finish, Progress, StepResult, finish_of
from agent.answer.call_slots import Shape
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


def test_a_whole_answer_is_collected_and_shown_piece_by_piece() -> None:
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
        finish=Finish.STOP,
        finish_raw="stop",
        done=True,
        usage=UsageChunk(3, 2, alone=True),
        received=7,
        request_id="req_1",
    )
    assert shown == [ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo")]


def test_thinking_inside_the_text_becomes_reasoning() -> None:
    step, shown = collect(TextChunk("<thi"), TextChunk("nk>a</think>"), TextChunk("b"))
    assert (step.text, step.reasoning) == ("b", "a")
    assert shown == [ReasoningDelta("a"), TextDelta("b")]


def test_text_that_was_held_back_is_shown_at_the_end() -> None:
    step, shown = collect(TextChunk("<th"))
    assert step.text == "<th"
    assert shown == [TextDelta("<th")]


def test_text_and_a_call_are_both_kept() -> None:
    step, shown = collect(
        TextChunk("Let me see. "),
        CallChunk(0, "c1", "read", '{"path":'),
        CallChunk(0, arguments='"a"}'),
        TextChunk("ok"),
        FinishChunk("tool_calls"),
    )
    assert step.text == "Let me see. ok"
    (call,) = step.calls
    assert (call.id, call.arguments, call.shape, call.sealed) == (
        "c1",
        '{"path":"a"}',
        Shape.WHOLE,
        True,
    )
    assert shown == [TextDelta("Let me see. "), TextDelta("ok")]


def test_only_what_says_something_is_progress() -> None:
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
    assert accumulator.received == 0
    assert accumulator.progress is None


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        (TextChunk("a"), Progress.TEXT),
        (ReasoningChunk("a"), Progress.REASONING),
        (TextChunk("<think>a"), Progress.REASONING),
        (CallChunk(0, "c", "read"), Progress.TOOL),
        (CallChunk(0, arguments="{"), Progress.TOOL),
    ],
)
def test_progress_has_a_kind(chunk: Chunk, kind: Progress) -> None:
    accumulator = Accumulator(TOOLS, "p")
    accumulator.feed(chunk)
    assert accumulator.progress is kind
    assert accumulator.received > 0


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        ("stop", Finish.STOP),
        ("STOP", Finish.STOP),
        ("end_turn", Finish.STOP),
        ("eos", Finish.STOP),
        ("completed", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("pause_turn", Finish.STOP),
        ("tool_use", Finish.TOOL_CALLS),
        ("tool_calls", Finish.TOOL_CALLS),
        ("tool_call", Finish.TOOL_CALLS),
        ("function_call", Finish.TOOL_CALLS),
        ("MAX_TOKENS", Finish.LENGTH),
        ("length", Finish.LENGTH),
        ("incomplete", Finish.LENGTH),
        ("max_output_tokens", Finish.LENGTH),
        ("model_length", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("content_filter", Finish.REFUSED),
        ("refusal", Finish.REFUSED),
        ("SAFETY", Finish.REFUSED),
        ("recitation", Finish.REFUSED),
        ("sensitive", Finish.REFUSED),
        (" stop\n", Finish.STOP),
        ("7", Finish.STOP),
        ("whatever", Finish.STOP),
    ],
)
def test_every_service_s_word_for_the_end_is_understood(raw: str, finish: Finish) -> None:
    assert finish_of(raw) is finish


def test_a_refusal_stays_one_whatever_follows() -> None:
    step, _ = collect(FinishChunk("refusal"), FinishChunk("stop"))
    assert step.finish is Finish.REFUSED


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        (DoneChunk(), True),
        (UsageChunk(1, 1, alone=True), True),
        (UsageChunk(1, 1), False),  # some services count in every piece
        (FinishChunk("stop"), True),
        (PingChunk(), False),
    ],
)
def test_knows_whether_the_service_said_that_it_is_over(last: Chunk, ended: bool) -> None:
    step, _ = collect(CallChunk(0, "c1", "read", '{"path":"a"}'), last)
    assert step.ended is ended
    assert step.calls[0].sealed is ended


def test_the_length_limit_proves_nothing_about_the_last_call() -> None:
    step, _ = collect(
        CallChunk(0, "c1", "read", '{"path":"a"}'),
        CallChunk(1, "c2", "read", '{"path":"a"}'),
        FinishChunk("length"),
        DoneChunk(),
    )
    assert [call.sealed for call in step.calls] == [True, False]


def test_what_the_service_wants_back_is_put_together_by_index() -> None:
    step, shown = collect(
        OpaqueChunk(3, {"type": "thinking", "signature": "s1"}),
        OpaqueChunk(1, {"type": "redacted"}),
        OpaqueChunk(3, {"signature": "g"}),
    )
    assert step.opaque == ({"type": "redacted"}, {"type": "thinking", "signature": "s1g"})
    assert shown == []


def test_a_call_that_the_wire_says_is_over_is_sealed_although_the_answer_is_not() -> None:
    step, _ = collect(
        CallChunk(0, "c1", "read", '{"path":"a"}'),
        CallChunk(0, ended=True),
        CallChunk(1, "c2", "read", '{"path":"b"}'),
    )
    assert [call.sealed for call in step.calls] == [True, False]
    assert not step.ended


def test_an_answer_in_one_piece_is_marked() -> None:
    assert collect(TextChunk("x"))[0].whole is False
    assert collect(WholeChunk(), TextChunk("x"))[0].whole is True


def test_the_latest_count_is_the_one_that_holds() -> None:
    step, _ = collect(UsageChunk(10, 1), UsageChunk(10, 7, cached_tokens=4, cost=0.5))
    assert step.usage == UsageChunk(10, 7, cached_tokens=4, cost=0.5)


def test_what_was_received_can_be_asked_for_at_any_moment() -> None:
    accumulator = Accumulator(TOOLS, "p")
    accumulator.feed(TextChunk("a"))
    first = accumulator.result()
    accumulator.feed(TextChunk("b"))
    assert (first.text, accumulator.result().text) == ("a", "ab")


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_however_the_text_is_split_it_is_the_same(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [TextChunk(text[a:b]) for a, b in itertools.pairwise(edges)]
    step, shown = collect(*pieces)
    whole, _ = collect(TextChunk(text))
    assert (step.text, step.reasoning) == (whole.text, whole.reasoning)
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == step.text
