import pytest

from agent.answer.accumulate import Finish, StepResult
from agent.answer.call_slots import Shape, StepCall
from agent.errors import Cut as ConnectionCut
from agent.errors import ProviderError, Unauthorized
from agent.model.contract import UsageChunk
from agent.verdict import (
    Capped,
    Complete,
    Cut,
    Empty,
    Interrupted,
    Phase,
    Refused,
    SoftComplete,
    Verdict,
    judge,
    name_of,
)

RESET = ConnectionCut("reset")
COUNTED = UsageChunk(10, 50, alone=True)


def call(shape: Shape, *, sealed: bool = False) -> StepCall:
    return StepCall("c1", "pay", "", shape, sealed)


WHOLE, BAD, CUT, NONE = (call(shape) for shape in (Shape.WHOLE, Shape.BAD, Shape.CUT, Shape.NONE))


@pytest.mark.parametrize(
    ("step", "error", "verdict"),
    [
        pytest.param(StepResult("hi", finish=Finish.STOP), None, Complete(), id="text and stop"),
        pytest.param(
            StepResult("hi", finish=Finish.STOP), RESET, Complete(), id="a reset after the end"
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish=Finish.TOOL_CALLS), RESET, Complete(), id="whole call"
        ),
        pytest.param(
            StepResult(calls=(WHOLE,), finish=Finish.STOP), None, Complete(), id="call and stop"
        ),
        pytest.param(
            StepResult(calls=(BAD,), finish=Finish.TOOL_CALLS),
            None,
            Complete(),
            id="a closed call that makes no sense is for the gate",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish=Finish.TOOL_CALLS), None, Complete(), id="no arguments"
        ),
        pytest.param(StepResult(finish=Finish.STOP), None, Empty(), id="stop and nothing"),
        pytest.param(
            StepResult(" \n", reasoning="hm", finish=Finish.STOP), None, Empty(), id="only thinking"
        ),
        pytest.param(StepResult(done=True), None, Empty(), id="done and nothing"),
        pytest.param(StepResult("no", finish=Finish.REFUSED), None, Refused(), id="refused"),
        pytest.param(StepResult("hi", finish=Finish.LENGTH), None, Capped(), id="length"),
        pytest.param(
            StepResult(calls=(WHOLE,), finish=Finish.LENGTH), None, Capped(), id="length, call"
        ),
        pytest.param(
            StepResult(calls=(WHOLE, CUT), finish=Finish.TOOL_CALLS),
            None,
            Capped(),
            id="the end is called ordinary, but a call is cut",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish=Finish.TOOL_CALLS, usage=COUNTED),
            None,
            Capped(),
            id="the token count gives the limit away",
        ),
        pytest.param(
            StepResult("hi", finish=Finish.STOP, usage=COUNTED), None, Complete(), id="just enough"
        ),
        pytest.param(
            StepResult(calls=(CUT,), finish=Finish.STOP),
            RESET,
            Capped(),
            id="stop, but a call is cut",
        ),
        pytest.param(
            StepResult("hi", calls=(BAD,), finish=Finish.TOOL_CALLS, usage=COUNTED),
            None,
            Capped(),
            id="the token count makes a bad end suspicious",
        ),
        pytest.param(
            StepResult(calls=(NONE,), finish=Finish.TOOL_CALLS, usage=UsageChunk(10, 49)),
            None,
            Complete(),
            id="the limit was not reached",
        ),
        pytest.param(
            StepResult(reasoning="hm", finish=Finish.LENGTH), None, Capped(), id="length, thinking"
        ),
        pytest.param(StepResult(finish=Finish.LENGTH), RESET, Capped(), id="length, nothing"),
        pytest.param(
            StepResult(calls=(WHOLE,), finish=Finish.REFUSED), RESET, Refused(), id="refused, call"
        ),
        pytest.param(
            StepResult(done=True), RESET, Cut(Phase.BEFORE_FIRST, RESET), id="an error and nothing"
        ),
        pytest.param(
            StepResult("x", calls=(WHOLE, NONE)),
            None,
            Cut(Phase.TOOL_NAME),
            id="the last call counts",
        ),
        pytest.param(StepResult("hi", done=True), None, SoftComplete(), id="[DONE] only"),
        pytest.param(StepResult("hi", usage=COUNTED), None, SoftComplete(), id="usage only"),
        pytest.param(
            StepResult(calls=(WHOLE,), done=True), RESET, SoftComplete(), id="call and [DONE]"
        ),
        pytest.param(
            StepResult("hi", usage=UsageChunk(1, 1)), None, Cut(Phase.TEXT), id="counted on the way"
        ),
        pytest.param(
            StepResult(calls=(BAD,), done=True), None, Cut(Phase.TOOL_ARGS), id="[DONE], bad call"
        ),
        pytest.param(StepResult(), None, Cut(Phase.BEFORE_FIRST), id="nothing at all"),
        pytest.param(
            StepResult(), Unauthorized(), Cut(Phase.BEFORE_FIRST, Unauthorized()), id="refused key"
        ),
        pytest.param(
            StepResult(reasoning="hm"), None, Cut(Phase.REASONING), id="cut while thinking"
        ),
        pytest.param(StepResult("half"), RESET, Cut(Phase.TEXT, RESET), id="cut in the text"),
        pytest.param(StepResult("half"), None, Cut(Phase.TEXT), id="the body just ended"),
        pytest.param(
            StepResult("x", calls=(NONE,)), None, Cut(Phase.TOOL_NAME), id="cut after the name"
        ),
        pytest.param(
            StepResult("x", calls=(CUT,)), None, Cut(Phase.TOOL_ARGS), id="cut in the arguments"
        ),
        pytest.param(
            StepResult(calls=(WHOLE,)), None, Cut(Phase.CALL_UNSEALED), id="whole, but unproven"
        ),
    ],
)
def test_judges(step: StepResult, error: ProviderError | None, verdict: Verdict) -> None:
    judged = judge(step, error=error, cap=50)
    assert type(judged) is type(verdict)
    if isinstance(judged, Cut) and isinstance(verdict, Cut):
        assert judged.phase is verdict.phase
        assert type(judged.error) is type(verdict.error)


def test_our_own_stop_comes_before_everything_else() -> None:
    assert judge(StepResult("hi", finish=Finish.STOP), stopped=True) == Interrupted()


def test_a_service_known_to_end_without_a_word_is_believed_for_text_only() -> None:
    assert judge(StepResult("hi"), omits_end=True) == SoftComplete()
    assert isinstance(judge(StepResult(calls=(WHOLE,)), omits_end=True), Cut)
    assert isinstance(judge(StepResult("hi"), omits_end=True, error=RESET), Cut)
    assert isinstance(judge(StepResult(), omits_end=True), Cut)
    assert isinstance(judge(StepResult("hi", calls=(WHOLE,)), omits_end=True), Cut)


def test_every_verdict_has_a_word_for_the_journal() -> None:
    verdicts: list[Verdict] = [
        Interrupted(),
        Complete(),
        Refused(),
        Capped(),
        SoftComplete(),
        Cut(Phase.TEXT),
        Empty(),
    ]
    assert [name_of(verdict) for verdict in verdicts] == [
        "interrupted",
        "complete",
        "refused",
        "capped",
        "soft-complete",
        "cut",
        "empty",
    ]
