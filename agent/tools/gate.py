"""Sans-IO: the one gate that every tool call passes before it may run.

A call runs only when its arguments are provably what the model meant: the call had ended, they are
one strict JSON object, and they fit the tool's schema. Nothing is repaired or guessed; what does
not fit becomes an answer to the model, which then can do better.
"""

import difflib
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from agent.slots import Shape, StepCall

_NEAREST = 20


class Gated(Protocol):
    """What the gate must know of a tool."""

    @property
    def arguments(self) -> type[msgspec.Struct]:
        """What a call's arguments are decoded into."""
        ...

    @property
    def read_only(self) -> bool:
        """Running it changes nothing."""
        ...


T = TypeVar("T", bound=Gated)


class Run(msgspec.Struct, Generic[T], frozen=True):
    """The call may run, with these decoded arguments."""

    tool: T
    arguments: msgspec.Struct


class Refuse(msgspec.Struct, frozen=True):
    """The call must not run; the text is its result."""

    text: str


def admit(call: StepCall, tools: Mapping[str, T]) -> Run[T] | Refuse:
    """Decide about one call."""
    tool = tools.get(call.name)
    if tool is None:
        return Refuse(_unknown(call.name, tools))
    if call.shape is not Shape.WHOLE:
        return Refuse(_malformed(call))
    if not call.sealed and not tool.read_only:
        return Refuse(f"{call.name} has NOT run: the call may have been cut off. Make it again.")
    try:
        arguments = msgspec.json.decode(call.arguments, type=tool.arguments)
    except msgspec.ValidationError as error:
        return Refuse(f"{call.name} has NOT run, its arguments do not fit: {error}.")
    return Run(tool, arguments)


def _unknown(name: str, tools: Mapping[str, Gated]) -> str:
    if not name.strip():
        return "Nothing has run: the call has no tool name."
    near = difflib.get_close_matches(name, tools, n=_NEAREST, cutoff=0.4)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"Nothing has run: there is no tool {name!r}.{hint}"


def _malformed(call: StepCall) -> str:
    if call.shape is Shape.NONE:
        return f"{call.name} has NOT run: the call has no arguments."
    try:
        msgspec.json.decode(call.arguments)
    except msgspec.DecodeError as error:
        reason = str(error)
    else:
        reason = "they are not a JSON object"
    return f"{call.name} has NOT run, its arguments cannot be read: {reason}."
