import pytest

from agent.tools.repeats import Twin, Twins, recorded
from sessions.records import ToolRun

KEY = ("pay", b"{}")


@pytest.mark.parametrize(
    ("ok", "result", "twin"),
    [
        pytest.param(True, "paid 5", Twin("c1", "paid 5"), id="finished"),
        pytest.param(
            False, "pay failed: no money", Twin("c1", "pay failed: no money"), id="failed"
        ),
        pytest.param(
            False,
            "UNKNOWN: timed out",
            Twin("c1", "UNKNOWN: timed out", unknown=True),
            id="given up",
        ),
        pytest.param(None, None, Twin("c1", "", unknown=True), id="never finished"),
        pytest.param(True, "Not run in vain: 5", Twin("c1", "Not run in vain: 5"), id="odd words"),
        pytest.param(
            True, "UNKNOWN payee, paid", Twin("c1", "UNKNOWN payee, paid"), id="odder words"
        ),
    ],
)
def test_what_was_begun_is_known_by_its_record_and_not_by_its_words(
    ok: bool | None, result: str | None, twin: Twin
) -> None:
    ended = None if ok is None else 2
    assert recorded(ToolRun("t1", "c1", "pay", "write", "{}", 1, ended, ok, result)) == twin


def test_of_several_calls_that_are_alike_the_last_one_counts() -> None:
    twins = Twins()
    assert twins.get(KEY) is None
    twins.add(KEY, Twin("c1", "UNKNOWN: timed out", unknown=True))
    twins.add(KEY, Twin("c2", "paid"))
    twin = twins.get(KEY)
    assert twin is not None
    assert twin.answer == "already done in this turn (call c2): paid"


def test_a_late_result_takes_the_place_of_its_own_call_only() -> None:
    twins = Twins()
    twins.came_late(KEY, Twin("c1", "paid"))
    assert twins.get(KEY) is None
    twins.add(KEY, Twin("c1", "UNKNOWN: timed out", unknown=True))
    twins.came_late(KEY, Twin("c1", "paid"))
    assert twins.get(KEY) == Twin("c1", "paid")
    twins.add(KEY, Twin("c2", "UNKNOWN: timed out", unknown=True))
    twins.came_late(KEY, Twin("c1", "paid"))
    assert twins.get(KEY) == Twin("c2", "UNKNOWN: timed out", unknown=True)
