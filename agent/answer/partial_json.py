"""Sans-IO: reader for the string members of a truncated JSON object.

The text may end anywhere: inside a key, a number or an escape, or between the two halves of a
surrogate pair. Every value returned is a prefix of the value in the complete object; a character
whose escape was truncated is dropped, never guessed.
"""

import json
import re

import msgspec

# The longest prefix of a string's content that decodes by itself. Possessive quantifiers rule out
# backtracking: one pass, constant memory.
_STRING_PREFIX = re.compile(
    r"""(?:
        [^"\\\ud800-\udfff]++
      | \\["\\/bfnrt]
      | \\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
      | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    )*+""",
    re.VERBOSE,
)
_BLANK = re.compile(r"[ \t\r\n]*+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]++")
_UP_TO_BRACKET = re.compile(r'[^"\[\]{}]*+')


class PartialString(msgspec.Struct, frozen=True):
    """A string value, possibly truncated."""

    text: str
    complete: bool  # the closing quote was received


def read_string_members(prefix: str) -> dict[str, PartialString]:
    """Return the string members of the outermost object, in document order.

    Members of other types are skipped. Reading stops at the end of the text or at the first
    invalid JSON. Control characters inside strings are accepted.
    """
    found: dict[str, PartialString] = {}
    at = _skip_past(prefix, 0, "{")
    while at is not None:
        key, at = _read_string(prefix, _skip_blanks(prefix, at))
        if key is None or not key.complete:
            break
        at = _skip_past(prefix, at, ":")
        if at is None:
            break
        at = _skip_blanks(prefix, at)
        value, end = _read_string(prefix, at)
        if value is not None:
            found[key.text] = value
        after = end if value is not None else _skip_value(prefix, at)
        at = None if after is None else _skip_past(prefix, after, ",")
    return found


def _skip_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _skip_past(text: str, at: int, mark: str) -> int | None:
    """Return the position after `mark` if that is the next non-blank character, else None."""
    at = _skip_blanks(text, at)
    return at + 1 if text.startswith(mark, at) else None


def _read_string(text: str, at: int) -> tuple[PartialString | None, int]:
    """Return the string at `at` and the following position; None if no string starts there."""
    if not text.startswith('"', at):
        return None, at
    inside = _STRING_PREFIX.match(text, at + 1)
    end = inside.end() if inside else at + 1
    decoded: str = json.loads(f'"{text[at + 1 : end]}"', strict=False)
    whole = text.startswith('"', end)
    return PartialString(decoded, whole), end + 1 if whole else len(text)


def _skip_value(text: str, at: int) -> int | None:
    """Return the position after a value that is not a string; None if the value is truncated."""
    if text.startswith(("{", "["), at):
        return _skip_container(text, at)
    scalar = _SCALAR.match(text, at)
    return scalar.end() if scalar else None


def _skip_container(text: str, at: int) -> int | None:
    depth = 0
    while at < len(text):
        if text[at] == '"':
            value, at = _read_string(text, at)
            if value is None or not value.complete:
                return None
        elif text[at] in "{[":
            depth, at = depth + 1, at + 1
        elif text[at] in "}]":
            depth, at = depth - 1, at + 1
        if depth == 0:
            return at
        between = _UP_TO_BRACKET.match(text, at)
        at = between.end() if between else at
    return None
