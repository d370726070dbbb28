import pytest

from agent.tools.twins import Twin, Twins, carried_out
from sessions.records import Message, ToolCall

PAY = ToolCall("c1", "pay", '{"amount":5}')


def rows(result: str | None) -> list[Message]:
    made = [Message("user", "go"), Message("assistant", tool_calls=(PAY,))]
    return made if result is None else [*made, Message("tool", result, tool_call_id="c1")]


@pytest.mark.parametrize(
    ("result", "unknown"),
    [
        pytest.param("paid 5", False, id="finished"),
        pytest.param("pay failed: no money", False, id="failed"),
        pytest.param("UNKNOWN: the program was restarted.", True, id="unknown"),
        pytest.param(None, True, id="no result at all"),
    ],
)
def test_what_was_begun_is_remembered_with_its_result(result: str | None, unknown: bool) -> None:
    ((call, known),) = carried_out(rows(result))
    assert call == PAY
    assert Twin("c1", known).unknown is unknown
    assert result is None or known == result


@pytest.mark.parametrize(
    "result",
    [
        "pay has NOT run: nobody allowed it.",
        "Nothing has run: there is no tool 'pay'.",
        "Not run: the program was restarted before this call began.",
        "already done in this turn (call c0): paid 5",
    ],
)
def test_what_was_never_begun_is_not(result: str) -> None:
    assert list(carried_out(rows(result))) == []


def test_of_several_calls_that_are_alike_the_last_one_counts() -> None:
    twins = Twins()
    key = ("pay", b"{}")
    assert twins.get(key) is None
    twins.add(key, Twin("c1", "UNKNOWN: timed out"))
    twins.add(key, Twin("c2", "paid"))
    twin = twins.get(key)
    assert twin is not None
    assert twin.answer == "already done in this turn (call c2): paid"
