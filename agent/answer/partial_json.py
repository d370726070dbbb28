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
_READABLE = re.compile(
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


class Member(msgspec.Struct, frozen=True):
    """A string of the object."""

    text: str
    whole: bool  # its end was received


def members(prefix: str) -> dict[str, Member]:
    """Give the string members of the outermost object, in the order of their writing.

    Members that are no strings are passed over. Reading ends where the text does, or where it is
    no JSON any more. Control characters inside strings are taken as they are.
    """
    found: dict[str, Member] = {}
    at = _past(prefix, 0, "{")
    while at is not None:
        key, at = _string(prefix, _skip(prefix, at))
        if key is None or not key.whole:
            break
        at = _past(prefix, at, ":")
        if at is None:
            break
        at = _skip(prefix, at)
        value, end = _string(prefix, at)
        if value is not None:
            found[key.text] = value
        after = end if value is not None else _other(prefix, at)
        at = None if after is None else _past(prefix, after, ",")
    return found


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _past(text: str, at: int, mark: str) -> int | None:
    """Give the place behind `mark`, if it is the next that stands there."""
    at = _skip(text, at)
    return at + 1 if text.startswith(mark, at) else None


def _string(text: str, at: int) -> tuple[Member | None, int]:
    """Read a string; None when none begins there."""
    if not text.startswith('"', at):
        return None, at
    inside = _READABLE.match(text, at + 1)
    end = inside.end() if inside else at + 1
    decoded: str = json.loads(f'"{text[at + 1 : end]}"', strict=False)
    whole = text.startswith('"', end)
    return Member(decoded, whole), end + 1 if whole else len(text)


def _other(text: str, at: int) -> int | None:
    """Give the place behind a value that is no string; None when its end is not there."""
    if text.startswith(("{", "["), at):
        return _container(text, at)
    scalar = _SCALAR.match(text, at)
    return scalar.end() if scalar else None


def _container(text: str, at: int) -> int | None:
    depth = 0
    while at < len(text):
        if text[at] == '"':
            value, at = _string(text, at)
            if value is None or not value.whole:
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
