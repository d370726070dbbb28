"""Sans-IO: options of a request for its answer: format and sampling, shared by both endpoints."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agent.json_schemas import find_schema_error
from agent.model.contract import AnswerFormat
from agent.settings import REASONING_EFFORTS, ReasoningEffort
from gateway.http.api.failures import invalid_request

Effort = ReasoningEffort | Literal["max"]
"""Every reasoning effort of OpenAI's API."""

Verbosity = Literal["low", "medium", "high"]
TopP = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Seed = Annotated[
    float, Meta(ge=1 - 2**53, le=2**53 - 1, multiple_of=1, extra_json_schema={"type": "integer"})
]
Stop = str | Annotated[list[str], Meta(max_length=4)] | None
FormatName = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]

_HIGHEST: ReasoningEffort = "xhigh"


def read_effort(effort: Effort | None) -> str | None:
    """Return the effort in our terms: `max` is the highest that we know."""
    if effort is None:
        return None
    return REASONING_EFFORTS.get(effort, _HIGHEST)


def read_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return the texts that end an answer."""
    texts = [stop] if isinstance(stop, str) else stop or []
    return tuple(text for text in texts if text)


def read_format(type_: str, schema: "JsonSchemaFormat | None", param: str) -> AnswerFormat | None:
    """Return the format of an answer; raises `RequestRefused` for a schema that cannot be used."""
    if type_ == "text":
        return None
    if type_ == "json_object":
        return AnswerFormat()
    if schema is None or schema.name is None:
        where = f"{param}.name" if schema else param
        msg = f"`{where}` is missing."
        raise invalid_request(msg, where, "missing_required_parameter")
    content = schema.schema or {}
    if error := find_schema_error(content):
        msg = f"The schema of the format cannot be used: {error}"
        raise invalid_request(msg, f"{param}.schema", "invalid_json_schema")
    return AnswerFormat(
        schema=content,
        name=schema.name,
        description=schema.description or "",
        strict=bool(schema.strict),
    )


class JsonSchemaFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON schema that the answer has to fit."""

    name: FormatName | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


def refuse_unsupported(**asked: bool) -> None:
    """Raise `RequestRefused` for the first of these options that a request asks for."""
    for param in (name for name, wanted in asked.items() if wanted):
        msg = (
            f"`{param}` is not supported: a request gets one answer of text, without probabilities."
        )
        raise invalid_request(msg, param, "unsupported_parameter")
