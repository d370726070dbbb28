"""Sans-IO: formatter from parsed Markdown to text with entities, which every client can show.

The text needs no escaping, so Telegram cannot refuse it as unparsable. Offsets count UTF-16 units.
"""

import re
import unicodedata

import msgspec

from platforms.core.contract import Unit
from platforms.core.document import (
    SCRIPTS,
    Block,
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    Inline,
    InlineCode,
    InlineMath,
    Inlines,
    Link,
    ListBlock,
    MathBlock,
    Paragraph,
    PlainText,
    Styled,
    Table,
    plain_rows,
    script_text,
    to_plain_text,
)
from platforms.core.split import text_length

MAX_ENTITIES = 100
"""Telegram ignores the entities after the first 100."""

_RULE = "———"
_BULLETS = ("•", "◦", "▪")
_TASK = {True: "☑", False: "☐"}
_INDENT = "   "
_QUOTES = ("blockquote", "expandable_blockquote")
_LINKABLE = re.compile(r"https?://(?:[^/?#\s]*@)?(?:[^/?#:\s]+\.[^/?#:\s]|\[)", re.IGNORECASE)
"""Addresses that Telegram accepts in a link: others, such as `mailto:` and `localhost`, it drops or changes."""

_ZERO_WIDTH = "\u200b\u200c\u200d\ufe0e\ufe0f"


