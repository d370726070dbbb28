"""Sans-IO: check of JSON schemas that clients send."""

from typing import Any

_MAX_ERROR_LENGTH = 200


def find_schema_error(schema: dict[str, Any]) -> str:
    """Return the reason why a schema cannot be used; empty if it can."""
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - takes time to load
    from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415

    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except (SchemaError, RecursionError) as error:
        return str(getattr(error, "message", error))[:_MAX_ERROR_LENGTH]
    return ""
