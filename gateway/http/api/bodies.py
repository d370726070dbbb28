"""Sans-IO: decoding of request bodies, with errors that name the part of the request."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway.http.api.failures import RequestRefused, invalid_request

_ERROR_WITH_PATH = re.compile(r"(?P<what>.*) - at `\$\.?(?P<param>[^`]*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(?P<name>.*)`")
_INVALID_VALUE = re.compile(r"Invalid value '(?P<kind>.*)'", re.DOTALL)
_CONTENT_PART = re.compile(r"(?P<part>.+\.content\[.+\])\.type")

B = TypeVar("B")


def decode_body(decode: Callable[[bytes], B], content: bytes) -> B:
    """Decode a request body; raises `RequestRefused` that names the error and its position."""
    try:
        return decode(content)
    except msgspec.ValidationError as error:
        match = _ERROR_WITH_PATH.fullmatch(str(error))
        what, param = (match["what"], match["param"]) if match else (str(error), "")
        raise _validation_error(what, param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = "The body of this request is not JSON."
        raise invalid_request(msg) from error


def _validation_error(what: str, param: str) -> RequestRefused:
    kind, part = _INVALID_VALUE.fullmatch(what), _CONTENT_PART.fullmatch(param)
    if kind and part:
        msg = f"Parts of type “{kind['kind'][:80]}” are not supported, only text and pictures."
        return invalid_request(msg, part["part"])
    if missing := _MISSING_FIELD.fullmatch(what):
        where = f"{param}.{missing['name']}" if param else missing["name"]
        return missing_field(where)
    return invalid_request(f"{what}.", param or None)


def missing_field(where: str) -> RequestRefused:
    """Return the refusal of a request without a required field."""
    return invalid_request(f"`{where}` is missing.", where, "missing_required_parameter")
