"""Sans-IO: wire types of `/v1/chat/completions`, for requests and responses.

`/openapi.json` is generated from these types; their names and docstrings appear in it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.http.api.answer_options import (
    Bias,
    Effort,
    JsonSchemaFormat,
    Penalty,
    Seed,
    Stop,
    TopP,
    Verbosity,
)
from gateway.http.api.client_tools import FunctionDefinition
from gateway.http.api.endings import FinishReason
from gateway.http.api.pictures import FILE_DATA_SCHEMA, PICTURE_URL_SCHEMA

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


class FileContent(msgspec.Struct, frozen=True):
    """The content and the name of a file."""

    file_data: Annotated[str, Meta(extra_json_schema=FILE_DATA_SCHEMA)]
    filename: str | None = None


class FilePart(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    """A file, which the agent finds in its workspace."""

    file: FileContent


class AudioContent(msgspec.Struct, frozen=True):
    """Speech, and its format."""

    data: Annotated[str, Meta(extra_json_schema=FILE_DATA_SCHEMA)]
    format: Literal["wav", "mp3"]


class AudioPart(msgspec.Struct, frozen=True, tag_field="type", tag="input_audio"):
    """Speech, which is transcribed if `[voice]` is configured."""

    input_audio: AudioContent


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


UserContent = str | list[TextPart | RefusalPart | PicturePart | FilePart | AudioPart] | None


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """A message of the user. The last one is answered, and must not be blank."""

    content: UserContent = None


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer."""

    content: TextContent = None
    tool_calls: list[ChatToolCall] | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of a tool call. The last messages may be results of the calls before them.

    Pictures and files are shown to the model after the results.
    """

    content: UserContent = None
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
_NO_PROBABILITIES = Meta(
    description="Not supported: `true` is refused.", extra_json_schema={"enum": [False, None]}
)
_ONLY_TEXT = Meta(
    description="Only text is supported.", extra_json_schema={"items": {"const": "text"}}
)
_NO_FUNCTIONS = Meta(
    description="The older form of `tools`: refused.", extra_json_schema={"maxItems": 0}
)


class ChatTool(msgspec.Struct, frozen=True):
    """A tool that the client runs. Types other than `function` are left out."""

    type: str
    function: FunctionDefinition | None = None


ToolChoiceForm = Annotated[
    str | dict[str, Any] | None,
    Meta(
        description="`none` (no tools at all, also none of the agent), `auto`, `required`, a function, "
        "or `allowed_tools`."
    ),
]


class ResponseFormat(msgspec.Struct, frozen=True):
    """Format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. Fields not listed here are accepted and ignored.

    The last message must have the role `user`, and must not be empty, or the role `tool`. After other
    messages it can also be the beginning of an answer (`assistant`), which is continued.
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
    reasoning_effort: Effort | None = None
    include_reasoning: Annotated[
        bool | None,
        Meta(description="Send the model's reasoning if `agent.show_reasoning` is set (default)."),
    ] = None
    response_format: ResponseFormat | None = None
    top_p: TopP | None = None
    stop: Stop = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    verbosity: Verbosity | None = None
    service_tier: str | None = None
    user: Annotated[
        str | None,
        Meta(description="The person behind the request; see `http.trust_user_header`."),
    ] = None
    logprobs: Annotated[bool | None, _NO_PROBABILITIES] = None
    modalities: Annotated[list[str] | None, _ONLY_TEXT] = None
    n: Annotated[float | None, _SINGLE_CHOICE] = None
    tools: Annotated[
        list[ChatTool] | None,
        Meta(description="Tools of the client, offered beside the agent's own."),
    ] = None
    tool_choice: ToolChoiceForm = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[
        dict[str, Any] | None,
        Meta(description="`task` marks a request of a front end, such as `title_generation`."),
    ] = None
    functions: Annotated[list[Any] | None, _NO_FUNCTIONS] = None
    web_search_options: Annotated[
        Any, Meta(description="Has no effect: the agent decides about its own web tools.")
    ] = None


_MODES_SCHEMA = {"enum": ["none", "auto", "required", None]}
CHOICE_SCHEMA: dict[str, Any] = {"anyOf": [_MODES_SCHEMA, {"type": "object"}]}
CHAT_SCHEMAS: dict[str, dict[str, Any]] = {
    ChatTool.__name__: {
        "anyOf": [
            {
                "properties": {"type": {"const": "function"}, "function": {"type": "object"}},
                "required": ["type", "function"],
            },
            {"properties": {"type": {"not": {"const": "function"}}}},
        ]
    },
    ChatRequest.__name__: {"anyOf": [{"properties": {"tool_choice": CHOICE_SCHEMA}}]},
}
"""Rules that the types cannot express, in JSON Schema."""

# --- responses ---------------------------------------------------------------------------------


class CachedTokens(msgspec.Struct, frozen=True):
    """Prompt tokens that the model service read from its cache."""

    cached_tokens: int


class ReasoningTokens(msgspec.Struct, frozen=True):
    """Completion tokens that the model used for reasoning."""

    reasoning_tokens: int


class ChatUsage(msgspec.Struct, frozen=True):
    """Token usage of an answer, summed over all steps of the agent."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens | UnsetType = UNSET


class AnswerToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a client's tool."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AnswerMessage(msgspec.Struct, frozen=True):
    """The message in an answer."""

    content: str | None
    refusal: str | None
    role: Literal["assistant"] = "assistant"
    tool_calls: list[AnswerToolCall] | UnsetType = UNSET
    reasoning_content: Annotated[
        str | UnsetType, Meta(description="Reasoning of the model, if it may be shown.")
    ] = UNSET


class AnswerChoice(msgspec.Struct, frozen=True):
    """The only choice of an answer."""

    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: Annotated[int, Meta(description="Unix time in seconds.")]
    model: str
    choices: list[AnswerChoice]
    usage: ChatUsage


class DeltaToolCall(AnswerToolCall, frozen=True, kw_only=True):
    """A whole call of a client's tool."""

    index: int


class Delta(msgspec.Struct, frozen=True):
    """The addition of a chunk."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: list[DeltaToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


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
