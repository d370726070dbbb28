"""Sorting of an answer's calls into ready, unsealed and lost ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.call_slots import ArgumentsState, StepCall
from agent.errors import ConnectionLost
from agent.salvage import Salvage, sort_calls
from agent.tools.registry import ToolRegistry
from agent.verdict import Capped, Complete, Cut, CutPhase, ModelRefused, SoftComplete, Verdict
from tests.faults.cuts import tools_of

TOOLS = ToolRegistry((*tools_of(lambda _: None), *ToolRegistry())).by_name
DROP = Cut(CutPhase.TOOL_ARGS, ConnectionLost("gone"))


def call(
    name: str, shape: ArgumentsState = ArgumentsState.COMPLETE, *, sealed: bool = True
) -> StepCall:
    arguments = {
        ArgumentsState.NONE: "",
        ArgumentsState.TRUNCATED: '{"a',
        ArgumentsState.INVALID: "{'a'}",
        ArgumentsState.COMPLETE: "{}",
    }[shape]
    return StepCall(id="c", name=name, arguments=arguments, arguments_state=shape, sealed=sealed)


SORTED = [
    ("sealed, read-only", call("look"), "ready"),
    ("sealed, side-effecting", call("transfer"), "ready"),
    ("sealed, unreadable", call("transfer", ArgumentsState.INVALID), "ready"),
    ("sealed, unknown", call("who"), "ready"),
    ("unsealed, read-only", call("look", sealed=False), "ready"),
    ("unsealed, side-effecting", call("transfer", sealed=False), "unsealed"),
    ("unsealed, unknown", call("who", sealed=False), "unsealed"),
    ("unsealed, file", call("write_file", sealed=False), "lost"),
    ("unsealed, continued file", call("write_file_continue", sealed=False), "lost"),
    ("unsealed, file edit", call("edit_file", sealed=False), "unsealed"),
    ("unsealed, unreadable", call("look", ArgumentsState.INVALID, sealed=False), "lost"),
    ("truncated", call("look", ArgumentsState.TRUNCATED, sealed=False), "lost"),
    ("truncated, sealed", call("transfer", ArgumentsState.TRUNCATED), "lost"),
    ("only a name", call("look", ArgumentsState.NONE, sealed=False), "lost"),
]


@pytest.mark.parametrize(
    "verdict", [DROP, Capped(), ModelRefused()], ids=["cut", "capped", "refused"]
)
@pytest.mark.parametrize(
    ("made", "kind"), [row[1:] for row in SORTED], ids=[row[0] for row in SORTED]
)
def test_calls_of_an_incomplete_answer_are_sorted_by_safety(
    made: StepCall, kind: str, verdict: Verdict
) -> None:
    salvage = sort_calls([made], verdict, TOOLS)
    found = [name for name in ("ready", "unsealed", "lost") if getattr(salvage, name)]
    assert found == [kind]


@pytest.mark.parametrize("verdict", [Complete(), SoftComplete()], ids=["complete", "soft"])
def test_all_calls_of_a_complete_answer_go_to_the_gate(verdict: Verdict) -> None:
    calls = tuple(made for _, made, _ in SORTED)
    assert sort_calls(calls, verdict, TOOLS) == Salvage(ready=calls)


def test_calls_keep_their_order_within_each_group() -> None:
    calls = [
        call("look"),
        call("transfer", ArgumentsState.TRUNCATED),
        call("transfer"),
        call("look", ArgumentsState.TRUNCATED),
    ]
    salvage = sort_calls(calls, DROP, TOOLS)
    assert salvage.ready == (calls[0], calls[2])
    assert salvage.lost == (calls[1], calls[3])


CALLS = st.lists(
    st.builds(call, st.sampled_from(["look", "transfer", "who"]), st.sampled_from(ArgumentsState))
)


@given(CALLS)
def test_every_call_is_sorted_into_exactly_one_group(calls: list[StepCall]) -> None:
    salvage = sort_calls(calls, DROP, TOOLS)
    sorted_out = [*salvage.ready, *salvage.unsealed, *salvage.lost]
    assert sorted(map(id, sorted_out)) == sorted(map(id, calls))
