"""Sans-IO: assembly of streamed tool calls from the delta formats of all known services.

Services disagree on the meaning of `index` and `id`. The rules, in order: a different index is a
different call; a new id at the same index starts a call only if the piece has a name or the
previous call is complete; a name without an id starts a call if the previous call is complete.
Without an index the id selects the call, then a name starts one; otherwise the piece belongs to
the last call.
"""

import enum
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agent.model.contract import CallChunk, ToolSchema


class ArgumentsState(enum.Enum):
    """Completeness of a call's arguments."""

    NONE = "none"  # only the name arrived
    TRUNCATED = "cut"  # the end is missing
    INVALID = "bad"  # closed, but not one JSON object
    COMPLETE = "whole"  # exactly one JSON object


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """Received part of a tool call."""

    id: str
    name: str
    arguments: str
    arguments_state: ArgumentsState
    sealed: bool  # later input proves that the call had ended
    extra: bytes | None = None


def classify_arguments(arguments: str) -> ArgumentsState:
    """Classify arguments by strict JSON parsing, without repairs."""
    if not arguments.strip():
        return ArgumentsState.NONE
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):  # RecursionError: nested too deeply
        return ArgumentsState.INVALID if _is_closed(arguments) else ArgumentsState.TRUNCATED
    return ArgumentsState.COMPLETE if isinstance(decoded, dict) else ArgumentsState.INVALID


def _is_closed(arguments: str) -> bool:
    """Return True if the text ends in a closing bracket; a code fence around it must be closed."""
    text = arguments.strip()
    if text.startswith("```"):
        text = text.removesuffix("```").rstrip() if text.endswith("```") else ""
    return text.endswith(("}", "]"))


class _CallSlot:
    """One call under construction.

    `started` and `touched` are piece counts: a call is sealed if another call started after its
    last piece.
    """

    __slots__ = ("ended", "extra", "id", "index", "name", "pieces", "size", "started", "touched")

    def __init__(self, index: int | None, at: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.size = 0  # characters of arguments
        self.extra: bytes | None = None
        self.ended = False  # the service marked the end of this call
        self.started = self.touched = at

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def whole(self) -> bool:
        # Skip the parse for the usual piece, which does not end in a brace.
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        return (
            last.rstrip().endswith("}")
            and classify_arguments(self.arguments) is ArgumentsState.COMPLETE
        )

    def is_restated_by(self, arguments: str) -> bool:
        """Detect the final piece in which some services repeat all arguments."""
        return len(arguments) == self.size and self.whole and arguments == self.arguments

    def repeats_name_of(self, other: "_CallSlot") -> bool:
        """Detect a slot that exists only because a service repeats the name in every piece."""
        same_place = self.index == other.index and self.name == other.name
        return same_place and not self.id and not self.size


class CallSlots:
    """All calls of one model answer."""

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._slots: list[_CallSlot] = []
        self._fed_count = 0

    def __bool__(self) -> bool:
        return bool(self._slots)

    def feed(self, piece: CallChunk) -> bool:
        """Add a piece; return True if anything was new."""
        self._fed_count += 1
        slot = self._slot_for(piece)
        if piece.id and not slot.id:
            slot.id = piece.id
        named = bool(piece.name) and self._add_name(slot, piece.name or "")
        if piece.extra is not None:
            slot.extra = piece.extra
        slot.ended = slot.ended or piece.ended
        if not piece.arguments or slot.is_restated_by(piece.arguments):
            return named
        slot.pieces.append(piece.arguments)
        slot.size += len(piece.arguments)
        slot.touched = self._fed_count
        return True

    def calls(
        self, id_prefix: str, taken_ids: frozenset[str], *, ended: bool
    ) -> tuple[StepCall, ...]:
        """Return the calls in order of arrival.

        `ended` means that the service ended the answer, which seals all calls. Calls without an id,
        and calls whose id is in `taken_ids`, get a unique one.
        """
        used = set(taken_ids)
        slots = [
            slot
            for before, slot in zip([None, *self._slots], self._slots, strict=False)
            if before is None or not slot.repeats_name_of(before)
        ]
        newest = max((slot.started for slot in slots), default=0)
        calls: list[StepCall] = []
        for slot in slots:
            sealed = ended or slot.ended or newest > slot.touched
            for number, arguments in enumerate(_split_objects(slot.arguments)):
                wanted = slot.id if slot.id and not number else f"{id_prefix}_{len(calls)}"
                call_id = _unique_id(wanted, used)
                used.add(call_id)
                filled = self._fill_empty_arguments(slot.name, arguments, ended=ended)
                shape = classify_arguments(filled)
                calls.append(
                    StepCall(
                        id=call_id,
                        name=slot.name,
                        arguments=filled,
                        arguments_state=shape,
                        sealed=sealed,
                        extra=slot.extra,
                    )
                )
        return tuple(calls)

    def _slot_for(self, piece: CallChunk) -> _CallSlot:
        if piece.index is None:
            return self._slot_without_index(piece)
        slot = next((s for s in reversed(self._slots) if s.index == piece.index), None)
        if slot is None or self._starts_new_call(slot, piece):
            return self._add_slot(piece.index)
        return slot

    def _slot_without_index(self, piece: CallChunk) -> _CallSlot:
        if piece.id:
            known = next((s for s in reversed(self._slots) if s.id == piece.id), None)
            if known is not None:
                return known
        if piece.name or not self._slots:
            return self._add_slot(None)
        return self._slots[-1]

    def _starts_new_call(self, slot: _CallSlot, piece: CallChunk) -> bool:
        if piece.id and slot.id and piece.id != slot.id:
            return bool(piece.name) or slot.whole
        if piece.name and not (piece.id and slot.id) and slot.whole:
            return True
        both_known = slot.name in self._tools and piece.name in self._tools
        return both_known and not (piece.name or "").startswith(slot.name)

    def _add_slot(self, index: int | None) -> _CallSlot:
        slot = _CallSlot(index, self._fed_count)
        self._slots.append(slot)
        return slot

    def _add_name(self, slot: _CallSlot, name: str) -> bool:
        if name == slot.name:
            return False
        slot.name = name if name.startswith(slot.name) else slot.name + name
        slot.touched = self._fed_count
        return True

    def _fill_empty_arguments(self, name: str, arguments: str, *, ended: bool) -> str:
        """Replace missing arguments by `{}` if the tool requires none and the answer has ended."""
        tool = self._tools.get(name)
        if arguments.strip() or not ended or tool is None or tool.parameters.get("required"):
            return arguments
        return "{}"


def _split_objects(arguments: str) -> list[str]:
    """Split concatenated JSON objects; return anything else unchanged."""
    decoder = json.JSONDecoder()
    parts: list[str] = []
    rest = arguments.strip()
    if not rest.startswith("{") or classify_arguments(arguments) is not ArgumentsState.INVALID:
        return [arguments]
    while rest:
        try:
            decoded: Any
            decoded, end = decoder.raw_decode(rest)
        except (json.JSONDecodeError, RecursionError):
            return [arguments]
        if not isinstance(decoded, dict):
            return [arguments]
        parts.append(rest[:end])
        rest = rest[end:].lstrip()
    return parts


def _unique_id(wanted: str, used: set[str]) -> str:
    call_id, number = wanted, 2
    while call_id in used:
        call_id, number = f"{wanted}_{number}", number + 1
    return call_id
