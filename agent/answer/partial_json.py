"""Sans-IO: what can be read of a JSON object of which only the beginning was received.

The text may end anywhere: inside a key, a number or an escape, between the two halves of a
character that is written as two escapes. What is read is always a beginning of what the whole
object would have said; a character whose writing was cut is left off, never guessed.
"""

import json
import re

import msgspec

# The longest beginning of a string's inside that decodes by itself. The plus signs behind the
# quantifiers forbid going back, which makes it one pass without a memory of every step.
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
    """A string of the object."""

    text: str
    complete: bool  # its end was received


def read_string_members(prefix: str) -> dict[str, PartialString]:
    """Give the string members of the outermost object, in the order of their writing.

    Members that are no strings are passed over. Reading ends where the text does, or where it is
    no JSON any more. Control characters inside strings are taken as they are.
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
    """Give the place behind `mark`, if it is the next that stands there."""
    at = _skip_blanks(text, at)
    return at + 1 if text.startswith(mark, at) else None


def _read_string(text: str, at: int) -> tuple[PartialString | None, int]:
    """Read a string; None when none begins there."""
    if not text.startswith('"', at):
        return None, at
    inside = _STRING_PREFIX.match(text, at + 1)
    end = inside.end() if inside else at + 1
    decoded: str = json.loads(f'"{text[at + 1 : end]}"', strict=False)
    whole = text.startswith('"', end)
    return PartialString(decoded, whole), end + 1 if whole else len(text)


def _skip_value(text: str, at: int) -> int | None:
    """Give the place behind a value that is no string; None when its end is not there."""
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
