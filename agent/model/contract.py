"""What a provider is: our request goes in, a stream of our chunks comes out.

A provider converts both ways and owns its connection; it does not retry, judge, time out by
progress, or know about sessions. Closing the stream closes the connection at once.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from sessions.records import Message


class ToolSchema(msgspec.Struct, frozen=True):
    """A tool as the model sees it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Picture(msgspec.Struct, frozen=True):
    """A picture that a model is to look at."""

    media_type: str  # what it is, not what it was said to be
    data: str  # base64


class ModelRequest(msgspec.Struct, frozen=True):
    """One request: the system prompt and the history as the model is to see them.

    A file of a row whose path is among `pictures` is shown as a picture, at the end of its row.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    stream: bool = True  # False for a service that is known not to stream
    pictures: Mapping[str, Picture] = {}  # by `Attachment.path`


class OpenedChunk(msgspec.Struct, frozen=True):
    """The service took the request and begins to answer; `request_id` is its own name for it."""

    request_id: str = ""


class TextChunk(msgspec.Struct, frozen=True):
    """More visible text."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    """More reasoning."""

    text: str


class OpaqueChunk(msgspec.Struct, frozen=True):
    """A piece of what a service wants back with the next request: signatures, encrypted thoughts.

    Pieces of one `index` belong to one part; see `agent.answer.reasoning_blocks` for how they are put together.
    It is no progress: nothing in it can be shown.
    """

    index: int
    fields: dict[str, Any]


class CallChunk(msgspec.Struct, frozen=True):
    """More of a tool call; a field that the wire left out is None."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    extra: bytes | None = None
    ended: bool = False  # the wire said that this call is over: it is sealed


class FinishChunk(msgspec.Struct, frozen=True):
    """The provider says why it stopped; `reason` as it was sent."""

    reason: str


class UsageChunk(msgspec.Struct, frozen=True):
    """What the answer cost so far, in tokens."""

    input_tokens: int
    output_tokens: int
    alone: bool = False  # in an event of its own, which services send only at the end
    cached_tokens: int = 0  # of the input, read from the service's cache
    cost: float | None = None  # in dollars, where the service says so


class DoneChunk(msgspec.Struct, frozen=True):
    """The wire's own end mark (`[DONE]`, `message_stop`): nothing follows."""


class WholeChunk(msgspec.Struct, frozen=True):
    """The answer came in one piece, whatever was asked for."""


class PingChunk(msgspec.Struct, frozen=True):
    """The connection lives, but nothing was said."""

    beat: bool = False  # sent for no other reason than to show that


Chunk = (
    OpenedChunk
    | TextChunk
    | ReasoningChunk
    | OpaqueChunk
    | CallChunk
    | FinishChunk
    | UsageChunk
    | DoneChunk
    | WholeChunk
    | PingChunk
)


class Provider(Protocol):
    """One model service."""

    name: str

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """Send the request; leaving the context closes the connection, however it is left.

        Raises only what `agent.errors` names under `ProviderError`, from entering the context as
        well as from the iterator. The iterator ends when the wire ends; whether the answer was
        whole is not judged here.
        """
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""
        ...
