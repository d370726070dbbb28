"""Sans-IO: wire types of `/v1/responses`, for requests and responses.

`/openapi.json` is generated from these types; their names and docstrings appear in it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.http.api.answer_options import Effort, JsonSchemaFormat, TopP, Verbosity
from gateway.http.api.chat.shapes import (
    CHOICE_SCHEMA,
    AudioContent,
    Temperature,
    TokenLimit,
    ToolChoiceForm,
)
from gateway.http.api.client_tools import ToolName
from gateway.http.api.pictures import FILE_DATA_SCHEMA, PICTURE_URL_SCHEMA

# --- requests ----------------------------------------------------------------------------------

TEXT_PART_TYPES = ("input_text", "output_text", "text", "summary_text", "refusal")
"""Types of message parts that are text."""


class InputPart(msgspec.Struct, frozen=True):
    """Text or, in a message of the user, a picture, a file or speech."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: AudioContent | None = None


InputContent = str | list[InputPart] | None


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, a tool call, a tool result, or reasoning (which is ignored)."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: InputContent = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: InputContent = None


class Reasoning(msgspec.Struct, frozen=True):
    """Reasoning options."""

    effort: Effort | None = None
    summary: Annotated[
        str | None,
        Meta(
            description="Ask for the model's reasoning, which `agent.show_reasoning` has to allow."
        ),
    ] = None


class TextFormat(JsonSchemaFormat, frozen=True, kw_only=True):
    """Format of the answer; the fields besides `type` belong to `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"


class TextOptions(msgspec.Struct, frozen=True):
    """Text output options."""

    format: TextFormat | None = None
    verbosity: Verbosity | None = None


MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)]
_NOT_SUPPORTED = Meta(description="Not supported: refused.", extra_json_schema={"type": "null"})


class ResponseTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs. Types other than `function` are left out."""

    type: str
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. Fields not listed here are accepted and ignored.

    The last item must be a message of role `user`, and must not be empty, or the result of a call
    (`function_call_output`).
    """

    input: (
        Annotated[str, Meta(extra_json_schema={"pattern": "\\S"})]
        | Annotated[list[InputItem], Meta(extra_json_schema={"minItems": 1})]
    )
    model: Annotated[
        str | None,
        Meta(
            description="A model of `GET /v1/models`, or a part of its name. Default: the "
            "configured model."
        ),
    ] = None
    instructions: Annotated[
        str | None, Meta(description="An addition to the agent's own system prompt.")
    ] = None
    stream: Annotated[bool | None, Meta(description="Stream the answer as events.")] = None
    store: Annotated[
        bool | None, Meta(description="Make the answer retrievable by its id (default).")
    ] = None
    previous_response_id: Annotated[
        str | None, Meta(description="The answer that this request continues.")
    ] = None
    metadata: Metadata | None = None
    max_output_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    user: Annotated[
        str | None,
        Meta(description="The person behind the request; see `http.trust_user_header`."),
    ] = None
    tools: Annotated[
        list[ResponseTool] | None,
        Meta(description="Tools of the client, offered beside the agent's own."),
    ] = None
    tool_choice: ToolChoiceForm = None
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    max_tool_calls: TokenLimit | None = None  # echoed; no limit on the agent's own calls
    n: Annotated[float | None, Meta(extra_json_schema={"enum": [1, None]})] = None
    top_logprobs: Annotated[
        float | None,
        Meta(description="Not supported: above 0 refused.", extra_json_schema={"enum": [0, None]}),
    ] = None
    background: Annotated[
        bool | None,
        Meta(
            description="Answer at once, and go on without a client: the answer is polled by its "
            "id. Not together with `store` false.",
        ),
    ] = None
    conversation: Annotated[Any, _NOT_SUPPORTED] = None
    prompt: Annotated[Any, _NOT_SUPPORTED] = None


_TEXT_PART_SCHEMA = {"properties": {"type": {"enum": list(TEXT_PART_TYPES)}}}
_PICTURE_PART_SCHEMA = {
    "properties": {
        "type": {"const": "input_image"},
        "image_url": PICTURE_URL_SCHEMA,
    },
    "required": ["image_url"],
}
_FILE_PART_SCHEMA = {
    "properties": {"type": {"const": "input_file"}, "file_data": FILE_DATA_SCHEMA},
    "required": ["file_data"],
}
_AUDIO_PART_SCHEMA = {
    "properties": {"type": {"const": "input_audio"}, "input_audio": {"type": "object"}},
    "required": ["input_audio"],
}
_USER_PART_SCHEMAS = [
    _TEXT_PART_SCHEMA,
    _PICTURE_PART_SCHEMA,
    _FILE_PART_SCHEMA,
    _AUDIO_PART_SCHEMA,
]
_MESSAGE_TYPE_SCHEMA = {"enum": ["message", None]}
_STORED = {"properties": {"store": {"enum": [True, None]}}}
_IN_FOREGROUND = {"properties": {"background": {"enum": [False, None]}}}
EXTRA_SCHEMAS: dict[str, dict[str, Any]] = {
    ResponseRequest.__name__: {
        "allOf": [
            {"properties": {"tool_choice": CHOICE_SCHEMA}},
            {"anyOf": [_STORED, _IN_FOREGROUND]},
        ]
    },
    ResponseTool.__name__: {
        "anyOf": [
            {
                "properties": {"type": {"const": "function"}, "name": {"type": "string"}},
                "required": ["type", "name"],
            },
            {"properties": {"type": {"not": {"const": "function"}}}},
        ]
    },
    InputItem.__name__: {
        "anyOf": [
            {
                "properties": {
                    "type": _MESSAGE_TYPE_SCHEMA,
                    "role": {"const": "user"},
                    "content": {"items": {"anyOf": _USER_PART_SCHEMAS}},
                },
                "required": ["role"],
            },
            {
                "properties": {
                    "type": _MESSAGE_TYPE_SCHEMA,
                    "role": {"enum": ["system", "developer", "assistant"]},
                    "content": {"items": _TEXT_PART_SCHEMA},
                },
                "required": ["role"],
            },
            {
                "properties": {
                    "type": {"const": "function_call_output"},
                    "output": {"items": _TEXT_PART_SCHEMA},
                },
                "required": ["type"],
            },
            {
                "properties": {"type": {"enum": ["function_call", "reasoning"]}},
                "required": ["type"],
            },
        ]
    },
}
"""Rules that the types cannot express, in JSON Schema."""

# --- responses ---------------------------------------------------------------------------------


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """Text of an answer."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """Text with which the model declined to answer."""

    refusal: str


OutputPart = OutputText | OutputRefusal


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The message in an answer."""

    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputPart]


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class FunctionCallItem(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"
):
    """A call of a client's tool."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


class SummaryText(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    """Text of the model's reasoning."""

    text: str


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """Reasoning of the model, if `reasoning.summary` and `agent.show_reasoning` are set."""

    id: str
    summary: list[SummaryText]


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem


