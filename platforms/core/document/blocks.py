"""Sans-IO: the parser of blocks."""

import re
from collections.abc import Iterator

from platforms.core.document.inlines import parse_inlines, without_invisible
from platforms.core.document.references import References, footnote_labels, may_define_links
from platforms.core.document.tree import (
    Block,
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    Inlines,
    ListBlock,
    ListItem,
    MathBlock,
    Paragraph,
    PlainText,
    Table,
)
from platforms.core.markdown import find_fences

_HAS_MARKUP = re.compile(
    r"[\\`*_~|\[\]<&!$#>=]|^[ \t]*[-+]|^[ \t]*\d+[.)]|^(?: {4}|\t)|\t", re.MULTILINE
)
_MAX_DEPTH = 12
_MAX_MARKER_GAP = 4
_MIN_COLUMNS = 2  # of a table without a header
_FENCE = re.compile(r" {0,20}(?P<mark>`{3,10}(?!`)|~{3,10}(?!~))(?P<info>.*)")
_INFO = re.compile(
    r"(?P<language>[A-Za-z][\w+#.-]{0,29})(?:[,:][\w/=,.-]*)?(?:\s+(?:[\w/-]+\.\w+|.*[={].*))?"
)
"""A language, and extras that are not meant to be read: settings, a file name."""

