"""Sans-IO: a Markdown text parsed into a small tree, rendered by each platform.

The dialect is the one models write: CommonMark with tables, `~~`, `||spoilers||`, task lists,
footnotes, formulas, and emphasis next to Chinese, Japanese and Korean text. HTML is plain text.
Line breaks are kept. Every text can be parsed. Unused definitions stay visible, because their
references may be in another message of the same answer.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

import msgspec

from platforms.core.markdown import find_fences

# --- inside a line ---------------------------------------------------------------------------


class PlainText(msgspec.Struct, frozen=True):
    """Text without markup."""

    text: str


class InlineCode(msgspec.Struct, frozen=True):
    """Code inside a line."""

    text: str


class InlineMath(msgspec.Struct, frozen=True):
    """LaTeX inside a line."""

    text: str


class Styled(msgspec.Struct, frozen=True):
    """Styled text; `style` is `bold`, `italic`, `strikethrough` or `spoiler`."""

    style: str
    children: tuple["Inline", ...]


class Link(msgspec.Struct, frozen=True):
    """A link or an image."""

    url: str
    children: tuple["Inline", ...]
    is_image: bool = False


Inline = PlainText | InlineCode | InlineMath | Styled | Link
Inlines = tuple[Inline, ...]


# --- blocks ----------------------------------------------------------------------------------


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph."""

    children: Inlines


class Heading(msgspec.Struct, frozen=True):
    """A heading."""

    level: int
    children: Inlines


class CodeBlock(msgspec.Struct, frozen=True):
    """A code block."""

    text: str
    language: str = ""


class MathBlock(msgspec.Struct, frozen=True):
    """LaTeX as a block."""

    text: str


class HorizontalRule(msgspec.Struct, frozen=True):
    """A horizontal rule."""


class BlockQuote(msgspec.Struct, frozen=True):
    """A block quote."""

    blocks: tuple["Block", ...]


class ListItem(msgspec.Struct, frozen=True):
    """A list item; `done` is None unless the item is a task."""

    blocks: tuple["Block", ...]
    done: bool | None = None


class ListBlock(msgspec.Struct, frozen=True):
    """A list; `start` is None unless the list is numbered."""

    items: tuple[ListItem, ...]
    start: int | None = None
    is_loose: bool = False


class Table(msgspec.Struct, frozen=True):
    """A table; `alignments` holds `left`, `center`, `right` or "" for each column.

    A table that continues one from an earlier message has no header.
    """

    header: tuple[Inlines, ...]
    alignments: tuple[str, ...]
    rows: tuple[tuple[Inlines, ...], ...]


def to_plain_text(inside: Inlines) -> str:
    """Return the text without styles, with the URLs of links in parentheses."""
    return "".join(map(_node_text, inside))


def _node_text(node: Inline) -> str:
    if isinstance(node, PlainText | InlineCode | InlineMath):
        return node.text
    words = to_plain_text(node.children)
    if isinstance(node, Link) and words not in node.url:
        return f"{words} ({node.url})"
    return words


Block = (
    Paragraph | Heading | CodeBlock | MathBlock | HorizontalRule | BlockQuote | ListBlock | Table
)


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
    return _parse_with_references(lines, _footnotes(md), defines=_may_define(md))


def _parse_with_references(
    lines: list[str], notes: frozenset[str], *, defines: bool
) -> tuple[Block, ...]:
    """Parse a text that may define links or footnotes: first the definitions, then the references."""
    collected = _References({}, notes, collecting=True)
    if defines:
        for _ in _BlockParser(lines.copy(), 0, collected).blocks():
            pass
    references = _References(collected.urls, notes)
    blocks = tuple(_BlockParser(lines.copy(), 0, references).blocks())
    if len(references.used) == len(references.urls):
        return blocks
    used = {label: url for label, url in references.urls.items() if label in references.used}
    return tuple(_BlockParser(lines, 0, _References(used, notes)).blocks())


def _expand_tabs(md: str) -> str:
    """Replace tabs by spaces, but keep those inside code blocks."""
    if "\t" not in md:
        return md
    out, place = [], 0
    for fence in find_fences(md):
        out += [md[place : fence.body].expandtabs(4), md[fence.body : fence.end]]
        place = fence.end
    return "".join(out) + md[place:].expandtabs(4)


