"""Validation of arguments against the schema that a server provides."""

import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from agent.tools.mcp.contract import CallArguments

_MAX_ERRORS = 3
_MAX_ERROR_LENGTH = 200  # characters

_log = logging.getLogger(__name__)


def make_checker(tool: str, schema: dict[str, Any]) -> Callable[[CallArguments], str | None]:
    """Return a function that describes errors in arguments; the first use compiles the schema.

    An unusable schema accepts all arguments, because the server validates them as well.
    """

    @functools.cache
    def validator() -> Validator | None:
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            _log.warning(
                "the schema of the tool %s is invalid: %s", tool, error.message[:_MAX_ERROR_LENGTH]
            )
            return None
        # The empty registry prevents that references in a schema are fetched from the network.
        compiled: Validator = kind(_without_patterns(schema), registry=Registry())
        return compiled

    def check(arguments: CallArguments) -> str | None:
        compiled = validator()
        if compiled is None:
            return None
        try:
            return _describe_errors(compiled.iter_errors(arguments))
        except Unresolvable as error:
            _log.warning("the schema of the tool %s cannot be used: %s", tool, error)
            return None

    return check


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove regular expressions, because a pathological one can block the process for hours.

    The server still applies the expressions.
    """
    removed = {"pattern"} if isinstance(schema.get("pattern"), str) else set()
    if "patternProperties" in schema:  # without the patterns, other names cannot be judged
        removed |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
    return {key: _strip_value(key, value) for key, value in schema.items() if key not in removed}


def _strip_value(key: str, value: object) -> object:
    if key in _VALUE_KEYS:
        return value
    if isinstance(value, list):
        return [_strip_value("", item) for item in value]
    if not isinstance(value, dict):
        return value
    if key in _SCHEMA_MAP_KEYS:
        return {name: _strip_value("", item) for name, item in value.items()}
    return _without_patterns(value)


_VALUE_KEYS = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, not schemas."""

_SCHEMA_MAP_KEYS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that map names to schemas; a name may be `pattern`."""


def _describe_errors(errors: Iterable[ValidationError]) -> str | None:
    first = [error for error, _ in zip(errors, range(_MAX_ERRORS), strict=False)]
    return "; ".join(_describe_error(error) for error in first) or None


def _describe_error(error: ValidationError) -> str:
    message = error.message
    if len(message) > _MAX_ERROR_LENGTH:  # the message quotes the value
        message = f"{message[: _MAX_ERROR_LENGTH // 2]} … {message[-_MAX_ERROR_LENGTH // 2 :]}"
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where}: {message}" if where else message
