import pytest

from agent.answer.accumulate import FinishReason, StepResult
from agent.answer.call_slots import ArgumentsState, StepCall
from agent.errors import ApiKeyRejected, ConnectionLost, ProviderError
from agent.model.contract import UsageChunk
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    CutPhase,
    Empty,
    Interrupted,
    ModelRefused,
    SoftComplete,
    Verdict,
    judge_attempt,
    verdict_name,
)

RESET = ConnectionLost("reset")
COUNTED = UsageChunk(10, 50, alone=True)


def call(shape: ArgumentsState, *, sealed: bool = False) -> StepCall:
    return StepCall(id="c1", name="pay", arguments="", arguments_state=shape, sealed=sealed)


WHOLE, BAD, CUT, NONE = (
    call(shape)
    for shape in (
        ArgumentsState.COMPLETE,
        ArgumentsState.INVALID,
        ArgumentsState.TRUNCATED,
        ArgumentsState.NONE,
    )
)


@pytest.mark.parametrize(
    ("step", "error", "verdict"),
    [
        pytest.param(
            StepResult(text="hi", finish_reason=FinishReason.STOP),
            None,
            Complete(),
            id="text and stop",
        ),
        pytest.param(
            StepResult(text="hi", finish_reason=FinishReason.STOP),
            RESET,
            Complete(),
            id="a reset after the end",
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish_reason=FinishReason.TOOL_CALLS),
            RESET,
            Complete(),
            id="whole call",
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish_reason=FinishReason.STOP),
            None,
            Complete(),
            id="call and stop",
        ),
        pytest.param(
            StepResult(calls=(BAD,), finish_reason=FinishReason.TOOL_CALLS),
            None,
            Complete(),
            id="a closed call with invalid JSON is left to the gate",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish_reason=FinishReason.TOOL_CALLS),
            None,
            Complete(),
            id="no arguments",
        ),
        pytest.param(
            StepResult(finish_reason=FinishReason.STOP), None, Empty(), id="stop and nothing"
        ),
        pytest.param(
            StepResult(text=" \n", reasoning="hm", finish_reason=FinishReason.STOP),
            None,
            Empty(),
            id="reasoning only",
        ),
        pytest.param(StepResult(end_marker_seen=True), None, Empty(), id="done and nothing"),
        pytest.param(
            StepResult(text="no", finish_reason=FinishReason.REFUSED),
            None,
            ModelRefused(),
            id="refused",
        ),
        pytest.param(
            StepResult(text="hi", finish_reason=FinishReason.LENGTH), None, Capped(), id="length"
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish_reason=FinishReason.LENGTH),
            None,
            Capped(),
            id="length, call",
        ),
        pytest.param(
            StepResult(calls=(WHOLE, CUT), finish_reason=FinishReason.TOOL_CALLS),
            None,
            Capped(),
            id="finish tool_calls with a truncated call",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish_reason=FinishReason.TOOL_CALLS, usage=COUNTED),
            None,
            Capped(),
            id="token count reveals the output limit",
        ),
        pytest.param(
            StepResult(text="hi", finish_reason=FinishReason.STOP, usage=COUNTED),
            None,
            Complete(),
            id="text at the output limit",
        ),
        pytest.param(
            StepResult(calls=(CUT,), finish_reason=FinishReason.STOP),
            RESET,
            Capped(),
            id="stop, but a call is cut",
        ),
        pytest.param(
            StepResult(
                text="hi", calls=(BAD,), finish_reason=FinishReason.TOOL_CALLS, usage=COUNTED
            ),
            None,
            Capped(),
            id="invalid JSON at the output limit",
        ),
        pytest.param(
            StepResult(
                calls=(NONE,), finish_reason=FinishReason.TOOL_CALLS, usage=UsageChunk(10, 49)
            ),
            None,
            Complete(),
            id="no arguments below the output limit",
        ),
        pytest.param(
            StepResult(reasoning="hm", finish_reason=FinishReason.LENGTH),
            None,
            Capped(),
            id="length, reasoning",
        ),
        pytest.param(
            StepResult(finish_reason=FinishReason.LENGTH), RESET, Capped(), id="length, nothing"
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish_reason=FinishReason.REFUSED),
            RESET,
            ModelRefused(),
            id="refused, call",
        ),
        pytest.param(
            StepResult(end_marker_seen=True),
            RESET,
            Cut(CutPhase.BEFORE_FIRST, RESET),
            id="error and nothing",
        ),
        pytest.param(
            StepResult(text="x", calls=(WHOLE, NONE)),
            None,
            Cut(CutPhase.TOOL_NAME),
            id="the last call counts",
        ),
        pytest.param(
            StepResult(text="hi", end_marker_seen=True), None, SoftComplete(), id="[DONE] only"
        ),
        pytest.param(StepResult(text="hi", usage=COUNTED), None, SoftComplete(), id="usage only"),
        pytest.param(
            StepResult(calls=(WHOLE,), end_marker_seen=True),
            RESET,
            SoftComplete(),
            id="call and [DONE]",
        ),
        pytest.param(
            StepResult(text="hi", usage=UsageChunk(1, 1)),
            None,
            Cut(CutPhase.TEXT),
            id="usage in a content chunk",
        ),
        pytest.param(
            StepResult(calls=(BAD,), end_marker_seen=True),
            None,
            Cut(CutPhase.TOOL_ARGS),
            id="[DONE], bad call",
        ),
        pytest.param(StepResult(), None, Cut(CutPhase.BEFORE_FIRST), id="empty"),
        pytest.param(
            StepResult(),
            ApiKeyRejected(),
            Cut(CutPhase.BEFORE_FIRST, ApiKeyRejected()),
            id="rejected key",
        ),
        pytest.param(
            StepResult(reasoning="hm"), None, Cut(CutPhase.REASONING), id="cut in the reasoning"
        ),
        pytest.param(
            StepResult(text="half"), RESET, Cut(CutPhase.TEXT, RESET), id="cut in the text"
        ),
        pytest.param(
            StepResult(text="half"), None, Cut(CutPhase.TEXT), id="end of stream in the text"
        ),
        pytest.param(
            StepResult(text="x", calls=(NONE,)),
            None,
            Cut(CutPhase.TOOL_NAME),
            id="cut after the name",
        ),
        pytest.param(
            StepResult(text="x", calls=(CUT,)),
            None,
            Cut(CutPhase.TOOL_ARGS),
            id="cut in the arguments",
        ),
        pytest.param(
            StepResult(calls=(WHOLE,)),
            None,
            Cut(CutPhase.CALL_UNSEALED),
            id="complete but unsealed call",
        ),
    ],
)
def test_a_step_is_judged(step: StepResult, error: ProviderError | None, verdict: Verdict) -> None:
    judged = judge_attempt(step, error=error, cap=50)
    assert type(judged) is type(verdict)
    if isinstance(judged, Cut) and isinstance(verdict, Cut):
        assert judged.phase is verdict.phase
        assert type(judged.error) is type(verdict.error)


