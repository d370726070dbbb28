"""The steps of a script, in no protocol's words, and what a protocol makes of them."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

ProtocolName = Literal["chat", "anthropic", "responses"]
PROTOCOLS: tuple[ProtocolName, ...] = ("chat", "anthropic", "responses")


class Head(msgspec.Struct, frozen=True):
    """Status 200, its headers, and what the protocol says first; `bare` leaves the latter out."""

    bare: bool = False


class Text(msgspec.Struct, frozen=True):
    """A piece of visible text."""

    said: str


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of reasoning."""

    said: str


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call; what is None is left out."""

    index: int | None
    id: str | None
    name: str | None
    arguments: str | None


class Finish(msgspec.Struct, frozen=True):
    """Why the model stopped, as Chat Completions says it."""

    reason: str


class Usage(msgspec.Struct, frozen=True):
    """What it cost, in tokens."""

    output: int = 5
    input: int = 10
    cached: int | None = None  # of the input


class Done(msgspec.Struct, frozen=True):
    """The protocol's own end mark."""


class Ping(msgspec.Struct, frozen=True):
    """A sign of life that says nothing."""


class Blank(msgspec.Struct, frozen=True):
    """An event of the answer, without content."""


class Event(msgspec.Struct, frozen=True):
    """An event with this very JSON."""

    json: bytes


class Fault(msgspec.Struct, frozen=True):
    """An error that comes inside a stream."""

    message: str
    code: int = 500  # what the status would have been


class Raw(msgspec.Struct, frozen=True):
    """These bytes of the body."""

    raw: bytes


class Wait(msgspec.Struct, frozen=True):
    """Seconds without a byte."""

    seconds: float


class Status(msgspec.Struct, frozen=True):
    """A whole response that is not a stream: with this body, or an error with this message."""

    code: int
    headers: dict[str, str] = {}
    body: bytes = b""
    message: str | None = None


class End(msgspec.Struct, frozen=True):
    """The body is complete."""


class Close(msgspec.Struct, frozen=True):
    """The socket is closed although the body is not complete."""


class Reset(msgspec.Struct, frozen=True):
    """The client gets a TCP reset, after all that was written."""


class Hang(msgspec.Struct, frozen=True):
    """Nothing more, until the client goes away."""


class Repeat(msgspec.Struct, frozen=True):
    """The same again and again, or so many times."""

    steps: "tuple[Step, ...]"
    times: int | None = None


Said = Text | Reasoning | CallDelta | Finish | Usage | Done | Ping | Blank | Event | Fault | Raw
Step = Head | Said | Wait | Status | End | Close | Reset | Hang | Repeat
Script = str | Sequence[Step]


class Dialect(Protocol):
    """Writes the body of one response; a new one is made for each."""

    headers: dict[str, str]

    def feed(self, step: Head | Said | Wait) -> bytes:
        """Give the bytes of one step; raises ValueError for what the protocol cannot say."""
        ...

    def close(self) -> bytes:
        """Give what is still owed when the script ends, however it ends."""
        ...


def cannot_say(step: object, why: str) -> ValueError:
    return ValueError(f"{step} has no counterpart in this protocol: {why}")


def first_usage(script: Sequence[Step]) -> Usage:
    """The first count of tokens, for protocols that name the input's size at once."""
    for step in script:
        if isinstance(step, Usage):
            return step
        if isinstance(step, Repeat) and any(isinstance(each, Usage) for each in step.steps):
            return first_usage(step.steps)
    return Usage()
