"""Sans-IO: a Markdown text as Telegram's plain text with entities, which every client shows.

Nothing is escaped, so nothing can be refused as unparsable. Offsets count UTF-16 units.
"""

import unicodedata

import msgspec

from platforms.core.contract import Unit
from platforms.core.document import (
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
    to_plain_text,
)
from platforms.core.split import text_length

MAX_ENTITIES = 100
"""Telegram leaves out the ones after these."""

_RULE = "———"
_BULLETS = ("•", "◦", "▪")
_TASK = {True: "☑", False: "☐"}
_INDENT = "   "
_ZERO_WIDTH = "\u200b\u200c\u200d\ufe0e\ufe0f"


class TextEntity(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a part of a text looks."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


class FormattedText(msgspec.Struct, frozen=True):
    """A text and how it looks."""

    text: str
    entities: tuple[TextEntity, ...] = ()


def format_text(blocks: tuple[Block, ...], *, compact: bool = False) -> FormattedText:
    """Draw a text; `compact` tables are not aligned, which makes them shorter."""
    pen = _EntityWriter(compact=compact)
    pen.blocks(blocks, "")
    return pen.result()


class _EntityWriter:
    """Writes from the first to the last, and notes what looks how."""

    def __init__(self, *, compact: bool) -> None:
        self._compact = compact
        self._texts: list[str] = []
        self._length = 0
        self._entities: list[TextEntity] = []
        self._code_ranges: list[tuple[int, int]] = []  # code, which no style may cover

    def result(self) -> FormattedText:
        text = "".join(self._texts)
        # What code begins with is its indentation, and stays.
        first = min((start for start, _ in self._code_ranges), default=self._length)
        left = min(first, text_length(text, Unit.UTF16) - text_length(text.lstrip(), Unit.UTF16))
        text = text[left:].rstrip()  # blank characters have one unit each
        end = text_length(text, Unit.UTF16)
        found = []
        for entity in sorted(self._entities, key=lambda each: (each.offset, -each.length)):
            start = max(0, entity.offset - left)
            stop = min(end, entity.offset - left + entity.length)
            if stop > start:
                found.append(msgspec.structs.replace(entity, offset=start, length=stop - start))
        return FormattedText(text, tuple(found))

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
                start = self._length
                self.blocks(block.blocks, indent)
                # Telegram knows no quotes in quotes: the outer one holds all of it.
                self._entities = [
                    each
                    for each in self._entities
                    if each.type != "blockquote" or each.offset < start
                ]
                self._add_entity("blockquote", start, self._length)
            case ListBlock():
                self._listing(block, indent)
            case Table():
                self._write_code("pre", _format_table(block, compact=self._compact), "")

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

    # --- words

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
                self._inlines(node.children, indent)
                self._style(node.style, start)
            case Link():
                # Telegram shows no link on code, and where one leads says more than how it looks.
                self._inlines(_without_code(node.children), indent)
                if "".join(self._texts[-1:]) != node.url:  # else it is found by itself
                    self._style("text_link", start, node.url)

    def _write_code(self, kind: str, text: str, language: str) -> None:
        start = self._length
        self._write(text)
        if text.strip():
            self._add_entity(kind, start, self._length, language=language)
            self._code_ranges.append((start, self._length))

    # --- how it looks

    def _write(self, words: str) -> None:
        self._texts.append(words)
        self._length += text_length(words, Unit.UTF16)

    def _style(self, kind: str, start: int, url: str = "") -> None:
        """Note a style from there to here, but not over code."""
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


def _without_code(inside: Inlines) -> Inlines:
    return tuple(
        msgspec.structs.replace(node, children=_without_code(node.children))
        if isinstance(node, Styled | Link)
        else PlainText(node.text)
        for node in inside
    )


# --- tables ----------------------------------------------------------------------------------


def _format_table(table: Table, *, compact: bool) -> str:
    rows = [
        [" ".join(to_plain_text(cell).split()) for cell in row]
        for row in ((table.header,) if table.header else ()) + table.rows
    ]
    if compact:
        return "\n".join(" | ".join(row) for row in rows)
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    drawn = [
        " │ ".join(
            _pad(cell, width, aligned)
            for cell, width, aligned in zip(row, widths, table.alignments, strict=True)
        ).rstrip()
        for row in rows
    ]
    if table.header:
        drawn.insert(1, "─┼─".join("─" * width for width in widths))
    return "\n".join(drawn)


def _width(text: str) -> int:
    """Say how many columns a text takes where all letters are equally wide."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or char in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pad(text: str, width: int, aligned: str) -> str:
    room = " " * (width - _width(text))
    if aligned == "right":
        return room + text
    if aligned == "center":
        half = len(room) // 2
        return room[:half] + text + room[half:]
    return text + room
