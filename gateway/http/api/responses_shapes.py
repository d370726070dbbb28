"""Sans-IO: `/v1/responses` as it stands on the wire: what it takes, and what it gives.

`/openapi.json` is made from these: names and sentences here are what its readers see.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agent.settings import ReasoningEffort
from gateway.http.api.chat_shapes import TOOLS_SCHEMA, Temperature, TokenLimit
from gateway.http.api.pictures import PICTURE_URL_SCHEMA

# --- what it takes -----------------------------------------------------------------------------

TEXT_PART_TYPES = ("input_text", "output_text", "text", "summary_text", "refusal")
"""Parts of a message that are words."""


class InputPart(msgspec.Struct, frozen=True):
    """Words or, in what a user says, a picture (`input_image`)."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None


InputContent = str | list[InputPart] | None


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, a call of a tool, what came of one, or a thought (which is passed over)."""

    type: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: InputContent = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: InputContent = None


class Reasoning(msgspec.Struct, frozen=True):
    """How much the model is to think."""

    effort: ReasoningEffort | None = None
    summary: str | None = None


class TextFormat(msgspec.Struct, frozen=True):
    """In which form the agent answers."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ["text"]})] = "text"


class TextOptions(msgspec.Struct, frozen=True):
    """How words are to be."""

    format: TextFormat | None = None


MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)]
TopP = Annotated[float, Meta(ge=0, le=1)]
_NOT_SUPPORTED = Meta(
    description="There is none here: it is refused.", extra_json_schema={"type": "null"}
)


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. What is not named here is let pass and means nothing.

    The last item must be a message of role `user` with something in it.
    """

    input: (
        Annotated[str, Meta(extra_json_schema={"pattern": "\\S"})]
        | Annotated[list[InputItem], Meta(extra_json_schema={"minItems": 1})]
    )
    model: Annotated[
        str | None,
        Meta(description="One of `GET /v1/models`, or a part of its name; left out: the usual."),
    ] = None
    instructions: Annotated[str | None, Meta(description="Is added to the agent's own prompt.")] = (
        None
    )
    stream: Annotated[bool | None, Meta(description="Answer with events as they come.")] = None
    store: Annotated[
        bool | None, Meta(description="Whether the answer may be asked for by its id.")
    ] = None
    previous_response_id: Annotated[
        str | None, Meta(description="The answer from which the conversation goes on.")
    ] = None
    metadata: Metadata | None = None
    max_output_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    tools: Annotated[
        list[Any] | None,
        Meta(description="Those of a request are refused, unless `tool_choice` is `none`."),
    ] = None
    tool_choice: Any = None
    background: Annotated[
        bool | None,
        Meta(
            description="An answer is written while somebody waits for it.",
            extra_json_schema={"enum": [False, None]},
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
_MESSAGE_TYPE_SCHEMA = {"enum": ["message", None]}
EXTRA_SCHEMAS: dict[str, dict[str, Any]] = {
    ResponseRequest.__name__: TOOLS_SCHEMA,
    InputItem.__name__: {
        "anyOf": [
            {
                "properties": {
                    "type": _MESSAGE_TYPE_SCHEMA,
                    "role": {"const": "user"},
                    "content": {"items": {"anyOf": [_TEXT_PART_SCHEMA, _PICTURE_PART_SCHEMA]}},
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
"""What no type says of these, in JSON Schema."""

# --- what it gives -----------------------------------------------------------------------------


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """Words of an answer."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """Words with which the model declined."""

    refusal: str


OutputPart = OutputText | OutputRefusal


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """An answer."""

    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputPart]


class ResponseError(msgspec.Struct, frozen=True):
    """Why an answer is not whole."""

    code: Literal["rate_limit_exceeded", "server_error"]
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """What cut an answer short."""

    reason: Literal["max_output_tokens", "content_filter"]


class InputTokenDetails(msgspec.Struct, frozen=True):
    """More about what was read."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokenDetails(msgspec.Struct, frozen=True):
    """More about what was written."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer cost, all steps of the agent together."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails = OutputTokenDetails()
    total_tokens: int


class EchoedReasoning(msgspec.Struct, frozen=True):
    """What was wished of the model's thinking."""

    effort: str | None = None
    summary: str | None = None


class EchoedFormat(msgspec.Struct, frozen=True):
    """The form in which the agent answers."""

    type: Literal["text"] = "text"


class EchoedText(msgspec.Struct, frozen=True):
    """How its words are."""

    format: EchoedFormat = EchoedFormat()


class RequestEcho(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer repeats of its request."""

    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    previous_response_id: str | None = None
    reasoning: EchoedReasoning = EchoedReasoning()
    store: bool = False
    temperature: float | None = None
    top_p: float | None = None


ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(RequestEcho, frozen=True, kw_only=True, tag_field="object", tag="response"):
    """An answer, or as much of one as there is."""

    id: str
    created_at: Annotated[int, Meta(description="Seconds since 1970.")]
    model: str
    status: ResponseStatus
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    output: list[OutputMessage]
    usage: ResponseUsage | None = None
    background: bool = False
    parallel_tool_calls: bool = True
    text: EchoedText = EchoedText()
    tool_choice: str = "auto"
    tools: list[Any] = []
    truncation: str = "disabled"


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A step of an answer; which fields there are follows from its type."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: OutputMessage | UnsetType = UNSET
    part: OutputPart | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET


class ResponseDeleted(msgspec.Struct, frozen=True, tag_field="object", tag="response"):
    """The answer is given to nobody any more."""

    id: str
    deleted: Literal[True] = True


InputItemType = Literal["message", "function_call", "function_call_output"]


class ListedItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was sent with a request; which fields there are follows from its type."""

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
    """A part of what was sent."""

    data: list[ListedItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
