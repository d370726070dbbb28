"""Assembly of the OpenAPI 3.1 document."""

from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

from gateway.http.api.chat.shapes import CHAT_SCHEMAS
from gateway.http.api.messages.shapes import MESSAGES_SCHEMAS
from gateway.http.api.responses.shapes import EXTRA_SCHEMAS
from gateway.http.openapi import chat, messages, responses, watching
from gateway.http.openapi.terms import (
    Access,
    ContentSpec,
    OperationSpec,
    ParameterSpec,
    ResponseSpec,
)

OPERATIONS: tuple[OperationSpec, ...] = (
    *chat.OPERATIONS,
    *responses.OPERATIONS,
    *messages.OPERATIONS,
    *watching.OPERATIONS,
)
EVENTS_KEY = "x-events"
"""Extension for streams: the schema of each event's data by event name.

"" is an event without a name; a name can end with `*`.
"""

_REF = "#/components/schemas/{name}"
_SECURITY_SCHEME = "key"
_SECURITY: dict[Access, list[dict[str, list[str]]]] = {
    "key": [{_SECURITY_SCHEME: []}],
    "open": [],
}
_DESCRIPTION = """\
The agent behind this gateway, for clients of OpenAI's and Anthropic's APIs: with the same sessions, journal and \
recovery as in a chat.

Every path that supports GET also supports HEAD. Bodies are read as JSON, whatever their \
Content-Type. Every error is an `ErrorBody`, or a `MessagesErrorBody` below \
`/v1/messages`. The paths of the web page and of chat platforms are \
not described here.
"""
_TAGS = {
    "chat": "Ask the agent.",
    "responses": "Ask the agent, and fetch or continue its answers later.",
    "messages": "Ask the agent, for clients of Anthropic's API.",
    "models": "The models that can answer.",
    "watching": "Health and metrics of the daemon.",
}


@cache
def written(version: str) -> bytes:
    """Return the encoded document; `version` is the version of Holdfast."""
    return msgspec.json.encode(build_document(version))


def build_document(version: str) -> dict[str, Any]:
    """Build the document from the operations and their types."""
    schemas, components = _build_schemas()
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "The gateway that serves this document."}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "security": _SECURITY["key"],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                _SECURITY_SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The API key (http.api_key); `holdfast config show --secrets` "
                    "prints the key.",
                }
            },
        },
    }


# --- schemas -----------------------------------------------------------------------------------

_Schemas = Mapping[Any, dict[str, Any]]


def _build_schemas() -> tuple[_Schemas, dict[str, Any]]:
    """Return the schema of each type in use, and the named components that they refer to."""
    taken, of_taken = _build_components(each.body.schema_type for each in OPERATIONS if each.body)
    given, of_given = _build_components(_response_types())
    for name, rule in {**CHAT_SCHEMAS, **EXTRA_SCHEMAS, **MESSAGES_SCHEMAS}.items():
        of_taken[name] |= rule
    for each in of_given.values():
        _require_defaults(each)
    return taken | given, of_taken | of_given


def _build_components(shapes: Iterable[Any]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    known = list(dict.fromkeys(shapes))
    schemas, components = msgspec.json.schema_components(known, ref_template=_REF)
    for each in components.values():
        each["description"] = cleandoc(each["description"])
    return dict(zip(known, schemas, strict=True)), components


def _response_types() -> Iterable[Any]:
    for content in (c for each in OPERATIONS for reply in each.responses for c in reply.content):
        if content.schema_type is not None:
            yield content.schema_type
        for shapes in content.events.values():
            yield from shapes


def _require_defaults(schema: dict[str, Any]) -> None:
    """Mark fields with a default as required, because responses always contain them."""
    usual = [name for name, each in schema.get("properties", {}).items() if "default" in each]
    for name in usual:
        del schema["properties"][name]["default"]
    if usual:
        schema["required"] += usual


# --- operations --------------------------------------------------------------------------------


def _operation(each: OperationSpec, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.id,
        "tags": [each.tag],
        "summary": each.summary,
        "security": _SECURITY[each.access],
        "responses": {
            str(reply.status): _reply(reply, schemas)
            for reply in sorted(each.responses, key=lambda reply: reply.status)
        },
    }
    if each.description:
        found["description"] = each.description
    if each.parameters:
        found["parameters"] = [
            {"name": field.name, "in": place, "required": field.required, **_field(field)}
            for place, field in each.parameters
        ]
    if each.body:
        found["requestBody"] = {"required": True, "content": _content([each.body], schemas)}
    return found


def _reply(reply: ResponseSpec, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": reply.description}
    if reply.headers:
        found["headers"] = {
            field.name: {"required": field.required, **_field(field)} for field in reply.headers
        }
    if reply.content:
        found["content"] = _content(reply.content, schemas)
    return found


def _field(field: ParameterSpec) -> dict[str, Any]:
    example = {} if field.example is None else {"example": field.example}
    return {"description": field.description, "schema": field.schema, **example}


def _content(contents: Iterable[ContentSpec], schemas: _Schemas) -> dict[str, Any]:
    return {each.media_type: _body(each, schemas) for each in contents}


def _body(content: ContentSpec, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not content.events:  # OpenAPI 3.1 has no schema for the events of a stream
        found["schema"] = (
            {"type": "string"} if content.schema_type is None else schemas[content.schema_type]
        )
    if content.examples:
        found["examples"] = {name: {"value": each} for name, each in content.examples.items()}
    if content.events:
        found[EVENTS_KEY] = {
            name: {"anyOf": [schemas[shape] for shape in shapes]}
            for name, shapes in content.events.items()
        }
    return found
