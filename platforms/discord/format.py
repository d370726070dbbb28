"""Sans-IO: formatter from parsed Markdown to Discord's dialect.

Discord renders three heading levels, lists, quotes, code, links and emphasis. Tables become aligned
code blocks, smaller headings bold text, rules a drawn line, and formulas code. Characters that only
Discord would read as markup or as a mention are escaped. Discord's emphasis rules differ from
CommonMark, so each run of text gets its own marks, and no mark spans code or a line break. No text
is lost: a result over the limit is replaced by a simpler layout or by the source.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from urllib.parse import quote

import msgspec

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
    parse,
    plain_rows,
    script_text,
)

MAX_CHARS = 2_000
RESERVED_CHARS = 150
"""Characters reserved for markup that the formatter adds."""

RULE_LINE = "─" * 12

_HEADING_LEVELS = 3
_ZERO_WIDTH_SPACE = "\u200b"
_MARKS = {
    "bold": "**",
    "italic": "*",
    "underline": "__",
    "strikethrough": "~~",
    "spoiler": "||",
}
_LANGUAGE = re.compile(r"[\w+\-.#]+", re.ASCII)

_ADDRESS = re.compile(r"(https?://[^\s<]+[^\s<.,:;\"'\])*_~|`])")
_MARKUP_LOOKALIKE = re.compile(
    r"\\(?=[^0-9A-Za-z\s])|[*_]{2,}|(?<![^\W_])_|_(?![^\W_])|\*(?!\s)|~{2,}|\|{2,}|`"
    r"|<(?=@|#\d|a?:\w|t:-?\d|id:|/[\w -]+:\d)|@(?=everyone|here)|(?<=\])\("
)
_ENDS_EMPHASIS = re.compile(r"(?<!\\)_(?![0-9A-Za-z_])")
_NAME_SIGN = re.compile(
    r"\\[^0-9A-Za-z\s]|```.*?```|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|https?://[^\s<]+"
    r"|(?P<sign>(?<=[^\W_])_(?=[^\W_]))",
    re.DOTALL,
)
_ESCAPE_OR_RUN = re.compile(r"\\.|(?P<run>_+)", re.DOTALL)
_WORD_SIGN = re.compile(r"[0-9A-Za-z_]")
_PAIR = 2
_BLANK = re.compile(r"[\s\ufeff]")  # ends the address of a link on Discord
_BLOCK_LOOKALIKE = re.compile(r"^( *)(?:(#{1,3} |-# |>>? |>>> |[-*] )|(\d+)(\. ))", re.MULTILINE)


def render(md: str, limit: int = MAX_CHARS) -> str:
    """Return the message text, at most `limit` long if the Markdown source is."""
    blocks = parse(re.sub("[\0-\x08\x0b-\x1f]", lambda sign: "\n"[sign[0] not in "\r\n" :], md))
    unguarded = ""
    for layout in (_aligned_table, _compact_table):
        text = _MarkdownWriter(layout).draw(blocks)
        if len(text) <= limit and (text.strip() or not md.strip()):
            guarded = _guard_names(text)
            if len(guarded) <= limit:
                return guarded
            unguarded = unguarded or text
    return unguarded or md


def _guard_names(text: str) -> str:
    """Escape the `_` of names such as a_b from which Discord would read emphasis.

    Discord's emphasis may begin inside a word, lasts until the next single `_`, which a sign that is
    no letter must follow, and may end inside code or a URL.
    """
    if not _ENDS_EMPHASIS.search(text):
        return text
    names = {found.start() for found in _NAME_SIGN.finditer(text) if found["sign"]}
    open_signs, ends = [], False
    for run in reversed([each for each in _ESCAPE_OR_RUN.finditer(text) if each["run"]]):
        if run.start() in names and ends:
            open_signs.append(run.start())
        elif len(run["run"]) % _PAIR:
            ends = not _WORD_SIGN.match(text, run.end())
    pieces, place = [], 0
    for start in reversed(open_signs):
        pieces += [text[place:start], "\\"]
        place = start
    return "".join(pieces) + text[place:]


TableLayout = Callable[[list[list[str]], bool], list[str]]


class _MarkdownWriter:
    """Recursive writer of blocks; `layout` lays out the rows of a table."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._in_quote = False

    def draw(self, blocks: tuple[Block, ...], *, tight: bool = False) -> str:
        out = ""
        previous: Block | None = None
        for block in blocks:
            text = self._block(block)
            if text and previous:
                out += "\n" if tight or _is_adjacent(previous, block) else "\n\n"
            if text:
                out, previous = out + text, block
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
        if self._in_quote:  # Discord has no nested quotes
            return self.draw(_quoted(block))
        self._in_quote = True
        text = self.draw(_quoted(block))
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
        return _code(self._layout(plain_rows(block), bool(block.header)), "")


def _quoted(block: BlockQuote) -> tuple[Block, ...]:
    """Return the blocks of a quote; Discord cannot fold, so the summary becomes a bold line."""
    first, *others = block.blocks or (Paragraph(()),)
    if not block.is_foldable or not isinstance(first, Paragraph):
        return block.blocks
    return (Paragraph((Styled("bold", first.children),)), *others)


