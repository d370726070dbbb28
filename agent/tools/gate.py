"""Sans-IO: validation of every tool call before execution.

A call runs only if its arguments are one strict JSON object that fits the tool's schema, and if the
call is sealed or the tool is read-only. Unambiguous mistakes are corrected: letter case, `-` and `_`
in a tool name, and the JSON errors described in `agent.answer.json_repair`. History, journal and
execution then use the corrected call. Any other unknown name is refused, because a similar name may
belong to a tool that does the opposite. The result of a refused call is an error, so that the model
can try again.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from agent.answer.call_slots import ArgumentsState, StepCall
from agent.answer.json_repair import repair_json
from agent.tools.names import nearest_names, repair_name

_MAX_NAME_LENGTH = 100

CallIdentity = tuple[str, bytes]
"""The tool and the normalized arguments; equal for calls with the same meaning."""


class GatedTool(Protocol):
    """The properties of a tool that the gate needs."""

    @property
    def arguments(self) -> object:
        """Type of the decoded arguments."""
        ...

    @property
    def read_only(self) -> bool:
        """True if a call has no side effects."""
        ...

    @property
    def check(self) -> Callable[[Any], str | None] | None:
        """A function that returns the error in decoded arguments, or None."""
        ...


T = TypeVar("T", bound=GatedTool)


class AdmittedCall(msgspec.Struct, Generic[T], frozen=True):
    """A call that may run."""

    call: StepCall  # after corrections
    tool: T
    arguments: Any  # decoded

    @property
    def identity(self) -> CallIdentity:
        """The call's `CallIdentity`."""
        return self.call.name, msgspec.json.encode(self.arguments, order="sorted")


class RefusedCall(msgspec.Struct, frozen=True):
    """A call that must not run."""

    call: StepCall  # after corrections
    text: str  # the result of the call for the model


def admit_call(
    call: StepCall,
    tools: Mapping[str, T],
    reserved_names: Collection[str] = (),
    earlier_names: Mapping[str, str] | None = None,
) -> AdmittedCall[T] | RefusedCall:
    """Correct and validate a call; see `ToolRegistry` for the names."""
    call = _fix_name(call, tools, reserved_names, earlier_names or {})
    tool = tools.get(call.name)
    if tool is None:
        return RefusedCall(call, _unknown_tool_text(call.name, tools))
    call = _repair_arguments(call)
    if call.arguments_state is not ArgumentsState.COMPLETE:
        return RefusedCall(call, _malformed_text(call))
    if not call.sealed and not tool.read_only:
        text = f"{call.name} has NOT run: the call may have been cut off. Make it again."
        return RefusedCall(call, text)
    try:
        arguments = msgspec.json.decode(call.arguments, type=tool.arguments)
    except msgspec.ValidationError as error:
        return RefusedCall(call, _invalid_arguments_text(call, str(error)))
    complaint = tool.check(arguments) if tool.check else None
    return (
        RefusedCall(call, _invalid_arguments_text(call, complaint))
        if complaint
        else AdmittedCall(call, tool, arguments)
    )


def _fix_name(
    call: StepCall,
    tools: Mapping[str, GatedTool],
    reserved_names: Collection[str],
    earlier_names: Mapping[str, str],
) -> StepCall:
    # The name of an unsealed call may be incomplete.
    if call.name in tools or not call.sealed:
        return call
    name = earlier_names.get(call.name) or repair_name(call.name, tools, reserved_names)
    name = name or call.name
    return msgspec.structs.replace(call, name=name)


def _repair_arguments(call: StepCall) -> StepCall:
    # Truncated arguments cannot be repaired.
    if call.arguments_state is not ArgumentsState.INVALID or not call.sealed:
        return call
    arguments = repair_json(call.arguments)
    if arguments is None:
        return call
    return msgspec.structs.replace(
        call, arguments=arguments, arguments_state=ArgumentsState.COMPLETE
    )


def _unknown_tool_text(name: str, tools: Mapping[str, GatedTool]) -> str:
    if not name.strip():
        return "Nothing has run: the call has no tool name."
    nearest = ", ".join(nearest_names(name, tools))
    hint = f" The nearest names are: {nearest}." if nearest else " There are no tools at all."
    return f"Nothing has run: there is no tool {name[:_MAX_NAME_LENGTH]!r}.{hint}"


def _malformed_text(call: StepCall) -> str:
    if call.arguments_state is ArgumentsState.NONE:
        return f"{call.name} has NOT run: the call has no arguments."
    return f"{call.name} has NOT run, its arguments cannot be read: {_parse_error(call.arguments)}."


def _parse_error(arguments: str) -> str:
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        reason = str(error)
        # An error without a position is at the end of the text.
        return reason if "(byte " in reason else f"{reason} (byte {len(arguments.encode())})"
    except RecursionError:
        return "they are nested too deeply"
    return "they are not a JSON object"


def _invalid_arguments_text(call: StepCall, complaint: str) -> str:
    return f"{call.name} has NOT run, its arguments do not fit: {complaint.rstrip('.')}."
