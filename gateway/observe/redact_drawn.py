"""Sans-IO: masking of secrets that only appear once Markdown is drawn.

`S**ECR**ET` and `S&#69;CRET` are not the secret, but a chat draws both as the secret.
"""

import html
import re
from collections.abc import Iterable, Iterator

from gateway.observe.redact import PRIVATE_KEY_HEAD, Redactor
from platforms.core.document import (
    Block,
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListBlock,
    MathBlock,
    Paragraph,
    Table,
    parse,
    to_plain_text,
)
from sessions.values.visible_text import escape_markdown

_WORD = r"\w.:/=+%-"
_MARK = r"*`~|\\<\[\]"
_MARKUP_IN_WORD = re.compile(
    # One character class comes first, because the search then skips all other characters at once.
    rf"[{_MARK}_&](?:(?<=[{_WORD}][{_MARK}])[{_MARK}]*_*[{_WORD}]|(?<=_)[.:/=+%-]"
    rf"|(?<=[.:/=+%-]_)[{_WORD}]|(?<=&)#?\w{{1,31}};|(?<=<)br|(?<=earer [*`_]))"
)
"""Markup between the characters of a word; without it the drawn words are those of the text."""

_ANY_MARKUP = re.compile(rf"[{_MARK}_]")
_ONLY_WORD = re.compile(rf"[{_WORD}]+")

_LINK_IN_WORD = re.compile(rf"[\[\])](?:(?<=[{_MARK}{_WORD}]\[)|(?<=[\])])[{_MARK}.:/=+-]*\w)")
"""A bracket that may be part of a link that is drawn as a part of a word."""

_LINK_DEFINITION = re.compile(
    r"^[ \t>*+.)0-9-]*+(?:\[[ xX]\][ \t]+)?\[(?:[^\[\]\\]|\\.)++\]:", re.MULTILINE | re.DOTALL
)
"""A definition, also inside quotes and lists; a label may have several lines."""

_TAG = re.compile(r"<[^<>]*>")
"""HTML tags, and other text between the same signs; a chat draws simple tags as formatting."""

_DELETE_MARKS = str.maketrans("", "", "*`\\<>[]")
_OUTER_UNDERSCORES = re.compile(r"_(?:(?<!\w_)_*|_*(?!\w))")
_PARAGRAPH_END = re.compile(r"(\n[ \t]*\n)")


def redact_markdown(text: str, redactor: Redactor) -> str:
    """Mask secrets in a text and in its drawn form.

    A paragraph that draws a secret loses its style and links, because their marks are inside the
    secret. After the head of a private key all paragraphs lose them, because the key may continue
    there.
    """
    text = redactor.redact(text)
    if not draws_secret(text, redactor):
        return text
    parts = _PARAGRAPH_END.split(text)
    for number, part in enumerate(parts):
        if not draws_secret(part, redactor):
            continue
        if PRIVATE_KEY_HEAD in _drawn_text(part):
            parts[number:] = [_redact_drawn("".join(parts[number:]), redactor)]
            break
        parts[number] = _redact_drawn(part, redactor)
    text = "".join(parts)
    return _redact_drawn(text, redactor) if draws_secret(text, redactor) else text


def draws_secret(text: str, redactor: Redactor, above: str = "") -> bool:
    """Return True if a masked text shows a secret once it is drawn.

    `above` is text before it that draws no secret by itself, up to a blank line.
    """
    if not _may_draw_secret(text, redactor):
        return False
    drawn = _drawn_text(above + text)
    return redactor.redact(drawn) != drawn


def may_define_links(text: str) -> bool:
    """Return True if the text may have link definitions, which change the text above them."""
    return "]:" in text and bool(_LINK_DEFINITION.search(text))


def _may_draw_secret(text: str, redactor: Redactor) -> bool:
    """Return False if the drawn text has no secret; costs much less than drawing the text."""
    between_words = _has_markup_between_words(text, redactor)
    has_links = "](" in text or may_define_links(text)
    if has_links and (between_words or _LINK_IN_WORD.search(text)):
        return True
    if not (between_words or _MARKUP_IN_WORD.search(text)):
        return False
    return _may_contain_without_marks(text, redactor) or (
        "<" in text
        and (tagless := _TAG.sub("", text)) != text
        and _may_contain_without_marks(tagless, redactor)
    )


def _may_contain_without_marks(text: str, redactor: Redactor) -> bool:
    plain = _without_marks(html.unescape(text) if "&" in text else text)
    if redactor.may_contain(plain, _without_marks):
        return True
    bare = _OUTER_UNDERSCORES.sub("", plain) if "_" in plain else plain
    return bare != plain and redactor.may_contain(bare, _without_marks)


def _has_markup_between_words(text: str, redactor: Redactor) -> bool:
    """Return True if markup may be inside a secret of several words or with other characters."""
    return bool(_ANY_MARKUP.search(text)) and (
        PRIVATE_KEY_HEAD in text
        or not all(_ONLY_WORD.fullmatch(value) for value in redactor.values)
    )


def _without_marks(text: str) -> str:
    return text.translate(_DELETE_MARKS).replace("~~", "").replace("||", "")


def _redact_drawn(text: str, redactor: Redactor) -> str:
    return "\n".join(map(escape_markdown, redactor.redact(_drawn_text(text)).split("\n")))


def _drawn_text(text: str) -> str:
    return "\n\n".join(_block_texts(parse(text)))


def _block_texts(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Paragraph() | Heading():
                yield to_plain_text(block.children, urls=False)
            case CodeBlock() | MathBlock():
                yield block.text
            case BlockQuote():
                yield from _block_texts(block.blocks)
            case ListBlock():
                for item in block.items:
                    yield from _block_texts(item.blocks)
            case Table():
                for row in (block.header, *block.rows):
                    yield "  ".join(to_plain_text(cell, urls=False) for cell in row)
            case HorizontalRule():
                pass
