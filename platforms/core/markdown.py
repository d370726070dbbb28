"""Sans-IO: the parts of Markdown that every platform needs: code blocks, and marks still open.

Rendering Markdown is left to each platform.
"""

import re
from bisect import bisect_right

import msgspec

_FENCE_LINE = re.compile(
    r"^(?P<lead>[ \t]{0,20}(?P<quote>(?:>[ \t]{0,20}){0,5})(?P<point>(?:(?:[-*+]|\d{1,9}[.)])[ \t]{1,4})?))"
    r"(?P<mark>`{3,10}(?!`)|~{3,10}(?!~))(?P<info>[^\n]*)$",
    re.MULTILINE,
)
_HALF_COLUMNS = re.compile(r"(\|[^\n]*)\n[ \t]*\|[ \t|:-]*\Z")
_NOT_QUOTED = re.compile(r"^(?![ \t]*>)", re.MULTILINE)
_MAX_LANGUAGE_BYTES = 20
# Every alternative of these two patterns starts with a different character (``* is `+): only then
# `re` skips over text without any of them, which takes an eighth of the time.
_TAG = (
    r"<(?P<end>/?)(?P<name>b|strong|i|em|u|ins|s|del|strike|sub|sup|code|kbd)>"
    r"|<(?P<link>a)\s[^<>]{0,2000}>|<(?P<end_link>/)a>"
)
_TOKEN = re.compile(rf"\\.|``*|\*\*|~~|\|\||{_TAG}", re.IGNORECASE)
_PARTIAL_END_TAG = re.compile(r"</?[a-z]{0,8}\Z", re.IGNORECASE)
_DANGLING = " \t\r\n*~|`\\"
_MAX_OPEN_MARKS = 50  # that are tracked at the same time
_OPENING = re.compile(rf"\\.|``*|!\[|\[|\]|\*\*|~~|\|\||\*|_|{_TAG}", re.DOTALL | re.IGNORECASE)
_TARGET = re.compile(
    r"\(\s*(?:<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A code block: `start` ≤ opening line < `body` ≤ code < `end` ≤ closing marker < `after`.

    An unclosed block reaches past the end of the text. A block in a quote ends with the quote; then
    `after` is the line break before `end`. `lead` is the text before each of its lines: quote marks
    and list indentation.
    """

    start: int
    body: int
    end: int
    after: int
    marker: str
    language: str
    closed: bool
    lead: str = ""

    @property
    def quote(self) -> str:
        """Quote marks in front of the block's lines."""
        return self.lead[: self.lead.rfind(">") + 1] + " " if ">" in self.lead else ""

    @property
    def opening(self) -> str:
        """Line that opens such a block again."""
        return self.quote + self.marker + self.language

    @property
    def closing(self) -> str:
        """Line that closes the block."""
        return self.quote + self.marker


def find_fences(md: str) -> list[Fence]:
    """Return the code blocks in order, including those indented in lists."""
    if "```" not in md and "~~~" not in md:
        return []
    found: list[Fence] = []
    opening: re.Match[str] | None = None
    ends = 0  # end of the quote that contains the open block
    for line in _FENCE_LINE.finditer(md):
        if opening is not None and line.start() >= ends:
            found.append(_fence(opening, ends, ends - 1, closed=True))
            opening = None
        if opening is None:
            if _is_opening(line):
                opening, ends = line, _quote_end(md, line)
        elif _is_closing(line, opening):
            found.append(_fence(opening, line.start(), line.end("mark"), closed=True))
            opening = None
    if opening is not None and ends <= len(md):
        found.append(_fence(opening, ends, ends - 1, closed=True))
    elif opening is not None:
        found.append(_fence(opening, len(md), len(md) + 1, closed=False))
    return found


def looks_like_fence(line: str) -> bool:
    """Return True if a line, standing alone, would open a code block."""
    match = _FENCE_LINE.match(line)
    return match is not None and _is_opening(match)


def _is_opening(line: re.Match[str]) -> bool:
    return line["mark"][0] == "~" or "`" not in line["info"]


def _is_closing(line: re.Match[str], opening: re.Match[str]) -> bool:
    quoted = bool(line["quote"]) == bool(opening["quote"])
    longer = line["mark"].startswith(opening["mark"])
    return quoted and longer and not line["point"] and not line["info"].strip()


def _quote_end(md: str, opening: re.Match[str]) -> int:
    """Return the start of the first line that is no longer in the quote."""
    found = _NOT_QUOTED.search(md, opening.end() + 1) if opening["quote"] else None
    return found.start() if found and found.start() < len(md) else len(md) + 1


def _fence(opening: re.Match[str], end: int, after: int, *, closed: bool) -> Fence:
    language = "".join(opening["info"].split()[:1])
    if len(language.encode(errors="replace")) > _MAX_LANGUAGE_BYTES or "~" in language:
        language = ""  # no language, or one that would lengthen the marker
    lead = opening["lead"]
    lead = lead[: len(lead) - len(opening["point"])] + " " * len(opening["point"])
    return Fence(
        start=opening.start(),
        body=opening.end(),
        end=end,
        after=after,
        marker=opening["mark"],
        language=language,
        closed=closed,
        lead=lead,
    )


def fence_at(found: list[Fence], place: int) -> Fence | None:
    """Return the code block that a cut at this place would split."""
    index = bisect_right(found, place, key=lambda fence: fence.start) - 1
    if index >= 0 and found[index].start < place < found[index].after:
        return found[index]
    return None


def has_open_fence(md: str) -> bool:
    """Return True if the text ends inside a code block."""
    found = find_fences(md)
    return bool(found) and not found[-1].closed


_LABEL = re.compile(r"(?<![\w\]\\])!?\[(?P<words>(?:[^\[\]\n]|\[[^\[\]\n]{0,80}\]){1,300})\]\Z")
_HALF_TARGET = re.compile(
    r"\((?:<[^<>\n]*|(?P<bare>[^\s<>]*)(?:[ ]+(?:\"[^\"\n]*|'[^'\n]*)\"?'?)?)\Z"
)
_SCHEMES = ("https://", "http://", "mailto:")


def close_open_marks(md: str) -> str:
    """Close the marks that a partial answer leaves open, so that a growing answer renders well.

    Closes code blocks, code spans, `**`, `~~`, `||` and HTML tags. Holds back marks at the very end, whose
    meaning is still unknown, the line below a table header until it is complete, and the target of a
    link: until the target is complete, its words are shown alone. `[words` without a target may still
    be text and stays.
    """
    found = find_fences(md)
    last = found[-1] if found else None
    if last and not last.closed:
        if last.body < len(md):
            return f"{md.rstrip()}\n{last.closing}"
        md = md[: last.start]  # the opening line is incomplete
        last = found[-2] if len(found) > 1 else None
    while torn := _HALF_COLUMNS.search(md, last.after if last else 0):
        md = md[: torn.end(1)]
    start = max(md.rfind("\n\n") + 2 if "\n\n" in md else 0, last.after if last else 0)
    closed = md[:start] + _close_inline(md[start:])
    # Without the trailing marks a line may now open a code block.
    return close_open_marks(closed) if has_open_fence(closed) else closed


def _without_half_link(tail: str) -> str:
    """Replace a link whose target is incomplete by its words."""
    place = tail.rfind("](") + 1
    target = _HALF_TARGET.match(tail, place) if place else None
    if target is None or _TARGET.match(tail, place):
        return tail
    bare = (target["bare"] or "").lower()
    if bare and not any(bare.startswith(each) or each.startswith(bare) for each in _SCHEMES):
        return tail
    label = _LABEL.search(tail[:place])
    if label is None or "`" in _open_marks(tail[: label.start()]):
        return tail
    return tail[: label.start()] + label["words"]


def _close_inline(tail: str) -> str:
    tail = _without_half_link(tail)
    if not _open_marks(tail):
        return tail
    kept = tail.rstrip(_DANGLING)
    marks = _open_marks(kept)
    if "</" in marks and (partial := _PARTIAL_END_TAG.search(kept)):
        kept = kept[: partial.start()]
        marks = _open_marks(kept)
    return kept + marks


def _open_marks(text: str) -> str:
    """Return the characters that close the marks open at the end, innermost first."""
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
        elif mark[0] == "<":
            _toggle_tag(opened, token)
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


def _toggle_tag(opened: list[str], token: re.Match[str]) -> None:
    end = f"</{(token['name'] or 'a').lower()}>"
    if not (token["end"] or token["end_link"]):
        if len(opened) < _MAX_OPEN_MARKS:
            opened.append(end)
    elif end in opened:
        del opened[opened.index(end) :]


def _in_table(text: str, place: int) -> bool:
    before = text[text.rfind("\n", 0, place) + 1 : place].lstrip()
    return before.startswith("|") and not before.startswith("||")


# --- cutting a line --------------------------------------------------------------------------


def find_open_mark(text: str, low: int) -> int | None:
    """Find the first mark after `low` that is still open at the end of a part of a paragraph.

    Code spans, links and all kinds of emphasis count. Ending the text before that mark splits no
    pair of marks.
    """
    opened: list[tuple[str, int]] = []
    place = 0
    while token := _OPENING.search(text, place):
        mark, place = token[0], token.end()
        if mark[0] == "`":
            closing = re.compile(f"(?<!`){mark}(?!`)").search(text, place)
            if closing is None:
                opened.append((mark, token.start()))
                break
            place = closing.end()
        elif mark[-1] == "[":
            opened.append(("[", token.start()))
            del opened[:-_MAX_OPEN_MARKS]
        elif mark == "]":
            place = _close_bracket(opened, text, place)
        elif mark[0] == "<":
            _toggle_open_tag(opened, token)
        elif mark[0] != "\\":
            _toggle_emphasis(opened, token)
    return next((start for _, start in opened if start > low), None)


def _close_bracket(opened: list[tuple[str, int]], text: str, place: int) -> int:
    """Close a bracket and skip the link target; a link cut inside the target stays open."""
    target = _TARGET.match(text, place)
    if target is None and text.startswith("(", place) and not re.search(r"\s", text[place:]):
        return place
    marks = [mark for mark, _ in opened]
    if "[" in marks:
        del opened[len(marks) - 1 - marks[::-1].index("[") :]
    return target.end() if target else place


def _toggle_open_tag(opened: list[tuple[str, int]], token: re.Match[str]) -> None:
    name = f"<{(token['name'] or 'a').lower()}"
    names = [mark for mark, _ in opened]
    if not (token["end"] or token["end_link"]):
        opened.append((name, token.start()))
        del opened[:-_MAX_OPEN_MARKS]
    elif name in names:
        del opened[names.index(name) :]


def _toggle_emphasis(opened: list[tuple[str, int]], token: re.Match[str]) -> None:
    text, mark = token.string, token[0]
    before, after = text[token.start() - 1 : token.start()], text[token.end() : token.end() + 1]
    inside = before.isalnum() and after.isalnum() and mark == "_"
    marks = [char for char, _ in opened]
    if mark in marks and before and not before.isspace() and not inside:
        del opened[marks.index(mark) :]
    elif mark not in marks and after and not after.isspace() and not inside:
        opened.append((mark, token.start()))
