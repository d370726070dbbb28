"""Sans-IO: wire types of `/v1/messages`, for requests and responses.

`/openapi.json` is generated from these types; their names and docstrings appear in it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.http.api.chat.shapes import Temperature, TokenLimit
from gateway.http.api.client_tools import ToolName
from gateway.http.api.pictures import FILE_DATA_SCHEMA, PICTURE_URL_SCHEMA

# --- requests ----------------------------------------------------------------------------------


class BlockSource(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a picture or document."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class MessageBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of a message: text, a picture, a document, a tool call or the result of a tool.

    Blocks of other types are ignored in messages of the assistant.
    """

    type: str
    text: str | None = None
    source: BlockSource | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "BlockContent" = None
    is_error: bool | None = None
    title: str | None = None


BlockContent = str | list[MessageBlock] | None


class InputMessage(msgspec.Struct, frozen=True):
    """A message of the conversation. The last one is answered."""

    role: Literal["user", "assistant", "system"]
    content: str | list[MessageBlock]


class SystemBlock(msgspec.Struct, frozen=True):
    """An addition to the agent's own system prompt."""

    type: Literal["text"]
    text: str


class MessagesTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs. Types other than `custom` are left out."""

    name: ToolName
    type: str | None = None
    description: str | None = None
    input_schema: Annotated[
        dict[str, Any] | None, Meta(description="A JSON schema of type `object`.")
    ] = None
    strict: bool | None = None


class MessagesToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Use of tools that the client asks for; `none` also leaves out the tools of the agent."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOptions(msgspec.Struct, frozen=True):
    """Display of the model's reasoning."""

    type: Annotated[
        Literal["enabled", "adaptive", "disabled"],
        Meta(description="Thinking blocks are sent only if `agent.show_reasoning` is set, too."),
    ]


class MessagesFormat(msgspec.Struct, frozen=True):
    """Format of the answer."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputOptions(msgspec.Struct, frozen=True):
    """Effort and format of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: MessagesFormat | None = None


class MessagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. Fields not listed here are accepted and ignored."""

    messages: Annotated[list[InputMessage], Meta(min_length=1)]
    model: Annotated[
        str | None,
        Meta(
            description="A model of `GET /v1/models`, or a part of its name. Default: the "
            "configured model."
        ),
    ] = None
    max_tokens: TokenLimit | None = None
    system: str | list[SystemBlock] | None = None
    stream: Annotated[bool | None, Meta(description="Stream the answer as events.")] = None
    temperature: Temperature | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    tools: Annotated[
        list[MessagesTool] | None,
        Meta(description="Tools of the client, offered beside the agent's own."),
    ] = None
    tool_choice: MessagesToolChoice | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions | None = None


_TEXT = {
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=|[A-Za-z0-9+/]{2}))$"
_MEDIA_TYPES = ["image/jpeg", "image/png", "image/gif", "image/webp"]
_PICTURE_SOURCES = [
    {
        "type": "object",
        "properties": {
            "type": {"const": "base64"},
            "media_type": {"enum": _MEDIA_TYPES},
            "data": {"type": "string", "pattern": _BASE64},
        },
        "required": ["type", "media_type", "data"],
    },
    {
        "type": "object",
        "properties": {"type": {"const": "url"}, "url": PICTURE_URL_SCHEMA},
        "required": ["type", "url"],
    },
]
_PICTURE = {
    "properties": {"type": {"const": "image"}, "source": {"anyOf": _PICTURE_SOURCES}},
    "required": ["type", "source"],
}
_DOCUMENT = {
    "properties": {
        "type": {"const": "document"},
        "source": {
            "type": "object",
            "properties": {"type": {"const": "base64"}, "data": FILE_DATA_SCHEMA},
            "required": ["type", "data"],
        },
    },
    "required": ["type", "source"],
}
_TEXT_DOCUMENT = {
    "properties": {
        "type": {"const": "document"},
        "source": {
            "type": "object",
            "properties": {"type": {"const": "text"}, "data": {"type": "string"}},
            "required": ["type", "data"],
        },
    },
    "required": ["type", "source"],
}
_CONTENT = [_TEXT, _PICTURE, _DOCUMENT, _TEXT_DOCUMENT]
_RESULT = {
    "properties": {
        "type": {"const": "tool_result"},
        "tool_use_id": {"type": "string"},
        "content": {"items": {"anyOf": _CONTENT}},
    },
    "required": ["type", "tool_use_id"],
}
_CALL = {
    "properties": {
        "type": {"const": "tool_use"},
        "id": {"type": "string"},
        "name": {"type": "string"},
    },
    "required": ["type", "id", "name"],
}
_IGNORED = {  # thinking, and blocks of tools that only another service has
    "properties": {"type": {"not": {"enum": ["text", "tool_use"]}}},
    "required": ["type"],
}
MESSAGES_SCHEMAS: dict[str, dict[str, Any]] = {
    InputMessage.__name__: {
        "anyOf": [
            {
                "properties": {
                    "role": {"const": "user"},
                    "content": {"items": {"anyOf": [*_CONTENT, _RESULT]}},
                },
            },
            {
                "properties": {
                    "role": {"const": "assistant"},
                    "content": {"items": {"anyOf": [_TEXT, _CALL, _IGNORED]}},
                },
            },
            {"properties": {"role": {"const": "system"}, "content": {"items": _TEXT}}},
        ]
    },
}
"""Rules that the types cannot express, in JSON Schema."""

# --- responses ---------------------------------------------------------------------------------

StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class AnswerTextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text of an answer."""

    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """Reasoning of the model."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A call of a client's tool."""

    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = AnswerTextBlock | ThinkingBlock | ToolUseBlock


class MessagesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token usage of an answer, summed over all steps of the agent."""

    input_tokens: Annotated[int, Meta(description="Without tokens read from a cache.")] = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class MessagesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, or its beginning in the event `message_start`."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None = None
    stop_sequence: None = None
    usage: MessagesUsage


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    """The first event of an answer."""

    message: MessagesAnswer


class BlockStart(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_start"):
    """The start of a block."""

    index: int
    content_block: AnswerBlock


class TextAddition(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingAddition(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class InputAddition(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    """The arguments of a call."""

    partial_json: str


class BlockDelta(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_delta"):
    """An addition to a block."""

    index: int
    delta: TextAddition | ThinkingAddition | InputAddition


class BlockStop(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    """The end of a block."""

    index: int


class StopDelta(msgspec.Struct, frozen=True):
    """The reason why the answer ended."""

    stop_reason: StopReason
    stop_sequence: None = None


class MessageDelta(msgspec.Struct, frozen=True, tag_field="type", tag="message_delta"):
    """The end of the answer, with its usage."""

    delta: StopDelta
    usage: MessagesUsage


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    """The last event of an answer."""


class MessagesPing(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """A sign of life. `holdfast` holds an event of the agent, which is not part of the answer."""

    holdfast: Annotated[
        dict[str, Any], Meta(description="`event` is the name; see the other endpoints.")
    ]


MessagesEvent = (
    MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | MessagesPing
)


class TokenCount(msgspec.Struct, frozen=True):
    """The estimated size of a request, without the agent's own prompt and tools."""

    input_tokens: int
