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
            id="a closed call that makes no sense is for the gate",
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
            id="only thinking",
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
            id="the end is called ordinary, but a call is cut",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish_reason=FinishReason.TOOL_CALLS, usage=COUNTED),
            None,
            Capped(),
            id="the token count gives the limit away",
        ),
        pytest.param(
            StepResult(text="hi", finish_reason=FinishReason.STOP, usage=COUNTED),
            None,
            Complete(),
            id="just enough",
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
            id="the token count makes a bad end suspicious",
        ),
        pytest.param(
            StepResult(
                calls=(NONE,), finish_reason=FinishReason.TOOL_CALLS, usage=UsageChunk(10, 49)
            ),
            None,
            Complete(),
            id="the limit was not reached",
        ),
        pytest.param(
            StepResult(reasoning="hm", finish_reason=FinishReason.LENGTH),
            None,
            Capped(),
            id="length, thinking",
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
            id="an error and nothing",
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
            id="counted on the way",
        ),
        pytest.param(
            StepResult(calls=(BAD,), end_marker_seen=True),
            None,
            Cut(CutPhase.TOOL_ARGS),
            id="[DONE], bad call",
        ),
        pytest.param(StepResult(), None, Cut(CutPhase.BEFORE_FIRST), id="nothing at all"),
        pytest.param(
            StepResult(),
            ApiKeyRejected(),
            Cut(CutPhase.BEFORE_FIRST, ApiKeyRejected()),
            id="refused key",
        ),
        pytest.param(
            StepResult(reasoning="hm"), None, Cut(CutPhase.REASONING), id="cut while thinking"
        ),
        pytest.param(
            StepResult(text="half"), RESET, Cut(CutPhase.TEXT, RESET), id="cut in the text"
        ),
        pytest.param(StepResult(text="half"), None, Cut(CutPhase.TEXT), id="the body just ended"),
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
            StepResult(calls=(WHOLE,)), None, Cut(CutPhase.CALL_UNSEALED), id="whole, but unproven"
        ),
    ],
)
def test_judges(step: StepResult, error: ProviderError | None, verdict: Verdict) -> None:
    judged = judge_attempt(step, error=error, cap=50)
    assert type(judged) is type(verdict)
    if isinstance(judged, Cut) and isinstance(verdict, Cut):
        assert judged.phase is verdict.phase
        assert type(judged.error) is type(verdict.error)


def test_our_own_stop_comes_before_everything_else() -> None:
    assert (
        judge_attempt(StepResult(text="hi", finish_reason=FinishReason.STOP), stopped=True)
        == Interrupted()
    )


def test_a_service_known_to_end_without_a_word_is_believed_for_text_only() -> None:
    assert judge_attempt(StepResult(text="hi"), omits_end_marker=True) == SoftComplete()
    assert isinstance(judge_attempt(StepResult(calls=(WHOLE,)), omits_end_marker=True), Cut)
    assert isinstance(judge_attempt(StepResult(text="hi"), omits_end_marker=True, error=RESET), Cut)
    assert isinstance(judge_attempt(StepResult(), omits_end_marker=True), Cut)
    assert isinstance(
        judge_attempt(StepResult(text="hi", calls=(WHOLE,)), omits_end_marker=True), Cut
    )


def test_every_verdict_has_a_word_for_the_journal() -> None:
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
