"""Sans-IO: sorting of an incomplete answer's calls by whether they may run."""

from collections.abc import Mapping, Sequence

import msgspec

from agent.answer.call_slots import ArgumentsState, StepCall
from agent.tools.gate import GatedTool
from agent.verdict import Complete, SoftComplete, Verdict

_DRAFTED_TOOLS = frozenset({"write_file", "write_file_continue"})
"""Tools whose truncated content is kept as a draft."""


class Salvage(msgspec.Struct, frozen=True):
    """Calls of one answer, sorted by whether they may run."""

    ready: tuple[StepCall, ...] = ()  # may go to the gate
    unsealed: tuple[StepCall, ...] = ()  # complete, but not proven to have ended
    lost: tuple[StepCall, ...] = ()  # truncated, or resumable from a draft


def sort_calls(
    calls: Sequence[StepCall], verdict: Verdict, tools: Mapping[str, GatedTool]
) -> Salvage:
    """Sort the calls: complete read-only calls may run, other calls only if they are sealed too.

    A complete but unsealed file write counts as lost: the content is kept as a draft, which
    one short call finishes, while repeating the long call might fail again.
    """
    if isinstance(verdict, Complete | SoftComplete):
        return Salvage(ready=tuple(calls))
    ready: list[StepCall] = []
    unsealed: list[StepCall] = []
    lost: list[StepCall] = []
    for call in calls:
        tool = tools.get(call.name)
        if (
            call.arguments_state is ArgumentsState.COMPLETE
            and not call.sealed
            and not (tool and tool.read_only)
        ):
            (lost if call.name in _DRAFTED_TOOLS else unsealed).append(call)
        elif call.arguments_state is ArgumentsState.COMPLETE or (
            call.arguments_state is ArgumentsState.INVALID and call.sealed
        ):
            ready.append(call)
        else:
            lost.append(call)
    return Salvage(tuple(ready), tuple(unsealed), tuple(lost))