_HAS_MARKUP = re.compile(
    r"[\\`*_~|\[\]<&!$#>=]|^[ \t]*[-+]|^[ \t]*\d+[.)]|^(?: {4}|\t)|\t", re.MULTILINE
)
_MAX_DEPTH = 12
_MAX_MARKER_GAP = 4
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
_ENVIRONMENT = re.compile(
    r"\\begin\{((?:align|alignat|eqnarray|equation|flalign|gather|multline)\*?)\}"
)
_CELL = re.compile(r"(?:\\.|`[^`]*`|[^|\\`]|`|\\)*")


# --- definitions -----------------------------------------------------------------------------

_DEFINITION = re.compile(
    r"\[(?P<label>(?!\^)(?:[^\[\]\\]|\\.){1,999})\]:[ ]*\n?[ ]*"
    r"(?:<(?P<braced>[^<>\n]*)>|(?P<bare>[^\s<]\S*))"
    r"(?:(?:[ ]+|[ ]*\n[ ]*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?[ ]*(?:\n|\Z)",
    re.DOTALL,
)
_LONGEST_LABEL = 999
_NOTE = re.compile(r"\[\^([^\[\]^\s]{1,99})\]")
_NOTE_DEFINITION = re.compile(r"^[ >]{0,9}\[\^([^\[\]^\s]{1,99})\]:", re.MULTILINE)


class _References:
    """Link definitions and footnote labels of one text, and the labels of used definitions."""

    def __init__(
        self, urls: dict[str, str], notes: frozenset[str], *, collecting: bool = False
    ) -> None:
        self.urls = urls
        self.notes = notes
        self.collecting = collecting  # fill `urls`; inline syntax is not read
        self.used: set[str] = set()

    def url(self, label: str) -> str | None:
        """Look up a link target and mark the definition as used."""
        if len(label) > _LONGEST_LABEL:
            return None
        name = _label(label)
        if (url := self.urls.get(name)) is not None:
            self.used.add(name)
        return url

    def without_definitions(self, text: str) -> str:
        """Remove the definitions at the start of a paragraph; keep those that `urls` lacks."""
        kept, place = "", 0
        while found := _DEFINITION.match(text, place):
            label = _label(found["label"])
            url = html.unescape(found["bare"] or found["braced"])
            if self.collecting and label:
                self.urls.setdefault(label, url)
            elif not label or self.urls.get(label) != url:
                kept += f"&#91;{found[0][1:]}"  # its own label must not become a link
            place = found.end()
        return (kept + text[place:]).strip() if place else text

    def begins_note(self, text: str) -> bool:
        """Return True if a paragraph begins with the definition of a footnote."""
        found = _NOTE_DEFINITION.match(text)
        return found is not None and found[1] in self.notes


def _label(text: str) -> str:
    """Normalize a label, ignoring case and the width of spaces."""
    return " ".join(text.split()).casefold()


def _may_define(md: str) -> bool:
    """Return True if the text may define links, not only footnotes."""
    return md.count("]:") > len(_NOTE_DEFINITION.findall(md))


def _footnotes(md: str) -> frozenset[str]:
    """Return the labels of footnotes that are both defined and referred to."""
    if "[^" not in md:
        return frozenset()
    defined = Counter(_NOTE_DEFINITION.findall(md))
    named = Counter(_NOTE.findall(md))
    return frozenset(label for label in defined if named[label] > defined[label])


# --- blocks of lines -------------------------------------------------------------------------


class _BlockParser:
    """Parses blocks from lines."""

    def __init__(self, lines: list[str], depth: int, references: _References | None) -> None:
        self._lines = lines
        self._depth = depth
        self._references = references
        self._in_note = False  # the last paragraph was a footnote; indented lines continue the note
        self._at = 0
        self._paragraph_lines: list[str] = []  # of the paragraph that is being read

    def blocks(self) -> Iterator[Block]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._at += 1
                yield from self._paragraph()
                continue
            if self._in_note and not self._paragraph_lines:
                self._outdent_note()
                line = self._lines[self._at]
            block = self._block(line)
            if block is None:
                self._paragraph_lines.append(line.strip())
                self._at += 1
            else:
                yield from self._paragraph()
                yield block
        yield from self._paragraph()

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
        known = _INFO.fullmatch(info)
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
        if self._paragraph_lines or not whole or width < _PAIR or width != len(_cells(second)):
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

    def _display(self, line: str) -> MathBlock | None:
        bare = line.strip()
        closing = _DISPLAY.get(bare[:2])
        environment = _ENVIRONMENT.match(bare) if bare[0] == "\\" else None
        if environment:
            closing, text = f"\\end{{{environment[1]}}}", [bare]
        elif closing:
            text = [bare[2:]]
        else:
            return None
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