class ResponseError(msgspec.Struct, frozen=True):
    """The reason why an answer failed."""

    code: Literal["rate_limit_exceeded", "server_error"]
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """The reason why an answer is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class InputTokenDetails(msgspec.Struct, frozen=True):
    """Details of the input tokens."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokenDetails(msgspec.Struct, frozen=True):
    """Details of the output tokens."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token usage of an answer, summed over all steps of the agent."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails = OutputTokenDetails()
    total_tokens: int


class EchoedReasoning(msgspec.Struct, frozen=True):
    """The reasoning options of the request."""

    effort: str | None = None
    summary: str | None = None


class EchoedText(msgspec.Struct, frozen=True, kw_only=True):
    """The text output options of the answer."""

    format: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "text"})
    verbosity: str = "medium"


class RequestEcho(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a request that its answer repeats."""

    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    previous_response_id: str | None = None
    reasoning: EchoedReasoning = EchoedReasoning()
    store: bool = False
    background: bool = False
    temperature: float | None = 1.0  # null only in echoes that older versions stored
    top_p: float | None = 1.0
    tools: list[Any] = []
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    text: EchoedText = EchoedText()
    service_tier: str = "default"
    max_tool_calls: int | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(RequestEcho, frozen=True, kw_only=True, tag_field="object", tag="response"):
    """An answer, finished or in progress."""

    id: str
    created_at: Annotated[int, Meta(description="Unix time in seconds.")]
    model: str
    status: ResponseStatus
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    completed_at: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    top_logprobs: int = 0
    truncation: str = "disabled"


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a streamed answer; its type determines its fields."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    part: OutputPart | SummaryText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET


class ResponseDeleted(msgspec.Struct, frozen=True, tag_field="object", tag="response"):
    """Confirmation that an answer was deleted."""

    id: str
    deleted: Literal[True] = True


InputItemType = Literal["message", "function_call", "function_call_output"]


class ListedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An input item of a request; its type determines its fields."""

    id: str
    type: InputItemType
    status: Literal["completed"] = "completed"
    role: str | UnsetType = UNSET
    content: list[dict[str, Any]] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET


class ItemList(msgspec.Struct, frozen=True, kw_only=True, tag_field="object", tag="list"):
    """A page of the input items of a request."""

    data: list[ListedItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
