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

from agent.tools.mcp.contract import Arguments

_MOST_ERRORS = 3
_LONGEST = 200  # characters of one error

_log = logging.getLogger(__name__)


def checker(tool: str, schema: dict[str, Any]) -> Callable[[Arguments], str | None]:
    """Make what says how arguments do not fit; the schema is compiled at the first call, once.

    A schema that cannot be used lets everything pass: the server looks at the arguments itself.
    """

    @functools.cache
    def validator() -> Validator | None:
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            _log.warning("the schema of %s is not valid: %s", tool, error.message[:_LONGEST])
            return None
        # The empty registry: a schema must not make us fetch what it refers to.
        made: Validator = kind(_without_patterns(schema), registry=Registry())
        return made

    def check(arguments: Arguments) -> str | None:
        judge = validator()
        if judge is None:
            return None
        try:
            return _complaint(judge.iter_errors(arguments))
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
    return {key: _part(key, value) for key, value in schema.items() if key not in left_out}


def _part(key: str, value: object) -> object:
    if key in _VALUES:
        return value
    if isinstance(value, list):
        return [_part("", each) for each in value]
    if not isinstance(value, dict):
        return value
    if key in _NAMED:
        return {name: _part("", each) for name, each in value.items()}
    return _without_patterns(value)


_VALUES = frozenset({"const", "default", "enum", "examples"})
"""What stands here is compared, not applied."""

_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Schemas by names, and a name may be `pattern`."""


def _complaint(errors: Iterable[ValidationError]) -> str | None:
    found = [error for error, _ in zip(errors, range(_MOST_ERRORS), strict=False)]
    return "; ".join(_words(error) for error in found) or None


def _words(error: ValidationError) -> str:
    message = error.message
    if len(message) > _LONGEST:  # it quotes the value
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where}: {message}" if where else message