# --- words -----------------------------------------------------------------------------------

_SPECIAL = re.compile(r"[\\`*_~|\[<&!$]|https?://[^\s<>*~|`\\\[\]]+")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]*)>|<([\w.+-]+@[\w-]+(?:\.[\w-]+)+)>")
_NAME = re.compile(
    r"__(?:init|main|name|file|str|repr|call|new|del|len|iter|next|enter|exit|get|set|add|sub|mul|eq|lt|"
    r"gt|hash|bool|dict|class|doc|all|slots|version|future|pycache|getattr|setattr|getitem|setitem|"
    r"contains|import|path|dir|post_init|init_subclass|annotations|module|qualname|tests|aenter|aexit|"
    r"await|anext|aiter)__(?!\w)"
)
"""Names with double underscores, which are not emphasis."""

_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_TARGET = re.compile(
    r"\(\s*(?:<(?P<braced>[^<>\n]*)>|(?P<bare>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*))"
    r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)
_BRACKET = re.compile(r"\\.|(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|[\[\]]", re.DOTALL)
_DOLLARS = re.compile(r"\$(?=[^\s$])(?P<tex>[^$`\n]{0,300}?[^\s$`\\])\$(?![\w$])")
_DOUBLE_DOLLARS = re.compile(r"\$\$(?P<tex>[^$`]{1,1000})\$\$(?![\w$])")
_TEX = re.compile(r"[\\^_={}+*/<>]|^[A-Za-z]$")
_CJK_SYMBOLS = (("\u2e80", "\u33ff"), ("\ufe30", "\ufe6f"), ("\uff00", "\uffef"))
_PAIR = 2
_SAFE_SCHEMES = ("http://", "https://", "mailto:", "tel:")
_STYLES = {("*", 1): "italic", ("_", 1): "italic", ("*", 2): "bold", ("_", 2): "bold"}
_STYLES |= {("~", 2): "strikethrough", ("|", 2): "spoiler"}


class _OpenMark:
    """An opening mark without a closing one so far, and the nodes that follow."""

    def __init__(self, char: str = "", count: int = 0, *, closes: bool = False) -> None:
        self.char = char
        self.count = count
        self.initial_count = count
        self.closes = closes
        self.nodes: list[Inline] = []


def parse_inlines(
    text: str, references: _References | None = None, *, in_link: bool = False
) -> Inlines:
    """Parse the text of a paragraph; in a link only pictures are looked up in `references`."""
    if not _SPECIAL.search(text):
        return (PlainText(text),) if text else ()
    return _InlineParser(text, references, in_link=in_link).read()


