"""Sans-IO: helpers for text files and for messages about them."""

import json

from agent.errors import ToolError


def encode_utf8(text: str) -> bytes:
    """Encode as UTF-8 and join surrogate pairs; raises `ToolError` for an unpaired surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
    except UnicodeDecodeError:
        msg = "Nothing was written: the text contains an unpaired surrogate."
        raise ToolError(msg) from None


def count_lines(text: str) -> int:
    """Count the lines, including a last line without a line end."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def quote(text: str) -> str:
    """Quote as a JSON string, in which line ends and spaces are visible."""
    return json.dumps(text, ensure_ascii=False)


def pluralize(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"
