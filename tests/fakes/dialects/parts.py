"""The parts of an answer, put together from a script's pieces: texts, reasoning, tool calls."""

import json
from typing import Literal

from tests.fakes.dialects.steps import CallDelta, Reasoning, Text, cannot_say

Kind = Literal["text", "reasoning", "call"]


class Part:
    """A stretch of one kind, still growing."""

    def __init__(self, kind: Kind, index: int | None = None) -> None:
        self.kind: Kind = kind
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self._pieces: list[str] = []

    @property
    def said(self) -> str:
        return "".join(self._pieces)

    @property
    def call_id(self) -> str:
        return self.id or ""

    @property
    def call_name(self) -> str:
        return self.name or ""

    def add(self, piece: str | None) -> None:
        self._pieces.append(piece or "")


class Parts:
    """All parts so far, in the order in which they began."""

    def __init__(self) -> None:
        self.all: list[Part] = []

    def take(self, step: Text | Reasoning | CallDelta) -> tuple[Part, bool]:
        """Add a piece; gives the part that it belongs to, and whether it began that part."""
        if isinstance(step, CallDelta):
            return self._take_call(step)
        kind: Kind = "text" if isinstance(step, Text) else "reasoning"
        began = not self.all or self.all[-1].kind != kind
        if began:
            self.all.append(Part(kind))
        self.all[-1].add(step.said)
        return self.all[-1], began

    def take_in_order(self, step: Text | Reasoning | CallDelta) -> tuple[Part, bool]:
        """The same, for protocols in which one part ends before the next begins."""
        part, began = self.take(step)
        if part is not self.all[-1]:
            raise cannot_say(step, "the call it belongs to is over")
        if began and part.kind == "call" and (part.id is None or part.name is None):
            raise cannot_say(step, "a call begins with an id and a name")
        if isinstance(step, CallDelta) and step.name not in {None, part.name}:
            raise cannot_say(step, "a name comes in one piece")
        return part, began

    def _take_call(self, step: CallDelta) -> tuple[Part, bool]:
        part = self._call_of(step)
        began = part is None
        if part is None:
            part = Part("call", step.index)
            self.all.append(part)
            part.id, part.name = step.id, step.name
        part.add(step.arguments)
        return part, began

    def _call_of(self, step: CallDelta) -> Part | None:
        for part in reversed(self.all):
            if part.kind == "call" and step.index in {None, part.index}:
                return None if _begins_another(step, part) else part
        return None


def _begins_another(step: CallDelta, part: Part) -> bool:
    if step.id is not None:
        return step.id != part.id
    return step.name is not None and json_object(part.said) is not None


def json_object(said: str) -> dict[str, object] | None:
    try:
        read = json.loads(said)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def as_event(fields: bytes) -> bytes:
    """An event with this JSON, under the name that its `type` gives."""
    try:
        named = json.loads(fields)
    except ValueError:
        named = None
    kind = named.get("type") if isinstance(named, dict) else None
    line = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return line + b"data: " + fields + b"\n\n"
