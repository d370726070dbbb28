"""Sans-IO: wire types of `/v1/chat/completions`, for requests and responses.

`/openapi.json` is generated from these types; their names and docstrings appear in it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agent.settings import ReasoningEffort
from gateway.http.api.endings import FinishReason
from gateway.http.api.pictures import PICTURE_URL_SCHEMA
from gateway.http.errors import Error

# --- requests ----------------------------------------------------------------------------------


class PictureAddress(msgspec.Struct, frozen=True):
    """The address of a picture."""

    url: Annotated[str, Meta(extra_json_schema=PICTURE_URL_SCHEMA)]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text of a message."""

    text: str = ""


class RefusalPart(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """Text with which a model declined to answer."""

    refusal: str = ""


class PicturePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """A picture in a message; up to twenty per request."""

    image_url: PictureAddress


class CalledFunction(msgspec.Struct, frozen=True):
    """The function of a tool call."""

    name: str
    arguments: Annotated[str, Meta(description="A JSON object.")] = "{}"


class ChatToolCall(msgspec.Struct, frozen=True):
    """An earlier tool call, as sent by the client."""

    id: str
    function: CalledFunction


TextContent = str | list[TextPart | RefusalPart] | None


class SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """An addition to the agent's own system prompt."""

    content: TextContent = None


class DeveloperMessage(msgspec.Struct, frozen=True, tag_field="role", tag="developer"):
    """An addition to the agent's own system prompt."""

    content: TextContent = None


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """A message of the user. The last one is answered, and must not be blank."""

    content: str | list[TextPart | RefusalPart | PicturePart] | None = None


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer."""

    content: TextContent = None
    tool_calls: list[ChatToolCall] | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """An earlier result of a tool."""

    content: TextContent = None
    tool_call_id: str | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: Annotated[
        bool | None, Meta(description="End the stream with its token usage.")
    ] = None


TokenLimit = Annotated[
    float,  # because 7.0 is an integer in JSON Schema
    Meta(ge=1, le=2_147_483_647, multiple_of=1, extra_json_schema={"type": "integer"}),
]
Temperature = Annotated[float, Meta(ge=0, le=2)]
_SINGLE_CHOICE = Meta(
    description="A request gets one answer.", extra_json_schema={"enum": [1, None]}
)
_NO_TOOLS = Meta(
    description="The agent uses its own tools. Tools of a request are refused unless "
    "`tool_choice` is `none`.",
)
_NO_FUNCTIONS = Meta(
    description="The older form of `tools`: refused.", extra_json_schema={"maxItems": 0}
)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. Fields not listed here are accepted and ignored.

    The last message must have the role `user` and must not be empty.
    """

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: Annotated[
        str | None,
        Meta(
            description="A model of `GET /v1/models`, or a part of its name. Default: the "
            "configured model."
        ),
    ] = None
    stream: Annotated[bool | None, Meta(description="Stream the answer as events.")] = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: Annotated[
        TokenLimit | None,
        Meta(description="The newer name of `max_tokens`; wins if both are given."),
    ] = None
    temperature: Temperature | None = None
    reasoning_effort: ReasoningEffort | None = None
    user: Annotated[
        str | None,
        Meta(description="The person behind the request; see `http.trust_user_header`."),
    ] = None
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
"""Rules of a `ChatRequest` that its type cannot express, in JSON Schema."""

# --- responses ---------------------------------------------------------------------------------


class CachedTokens(msgspec.Struct, frozen=True):
    """Prompt tokens that the model service read from its cache."""

    cached_tokens: int


class ChatUsage(msgspec.Struct, frozen=True):
    """Token usage of an answer, summed over all steps of the agent."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class AnswerMessage(msgspec.Struct, frozen=True):
    """The message of an answer."""

    content: str | None
    refusal: str | None
    role: Literal["assistant"] = "assistant"


class AnswerChoice(msgspec.Struct, frozen=True):
    """The only choice of an answer."""

    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. With `finish_reason` `error` it is incomplete, and `error` says why."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: Annotated[int, Meta(description="Unix time in seconds.")]
    model: str
    choices: list[AnswerChoice]
    usage: ChatUsage
    error: Error | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True):
    """The addition of a chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True):
    """The only choice of a chunk."""

    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of an answer. With `include_usage` a last chunk has `usage` and no choices."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | UnsetType | None = UNSET
