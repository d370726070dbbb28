"""Sans-IO: what the bodies of all forms have in common."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gateway.api.failures import unfit

OWN_TOOLS = (
    "The agent behind this API has tools of its own and cannot call those of a request; "
    "leave `tools` out."
)
_WHERE = re.compile(r"(?P<what>.*) - at `\$\.?(?P<param>[^`]*)`", re.DOTALL)

B = TypeVar("B")


def read_body(read: Callable[[bytes], B], content: bytes) -> B:
    """Read a body as its form reads it; raises `Refused` with what is wrong with it, and where."""
    try:
        return read(content)
    except msgspec.ValidationError as error:
        found = _WHERE.fullmatch(str(error))
        what, param = (found["what"], found["param"]) if found else (str(error), None)
        msg = f"{what}."
        raise unfit(msg, param or None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = "The body of this request is not JSON."
        raise unfit(msg) from error