_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})(?:[ ]+(?P<text>.*?))??(?:[ ]+#+)?[ ]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ ]*$")
_RULE = re.compile(r" {0,3}([-*_])(?:[ ]*\1){2,}[ ]*$")
_QUOTE = re.compile(r" {0,3}>[ ]?")
_LIST_MARKER = re.compile(r"(?P<indent> {0,3})(?P<mark>[-*+]|(?P<number>\d{1,9})[.)])(?P<gap> +|$)")
_TASK = re.compile(r"\[(?P<mark>[ xX])\][ ]+")
_COLUMNS = re.compile(r"[ ]*\|?[ ]*:?-+:?[ ]*(?:\|[ ]*:?-+:?[ ]*)*\|?[ ]*$")
_DISPLAY = {"$$": "$$", "\\[": "\\]"}
_ENVIRONMENT = re.compile(r"\\begin\{([A-Za-z]{1,20}\*?)\}")
_DEFINITION_LINE = re.compile(r" {0,3}\[(?!\^)[^\[\]]{1,999}\]:")
_DETAILS = re.compile(r"<details(?: open(?:=(?:\"\"|''|\"?open\"?))?)?>", re.IGNORECASE)
_DETAILS_TAG = re.compile(r"<(?P<end>/?)details\b[^<>]*>", re.IGNORECASE)
_DETAILS_END = re.compile(r" {0,3}</details> *", re.IGNORECASE)
_SUMMARY = re.compile(
    r"\s*<summary>(?P<text>.*?)(?:</summary>|\n\s*\n|\Z)", re.IGNORECASE | re.DOTALL
)
_CELL = re.compile(r"(?:\\.|`[^`]*`|[^|\\`]|`|\\)*")


def parse(md: str) -> tuple[Block, ...]:
    """Parse a Markdown text."""
    md = md.replace("\r\n", "\n").replace("\r", "\n")
    if not _HAS_MARKUP.search(md):
        bare = "\n".join(line.strip() for line in md.strip().split("\n"))
        paragraphs = re.split(r"\n{2,}", bare)
        return tuple(Paragraph((PlainText(text),)) for text in paragraphs if text)
    lines = _expand_tabs(md).split("\n")
    if "]:" not in md:
        return tuple(_BlockParser(lines, 0, None).blocks())
    return _parse_with_references(lines, footnote_labels(md), defines=may_define_links(md))


def _parse_with_references(
    lines: list[str], notes: frozenset[str], *, defines: bool
) -> tuple[Block, ...]:
    """Parse a text that may define links or footnotes: first the definitions, then the references."""
    collected = References({}, notes, collecting=True)
    if defines:
        for _ in _BlockParser(lines.copy(), 0, collected).blocks():
            pass
    references = References(collected.urls, notes)
    blocks = tuple(_BlockParser(lines.copy(), 0, references).blocks())
    if len(references.used) == len(references.urls):
        return blocks
    used = {label: url for label, url in references.urls.items() if label in references.used}
    return tuple(_BlockParser(lines, 0, References(used, notes)).blocks())


def _expand_tabs(md: str) -> str:
    """Replace tabs by spaces, but keep those inside code blocks."""
    if "\t" not in md:
        return md
    out, place = [], 0
    for fence in find_fences(md):
        out += [md[place : fence.body].expandtabs(4), md[fence.body : fence.end]]
        place = fence.end
    return "".join(out) + md[place:].expandtabs(4)


class _BlockParser:
    """Parses blocks from lines."""

    def __init__(self, lines: list[str], depth: int, references: References | None) -> None:
        self._lines = lines
        self._depth = depth
        self._references = references
        self._in_note = False  # the last paragraph was a footnote; indented lines continue the note
        self._at = 0
        self._paragraph_lines: list[str] = []  # of the paragraph that is being read

    def blocks(self) -> Iterator[Block]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip() or (line[-1] == ">" and _DETAILS_END.fullmatch(line)):
                # A section can end without a beginning, which is then in another message.
                self._at += 1
                yield from self._paragraph()
                continue
            if self._in_note and not self._paragraph_lines:
                self._outdent_note()
                line = self._lines[self._at]
            block = self._block(line)
            if block is None:
                if self._ends_note(line):
                    yield from self._paragraph()
                self._paragraph_lines.append(line.strip())
                self._at += 1
            else:
                yield from self._paragraph()
                yield block
        yield from self._paragraph()

    def _ends_note(self, line: str) -> bool:
        """Return True for a link definition directly below a footnote."""
        return (
            self._references is not None
            and bool(self._paragraph_lines)
            and self._paragraph_lines[0].startswith("[^")
            and _DEFINITION_LINE.match(line) is not None
        )

    def _paragraph(self) -> Iterator[Block]:
        if self._paragraph_lines:
            *words, last = self._paragraph_lines  # a backslash at the very end breaks no line
            text = "\n".join((*(word.removesuffix("\\").rstrip() for word in words), last))
            self._paragraph_lines = []
            if self._references and text.startswith("["):
                text = self._references.without_definitions(text)
                self._in_note = self._references.begins_note(text)
            if text:
                yield Paragraph(self._inlines(text))

    def _inlines(self, text: str) -> Inlines:
        if self._references and self._references.collecting:
            return ()
        return parse_inlines(text, self._references)

    def _outdent_note(self) -> None:
        """Remove the indentation of a footnote's further paragraphs, which would make them code."""
        self._in_note = False
        for number in range(self._at, len(self._lines)):
            line = self._lines[number]
            if line.strip() and not line.startswith("    "):
                break
            self._lines[number] = line[4:]

    def _block(self, line: str) -> Block | None:
        """Parse the block that begins with this line; None for a paragraph."""
        if fence := _opening(line):
            return self._code(fence)
        if self._paragraph_lines and (underline := _UNDERLINE.match(line)):
            title = "\n".join(self._paragraph_lines)
            if self._references and title.startswith("["):
                title = self._references.without_definitions(title)
            self._paragraph_lines = []
            if title:
                self._at += 1
                return Heading(1 if underline[1][0] == "=" else 2, self._inlines(title))
        if heading := _HEADING.match(line):
            self._at += 1
            return Heading(len(heading["marks"]), self._inlines((heading["text"] or "").strip()))
        if _RULE.match(line):
            self._at += 1
            return HorizontalRule()
        if self._depth < _MAX_DEPTH:
            if _QUOTE.match(line):
                return self._quote()
            point = _LIST_MARKER.match(line)
            if point and (not self._paragraph_lines or _can_interrupt(point)):
                return self._listing(point)
        if line.startswith("    ") and not self._paragraph_lines:
            return self._indented()
        return self._table(line) or self._display(line)

    def _code(self, opening: re.Match[str]) -> CodeBlock:
        mark, indent = opening["mark"], len(opening[0]) - len(opening[0].lstrip())
        self._at += 1
        text = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if _closes(line, mark):
                break
            text.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
        info = opening["info"].strip()
        known = _INFO.fullmatch(without_invisible(info))
        if info and not known:
            text.insert(0, info)  # no language, but text that must not be lost
        return CodeBlock("\n".join(text), known["language"] if known else "")

    def _indented(self) -> CodeBlock:
        text = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not line.startswith("    "):
                break
            text.append(line[4:])
            self._at += 1
        return CodeBlock("\n".join(text).rstrip())

    def _quote(self) -> BlockQuote:
        inside = []
        while self._at < len(self._lines):
            mark = _QUOTE.match(self._lines[self._at])
            if mark is None:
                break
            inside.append(self._lines[self._at][mark.end() :])
            self._at += 1
        return BlockQuote(tuple(self._nested(inside)))

    def _nested(self, lines: list[str]) -> Iterator[Block]:
        return _BlockParser(lines, self._depth + 1, self._references).blocks()

    def _listing(self, first: re.Match[str]) -> ListBlock:
        numbered = first["number"] is not None
        kind = first["mark"][-1]
        entries = []
        loose = False
        while self._at < len(self._lines):
            point = _LIST_MARKER.match(self._lines[self._at])
            if point is None or point["mark"][-1] != kind or _RULE.match(self._lines[self._at]):
                break
            lines = self._item_lines(point)
            gaps = [number for number, line in enumerate(lines) if not line.strip()]
            trailing = len(lines) - len("\n".join(lines).rstrip().split("\n"))
            ends = self._at >= len(self._lines)
            loose = (
                loose
                or len(gaps) > trailing
                or (trailing > 0 and not ends and self._list_continues(kind))
            )
            done = None
            if task := _TASK.match(lines[0]):
                done = task["mark"] != " "
                lines[0] = lines[0][task.end() :]
            entries.append(ListItem(tuple(self._nested(lines)), done))
        return ListBlock(tuple(entries), int(first["number"]) if numbered else None, loose)

    def _list_continues(self, kind: str) -> bool:
        point = _LIST_MARKER.match(self._lines[self._at])
        return point is not None and point["mark"][-1] == kind

    def _item_lines(self, point: re.Match[str]) -> list[str]:
        """Take the lines of one list item, without their indentation."""
        outer = len(point["indent"])
        gap = len(point["gap"])
        inner = point.end("mark") + (gap if 1 <= gap <= _MAX_MARKER_GAP else 1)
        found = [self._lines[self._at][inner:]]
        self._at += 1
        fence = _opening(found[0])
        while self._at < len(self._lines):
            line = self._lines[self._at]
            indent = len(line) - len(line.lstrip())
            if (
                fence is None
                and line.strip()
                and indent < outer + 2
                and not self._is_lazy(found, line)
            ):
                break
            found.append(line[min(inner, len(line) - len(line.lstrip(" "))) :])
            if fence is None:
                fence = _opening(found[-1])
            elif _closes(found[-1], fence["mark"]):
                fence = None
            self._at += 1
        return found

    def _is_lazy(self, found: list[str], line: str) -> bool:
        """Return True if an unindented line continues the paragraph of a list item."""
        begins = _opening(line) or _HEADING.match(line) or _RULE.match(line) or _QUOTE.match(line)
        begins = begins or _DETAILS.match(line)
        return (
            bool(found[-1].strip())
            and not begins
            and not _LIST_MARKER.match(line)
            and "|" not in line
        )

    def _table(self, line: str) -> Table | None:
        if "|" not in line or self._at + 1 >= len(self._lines):
            return None
        columns = self._lines[self._at + 1]
        if not _COLUMNS.match(columns) or "-" not in columns:
            return self._rest_of_table(line, columns)
        header, aligned = _cells(line), tuple(map(_alignment, _cells(columns)))
        if len(header) != len(aligned) or (len(header) == 1 and "|" not in columns):
            return None  # a heading with an underline
        self._at += 2
        return Table(
            tuple(self._inlines(cell) for cell in header), aligned, self._rows(len(header))
        )

    def _rest_of_table(self, line: str, following: str) -> Table | None:
        """Parse the rows of a table that began in the previous message."""
        first, second = line.strip(), following.strip()
        whole = all(len(row) > 1 and row[0] == row[-1] == "|" for row in (first, second))
        width = len(_cells(first))
        if (
            self._paragraph_lines
            or not whole
            or width < _MIN_COLUMNS
            or width != len(_cells(second))
        ):
            return None
        return Table((), ("",) * width, self._rows(width))

    def _rows(self, width: int) -> tuple[tuple[Inlines, ...], ...]:
        rows = []
        while self._at < len(self._lines) and "|" in self._lines[self._at]:
            if _opening(self._lines[self._at]):
                break
            cells = _cells(self._lines[self._at])
            last = width - 1  # takes surplus cells, which must not be lost
            cells = [*cells[:last], " | ".join(cells[last:]), *[""] * width][:width]
            rows.append(tuple(self._inlines(cell) for cell in cells))
            self._at += 1
        return tuple(rows)

    def _details(self, line: str) -> BlockQuote | None:
        """Parse a section that can be folded; without an end it lasts until the text ends."""
        opening = _DETAILS.match(line)
        if opening is None or self._depth >= _MAX_DEPTH:
            return None
        self._lines[self._at] = line[opening.end() :]
        inside = "\n".join(self._details_lines())
        summary = _SUMMARY.match(inside)
        title = " ".join(summary["text"].split()) if summary else ""
        content = inside[summary.end() :] if summary else inside
        head = Paragraph(self._inlines(title or "…"))
        return BlockQuote((head, *self._nested(content.split("\n"))), is_foldable=True)

    def _details_lines(self) -> list[str]:
        """Take the lines up to the end of the section; what follows in the last line stays."""
        found: list[str] = []
        depth, fence = 1, None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if fence is not None:
                fence = None if _closes(line, fence["mark"]) else fence
            elif (fence := _opening(line)) is None and "<" in line:
                for tag in _DETAILS_TAG.finditer(line):
                    depth += -1 if tag["end"] else 1
                    if depth == 0:
                        self._lines[self._at] = line[tag.end() :].lstrip()
                        self._at += not self._lines[self._at]
                        return [*found, line[: tag.start()]]
            found.append(line)
            self._at += 1
        return found

    def _display(self, line: str) -> MathBlock | BlockQuote | None:
        """Parse a formula, or a section that can be folded."""
        bare = line.strip()
        closing = _DISPLAY.get(bare[:2])
        environment = _ENVIRONMENT.match(bare) if bare[0] == "\\" else None
        if environment:
            closing, text = f"\\end{{{environment[1]}}}", [bare]
        elif closing:
            text = [bare[2:]]
        else:
            return self._details(bare) if bare[0] == "<" else None
        for number in range(self._at, len(self._lines)):
            if number > self._at:
                text.append(self._lines[number])
            inside, found, rest = text[-1].partition(closing)
            if found:
                if rest.strip(" .,"):
                    return None
                text[-1] = inside + closing if environment else inside
                self._at = number + 1
                return MathBlock("\n".join(text).strip())
            if not text[-1].strip() and number > self._at:
                return None
        return None


def _opening(line: str) -> re.Match[str] | None:
    match = _FENCE.match(line)
    return match if match and (match["mark"][0] == "~" or "`" not in match["info"]) else None


def _closes(line: str, mark: str) -> bool:
    bare = line.strip()
    return bare.startswith(mark) and not bare.strip(mark[0])


def _can_interrupt(point: re.Match[str]) -> bool:
    """Return True if a list item may interrupt a paragraph: not empty, and not numbered above 1."""
    return bool(point.string[point.end() :].strip()) and point["number"] in {None, "1"}


def _cells(line: str) -> list[str]:
    bare = line.strip().removeprefix("|")
    cells, at = [], 0
    while at <= len(bare):
        match = _CELL.match(bare, at)
        assert match is not None  # noqa: S101 - an empty text matches as well
        cells.append(match[0].strip().replace("\\|", "|"))
        at = match.end() + 1
    if len(cells) > 1 and not cells[-1] and bare.endswith("|"):
        cells.pop()
    return cells


def _alignment(cell: str) -> str:
    left, right = cell.startswith(":"), cell.endswith(":")
    if left and right:
        return "center"
    return "left" if left else "right" if right else ""
