"""Sans-IO: what the bodies of all forms have in common."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway.http.api.failures import Refused, unfit

OWN_TOOLS = (
    "The agent behind this API has tools of its own and cannot call those of a request; "
    "leave `tools` out."
)
_WHERE = re.compile(r"(?P<what>.*) - at `\$\.?(?P<param>[^`]*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_UNKNOWN = re.compile(r"Invalid value '(?P<kind>.*)'", re.DOTALL)
_PART = re.compile(r"(?P<part>.+\.content\[.+\])\.type")

B = TypeVar("B")


def read_body(read: Callable[[bytes], B], content: bytes) -> B:
    """Read a body as its form reads it; raises `Refused` with what is wrong with it, and where."""
    try:
        return read(content)
    except msgspec.ValidationError as error:
        found = _WHERE.fullmatch(str(error))
        what, param = (found["what"], found["param"]) if found else (str(error), "")
        raise _misfit(what, param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = "The body of this request is not JSON."
        raise unfit(msg) from error


def _misfit(what: str, param: str) -> Refused:
    kind, part = _UNKNOWN.fullmatch(what), _PART.fullmatch(param)
    if kind and part:
        msg = f"Parts of type “{kind['kind'][:80]}” are not taken here, only text and pictures."
        return unfit(msg, part["part"])
    if missing := _MISSING.fullmatch(what):
        where = f"{param}.{missing['name']}" if param else missing["name"]
        return unfit(f"`{where}` is missing.", where, "missing_required_parameter")
    return unfit(f"{what}.", param or None)
