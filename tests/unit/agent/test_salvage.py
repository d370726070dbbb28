"""Which calls of an answer may run."""

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
    ("sealed, reads", call("look"), "ready"),
    ("sealed, changes", call("transfer"), "ready"),
    ("sealed, unreadable", call("transfer", ArgumentsState.INVALID), "ready"),
    ("sealed, unknown", call("who"), "ready"),
    ("unsealed, reads", call("look", sealed=False), "ready"),
    ("unsealed, changes", call("transfer", sealed=False), "unsealed"),
    ("unsealed, unknown", call("who", sealed=False), "unsealed"),
    ("unsealed, a file", call("write_file", sealed=False), "lost"),
    ("unsealed, the rest of a file", call("write_file_continue", sealed=False), "lost"),
    ("unsealed, a change of a file", call("edit_file", sealed=False), "unsealed"),
    ("unsealed, unreadable", call("look", ArgumentsState.INVALID, sealed=False), "lost"),
    ("cut", call("look", ArgumentsState.TRUNCATED, sealed=False), "lost"),
    ("cut, sealed", call("transfer", ArgumentsState.TRUNCATED), "lost"),
    ("only a name", call("look", ArgumentsState.NONE, sealed=False), "lost"),
]


@pytest.mark.parametrize(
    "verdict", [DROP, Capped(), ModelRefused()], ids=["cut", "capped", "refused"]
)
@pytest.mark.parametrize(
    ("made", "kind"), [row[1:] for row in SORTED], ids=[row[0] for row in SORTED]
)
def test_a_call_of_a_broken_answer_runs_only_if_it_may(
    made: StepCall, kind: str, verdict: Verdict
) -> None:
    salvage = sort_calls([made], verdict, TOOLS)
    found = [name for name in ("ready", "unsealed", "lost") if getattr(salvage, name)]
    assert found == [kind]


@pytest.mark.parametrize("verdict", [Complete(), SoftComplete()], ids=["complete", "soft"])
def test_all_calls_of_a_whole_answer_go_to_the_gate(verdict: Verdict) -> None:
    calls = tuple(made for _, made, _ in SORTED)
    assert sort_calls(calls, verdict, TOOLS) == Salvage(ready=calls)


def test_each_kind_keeps_its_order() -> None:
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
def test_no_call_is_left_out_or_counted_twice(calls: list[StepCall]) -> None:
    salvage = sort_calls(calls, DROP, TOOLS)
    sorted_out = [*salvage.ready, *salvage.unsealed, *salvage.lost]
    assert sorted(map(id, sorted_out)) == sorted(map(id, calls))
