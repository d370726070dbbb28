"""Sans-IO: text as it goes into a file, and words about it."""

import json

from agent.errors import ToolError


def encode_utf8(text: str) -> bytes:
    """Encode as UTF-8; a character that came as two halves becomes one."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
    except UnicodeDecodeError:
        msg = "Nothing was written: the text holds half a character (a lone surrogate)."
        raise ToolError(msg) from None


def count_lines(text: str) -> int:
    """Count the lines; one without a line end at its end counts, too."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def quote(text: str) -> str:
    """Quote so that every line end and blank can be seen, the way an argument would be written."""
    return json.dumps(text, ensure_ascii=False)


def pluralize(number: int, noun: str, ending: str = "s") -> str:
    """Say how many there are."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"