class TextEntity(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Formatting of one range of a text."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


class FormattedText(msgspec.Struct, frozen=True):
    """A text with its formatting."""

    text: str
    entities: tuple[TextEntity, ...] = ()


def format_text(blocks: tuple[Block, ...], *, compact: bool = False) -> FormattedText:
    """Return the formatted text; `compact` omits the padding that aligns table columns."""
    pen = _EntityWriter(compact=compact)
    pen.blocks(blocks, "")
    return pen.result()


class _EntityWriter:
    """Accumulator of text and entities in one pass over the blocks."""

    def __init__(self, *, compact: bool) -> None:
        self._compact = compact
        self._texts: list[str] = []
        self._length = 0
        self._entities: list[TextEntity] = []
        self._code_ranges: list[tuple[int, int]] = []  # ranges that no style may cover

    def result(self) -> FormattedText:
        text = "".join(self._texts)
        # Leading spaces of code are its indentation and must stay.
        first = min((start for start, _ in self._code_ranges), default=self._length)
        cut = min(first, text_length(text, Unit.UTF16) - text_length(text.lstrip(), Unit.UTF16))
        text = text[cut:].rstrip()  # every whitespace character is one UTF-16 unit
        end = text_length(text, Unit.UTF16)
        shifted = []
        for entity in sorted(self._entities, key=lambda entity: (entity.offset, -entity.length)):
            start = max(0, entity.offset - cut)
            stop = min(end, entity.offset - cut + entity.length)
            if stop > start:
                shifted.append(msgspec.structs.replace(entity, offset=start, length=stop - start))
        return FormattedText(text, tuple(shifted))

    # --- blocks

    def blocks(self, blocks: tuple[Block, ...], indent: str, *, tight: bool = False) -> None:
        for number, block in enumerate(blocks):
            if number:
                self._write(("\n" if tight else "\n\n") + indent)
            self._block(block, indent)

    def _block(self, block: Block, indent: str) -> None:
        match block:
            case Paragraph():
                self._inlines(block.children, indent)
            case Heading():
                start = self._length
                self._inlines(block.children, indent)
                self._style("bold", start)
                if block.level == 1:
                    self._style("underline", start)
            case CodeBlock():
                self._write_code("pre", block.text, block.language)
            case MathBlock():
                self._write_code("pre", block.text, "latex")
            case HorizontalRule():
                self._write(_RULE)
            case BlockQuote():
                self._quote(block, indent)
            case ListBlock():
                self._listing(block, indent)
            case Table():
                self._write_code("pre", _format_table(block, compact=self._compact), "")

    def _quote(self, block: BlockQuote, indent: str) -> None:
        start = self._length
        blocks = _with_bold_summary(block.blocks) if block.is_foldable else block.blocks
        self.blocks(blocks, indent)
        # Telegram does not nest quotes, so the outermost quote replaces the inner ones.
        self._entities = [
            entity
            for entity in self._entities
            if entity.type not in _QUOTES or entity.offset < start
        ]
        self._add_entity(_QUOTES[block.is_foldable], start, self._length)

    def _listing(self, block: ListBlock, indent: str) -> None:
        bullet = _BULLETS[min(len(indent) // len(_INDENT), len(_BULLETS) - 1)]
        for number, entry in enumerate(block.items):
            if number:
                self._write(("\n\n" if block.is_loose else "\n") + indent)
            if block.start is not None:
                self._write(f"{block.start + number}. ")
            elif entry.done is None:
                self._write(f"{bullet} ")
            if entry.done is not None:
                self._write(f"{_TASK[entry.done]} ")
            self.blocks(entry.blocks, indent + _INDENT, tight=not block.is_loose)

    # --- inline elements

    def _inlines(self, inside: Inlines, indent: str) -> None:
        for node in inside:
            self._inline(node, indent)

    def _inline(self, node: Inline, indent: str) -> None:
        start = self._length
        match node:
            case PlainText():
                self._write(node.text.replace("\n", "\n" + indent) if indent else node.text)
            case InlineCode():
                self._write_code("code", node.text, "")
            case InlineMath():
                self._write_code("code", node.text, "")
            case Styled():
                if node.style in SCRIPTS:
                    self._inlines(script_text(node), indent)
                    return
                self._inlines(node.children, indent)
                self._style(node.style, start)
            case Link() if not _LINKABLE.match(node.url):
                self._inlines(node.children, indent)
                self._write_address(node)
            case Link():
                # Telegram does not allow links on code; the link matters more than the code style.
                self._inlines(_without_code(node.children), indent)
                if "".join(self._texts[-1:]) != node.url:  # clients detect bare URLs themselves
                    self._style("text_link", start, node.url)

    def _write_address(self, link: Link) -> None:
        address = link.url.removeprefix("mailto:").removeprefix("tel:")
        if address not in to_plain_text(link.children, urls=False):
            self._write(f" ({address})")

    def _write_code(self, kind: str, text: str, language: str) -> None:
        start = self._length
        self._write(text)
        if text.strip():
            self._add_entity(kind, start, self._length, language=language)
            self._code_ranges.append((start, self._length))

    # --- text and styles

    def _write(self, text: str) -> None:
        self._texts.append(text)
        self._length += len(text) if text.isascii() else text_length(text, Unit.UTF16)

    def _style(self, kind: str, start: int, url: str = "") -> None:
        """Style the range from `start` to the end of the text, except for code in between."""
        for hole_start, hole_end in self._code_ranges:
            if start <= hole_start and hole_end <= self._length:
                self._add_entity(kind, start, hole_start, url=url)
                start = hole_end
        self._add_entity(kind, start, self._length, url=url)

    def _add_entity(
        self, kind: str, start: int, end: int, *, url: str = "", language: str = ""
    ) -> None:
        if end > start:
            self._entities.append(
                TextEntity(type=kind, offset=start, length=end - start, url=url, language=language)
            )


def _with_bold_summary(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    first, *others = blocks
    if isinstance(first, Paragraph):
        first = Paragraph((Styled("bold", first.children),))
    return (first, *others)


def _without_code(inside: Inlines) -> Inlines:
    return tuple(
        msgspec.structs.replace(node, children=_without_code(node.children))
        if isinstance(node, Styled | Link)
        else PlainText(node.text)
        for node in inside
    )


# --- tables ----------------------------------------------------------------------------------


def _format_table(table: Table, *, compact: bool) -> str:
    rows = plain_rows(table)
    if compact:
        return "\n".join(" | ".join(row) for row in rows)
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        " │ ".join(
            _pad(cell, width, alignment)
            for cell, width, alignment in zip(row, widths, table.alignments, strict=True)
        ).rstrip()
        for row in rows
    ]
    if table.header:
        lines.insert(1, "─┼─".join("─" * width for width in widths))
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the number of columns of a text in a monospaced font."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or char in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pad(text: str, width: int, alignment: str) -> str:
    padding = " " * (width - _width(text))
    if alignment == "right":
        return padding + text
    if alignment == "center":
        half = len(padding) // 2
        return padding[:half] + text + padding[half:]
    return text + padding
