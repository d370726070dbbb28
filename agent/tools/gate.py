"""Sans-IO: the one gate that every tool call passes before it may run.

A call runs only when its arguments are provably what the model meant: the call had ended, they are
one strict JSON object, and they fit the tool's schema. A slip that leaves no doubt is put right:
the name of a tool that is a letter off, and JSON as `agent.answer.json_repair` describes it. From then on the
call exists only in its right form: that is what the history shows, what the journal holds and what
runs. What does not fit becomes an answer to the model, which then can do better.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from agent.answer.call_slots import ArgumentsState, StepCall
from agent.answer.json_repair import repair_json
from agent.tools.names import match_misspelled_name, nearest_names

_MAX_NAME_LENGTH = 100

CallIdentity = tuple[str, bytes]
"""Equal for calls that ask for the very same: the tool, and its arguments however written."""


class GatedTool(Protocol):
    """What the gate must know of a tool."""

    @property
    def arguments(self) -> object:
        """The type that a call's arguments are decoded into."""
        ...

    @property
    def read_only(self) -> bool:
        """Running it changes nothing."""
        ...

    @property
    def check(self) -> Callable[[Any], str | None] | None:
        """Says what is wrong with decoded arguments."""
        ...


T = TypeVar("T", bound=GatedTool)


class AdmittedCall(msgspec.Struct, Generic[T], frozen=True):
    """The call may run."""

    call: StepCall  # as it runs, after slips were put right
    tool: T
    arguments: Any  # decoded

    @property
    def identity(self) -> CallIdentity:
        """See `Identity`."""
        return self.call.name, msgspec.json.encode(self.arguments, order="sorted")


class RefusedCall(msgspec.Struct, frozen=True):
    """The call must not run; the text is its result."""

    call: StepCall  # with those slips put right that could be
    text: str


def admit_call(call: StepCall, tools: Mapping[str, T]) -> AdmittedCall[T] | RefusedCall:
    """Decide about one call."""
    call = _fix_name(call, tools)
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


def _fix_name(call: StepCall, tools: Mapping[str, GatedTool]) -> StepCall:
    # The name of a call that had not ended may be a beginning: there a letter off is no slip.
    if call.name in tools or not call.sealed:
        return call
    return msgspec.structs.replace(call, name=match_misspelled_name(call.name, tools) or call.name)


def _repair_arguments(call: StepCall) -> StepCall:
    if (
        call.arguments_state not in {ArgumentsState.INVALID, ArgumentsState.TRUNCATED}
        or not call.sealed
    ):
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
    near = ", ".join(nearest_names(name, tools))
    hint = f" The nearest names are: {near}." if near else " There are no tools at all."
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
        # Only the end of the text can be meant where the parser names no place.
        return reason if "(byte " in reason else f"{reason} (byte {len(arguments.encode())})"
    except RecursionError:
        return "they are nested too deeply"
    return "they are not a JSON object"


def _invalid_arguments_text(call: StepCall, complaint: str) -> str:
    return f"{call.name} has NOT run, its arguments do not fit: {complaint.rstrip('.')}."
