"""Checks arguments against the schema that a server gives for them."""

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
_MAX_ERROR_LENGTH = 200  # characters of one error

_log = logging.getLogger(__name__)


def make_checker(tool: str, schema: dict[str, Any]) -> Callable[[CallArguments], str | None]:
    """Make what says how arguments do not fit; the schema is compiled at the first call, once.

    A schema that cannot be used lets everything pass: the server looks at the arguments itself.
    """

    @functools.cache
    def validator() -> Validator | None:
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            _log.warning(
                "the schema of %s is not valid: %s", tool, error.message[:_MAX_ERROR_LENGTH]
            )
            return None
        # The empty registry: a schema must not make us fetch what it refers to.
        made: Validator = kind(_without_patterns(schema), registry=Registry())
        return made

    def check(arguments: CallArguments) -> str | None:
        judge = validator()
        if judge is None:
            return None
        try:
            return _describe_errors(judge.iter_errors(arguments))
        except Unresolvable as error:
            _log.warning("the schema of %s cannot be used: %s", tool, error)
            return None

    return check


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out regular expressions: one that is badly made can hold up everything for hours.

    The server, which brought them, judges the arguments by them itself.
    """
    left_out = {"pattern"} if isinstance(schema.get("pattern"), str) else set()
    if "patternProperties" in schema:  # without them nothing is known of further names
        left_out |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
    return {key: _strip_value(key, value) for key, value in schema.items() if key not in left_out}


def _strip_value(key: str, value: object) -> object:
    if key in _VALUE_KEYS:
        return value
    if isinstance(value, list):
        return [_strip_value("", each) for each in value]
    if not isinstance(value, dict):
        return value
    if key in _SCHEMA_MAP_KEYS:
        return {name: _strip_value("", each) for name, each in value.items()}
    return _without_patterns(value)


_VALUE_KEYS = frozenset({"const", "default", "enum", "examples"})
"""What stands here is compared, not applied."""

_SCHEMA_MAP_KEYS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Schemas by names, and a name may be `pattern`."""


def _describe_errors(errors: Iterable[ValidationError]) -> str | None:
    found = [error for error, _ in zip(errors, range(_MAX_ERRORS), strict=False)]
    return "; ".join(_describe_error(error) for error in found) or None


def _describe_error(error: ValidationError) -> str:
    message = error.message
    if len(message) > _MAX_ERROR_LENGTH:  # it quotes the value
        message = f"{message[: _MAX_ERROR_LENGTH // 2]} … {message[-_MAX_ERROR_LENGTH // 2 :]}"
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where}: {message}" if where else message