def test_our_own_cancellation_takes_precedence() -> None:
    assert (
        judge_attempt(StepResult(text="hi", finish_reason=FinishReason.STOP), stopped=True)
        == Interrupted()
    )


def test_unmarked_ends_are_trusted_for_text_only() -> None:
    assert judge_attempt(StepResult(text="hi"), omits_end_marker=True) == SoftComplete()
    assert isinstance(judge_attempt(StepResult(calls=(WHOLE,)), omits_end_marker=True), Cut)
    assert isinstance(judge_attempt(StepResult(text="hi"), omits_end_marker=True, error=RESET), Cut)
    assert isinstance(judge_attempt(StepResult(), omits_end_marker=True), Cut)
    assert isinstance(
        judge_attempt(StepResult(text="hi", calls=(WHOLE,)), omits_end_marker=True), Cut
    )


def test_every_verdict_has_a_journal_name() -> None:
    verdicts: list[Verdict] = [
        Interrupted(),
        Complete(),
        ModelRefused(),
        Capped(),
        SoftComplete(),
        Cut(CutPhase.TEXT),
        Empty(),
    ]
    assert [verdict_name(verdict) for verdict in verdicts] == [
        "interrupted",
        "complete",
        "refused",
        "capped",
        "soft-complete",
        "cut",
        "empty",
    ]
