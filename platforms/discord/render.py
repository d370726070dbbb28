"""Sans-IO: Markdown as Discord shows it.

Discord knows headings of three sizes, lists, quotes, code, links and emphasis. Tables become
aligned code, smaller headings bold, rules lines, images links, and what only Discord would take for
a mark is written so that it is not one. Nothing is ever lost: what would grow over the limit stays
closer to what the model wrote.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from platforms.core.markdown import Fence, fences

LIMIT = 2_000
RULE = "─" * 12

_HEADING = re.compile(r"^( {0,3})(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r"^ {0,3}(={2,}|-{2,})[ \t]*$")
_RULE = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_QUOTE = re.compile(r"^ {0,3}((?:>[ \t]?)+)(.*)$")
_TASK = re.compile(r"^(\s*(?:[-*+]|\d+[.)])[ \t]+)\[([ xX])\](?=[ \t])")
_BULLET = re.compile(r"^(\s*)\+(?=[ \t])")
_ROW = re.compile(r"^\s*\|.*\|\s*$")
_DELIMITER = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]")
_LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+\"[^\"]*\"|\s+'[^']*')?\)"
)
_STRONG = re.compile(r"(?<![\w\\_])__(?=[^\s_])(.+?)(?<=[^\s_\\])__(?![\w_])")
_NAME = re.compile(
    r"a?(?:init|main|name|file|str|repr|call|new|del|len|iter|next|enter|exit|get|set|add|sub|mul|eq|"
    r"lt|gt|hash|bool|dict|class|doc|all|slots|version|future|pycache|getattr|setattr|getitem|"
    r"setitem|contains|import|path|dir|post_init|init_subclass|annotations|module|qualname|tests)"
)
_OR = re.compile(r"(?<=\s)\|\|(?=\s)")
_AUTO_LINK = re.compile(r"<(https?://[^\s<>]+)>|https?://[^\s<>)\]]+")
_MARKS = re.compile(r"\*\*|~~|__|`")
_ZERO_WIDTH_SPACE = "\u200b"


def render(md: str, limit: int = LIMIT) -> str:
    """Write a message; at most `limit` long when the Markdown is."""
    lines = md.replace("\r\n", "\n")
    for layout in (_aligned, _narrow):
        text = _blocks(lines, layout)
        if len(text) <= limit and (text.strip() or not md.strip()):
            return text
    return md


# --- blocks --------------------------------------------------------------------------------------

Layout = Callable[[list[list[str]], bool], str]


def _blocks(md: str, layout: Layout) -> str:
    out: list[str] = []
    place = 0
    for fence in fences(md):
        out += (
            _prose(md[place : fence.start].removesuffix("\n").split("\n"), layout)
            if (fence.start > place)
            else []
        )
        out.append(_code_block(md, fence))
        place = min(fence.after, len(md))
        if md[place : place + 1] == "\n":
            place += 1
        if place >= len(md):
            return "\n".join(out)
    out += _prose(md[place:].split("\n"), layout)
    return "\n".join(out)


def _code_block(md: str, fence: Fence) -> str:
    """Discord knows one kind of code block: three backticks, and one word of language."""
    inside = md[fence.body : fence.end].removeprefix("\n").removesuffix("\n")
    indent = md[md.rfind("\n", 0, fence.start) + 1 : fence.start]
    indent += md[fence.start : fence.body][: -len(md[fence.start : fence.body].lstrip())] or ""
    lines = [line.removeprefix(indent) for line in inside.split("\n")] if indent else [inside]
    code = "\n".join(lines).replace("```", f"`{_ZERO_WIDTH_SPACE}``")
    return f"```{fence.language}\n{code}\n```" if code else f"```{fence.language}\n \n```"


def _prose(lines: list[str], layout: Layout) -> Iterator[str]:
    place = 0
    while place < len(lines):
        if table := _table(lines, place):
            rows, header, place = table
            yield layout(rows, header)
            continue
        line = lines[place]
        below = _UNDERLINE.match(lines[place + 1]) if place + 1 < len(lines) else None
        if below and _may_be_title(line):
            yield f"{'#' if below[1][0] == '=' else '##'} {_inline(line.strip())}"
            place += 2
            continue
        yield _line(line)
        place += 1


def _may_be_title(line: str) -> bool:
    plain = bool(line.strip()) and not line.startswith(("    ", "\t"))
    marked = any(mark.match(line) for mark in (_HEADING, _QUOTE, _RULE, _ROW))
    return plain and not marked and not re.match(r"\s*(?:[-*+]|\d+[.)])\s", line)


def _line(line: str) -> str:
    if _RULE.match(line):
        return RULE
    if heading := _HEADING.match(line):
        size, words = len(heading[2]), _inline(heading[3])
        if not words:
            return ""
        return f"{heading[2]} {words}" if size <= 3 else _bold(words)  # noqa: PLR2004 - three sizes
    if quote := _QUOTE.match(line):
        inner = _line(quote[2])
        return f"> {inner}"
    line = _TASK.sub(lambda task: task[1] + ("☐" if task[2] == " " else "☑"), line)
    return _inline(_BULLET.sub(r"\1-", line))


def _bold(words: str) -> str:
    return words if "**" in words else f"**{words}**"


# --- tables --------------------------------------------------------------------------------------


def _table(lines: list[str], place: int) -> tuple[list[list[str]], bool, int] | None:
    """Read a table: its rows, whether the first is a header, and where it ends."""
    header = (
        place + 1 < len(lines)
        and "|" in lines[place]
        and "|" in lines[place + 1]
        and _DELIMITER.match(lines[place + 1]) is not None
    )
    # The rest of a table that was cut into two messages has no header of its own.
    cut = (
        not header
        and all(_ROW.match(line) and "||" not in line for line in lines[place : place + 2])
        and len(lines) > place + 1
    )
    if not header and not cut:
        return None
    end = place + 2 if header else place
    while end < len(lines) and "|" in lines[end] and (header or _ROW.match(lines[end])):
        end += 1
    kept = [lines[place], *lines[place + 2 : end]] if header else lines[place:end]
    rows = [_cells(line) for line in kept if not _DELIMITER.match(line)]
    return (rows, header, end) if rows else None


def _cells(line: str) -> list[str]:
    """Split a row; a border inside of code belongs to the code."""
    hidden = _CODE.sub(lambda code: code[0].replace("|", "\0"), line.strip())
    hidden = hidden.removeprefix("|")
    if hidden.endswith("|") and not hidden.endswith("\\|"):
        hidden = hidden[:-1]
    return [_cell(cell.replace("\0", "|")) for cell in _CELL_BORDER.split(hidden)]


def _cell(text: str) -> str:
    """A cell without its marks: inside of code they would be seen."""
    text = _BREAK.sub(" ", text.strip()).replace("\\|", "|")
    text = _LINK.sub(lambda link: f"{link[2]} ({link[3]})" if link[2] else link[3], text)
    return _MARKS.sub("", text)


def _aligned(rows: list[list[str]], header: bool) -> str:
    columns = max(map(len, rows))
    padded = [[*row, *[""] * (columns - len(row))] for row in rows]
    widths = [max(_width(row[column]) for row in padded) for column in range(columns)]
    lines = [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in padded
    ]
    if header:
        lines.insert(1, "  ".join("─" * max(1, width) for width in widths))
    return _as_code(lines)


def _narrow(rows: list[list[str]], header: bool) -> str:  # noqa: ARG001 - one of two layouts
    return _as_code([" | ".join(row) for row in rows])


def _as_code(lines: list[str]) -> str:
    code = "\n".join(lines).replace("```", f"`{_ZERO_WIDTH_SPACE}``")
    return f"```\n{code}\n```"


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


def _inline(line: str) -> str:
    """Change what Discord reads in another way; code and escaped characters stay as they are."""
    if not any(mark in line for mark in ("](", "__", "||")):
        return line
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    line = _ESCAPED.sub(keep, _CODE.sub(keep, line.replace("\0", "")))
    line = _LINK.sub(lambda link: _keep_text(kept, _link(link)), line)
    line = _AUTO_LINK.sub(keep, line)
    line = _OR.sub(r"\\|\\|", _STRONG.sub(_strong, line))
    while "\0" in line:
        line = re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], line)
    return line


def _keep_text(kept: list[str], text: str) -> str:
    kept.append(text)
    return f"\0{len(kept) - 1}\0"


def _link(link: re.Match[str]) -> str:
    words, target = link[2].strip(), link[3]
    if link[1]:
        words = f"🖼 {words}".strip()
    if not target.startswith(("http://", "https://")):
        return f"{words} ({target})" if words and target else words or target
    if words in {"", "🖼", target}:
        return f"{words} {target}" if words == "🖼" else target
    if "://" in words:  # Discord shows no link whose words look like another address
        return f"{words} ({target})"
    return f"[{words}]({target})"


def _strong(match: re.Match[str]) -> str:
    inner = match[1]
    if _NAME.fullmatch(inner):
        return f"\\_\\_{inner}\\_\\_"  # __init__ is a name, not something to stress
    return f"**{inner}**"
