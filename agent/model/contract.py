"""Contract of a model provider: a `ModelRequest` in, a stream of `Chunk`s out.

A provider converts in both directions and owns its connection, but does not retry, judge answers,
apply progress timeouts, or know about sessions. Closing the stream closes the connection at once.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from sessions.records import Message


class ToolSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tool definition for the model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool = False  # ask the service to enforce the schema; only for tools of clients


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Obligation to call a tool: any of the offered ones, or the one with this name."""

    name: str = ""


class AnswerFormat(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Format of the final answer: a JSON object, or JSON that fits a schema."""

    schema: dict[str, Any] | None = None  # None: any object
    name: str = "answer"
    description: str = ""
    strict: bool = False


class SamplingOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Options of a client that are passed to the services that have them."""

    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] = {}
    verbosity: str | None = None
    service_tier: str | None = None
    user: str | None = None


class Picture(msgspec.Struct, frozen=True):
    """Picture content for a request."""

    media_type: str  # detected from the content, not the declared type
    data: str  # base64


class ModelRequest(msgspec.Struct, frozen=True):
    """One request to a model: system prompt, history, tools and options.

    A file whose path is in `pictures` is sent as a picture, at the end of its row.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    stream: bool = True  # False for services that are known not to stream
    pictures: Mapping[str, Picture] = {}  # by `Attachment.path`
    tool_choice: ToolChoice | None = None  # None: the model may call a tool
    parallel_tool_calls: bool | None = None  # None: the default of the service
    sampling: SamplingOptions = SamplingOptions()
    answer_format: AnswerFormat | None = None


class OpenedChunk(msgspec.Struct, frozen=True):
    """Start of a response; `request_id` is the service's own id for the request."""

    request_id: str = ""


class TextChunk(msgspec.Struct, frozen=True):
    """More visible text."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    """More reasoning."""

    text: str


class OpaqueChunk(msgspec.Struct, frozen=True):
    """Piece of opaque data to replay with the next request: signatures, encrypted reasoning.

    Pieces with the same `index` form one part, merged by `agent.answer.reasoning_blocks`. Opaque
    data does not count as progress, because none of it can be shown.
    """

    index: int
    fields: dict[str, Any]


class CallChunk(msgspec.Struct, frozen=True):
    """Piece of a tool call; fields that the service did not send are None."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    extra: bytes | None = None
    ended: bool = False  # the service marked the end of this call, which seals it


class FinishChunk(msgspec.Struct, frozen=True):
    """Finish reason, as the service sent it."""

    reason: str


class UsageChunk(msgspec.Struct, frozen=True):
    """Token usage of the answer so far."""

    input_tokens: int
    output_tokens: int
    alone: bool = False  # sent as a separate event, which services do only at the end
    cached_tokens: int = 0  # input tokens read from the service's cache
    cost: float | None = None  # dollars, if the service reports them
    reasoning_tokens: int = 0  # part of `output_tokens`


class DoneChunk(msgspec.Struct, frozen=True):
    """End marker of the protocol (`[DONE]`, `message_stop`); the last chunk."""


class WholeChunk(msgspec.Struct, frozen=True):
    """Sign that the answer arrived as one document, even if a stream was requested."""


class PingChunk(msgspec.Struct, frozen=True):
    """Sign of life without content."""

    beat: bool = False  # a dedicated keepalive, not an empty event


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
        """Send the request; leaving the context always closes the connection.

        Entering the context and iterating raise only `ProviderError` and its subclasses. The
        iterator ends when the response ends, even if the answer is incomplete; the caller judges
        that.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
