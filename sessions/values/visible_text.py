"""Sans-IO: text of others without characters that hide, reorder or control other text.

A terminal obeys control characters, and a chat shows text in another order, or hides a part of the
text, because of characters that are invisible themselves. Every text from a person, a model or a
tool passes `visible_text` before it is shown.
"""

import re
import unicodedata

from sessions.values.text import blocks_of_lines

_JOINERS = "\u180e\u200c\u200d"
_DIRECTION_MARKS = "\u061c\u200e\u200f"
_VARIATION_SELECTORS = ("\ufe00", "\ufe0f"), ("\U000e0100", "\U000e01ef")
_VIRAMA = 9  # combining class of the signs that join consonants in scripts of India
_LINE_WINDOW = 200  # characters before a direction mark that are searched for letters
_EMOJI_STYLE = "\ufe0f"
_LINE_ENDS = "\x85\u2028\u2029"
_UNKNOWN = "\ufffd"
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f"
"""Flag of a region, such as Scotland: the only use of tag characters."""

_HIDDEN_CLASS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(rf"\r\n?|{_FLAG}|[{_HIDDEN_CLASS}]")
_INVISIBLE = re.compile(f"[{_HIDDEN_CLASS}]")
_JOINED_SCRIPTS = (
    ("\u0600", "\u08ff"),  # Arabic, Syriac, N'Ko and others; Persian words need the non-joiner
    ("\u0900", "\u0dff"),  # scripts of India and Sri Lanka
    ("\u0e00", "\u109f"),
    ("\u1780", "\u18af"),
    ("\ufb50", "\ufdff"),
    ("\ufe70", "\ufefc"),
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff]")
_MARKDOWN = re.compile(r"[\\`*~|<>&$]|\[(?=.*\]\()|(?<![^\W_])_|_(?![^\W_])")


def visible_text(text: str) -> str:
    """Replace control characters by visible signs, and remove invisible characters.

    Line breaks and tabs stay, and so do the invisible characters that emoji and scripts such as
    Persian need. The result for the beginning of a text is the beginning of the result.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # the usual case, many times faster
    return "".join(_HIDDEN.sub(_replacement, block) for block in blocks_of_lines(text))


def visible_line(text: str) -> str:
    """Return visible text on one line."""
    return visible_text(text).replace("\n", " ").replace("\t", " ")


def escape_markdown(text: str) -> str:
    """Return one line of Markdown that is drawn as exactly this text."""
    # `\[` would begin a formula.
    return _MARKDOWN.sub(
        lambda mark: "&#91;" if mark[0] == "[" else f"\\{mark[0]}", visible_line(text)
    )


def _replacement(match: re.Match[str]) -> str:
    text, start, end, char = match.string, match.start(), match.end(), match[0]
    if char[0] == "\r" or char in _LINE_ENDS:
        return "\n"
    if len(char) > 1:  # a flag
        return char
    if char < " ":
        return chr(0x2400 + ord(char))  # the picture of a control character
    if char == "\x7f":
        return "\u2421"
    if unicodedata.category(char) in {"Cc", "Cs"}:
        return _UNKNOWN
    before, after = text[max(0, start - 2) : start], text[end : end + 1]
    return char if _is_needed(char, before, after, text, start) else ""


def _is_needed(char: str, before: str, after: str, text: str, at: int) -> bool:
    """Return True for an invisible character that changes how its neighbours are written."""
    if char in _JOINERS:
        if before and unicodedata.combining(before[-1]) == _VIRAMA:
            return True
        joins_emoji = char == "\u200d" and _is_emoji_end(before) and _is_symbol(after)
        return joins_emoji or (_is_joined(before[-1:]) and _is_joined(after))
    if char in _DIRECTION_MARKS:
        line = text[max(at - _LINE_WINDOW, 0) : at].rpartition("\n")[2]
        return bool(_RIGHT_TO_LEFT.search(line) or _RIGHT_TO_LEFT.match(after))
    if any(first <= char <= last for first, last in _VARIATION_SELECTORS):
        return bool(before) and not before[-1].isspace() and not _INVISIBLE.match(before[-1])
    return False


def _is_joined(char: str) -> bool:
    return any(first <= char <= last for first, last in _JOINED_SCRIPTS) and not _INVISIBLE.match(
        char
    )


def _is_emoji_end(before: str) -> bool:
    return _is_symbol(before[:-1] if before[-1:] == _EMOJI_STYLE else before[-1:])


def _is_symbol(char: str) -> bool:
    return len(char) == 1 and unicodedata.category(char) in {"So", "Sk", "Sm"}
