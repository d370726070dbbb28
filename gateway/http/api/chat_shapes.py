"""Sans-IO: `/v1/chat/completions` as it stands on the wire: what it takes, and what it gives.

`/openapi.json` is made from these: names and sentences here are what its readers see.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agent.settings import ReasoningEffort
from gateway.http.api.endings import FinishReason
from gateway.http.api.pictures import PICTURE_URL_SCHEMA
from gateway.http.errors import Error

# --- what it takes -----------------------------------------------------------------------------


class PictureAddress(msgspec.Struct, frozen=True):
    """Where a picture is."""

    url: Annotated[str, Meta(extra_json_schema=PICTURE_URL_SCHEMA)]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Words of a message."""

    text: str = ""


class RefusalPart(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """Words with which a model declined."""

    refusal: str = ""


class PicturePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """A picture in a message; a request may have twenty."""

    image_url: PictureAddress


class CalledFunction(msgspec.Struct, frozen=True):
    """What was called."""

    name: str
    arguments: Annotated[str, Meta(description="A JSON object.")] = "{}"


class ChatToolCall(msgspec.Struct, frozen=True):
    """A call of a tool, as the program remembers it."""

    id: str
    function: CalledFunction


TextContent = str | list[TextPart | RefusalPart] | None


class SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """Is added to the agent's own prompt."""

    content: TextContent = None


class DeveloperMessage(msgspec.Struct, frozen=True, tag_field="role", tag="developer"):
    """Is added to the agent's own prompt."""

    content: TextContent = None


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """What somebody said. The last one is what is answered, and must not be blank."""

    content: str | list[TextPart | RefusalPart | PicturePart] | None = None


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """What was answered before."""

    content: TextContent = None
    tool_calls: list[ChatToolCall] | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """What a tool gave before."""

    content: TextContent = None
    tool_call_id: str | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class StreamOptions(msgspec.Struct, frozen=True):
    """More about a stream."""

    include_usage: Annotated[bool | None, Meta(description="End the stream with what it cost.")] = (
        None
    )


TokenLimit = Annotated[
    float,  # to JSON Schema 7.0 is an integer too
    Meta(ge=1, le=2_147_483_647, multiple_of=1, extra_json_schema={"type": "integer"}),
]
Temperature = Annotated[float, Meta(ge=0, le=2)]
_SINGLE_CHOICE = Meta(
    description="There is one answer to a request.", extra_json_schema={"enum": [1, None]}
)
_NO_TOOLS = Meta(
    description="The agent calls its own tools. Those of a request are refused, unless "
    "`tool_choice` is `none`.",
)
_NO_FUNCTIONS = Meta(
    description="As `tools`, in an older form: refused.", extra_json_schema={"maxItems": 0}
)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. What is not named here is let pass and means nothing.

    The last message must be one of role `user` with something in it.
    """

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: Annotated[
        str | None,
        Meta(description="One of `GET /v1/models`, or a part of its name; left out: the usual."),
    ] = None
    stream: Annotated[bool | None, Meta(description="Answer with events as they come.")] = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: Annotated[
        TokenLimit | None, Meta(description="The newer name of `max_tokens`; it counts.")
    ] = None
    temperature: Temperature | None = None
    reasoning_effort: ReasoningEffort | None = None
    n: Annotated[float | None, _SINGLE_CHOICE] = None
    tools: Annotated[list[Any] | None, _NO_TOOLS] = None
    tool_choice: Any = None
    functions: Annotated[list[Any] | None, _NO_FUNCTIONS] = None


TOOLS_SCHEMA: dict[str, object] = {
    "anyOf": [
        {"properties": {"tools": {"maxItems": 0}}},
        {"properties": {"tool_choice": {"const": "none"}}, "required": ["tool_choice"]},
    ]
}
"""What no type says of a `ChatRequest`, in JSON Schema."""

# --- what it gives -----------------------------------------------------------------------------


class CachedTokens(msgspec.Struct, frozen=True):
    """How much of a prompt was known already."""

    cached_tokens: int


class ChatUsage(msgspec.Struct, frozen=True):
    """What an answer cost, all steps of the agent together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class AnswerMessage(msgspec.Struct, frozen=True):
    """An answer."""

    content: str | None
    refusal: str | None
    role: Literal["assistant"] = "assistant"


class AnswerChoice(msgspec.Struct, frozen=True):
    """The one answer that there is."""

    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in one piece. With `finish_reason` `error` it is not whole, and `error` says why."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: Annotated[int, Meta(description="Seconds since 1970.")]
    model: str
    choices: list[AnswerChoice]
    usage: ChatUsage
    error: Error | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True):
    """The one answer that there is, a piece of it."""

    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer. The last one has no choices and what it cost, if that was asked for."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | UnsetType | None = UNSET
