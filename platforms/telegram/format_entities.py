"""Sans-IO: a Markdown text as Telegram's plain text with entities, which every client shows.

Nothing is escaped, so nothing can be refused as unparsable. Offsets count UTF-16 units.
"""

import unicodedata

import msgspec

from platforms.core.contract import Unit
from platforms.core.document import (
    Block,
    BlockQuote,
    Code,
    Display,
    Formula,
    Heading,
    Inline,
    Inlines,
    Link,
    Listing,
    Mono,
    Paragraph,
    Plain,
    Rule,
    Styled,
    Table,
    words_of,
)
from platforms.core.split import size

MOST_ENTITIES = 100
"""Telegram leaves out the ones after these."""

_RULE = "———"
_BULLETS = ("•", "◦", "▪")
_TASK = {True: "☑", False: "☐"}
_INDENT = "   "
_NO_COLUMN = "\u200b\u200c\u200d\ufe0e\ufe0f"


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a part of a text looks."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


class Formatted(msgspec.Struct, frozen=True):
    """A text and how it looks."""

    text: str
    entities: tuple[Entity, ...] = ()


def draw(blocks: tuple[Block, ...], *, compact: bool = False) -> Formatted:
    """Draw a text; `compact` tables are not aligned, which makes them shorter."""
    pen = _Pen(compact=compact)
    pen.blocks(blocks, "")
    return pen.drawn()


class _Pen:
    """Writes from the first to the last, and notes what looks how."""

    def __init__(self, *, compact: bool) -> None:
        self._compact = compact
        self._said: list[str] = []
        self._at = 0
        self._entities: list[Entity] = []
        self._holes: list[tuple[int, int]] = []  # code, which no style may cover

    def drawn(self) -> Formatted:
        text = "".join(self._said)
        # What code begins with is its indentation, and stays.
        first = min((start for start, _ in self._holes), default=self._at)
        left = min(first, size(text, Unit.UTF16) - size(text.lstrip(), Unit.UTF16))
        text = text[left:].rstrip()  # blank characters have one unit each
        end = size(text, Unit.UTF16)
        found = []
        for entity in sorted(self._entities, key=lambda each: (each.offset, -each.length)):
            start = max(0, entity.offset - left)
            stop = min(end, entity.offset - left + entity.length)
            if stop > start:
                found.append(msgspec.structs.replace(entity, offset=start, length=stop - start))
        return Formatted(text, tuple(found))

    # --- blocks

    def blocks(self, blocks: tuple[Block, ...], indent: str, *, tight: bool = False) -> None:
        for number, block in enumerate(blocks):
            if number:
                self._say(("\n" if tight else "\n\n") + indent)
            self._block(block, indent)

    def _block(self, block: Block, indent: str) -> None:
        match block:
            case Paragraph():
                self._inlines(block.inside, indent)
            case Heading():
                start = self._at
                self._inlines(block.inside, indent)
                self._style("bold", start)
                if block.level == 1:
                    self._style("underline", start)
            case Code():
                self._alone("pre", block.text, block.language)
            case Display():
                self._alone("pre", block.text, "latex")
            case Rule():
                self._say(_RULE)
            case BlockQuote():
                start = self._at
                self.blocks(block.blocks, indent)
                # Telegram knows no quotes in quotes: the outer one holds all of it.
                self._entities = [
                    each
                    for each in self._entities
                    if each.type != "blockquote" or each.offset < start
                ]
                self._note("blockquote", start, self._at)
            case Listing():
                self._listing(block, indent)
            case Table():
                self._alone("pre", _lines(block, compact=self._compact), "")

    def _listing(self, block: Listing, indent: str) -> None:
        bullet = _BULLETS[min(len(indent) // len(_INDENT), len(_BULLETS) - 1)]
        for number, entry in enumerate(block.entries):
            if number:
                self._say(("\n\n" if block.loose else "\n") + indent)
            if block.start is not None:
                self._say(f"{block.start + number}. ")
            elif entry.done is None:
                self._say(f"{bullet} ")
            if entry.done is not None:
                self._say(f"{_TASK[entry.done]} ")
            self.blocks(entry.blocks, indent + _INDENT, tight=not block.loose)

    # --- words

    def _inlines(self, inside: Inlines, indent: str) -> None:
        for node in inside:
            self._inline(node, indent)

    def _inline(self, node: Inline, indent: str) -> None:
        start = self._at
        match node:
            case Plain():
                self._say(node.text.replace("\n", "\n" + indent) if indent else node.text)
            case Mono():
                self._alone("code", node.text, "")
            case Formula():
                self._alone("code", node.text, "")
            case Styled():
                self._inlines(node.inside, indent)
                self._style(node.style, start)
            case Link():
                # Telegram shows no link on code, and where one leads says more than how it looks.
                self._inlines(_without_code(node.inside), indent)
                if "".join(self._said[-1:]) != node.url:  # else it is found by itself
                    self._style("text_link", start, node.url)

    def _alone(self, kind: str, text: str, language: str) -> None:
        start = self._at
        self._say(text)
        if text.strip():
            self._note(kind, start, self._at, language=language)
            self._holes.append((start, self._at))

    # --- how it looks

    def _say(self, words: str) -> None:
        self._said.append(words)
        self._at += size(words, Unit.UTF16)

    def _style(self, kind: str, start: int, url: str = "") -> None:
        """Note a style from there to here, but not over code."""
        for hole_start, hole_end in self._holes:
            if start <= hole_start and hole_end <= self._at:
                self._note(kind, start, hole_start, url=url)
                start = hole_end
        self._note(kind, start, self._at, url=url)

    def _note(self, kind: str, start: int, end: int, *, url: str = "", language: str = "") -> None:
        if end > start:
            self._entities.append(Entity(kind, start, end - start, url, language))


def _without_code(inside: Inlines) -> Inlines:
    return tuple(
        msgspec.structs.replace(node, inside=_without_code(node.inside))
        if isinstance(node, Styled | Link)
        else Plain(node.text)
        for node in inside
    )


# --- tables ----------------------------------------------------------------------------------


def _lines(table: Table, *, compact: bool) -> str:
    rows = [
        [" ".join(words_of(cell).split()) for cell in row]
        for row in ((table.header,) if table.header else ()) + table.rows
    ]
    if compact:
        return "\n".join(" | ".join(row) for row in rows)
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    drawn = [
        " │ ".join(
            _padded(cell, width, aligned)
            for cell, width, aligned in zip(row, widths, table.aligned, strict=True)
        ).rstrip()
        for row in rows
    ]
    if table.header:
        drawn.insert(1, "─┼─".join("─" * width for width in widths))
    return "\n".join(drawn)


def _width(text: str) -> int:
    """Say how many columns a text takes where all letters are equally wide."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in _NO_COLUMN:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _padded(text: str, width: int, aligned: str) -> str:
    room = " " * (width - _width(text))
    if aligned == "right":
        return room + text
    if aligned == "center":
        half = len(room) // 2
        return room[:half] + text + room[half:]
    return text + room