def _is_adjacent(previous: Block, block: Block) -> bool:
    """Return whether two blocks need no blank line in between."""
    close = isinstance(previous, Heading | CodeBlock | Table | MathBlock)
    close = close or isinstance(block, CodeBlock | Table | MathBlock)
    return close or (isinstance(previous, Paragraph) and isinstance(block, ListBlock))


def _indent_lines(text: str, indent: str) -> str:
    """Indent the lines of a list item, except code, which would show the indentation."""
    first, *others = text.split("\n")
    out, code = [first], first.startswith("```")
    for line in others:
        fence = line.startswith("```")
        out.append(line if code or fence or not line else indent + line)
        code = code != fence
    # Discord renders a list item only if its first line has visible content.
    return (f"{_ZERO_WIDTH_SPACE}\n" if first.startswith("```") else "") + "\n".join(out)


def _without_heading(block: Block) -> Block:
    """Return a heading as bold text, because Discord has no headings in lists."""
    if isinstance(block, Heading):
        return Paragraph((Styled("bold", block.children),))
    return block


def _heading(block: Heading) -> str:
    """Return one heading per line, because a line break ends a heading on Discord."""
    if block.level > _HEADING_LEVELS:
        return _lines((Styled("bold", block.children),))
    titles = [line.strip() for line in _lines(block.children, breaks_in_links=False).split("\n")]
    ends = [f"{title[:-1]}\\#" if title.endswith("#") else title for title in titles if title]
    return "\n".join(f"{'#' * block.level} {title}" for title in ends)


def _code(lines: list[str], language: str) -> str:
    """Return a code block: Discord allows only three backticks and one word of language."""
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
    """Return the number of columns of a text in a monospaced font."""
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


# --- inline elements -----------------------------------------------------------------------------


class _StyledRun(msgspec.Struct, frozen=True):
    """Text of uniform style."""

    text: str
    styles: tuple[str, ...] = ()
    code: bool = False
    link: Link | None = None


def _lines(inside: Inlines, *, breaks_in_links: bool = True) -> str:
    """Return the text of a paragraph, with line starts escaped that Discord reads as blocks."""
    out = ""
    for _, group in groupby(_runs(inside, ()), key=lambda run: id(run.link)):
        runs = list(group)
        link = runs[0].link
        if link and not breaks_in_links:
            runs = [msgspec.structs.replace(run, text=run.text.replace("\n", " ")) for run in runs]
        text = _link(link, runs) if link else _join_runs(runs)
        out += _ZERO_WIDTH_SPACE + text if _marks_collide(out, text) else text
    return _BLOCK_LOOKALIKE.sub(_escape_block, out)


def _escape_block(match: re.Match[str]) -> str:
    if match[3]:
        return f"{match[1]}{match[3]}\\{match[4]}"
    return f"{match[1]}\\{match[2]}"


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
        case Styled() if node.style in SCRIPTS:
            yield from _runs(script_text(node), styles, link)
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
    """Return whether the marks at the seam of two texts would merge."""
    return before[-1:] == after[:1] and before[-1:] in set("*_~|`") and before[-2:-1] != "\\"


def _apply_styles(text: str, styles: tuple[str, ...]) -> str:
    if not styles:
        return _escape_markup(text)
    # Discord requires marks next to non-space characters and within one line.
    return re.sub(
        r"\S(?:.*\S)?", lambda line: _wrap_in_marks(_escape_markup(line[0]), styles), text
    )


def _wrap_in_marks(text: str, styles: tuple[str, ...]) -> str:
    left = "".join(_MARKS[style] for style in styles)
    right = "".join(_MARKS[style] for style in reversed(styles))
    return f"{left}{text}{right}"


def _escape_markup(text: str) -> str:
    """Escape everything outside URLs that Discord would read as markup or as a mention."""
    parts = _ADDRESS.split(text)
    parts[::2] = [_MARKUP_LOOKALIKE.sub(_escape_match, part) for part in parts[::2]]
    return "".join(parts)


def _escape_match(match: re.Match[str]) -> str:
    return "".join(f"\\{sign}" for sign in match[0])


def _code_span(text: str) -> str:
    text = text.replace("\n", " ")
    if "`" not in text:
        return f"`{text}`"
    text = re.sub("`{2,}", lambda ticks: _ZERO_WIDTH_SPACE.join(ticks[0]), text)
    return f"`` {text} ``"


def _link(link: Link, runs: list[_StyledRun]) -> str:
    bare = "".join(run.text for run in runs).strip()
    target = _BLANK.sub(lambda blank: quote(blank[0]), link.url)
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
        # Discord shows no masked link whose text looks like a URL.
        return f"{words} ({target})"
    return f"[{words}]({_escape_parentheses(target)})"


def _escape_parentheses(target: str) -> str:
    """Percent-encode unbalanced parentheses, which would end a masked link early."""
    if re.fullmatch(r"[^()]*(?:\([^()]*\)[^()]*)*", target):
        return target
    return target.replace("(", "%28").replace(")", "%29")
