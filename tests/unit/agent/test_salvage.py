"""Which calls of an answer may run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.answer.call_slots import Shape, StepCall
from agent.errors import Cut as Dropped
from agent.salvage import Salvage, sort_calls
from agent.tools.registry import ToolRegistry
from agent.verdict import Capped, Complete, Cut, Phase, Refused, SoftComplete, Verdict
from tests.faults.cuts import tools_of

TOOLS = ToolRegistry((*tools_of(lambda _: None), *ToolRegistry())).by_name
DROP = Cut(Phase.TOOL_ARGS, Dropped("gone"))


def call(name: str, shape: Shape = Shape.WHOLE, *, sealed: bool = True) -> StepCall:
    arguments = {Shape.NONE: "", Shape.CUT: '{"a', Shape.BAD: "{'a'}", Shape.WHOLE: "{}"}[shape]
    return StepCall("c", name, arguments, shape, sealed)


SORTED = [
    ("sealed, reads", call("look"), "ready"),
    ("sealed, changes", call("transfer"), "ready"),
    ("sealed, unreadable", call("transfer", Shape.BAD), "ready"),
    ("sealed, unknown", call("who"), "ready"),
    ("unsealed, reads", call("look", sealed=False), "ready"),
    ("unsealed, changes", call("transfer", sealed=False), "unsealed"),
    ("unsealed, unknown", call("who", sealed=False), "unsealed"),
    ("unsealed, a file", call("write_file", sealed=False), "lost"),
    ("unsealed, the rest of a file", call("write_file_continue", sealed=False), "lost"),
    ("unsealed, a change of a file", call("edit_file", sealed=False), "unsealed"),
    ("unsealed, unreadable", call("look", Shape.BAD, sealed=False), "lost"),
    ("cut", call("look", Shape.CUT, sealed=False), "lost"),
    ("cut, sealed", call("transfer", Shape.CUT), "lost"),
    ("only a name", call("look", Shape.NONE, sealed=False), "lost"),
]


@pytest.mark.parametrize("verdict", [DROP, Capped(), Refused()], ids=["cut", "capped", "refused"])
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
    calls = [call("look"), call("transfer", Shape.CUT), call("transfer"), call("look", Shape.CUT)]
    salvage = sort_calls(calls, DROP, TOOLS)
    assert salvage.ready == (calls[0], calls[2])
    assert salvage.lost == (calls[1], calls[3])


CALLS = st.lists(
    st.builds(call, st.sampled_from(["look", "transfer", "who"]), st.sampled_from(Shape))
)


@given(CALLS)
def test_no_call_is_left_out_or_counted_twice(calls: list[StepCall]) -> None:
    salvage = sort_calls(calls, DROP, TOOLS)
    sorted_out = [*salvage.ready, *salvage.unsealed, *salvage.lost]
    assert sorted(map(id, sorted_out)) == sorted(map(id, calls))
