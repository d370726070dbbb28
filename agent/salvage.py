"""Sans-IO: which calls of an answer may run although the answer as a whole is not whole."""

from collections.abc import Mapping, Sequence

import msgspec

from agent.answer.call_slots import ArgumentsState, StepCall
from agent.tools.gate import GatedTool
from agent.verdict import Complete, SoftComplete, Verdict

_DRAFTED_TOOLS = frozenset({"write_file", "write_file_continue"})
"""Tools of which a draft keeps what was received."""


class Salvage(msgspec.Struct, frozen=True):
    """The calls of one answer, sorted."""

    ready: tuple[StepCall, ...] = ()  # they may go to the gate
    unsealed: tuple[StepCall, ...] = ()  # whole, but nothing proves that they had ended
    lost: tuple[StepCall, ...] = ()  # cut off, or not to be said all over again


def sort_calls(
    calls: Sequence[StepCall], verdict: Verdict, tools: Mapping[str, GatedTool]
) -> Salvage:
    """Sort them: what changes nothing may run when it is whole, all else only when it had ended.

    A file that came whole, but without proof, is taken for lost: it is kept as a draft, and to
    finish that takes one short call, while the same call once more may break off once more.
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
