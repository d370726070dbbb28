"""Sans-IO: lossless repair of almost-valid JSON arguments.

Four mistakes leave no doubt about the meaning: raw control characters inside strings, a trailing
comma, Python's True, False and None, and a code fence around the whole text. Braces, brackets and
quotes are never added or removed, so truncated arguments remain invalid.
"""

import re

import msgspec

_FENCE = "```"
_FENCE_LINE = re.compile(r"```\w*")  # with an optional language name
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]++|\\.?)*+"?)'  # an unterminated string extends to the end
    r"|(?P<last_comma>,(?=\s*+[}\]]))"
    r"|(?P<word>[A-Za-z_]\w*+)"
    r"|[{\[]\s*+,?"  # a comma without a member before it is not a trailing comma
    r'|[^",A-Za-z_{\[]++|,',
    re.DOTALL,
)
_IN_STRING = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)
_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def repair_json(arguments: str) -> str | None:
    """Return the arguments as one strict JSON object; None if that would require guessing."""
    text = _TOKEN.sub(_repair_token, _without_fence(arguments))
    return text if _is_object(text) else None


def _without_fence(arguments: str) -> str:
    text = arguments.strip()
    begin = _FENCE_LINE.match(text)
    if begin is None or not text.endswith(_FENCE):
        return arguments
    return text[begin.end() : -len(_FENCE)].strip()


def _repair_token(piece: re.Match[str]) -> str:
    match piece.lastgroup:
        case "string":
            return _IN_STRING.sub(_escape_control, piece[0])
        case "last_comma":
            return ""
        case "word":
            return _PYTHON_WORDS.get(piece[0], piece[0])
        case _:
            return piece[0]


def _escape_control(found: re.Match[str]) -> str:
    if found[0].startswith("\\"):  # an escape sequence; invalid ones stay as they are
        return found[0]
    return _SHORT_ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
