import pytest

from agent import errors
from agent.continuation import (
    Action,
    Counters,
    Finish,
    GiveUp,
    Retry,
    RunTools,
    cause_of,
    next_action,
)
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
)

FRESH = Counters()
ONCE = Counters(retries=1)
TWICE = Counters(retries=2)
SHOWN = Counters(shown=True)
CALLS = Counters(calls=True)


def cut(error: errors.ProviderError | None = None, phase: Phase = Phase.BEFORE_FIRST) -> Cut:
    return Cut(phase, error)


@pytest.mark.parametrize(
    ("verdict", "counters", "action"),
    [
        pytest.param(Complete(), FRESH, Finish(), id="an answer"),
        pytest.param(SoftComplete(), FRESH, Finish(), id="an answer without a reason"),
        pytest.param(Complete(), CALLS, RunTools(), id="calls"),
        pytest.param(SoftComplete(), CALLS, RunTools(), id="calls without a reason"),
        pytest.param(Refused(), FRESH, GiveUp, id="declined"),
        pytest.param(Capped(), SHOWN, GiveUp, id="met the limit"),
        pytest.param(Interrupted(), FRESH, GiveUp, id="stopped"),
        pytest.param(Empty(), FRESH, Retry(0.0), id="empty: once more"),
        pytest.param(Empty(), ONCE, GiveUp, id="empty again"),
        pytest.param(cut(), FRESH, Retry(1.0), id="cut before anything was said"),
        pytest.param(cut(), ONCE, Retry(2.0), id="again, later"),
        pytest.param(cut(), TWICE, GiveUp, id="and no third time"),
        pytest.param(cut(), Counters(backoff=20, retries=1), Retry(30.0), id="never longer"),
        pytest.param(cut(phase=Phase.REASONING), FRESH, Retry(1.0), id="cut while thinking"),
        pytest.param(cut(phase=Phase.TOOL_ARGS), FRESH, Retry(1.0), id="cut in arguments, no text"),
        pytest.param(cut(phase=Phase.TOOL_ARGS), SHOWN, GiveUp, id="cut in arguments after text"),
        pytest.param(cut(phase=Phase.TEXT), SHOWN, GiveUp, id="what was shown is not asked again"),
        pytest.param(cut(errors.Cut()), FRESH, Retry(1.0), id="reset"),
        pytest.param(cut(errors.Stalled()), FRESH, Retry(0.0), id="waited long enough already"),
        pytest.param(cut(errors.Stalled()), ONCE, Retry(2.0), id="but not twice"),
        pytest.param(cut(errors.Overloaded()), FRESH, Retry(1.0), id="overloaded"),
        pytest.param(
            cut(errors.Overloaded(retry_after=3)), FRESH, Retry(3, exact=True), id="told how long"
        ),
        pytest.param(
            cut(errors.RateLimited(retry_after=60.0)), FRESH, Retry(60.0, exact=True), id="a minute"
        ),
        pytest.param(cut(errors.RateLimited(retry_after=61.0)), FRESH, GiveUp, id="too long"),
        pytest.param(cut(errors.RateLimited()), FRESH, Retry(1.0), id="slow down, untold"),
        pytest.param(cut(errors.BadRequest()), FRESH, GiveUp, id="would fail again"),
        pytest.param(cut(errors.Unauthorized()), FRESH, GiveUp, id="key refused"),
        pytest.param(cut(errors.OutOfCredit()), FRESH, GiveUp, id="no credit"),
        pytest.param(cut(errors.ContextTooLong()), FRESH, GiveUp, id="too long a conversation"),
    ],
)
def test_decides(verdict: Verdict, counters: Counters, action: Action | type[GiveUp]) -> None:
    decided = next_action(verdict, counters)
    if isinstance(action, type):
        assert isinstance(decided, action)
        assert decided.cause
    else:
        assert decided == action


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "broke off"),
        (errors.Cut(), "broke off"),
        (errors.Stalled(), "stopped sending"),
        (errors.RateLimited(), "slow down"),
        (errors.Overloaded("no connection to http://x"), "no connection to http://x"),
        (errors.ContextTooLong(), "too long"),
        (errors.Unauthorized(), "key"),
        (errors.OutOfCredit(), "empty"),
        (errors.BadRequest("model 'x' does not exist"), "model 'x' does not exist"),
    ],
)
def test_the_cause_is_said_in_plain_words(error: errors.ProviderError | None, words: str) -> None:
    assert words in cause_of(error)
