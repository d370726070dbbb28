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

from agent.answer.call_slots import Shape, StepCall
from agent.answer.json_repair import repaired
from agent.tools.names import meant, nearest

_LONGEST_NAME = 100

Identity = tuple[str, bytes]
"""Equal for calls that ask for the very same: the tool, and its arguments however written."""


class Gated(Protocol):
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


T = TypeVar("T", bound=Gated)


class Run(msgspec.Struct, Generic[T], frozen=True):
    """The call may run."""

    call: StepCall  # as it runs, after slips were put right
    tool: T
    arguments: Any  # decoded

    @property
    def identity(self) -> Identity:
        """See `Identity`."""
        return self.call.name, msgspec.json.encode(self.arguments, order="sorted")


class Refuse(msgspec.Struct, frozen=True):
    """The call must not run; the text is its result."""

    call: StepCall  # with those slips put right that could be
    text: str


def admit(call: StepCall, tools: Mapping[str, T]) -> Run[T] | Refuse:
    """Decide about one call."""
    call = _rightly_named(call, tools)
    tool = tools.get(call.name)
    if tool is None:
        return Refuse(call, _unknown(call.name, tools))
    call = _readable(call)
    if call.shape is not Shape.WHOLE:
        return Refuse(call, _malformed(call))
    if not call.sealed and not tool.read_only:
        text = f"{call.name} has NOT run: the call may have been cut off. Make it again."
        return Refuse(call, text)
    try:
        arguments = msgspec.json.decode(call.arguments, type=tool.arguments)
    except msgspec.ValidationError as error:
        return Refuse(call, _unfit(call, str(error)))
    complaint = tool.check(arguments) if tool.check else None
    return Refuse(call, _unfit(call, complaint)) if complaint else Run(call, tool, arguments)


def _rightly_named(call: StepCall, tools: Mapping[str, Gated]) -> StepCall:
    # The name of a call that had not ended may be a beginning: there a letter off is no slip.
    if call.name in tools or not call.sealed:
        return call
    return msgspec.structs.replace(call, name=meant(call.name, tools) or call.name)


def _readable(call: StepCall) -> StepCall:
    if call.shape not in {Shape.BAD, Shape.CUT} or not call.sealed:
        return call
    arguments = repaired(call.arguments)
    if arguments is None:
        return call
    return msgspec.structs.replace(call, arguments=arguments, shape=Shape.WHOLE)


def _unknown(name: str, tools: Mapping[str, Gated]) -> str:
    if not name.strip():
        return "Nothing has run: the call has no tool name."
    near = ", ".join(nearest(name, tools))
    hint = f" The nearest names are: {near}." if near else " There are no tools at all."
    return f"Nothing has run: there is no tool {name[:_LONGEST_NAME]!r}.{hint}"


def _malformed(call: StepCall) -> str:
    if call.shape is Shape.NONE:
        return f"{call.name} has NOT run: the call has no arguments."
    return f"{call.name} has NOT run, its arguments cannot be read: {_reason(call.arguments)}."


def _reason(arguments: str) -> str:
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        reason = str(error)
        # Only the end of the text can be meant where the parser names no place.
        return reason if "(byte " in reason else f"{reason} (byte {len(arguments.encode())})"
    except RecursionError:
        return "they are nested too deeply"
    return "they are not a JSON object"


def _unfit(call: StepCall, complaint: str) -> str:
    return f"{call.name} has NOT run, its arguments do not fit: {complaint.rstrip('.')}."
