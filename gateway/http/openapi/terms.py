"""Sans-IO: building blocks of the OpenAPI description: operations, parameters, responses."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"

Method = Literal["get", "post", "delete"]
Access = Literal["key", "open"]


class ParameterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A header, or a parameter of a path or query."""

    name: str
    description: str
    schema: Mapping[str, Any]
    example: str | int | None = None
    required: bool = False


class ContentSpec(msgspec.Struct, frozen=True):
    """A body in one of its media types."""

    media_type: str
    schema_type: Any = None  # type of a JSON body; None: text
    examples: Mapping[str, Any] = {}
    events: Mapping[str, Sequence[Any]] = {}  # of a stream: payload types by event name


class ResponseSpec(msgspec.Struct, frozen=True):
    """The response for one status."""

    status: int
    description: str
    content: Sequence[ContentSpec] = ()
    headers: Sequence[ParameterSpec] = ()


class OperationSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a path."""

    path: str
    method: Method
    id: str
    tag: str
    summary: str
    description: str = ""
    access: Access = "key"
    parameters: Sequence[tuple[Literal["path", "query", "header"], ParameterSpec]] = ()
    body: ContentSpec | None = None
    responses: Sequence[ResponseSpec]
