"""Sans-IO: Markdown as Discord shows it.

Discord knows headings of three sizes, lists, quotes, code, links and emphasis. Tables become
aligned code, smaller headings bold, rules lines, formulas code, and what only Discord would take for
a mark or for somebody's name is written so that it is not one. Drawn out of the parsed tree: Discord
reads marks by rules of its own, so each run of words gets its own, and no mark goes over code or into
the next line. Nothing is ever lost: what would grow over the limit stays closer to what the model
wrote.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec

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
    parse,
    to_plain_text,
)

MAX_CHARS = 2_000
RESERVED_CHARS = 150
"""What a message may grow by when it is written for Discord."""

RULE_LINE = "─" * 12

_HEADING_LEVELS = 3  # of headings
_ZERO_WIDTH_SPACE = "\u200b"
_MARKS = {"bold": "**", "italic": "*", "strikethrough": "~~", "spoiler": "||"}
_LANGUAGE = re.compile(r"[\w+\-.#]+", re.ASCII)

_ADDRESS = re.compile(r"(https?://[^\s<]+[^\s<.,:;\"'\])*_~|`])")
_MARKUP_LOOKALIKE = re.compile(
    r"\\(?=[^0-9A-Za-z\s])|[*_]{2,}|(?<![^\W_])_|_(?![^\W_])|\*(?!\s)|~{2,}|\|{2,}|`"
    r"|<(?=@|#\d|a?:\w|t:-?\d|id:|/[\w -]+:\d)|@(?=everyone|here)|\](?=\()"
)
_BLOCK_LOOKALIKE = re.compile(r"^( *)(?:(#{1,3} |-# |>>? |>>> |[-*] )|(\d+)(\. ))", re.MULTILINE)


def render(md: str, limit: int = MAX_CHARS) -> str:
    """Write a message; at most `limit` long when the Markdown is."""
    blocks = parse(re.sub("[\0-\x08\x0b-\x1f]", lambda sign: "\n"[sign[0] not in "\r\n" :], md))
    for layout in (_aligned_table, _compact_table):
        text = _MarkdownWriter(layout).draw(blocks)
        if len(text) <= limit and (text.strip() or not md.strip()):
            return text
    return md


TableLayout = Callable[[list[list[str]], bool], list[str]]


class _MarkdownWriter:
    """Writes blocks, one below the other."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._in_quote = False

    def draw(self, blocks: tuple[Block, ...], *, tight: bool = False) -> str:
        out = ""
        before: Block | None = None
        for block in blocks:
            text = self._block(block)
            if text and before:
                out += "\n" if tight or _is_adjacent(before, block) else "\n\n"
            if text:
                out, before = out + text, block
        return out

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph():
                return _lines(block.children)
            case Heading():
                return _heading(block)
            case CodeBlock():
                return _code(block.text.split("\n"), block.language)
            case MathBlock():
                return _code(block.text.split("\n"), "latex")
            case HorizontalRule():
                return RULE_LINE
            case BlockQuote():
                return self._quote(block)
            case ListBlock():
                return self._listing(block)
            case Table():
                return self._table(block)

    def _quote(self, block: BlockQuote) -> str:
        if self._in_quote:  # Discord knows no quotes in quotes
            return self.draw(block.blocks)
        self._in_quote = True
        text = self.draw(block.blocks)
        self._in_quote = False
        return "\n".join(f"> {line}" for line in text.split("\n"))

    def _listing(self, block: ListBlock) -> str:
        entries = []
        for number, entry in enumerate(block.items, block.start or 0):
            mark = "- " if block.start is None else f"{number}. "
            box = "" if entry.done is None else "☑ " if entry.done else "☐ "
            text = self.draw(
                tuple(map(_without_heading, entry.blocks)), tight=not block.is_loose
            ).lstrip()
            entries.append(mark + box + _indent_lines(text, " " * len(mark)))
        return ("\n\n" if block.is_loose else "\n").join(entries)

    def _table(self, block: Table) -> str:
        drawn = ((block.header,) if block.header else ()) + block.rows
        rows = [[" ".join(to_plain_text(cell).split()) for cell in row] for row in drawn]
        return _code(self._layout(rows, bool(block.header)), "")


def _is_adjacent(before: Block, block: Block) -> bool:
    """Tell whether no empty line is needed between two blocks."""
    close = isinstance(before, Heading | CodeBlock | Table | MathBlock)
    close = close or isinstance(block, CodeBlock | Table | MathBlock)
    return close or (isinstance(before, Paragraph) and isinstance(block, ListBlock))


def _indent_lines(text: str, indent: str) -> str:
    """Move the lines of a point to the right, but not those of code, which would move inside."""
    first, *others = text.split("\n")
    out, code = [first], first.startswith("```")
    for line in others:
        fence = line.startswith("```")
        out.append(line if code or fence or not line else indent + line)
        code = code != fence
    # Without anything to see in its first line it would be no point.
    return (f"{_ZERO_WIDTH_SPACE}\n" if first.startswith("```") else "") + "\n".join(out)


def _without_heading(block: Block) -> Block:
    """Discord knows no headings in lists."""
    if isinstance(block, Heading):
        return Paragraph((Styled("bold", block.children),))
    return block


def _heading(block: Heading) -> str:
    if block.level > _HEADING_LEVELS:
        return _lines((Styled("bold", block.children),))
    text = _lines(block.children).replace("\n", " ")
    if text.endswith("#"):
        text = f"{text[:-1]}\\#"
    return f"{'#' * block.level} {text}" if text else ""


