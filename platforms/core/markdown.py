"""Sans-IO: what every platform needs to know of Markdown: where code blocks are, what is still open.

Nothing here turns Markdown into anything else; that is each platform's own business.
"""

import re
from bisect import bisect_right

import msgspec

_FENCE_LINE = re.compile(r"^[ \t]{0,20}(`{3,10}(?!`)|~{3,10}(?!~))([^\n]*)$", re.MULTILINE)
_LONGEST_LANGUAGE = 20
_TOKEN = re.compile(r"\\.|`+|\*\*|~~|\|\|")
_DANGLING = " \t\r\n*~|`\\"


class Fence(msgspec.Struct, frozen=True):
    """A code block: `start` ≤ opening line < `body` ≤ code < `end` ≤ closing marker < `after`.

    A block that nobody closed reaches behind the end of the text.
    """

    start: int
    body: int
    end: int
    after: int
    marker: str
    language: str
    closed: bool

    @property
    def opening(self) -> str:
        """The line that opens such a block again."""
        return self.marker + self.language


def fences(md: str) -> list[Fence]:
    """Find the code blocks, in order; indented ones (in lists) count too."""
    if "```" not in md and "~~~" not in md:
        return []
    found: list[Fence] = []
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(md):
        if opening is None:
            opening = line if _opens(line) else None
        elif line[1].startswith(opening[1]) and not line[2].strip():
            found.append(_fence(opening, line.start(), line.end(1), closed=True))
            opening = None
    if opening is not None:
        found.append(_fence(opening, len(md), len(md) + 1, closed=False))
    return found


def looks_like_fence(line: str) -> bool:
    """Tell whether a line, if it stood alone, would open a code block."""
    match = _FENCE_LINE.match(line)
    return match is not None and _opens(match)


def _opens(line: re.Match[str]) -> bool:
    return line[1][0] == "~" or "`" not in line[2]


def _fence(opening: re.Match[str], end: int, after: int, *, closed: bool) -> Fence:
    language = "".join(opening[2].split()[:1])
    if len(language.encode(errors="replace")) > _LONGEST_LANGUAGE or "~" in language:
        language = ""  # no language at all, or one that would make the marker longer
    return Fence(opening.start(), opening.end(), end, after, opening[1], language, closed)


def fence_at(found: list[Fence], place: int) -> Fence | None:
    """Say which code block a cut at this place would go through."""
    index = bisect_right(found, place, key=lambda fence: fence.start) - 1
    if index >= 0 and found[index].start < place < found[index].after:
        return found[index]
    return None


def has_open_fence(md: str) -> bool:
    """Tell whether the text ends inside a code block."""
    found = fences(md)
    return bool(found) and not found[-1].closed


def close(md: str) -> str:
    """Close what a partial answer leaves open, so that it looks right while it is being written.

    Closes code blocks, code spans, `**`, `~~` and `||`. Marks at the very end that may turn out to
    be anything are held back.
    """
    found = fences(md)
    last = found[-1] if found else None
    if last and not last.closed:
        if last.body < len(md):
            return f"{md.rstrip()}\n{last.marker}"
        md = md[: last.start]  # its opening line is not whole yet
        last = found[-2] if len(found) > 1 else None
    start = max(md.rfind("\n\n") + 2 if "\n\n" in md else 0, last.after if last else 0)
    closed = md[:start] + _close_inline(md[start:])
    # Without the marks at its end a line may be what opens a code block.
    return close(closed) if has_open_fence(closed) else closed


def _close_inline(tail: str) -> str:
    if not _open_marks(tail):
        return tail
    kept = tail.rstrip(_DANGLING)
    return kept + _open_marks(kept)


def _open_marks(text: str) -> str:
    """Give what has to be written behind the text to close its marks, the innermost first."""
    opened: list[str] = []
    code = ""
    place = 0
    while token := _TOKEN.search(text, place):
        mark, place = token[0], token.end()
        if mark[0] == "`":
            closing = re.compile(f"(?<!`){mark}(?!`)").search(text, place)
            if closing is None:
                code = mark
                break
            place = closing.end()
        elif mark[0] != "\\" and not (mark == "||" and _in_table(text, token.start())):
            _toggle(opened, token)
    return code + "".join(reversed(opened))


def _toggle(opened: list[str], token: re.Match[str]) -> None:
    text, mark = token.string, token[0]
    if mark not in opened:
        if not text[token.end() : token.end() + 1].isspace():
            opened.append(mark)
    elif not text[token.start() - 1].isspace():
        del opened[opened.index(mark) :]


def _in_table(text: str, place: int) -> bool:
    before = text[text.rfind("\n", 0, place) + 1 : place].lstrip()
    return before.startswith("|") and not before.startswith("||")