class _InlineParser:
    """Parses one paragraph from left to right."""

    def __init__(self, text: str, references: _References | None, *, in_link: bool) -> None:
        self._text = text
        self._references = references
        self._in_link = in_link
        self._stack = [_OpenMark()]
        self._partner: dict[int, int] | None = None  # of brackets, found when first needed
        self._unclosed_runs: set[int] = set()  # lengths of backtick runs that nothing closes

    def read(self) -> Inlines:
        text, at = self._text, 0
        while found := _SPECIAL.search(text, at):
            self._add_text(text[at : found.start()])
            at = self._special(found)
        self._add_text(text[at:])
        while len(self._stack) > 1:
            self._discard_opener()
        return tuple(self._stack[0].nodes)

    def _add_text(self, words: str) -> None:
        if not words:
            return
        nodes = self._stack[-1].nodes
        if nodes and isinstance(nodes[-1], PlainText):
            words = nodes.pop().text + words  # type: ignore[union-attr]
        nodes.append(PlainText(words))

    def _add(self, node: Inline) -> None:
        if isinstance(node, PlainText):
            self._add_text(node.text)
        else:
            self._stack[-1].nodes.append(node)

    def _special(self, found: re.Match[str]) -> int:
        """Parse the construct that begins with a special character; return the end."""
        at, char = found.start(), found[0][0]
        match char:
            case "`":
                after = self._inline_code(at)
            case "\\":
                after = self._escape(at)
            case "[" | "!":
                after = self._link(at)
            case "<":
                after = self._angle(at)
            case "&":
                after = self._reference(at)
            case "$":
                after = self._dollars(at)
            case "h":
                after = 0
            case _:
                return self._mark(at, char)
        if after:
            return after
        self._add_text(found[0])
        return found.end()

    def _inline_code(self, at: int) -> int:
        end = at
        while self._text[end : end + 1] == "`":
            end += 1
        length = end - at
        if length not in self._unclosed_runs:
            closing = re.compile(f"(?<!`){'`' * length}(?!`)").search(self._text, end)
            if closing:
                inside = self._text[end : closing.start()].replace("\n", " ")
                if inside.strip() and inside[0] == inside[-1] == " ":
                    inside = inside[1:-1]
                self._add(
                    InlineCode(inside)
                    if inside.strip()
                    else PlainText(self._text[at : closing.end()])
                )
                return closing.end()
            self._unclosed_runs.add(length)
        self._add_text(self._text[at:end])
        return end

    def _escape(self, at: int) -> int:
        following = self._text[at + 1 : at + 2]
        if following in {"(", "["}:
            end = self._text.find({"(": "\\)", "[": "\\]"}[following], at + 2)
            inside = self._text[at + 2 : end].strip() if end > 0 else ""
            if inside and "\n\n" not in inside:
                self._add(InlineMath(inside))
                return end + 2
        if following and following in _PUNCTUATION:
            self._add_text(following)
            return at + 2
        return 0

    def _link(self, at: int) -> int:
        start = at + 1 if self._text[at] == "!" else at
        if self._text[start : start + 1] != "[":
            return 0
        if start == at and (note := self._note(at)):
            return note
        end = self._brackets().get(start)
        if end is None:
            return 0
        picture = start > at
        if target := _TARGET.match(self._text, end + 1):
            bare = target["braced"] if target["braced"] is not None else target["bare"]
            url, after = html.unescape(bare), target.end()
        elif found := self._referenced(start, end, picture=picture):
            url, after = found
        else:
            return 0
        inside = parse_inlines(self._text[start + 1 : end], self._references, in_link=not picture)
        if not url.lower().startswith(_SAFE_SCHEMES) or not url.partition(":")[2].strip("/"):
            # Only safe schemes become links; others are shown as text with the target.
            for node in inside:
                self._add(node)
            self._add_text(f" ({url})" if url else "")
        else:
            self._add(Link(url, inside or (PlainText(url),), is_image=picture))
        return after

    def _note(self, at: int) -> int:
        """Parse the label of a footnote."""
        found = _NOTE.match(self._text, at) if self._references else None
        if found is None or self._references is None or found[1] not in self._references.notes:
            return 0
        self._add_text(f"[{found[1]}]")
        return found.end()

    def _referenced(self, start: int, end: int, *, picture: bool) -> tuple[str, int] | None:
        """Look up the reference between two brackets; return URL and end."""
        if self._references is None or (self._in_link and not picture):
            return None
        label, after = self._text[start + 1 : end], end + 1
        closing = self._brackets().get(after)
        if closing is not None:
            label = self._text[after + 1 : closing].strip() or label
            after = closing + 1
        url = self._references.url(label)
        return None if url is None else (url, after)

    def _brackets(self) -> dict[int, int]:
        """Return the place of the closing bracket for each opening one."""
        if self._partner is None:
            self._partner, opened = {}, []
            for found in _BRACKET.finditer(self._text):
                if found[0] == "[":
                    opened.append(found.start())
                elif found[0] == "]" and opened:
                    self._partner[opened.pop()] = found.start()
        return self._partner

    def _angle(self, at: int) -> int:
        if found := _AUTOLINK.match(self._text, at):
            words = found[1] or found[2]
            self._add(Link(found[1] or f"mailto:{found[2]}", (PlainText(words),)))
            return found.end()
        if found := _BREAK.match(self._text, at):
            self._add_text("\n")
            return found.end()
        return 0

    def _reference(self, at: int) -> int:
        found = _REFERENCE.match(self._text, at)
        meant = html.unescape(found[0]) if found else ""
        if found is None or meant == found[0]:
            return 0
        self._add_text(meant)
        return found.end()

    def _dollars(self, at: int) -> int:
        found = _DOLLARS.match(self._text, at) or _DOUBLE_DOLLARS.match(self._text, at)
        tex = found["tex"].strip() if found else ""
        if found is None or not _TEX.search(tex):
            return 0
        self._add(InlineMath(tex))
        return found.end()

    # --- marks on both sides of text

    def _mark(self, at: int, char: str) -> int:
        text, end = self._text, at
        if char == "_" and (name := _NAME.match(text, at)) and not text[at - 1 : at].isalnum():
            self._add_text(name[0])
            return name.end()
        while text[end : end + 1] == char:
            end += 1
        count = end - at
        if char in "~|" and count != _PAIR:
            self._add_text(text[at:end])
            return end
        opens, closes = _can_open_and_close(text[at - 1 : at], text[end : end + 1], char)
        left = self._close(char, count, opens=opens) if closes else count
        if left and opens:
            self._stack.append(_OpenMark(char, left, closes=closes))
        else:
            self._add_text(char * left)
        return end

    def _close(self, char: str, count: int, *, opens: bool) -> int:
        """Close open marks; return the number of marks left."""
        left = count
        while left:
            index = self._find_opener(char, count, opens=opens)
            if index is None:
                return left
            while len(self._stack) > index + 1:
                self._discard_opener()
            opener = self._stack[-1]
            used = _PAIR if left >= _PAIR and opener.count >= _PAIR else 1
            styled = Styled(_STYLES[char, used], tuple(opener.nodes))
            opener.count -= used
            left -= used
            if opener.count:
                opener.nodes = [styled]
            else:
                self._stack.pop()
                self._add(styled)
        return 0

    def _find_opener(self, char: str, count: int, *, opens: bool) -> int | None:
        for index in range(len(self._stack) - 1, 0, -1):
            opener = self._stack[index]
            if opener.char != char or (index == len(self._stack) - 1 and not opener.nodes):
                continue
            # CommonMark's rule of three: `*foo**bar*` is not two pairs.
            odd = (opener.closes or opens) and (opener.initial_count + count) % 3 == 0
            if odd and (opener.initial_count % 3 or count % 3):
                continue
            return index
        return None

    def _discard_opener(self) -> None:
        """Turn an unclosed mark back into plain characters."""
        opener = self._stack.pop()
        self._add_text(opener.char * opener.count)
        for node in opener.nodes:
            self._add(node)


