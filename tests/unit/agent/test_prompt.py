import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.prompt import NO_RESULT, as_seen, build_request, interrupted_request
from agent.providers.contract import ToolSchema
from agent.settings import TargetSettings
from sessions.records import Message, ToolCall

U = Message("user", "go")
A = Message("assistant", "done")
C1, C2 = ToolCall("c1", "read", "{}"), ToolCall("c2", "pay", "{}")
CALLS = Message("assistant", "", (C1, C2))
R1, R2 = (Message("tool", name, tool_call_id=name) for name in ("c1", "c2"))
CUT = Message("assistant", "half", interrupted="stop")


def user(text: str) -> Message:
    return Message("user", text)


def missing(call_id: str) -> Message:
    return Message("tool", NO_RESULT, tool_call_id=call_id)


CUT_NOTE = "[Your answer above was cut short: stop.]"


@pytest.mark.parametrize(
    ("history", "seen"),
    [
        pytest.param([U, A, U], [U, A, U], id="nothing to do"),
        pytest.param([U, CALLS, R1, R2, A], [U, CALLS, R1, R2, A], id="calls with results"),
        pytest.param([U, CALLS, R2, R1], [U, CALLS, R1, R2], id="results in the calls' order"),
        pytest.param([U, CALLS, R1], [U, CALLS, R1, missing("c2")], id="a result is missing"),
        pytest.param(
            [U, CALLS, U], [U, CALLS, missing("c1"), missing("c2"), U], id="all are missing"
        ),
        pytest.param([U, CALLS, R1, R1, R2], [U, CALLS, R1, R2], id="a result twice"),
        pytest.param([U, R1, A], [U, A], id="a result without its call"),
        pytest.param([U, A, R1, U], [U, A, U], id="a result after an answer without calls"),
        pytest.param([U, user("more")], [user("go\n\nmore")], id="two user rows are one"),
        pytest.param([U, Message("assistant", " "), U], [user("go\n\ngo")], id="an empty answer"),
        pytest.param(
            [U, CUT, user("and?")], [U, CUT, user(f"{CUT_NOTE}\n\nand?")], id="cut short is said"
        ),
        pytest.param(
            [U, CUT],
            [U, CUT, user(f"{CUT_NOTE} Go on exactly where it ends.")],
            id="cut short and taken up again",
        ),
        pytest.param([U, CUT, A], [U, CUT, user(CUT_NOTE), A], id="two answers, one cut short"),
        pytest.param(
            [U, A, A], [U, A, user("[The conversation goes on.]"), A], id="two answers in a row"
        ),
        pytest.param(
            [Message("user", "hi", sender="Ann [x]\n(telegram:1)")],
            [user("[Ann (x) (telegram:1)] hi")],
            id="who speaks, and no way to forge it",
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_shows_a_history_to_the_model(history: list[Message], seen: list[Message]) -> None:
    assert list(as_seen(history)) == seen


ROWS = st.sampled_from(
    [U, A, CUT, CALLS, R1, R2, Message("assistant"), Message("user", "x", sender="s")]
)


@given(st.lists(ROWS, max_size=12))
def test_whatever_the_history_rows_alternate_and_calls_have_one_result(rows: list[Message]) -> None:
    seen = as_seen(rows)
    at = 0
    before = ""
    while at < len(seen):
        row = seen[at]
        assert row.role in ("user", "assistant")
        assert row.role != before or row.tool_calls or before == "calls"
        results = [r.tool_call_id for r in seen[at + 1 : at + 1 + len(row.tool_calls)]]
        assert results == [call.id for call in row.tool_calls]
        at += 1 + len(row.tool_calls)
        before = "calls" if row.tool_calls else row.role


def test_a_request_carries_settings_notes_and_tools() -> None:
    tool = ToolSchema("read", "", {})
    request = build_request(
        [U],
        model="m",
        settings=TargetSettings(max_output_tokens=5, temperature=0.1, reasoning_effort="low"),
        system="Be kind.",
        notes=["a", "b"],
        tools=(tool,),
    )
    assert request.system == "Be kind.\n\n[a]\n\n[b]"
    assert request.messages == (U,)
    assert (request.model, request.tools) == ("m", (tool,))
    assert (request.max_output_tokens, request.temperature, request.reasoning_effort) == (
        5,
        0.1,
        "low",
    )


def test_an_interrupted_request_is_quoted_up_to_a_limit() -> None:
    assert "«do it»" in interrupted_request("do it")
    assert len(interrupted_request("x" * 5000)) < 1100
