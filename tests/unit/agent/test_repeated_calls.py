import pytest

from agent.tools.repeats import EarlierCall, RepeatedCalls, earlier_call_from
from sessions.records import ToolRun

KEY = ("pay", b"{}")


@pytest.mark.parametrize(
    ("ok", "result", "twin"),
    [
        pytest.param(True, "paid 5", EarlierCall("c1", "paid 5"), id="finished"),
        pytest.param(
            False, "pay failed: no money", EarlierCall("c1", "pay failed: no money"), id="failed"
        ),
        pytest.param(
            False,
            "UNKNOWN: timed out",
            EarlierCall("c1", "UNKNOWN: timed out", outcome_unknown=True),
            id="given up",
        ),
        pytest.param(None, None, EarlierCall("c1", "", outcome_unknown=True), id="never finished"),
        pytest.param(
            True,
            "Not run in vain: 5",
            EarlierCall("c1", "Not run in vain: 5"),
            id="text like an unknown outcome",
        ),
        pytest.param(
            True,
            "UNKNOWN payee, paid",
            EarlierCall("c1", "UNKNOWN payee, paid"),
            id="successful text like an unknown outcome",
        ),
    ],
)
def test_the_outcome_is_read_from_the_record_and_not_from_the_text(
    ok: bool | None, result: str | None, twin: EarlierCall
) -> None:
    ended = None if ok is None else 2
    assert (
        earlier_call_from(
            ToolRun(
                turn_id="t1",
                call_id="c1",
                tool="pay",
                risk="write",
                arguments="{}",
                started_at=1,
                finished_at=ended,
                ok=ok,
                result=result,
            )
        )
        == twin
    )


def test_the_last_of_several_identical_calls_counts() -> None:
    twins = RepeatedCalls()
    assert twins.get(KEY) is None
    twins.add(KEY, EarlierCall("c1", "UNKNOWN: timed out", outcome_unknown=True))
    twins.add(KEY, EarlierCall("c2", "paid"))
    twin = twins.get(KEY)
    assert twin is not None
    assert twin.repeat_result == "already done in this turn (call c2): paid"


def test_a_late_result_replaces_only_its_own_call() -> None:
    twins = RepeatedCalls()
    twins.record_late_result(KEY, EarlierCall("c1", "paid"))
    assert twins.get(KEY) is None
    twins.add(KEY, EarlierCall("c1", "UNKNOWN: timed out", outcome_unknown=True))
    twins.record_late_result(KEY, EarlierCall("c1", "paid"))
    assert twins.get(KEY) == EarlierCall("c1", "paid")
    twins.add(KEY, EarlierCall("c2", "UNKNOWN: timed out", outcome_unknown=True))
    twins.record_late_result(KEY, EarlierCall("c1", "paid"))
    assert twins.get(KEY) == EarlierCall("c2", "UNKNOWN: timed out", outcome_unknown=True)