def _can_open_and_close(before: str, after: str, char: str) -> tuple[bool, bool]:
    """Return whether a mark between these characters can open, and whether it can close."""
    blank_before, blank_after = not before or before.isspace(), not after or after.isspace()
    sign_before, sign_after = _is_punctuation(before), _is_punctuation(after)
    # Chinese, Japanese and Korean text has no spaces between words, so punctuation stops no mark.
    cjk = (sign_before or sign_after) and (_is_cjk(before) or _is_cjk(after))
    left = not blank_after and (not sign_after or blank_before or sign_before or cjk)
    right = not blank_before and (not sign_before or blank_after or sign_after or cjk)
    if char == "*" and before.isdigit() and after.isdigit():
        return False, False  # 2*3*4 is a product, unlike in CommonMark
    if char == "_":
        return left and (not right or sign_before), right and (not left or sign_after)
    return left, right


def _is_punctuation(char: str) -> bool:
    if not char or char.isalnum() or char.isspace():
        return False
    return char.isascii() or unicodedata.category(char)[0] != "M"  # accents and vowel signs


def _is_cjk(char: str) -> bool:
    """Return True for Chinese, Japanese and Korean characters and punctuation, but not emoji."""
    if not char or char.isascii() or unicodedata.east_asian_width(char) not in "WFH":
        return False
    return unicodedata.category(char)[0] != "S" or any(
        first <= char <= last for first, last in _CJK_SYMBOLS
    )