def _code(lines: list[str], language: str) -> str:
    """Discord knows one kind of code block: three backticks, and one word of language."""
    code = "\n".join(lines).replace("```", f"`{_ZERO_WIDTH_SPACE}``")
    first = language if _LANGUAGE.fullmatch(language) else ""
    return f"```{first}\n{code if code.strip() else ' '}\n```"


# --- tables --------------------------------------------------------------------------------------


def _aligned_table(rows: list[list[str]], header: bool) -> list[str]:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    if header:
        lines.insert(1, "  ".join("─" * max(1, width) for width in widths))
    return lines


def _compact_table(rows: list[list[str]], header: bool) -> list[str]:  # noqa: ARG001 - one of two layouts
    return [" | ".join(row) for row in rows]


def _width(text: str) -> int:
    """Columns that a text takes in a monospaced font."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(char) in {"Mn", "Me", "Cf"}
        else 2
        if unicodedata.east_asian_width(char) in {"W", "F"}
        else 1
        for char in text
    )


# --- inside of a line ----------------------------------------------------------------------------


class _StyledRun(msgspec.Struct, frozen=True):
    """Words that look alike."""

    text: str
    styles: tuple[str, ...] = ()
    code: bool = False
    link: Link | None = None


def _lines(inside: Inlines) -> str:
    """Write the words of a paragraph; nothing at the beginning of a line is taken for a block."""
    out = ""
    for _, group in groupby(_runs(inside, ()), key=lambda run: id(run.link)):
        runs = list(group)
        link = runs[0].link
        text = _link(link, runs) if link else _join_runs(runs)
        out += _ZERO_WIDTH_SPACE + text if _marks_collide(out, text) else text
    return _BLOCK_LOOKALIKE.sub(_escape_block, out)


def _escape_block(found: re.Match[str]) -> str:
    if found[3]:
        return f"{found[1]}{found[3]}\\{found[4]}"
    return f"{found[1]}\\{found[2]}"


def _runs(
    inside: Inlines, styles: tuple[str, ...], link: Link | None = None
) -> Iterator[_StyledRun]:
    for node in inside:
        yield from _run(node, styles, link)


def _run(node: Inline, styles: tuple[str, ...], link: Link | None) -> Iterator[_StyledRun]:
    match node:
        case PlainText():
            yield _StyledRun(node.text, styles, link=link)
        case InlineCode() | InlineMath():
            yield _StyledRun(node.text, code=True, link=link)
        case Styled():
            more = (*styles, node.style) if node.style not in styles else styles
            yield from _runs(node.children, more, link)
        case Link():
            yield from _runs(node.children, styles, link or node)


def _join_runs(runs: Iterable[_StyledRun]) -> str:
    out = ""
    for (code, styles), group in groupby(runs, key=lambda run: (run.code, run.styles)):
        texts = [run.text for run in group]
        text = "".join(map(_code_span, texts)) if code else _apply_styles("".join(texts), styles)
        out += _ZERO_WIDTH_SPACE + text if _marks_collide(out, text) else text
    return out


def _marks_collide(before: str, after: str) -> bool:
    """Tell whether two marks would be read as one."""
    return before[-1:] == after[:1] and before[-1:] in set("*_~|`") and before[-2:-1] != "\\"


def _apply_styles(text: str, styles: tuple[str, ...]) -> str:
    if not styles:
        return _escape_markup(text)
    # The marks stand at the words, and end with the line.
    return re.sub(
        r"\S(?:.*\S)?", lambda line: _wrap_in_marks(_escape_markup(line[0]), styles), text
    )


def _wrap_in_marks(text: str, styles: tuple[str, ...]) -> str:
    left = "".join(_MARKS[style] for style in styles)
    right = "".join(_MARKS[style] for style in reversed(styles))
    return f"{left}{text}{right}"


def _escape_markup(text: str) -> str:
    """Write words so that Discord sees nothing else in them; in an address it does not look."""
    parts = _ADDRESS.split(text)
    parts[::2] = [_MARKUP_LOOKALIKE.sub(_escape_match, part) for part in parts[::2]]
    return "".join(parts)


def _escape_match(found: re.Match[str]) -> str:
    return "".join(f"\\{sign}" for sign in found[0])


def _code_span(text: str) -> str:
    text = text.replace("\n", " ")
    if "`" not in text:
        return f"`{text}`"
    text = re.sub("`{2,}", lambda ticks: _ZERO_WIDTH_SPACE.join(ticks[0]), text)
    return f"`` {text} ``"


def _link(link: Link, runs: list[_StyledRun]) -> str:
    bare = "".join(run.text for run in runs).strip()
    target = link.url.replace(" ", "%20")
    words = _join_runs(runs).strip()
    if not target.lower().startswith(("http://", "https://")):
        return words if bare in target else f"{words} ({target})"
    if link.is_image:
        words = f"🖼 {words}" if bare != link.url else ""
        if not words:
            return f"🖼 {target}"
    elif bare == link.url:
        return _wrap_in_marks(f"<{target}>", runs[0].styles)
    if "://" in bare or re.search(r"[^\\]\]\(", words):
        # Discord shows no link whose words look like another address.
        return f"{words} ({target})"
    return f"[{words}]({_escape_parentheses(target)})"


def _escape_parentheses(target: str) -> str:
    """Discord takes brackets in an address only in pairs."""
    if re.fullmatch(r"[^()]*(?:\([^()]*\)[^()]*)*", target):
        return target
    return target.replace("(", "%28").replace(")", "%29")
