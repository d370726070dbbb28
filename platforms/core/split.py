"""Sans-IO: cutting a long Markdown text into messages that each render correctly.

Cuts are made at the best border that fits: between paragraphs, else lines, else words; not between
two matching marks, if both fit into one piece. A cut code block is closed and opened again with the
language, a table continues below a repeated header, a quote after a repeated mark. Text indented
below a list item of the previous piece is outdented, because it would render as code there. All
pieces but the last depend only on the text up to their end and a little beyond, so they stay
unchanged while an answer grows. The work grows linearly with the text, however long its lines,
lists, tables and quotes are: what lies above a piece is read once.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right

import msgspec

from platforms.core.contract import Unit
from platforms.core.markdown import Fence, fence_at, find_fences, find_open_mark, looks_like_fence

MIN_LIMIT = 50
"""Smallest limit with room for opening and closing a code block around some text."""

_UNSETTLED_PIECES = 3
"""Pieces at the end of a growing text that further text may change."""

_ENCODINGS = {Unit.UTF16: ("utf-16-le", 2), Unit.BYTES: ("utf-8", 1)}
_BLANK = " \t\r\n"
_BLANK_LINES = re.compile(r"(?:[ \t\r]*\n)+")
_BORDER = re.compile(r"(?:[ \t\r]*\n)+|[ \t\r]+")
_ZERO_WIDTH_SPACE = "\u200b"
_ZERO_WIDTH_JOINER = "\u200d"
_MAX_CLUSTER = 16

_QUOTED = re.compile(r" {0,3}(?:>[ \t]?)+")
_QUOTED_IN_ITEM = re.compile(r" {4,}(?P<marks>(?:>[ \t]?)+)")
_UNDERLINE = re.compile(r"[ >]*(?:=+|-+)[ \t]*$", re.MULTILINE)
_POINT = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]")
_ITEM = re.compile(r" *(?:[-*+]|\d{1,9}[.)])[ \t]+")
_NUMBER = re.compile(r"^(\d{1,9})([.)])(?=[ \t])")
_OTHER = {".": ")", ")": "."}
_BEGINS = re.compile(r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|\||$)", re.MULTILINE)
"""Beginnings of lines into which no mark of the line above continues."""

_BLOCK = re.compile(
    r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|(?:-[ \t]*|_[ \t]*|\*[ \t]*|=){3,}$)"
)
"""Text that has a meaning only at the beginning of a line."""

# Possessive, because `re` would otherwise try every way to divide a run of blanks.
_COLUMNS = re.compile(r"[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$")


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the text: the message is `before + text + after`, the original `text + gap`.

    The gap is the text dropped at the border: blank space, or the closing line of a code block that
    `after` has already closed.
    """

    before: str
    text: str
    after: str = ""
    gap: str = ""
    indent: int = 0  # removed from the message's lines
    mid_line: bool = False  # starts inside a line

    @property
    def unclosed(self) -> str:
        """The message without the closing text."""
        if not self.indent:
            return self.before + self.text
        first, end, rest = self.text.partition("\n") if self.mid_line else ("", "", self.text)
        return self.before + first + end + _outdent(rest, self.indent, self.before)

    @property
    def message(self) -> str:
        """The message as sent."""
        return self.unclosed + self.after


def text_length(text: str, unit: Unit) -> int:
    """Return the length of a text in the platform's unit."""
    if unit is Unit.CHARACTERS or text.isascii():
        return len(text)
    encoding, width = _ENCODINGS[unit]
    return len(text.encode(encoding, "replace")) // width


def split(md: str, limit: int, unit: Unit = Unit.CHARACTERS) -> tuple[str, ...]:
    """Cut a text into messages of at most `limit` units; a blank text gives none."""
    return tuple(piece.message for piece in split_pieces(md, limit, unit))


def split_pieces(md: str, limit: int, unit: Unit = Unit.CHARACTERS) -> list[TextPiece]:
    """Cut a text into pieces that record the text added and dropped; CRLF becomes LF."""
    return IncrementalSplitter().split(md, limit, unit)


class IncrementalSplitter:
    """Cuts a growing text repeatedly; pieces that can no longer change are cut only once."""

    def __init__(self) -> None:
        self._last: tuple[str, int, Unit] | None = None
        self._found: list[TextPiece] = []
        self._ends: list[int] = []
        self._lines_above = _LinesAbove()

    def split(self, md: str, limit: int, unit: Unit) -> list[TextPiece]:
        """Cut the current text.

        A text that does not extend the last one is cut from the beginning.
        """
        if limit < MIN_LIMIT:
            msg = f"a message of {limit} units is too short to be cut well; give {MIN_LIMIT}"
            raise ValueError(msg)
        md = md.replace("\r\n", "\n").replace("\r", "\n")
        last, self._last = self._last, (md, limit, unit)
        settled = 0
        if last and last[1:] == (limit, unit) and md.startswith(last[0]):
            settled = self._count_settled(last[0])
        del self._found[settled:], self._ends[settled:]
        self._lines_above.forget_after(self._ends[-1] if self._ends else -1)
        self._append_pieces(_Splitter(md, limit, unit, self._lines_above))
        return self._found.copy()

    def _count_settled(self, md: str) -> int:
        """Count the pieces that no further text can change."""
        settled = max(0, len(self._found) - _UNSETTLED_PIECES)
        line = md.rfind("\n") + 1
        if looks_like_fence(md[line:]):
            # A longer line may be no fence; the piece that ends right before it depends on that, too.
            settled = min(settled, bisect_left(self._ends, line))
        return settled

    def _append_pieces(self, cutter: "_Splitter") -> None:
        blank = _BLANK_LINES.match(cutter.md)
        place = self._ends[-1] if self._ends else blank.end() if blank else 0
        dropped: list[str] = []  # blank text after the last piece
        while place < cutter.end:
            piece = cutter.piece(place)
            place += len(piece.text) + len(piece.gap)
            if piece.text.strip():
                self._widen_last_gap(dropped)
                self._found.append(piece)
                self._ends.append(place)
            elif self._found:
                dropped += (piece.text, piece.gap)
                self._ends[-1] = place
        self._widen_last_gap(dropped)

    def _widen_last_gap(self, dropped: list[str]) -> None:
        """Add dropped text to the gap of the last piece, and empty the list."""
        if dropped:
            gap = self._found[-1].gap + "".join(dropped)
            self._found[-1] = msgspec.structs.replace(self._found[-1], gap=gap)
            dropped.clear()


class _LessIndented(msgspec.Struct, frozen=True):
    """Start of the nearest line above a place that is indented less; -1 if there is none."""

    indent: int
    quoted: bool
    start: int


class _LinesAbove:
    """Remembers what was found above the starts of earlier pieces, so that it is not read again."""

    def __init__(self) -> None:
        self.headers: dict[int, str] = {}
        self.less_indented: dict[int, _LessIndented] = {}

    def forget_after(self, place: int) -> None:
        """Forget the facts about later places, where the text may have changed."""
        for facts in (self.headers, self.less_indented):
            for start in [start for start in facts if start > place]:
                del facts[start]


class _Splitter:
    """Cuts one text from its start to its end; knows the places of code blocks."""

    def __init__(self, md: str, limit: int, unit: Unit, lines_above: _LinesAbove) -> None:
        self.md = md
        self.end = len(md.rstrip(_BLANK))
        self._limit = limit
        self._unit = unit
        self._fences = find_fences(md)
        self._lines_above = lines_above
        self._known_line = (0, 0)  # a place, and the start of its line
        self._empty_lines = (0, 0)  # quote lines without text
        self._in_item = (-1, False)  # a line, and whether it belongs to a list item

    def piece(self, start: int) -> TextPiece:
        """Cut off the piece that begins at `start`."""
        fence = fence_at(self._fences, start)
        before = self._prefix(start, fence)
        piece = self._piece(start, before)
        if self._needs_separator(start, fence, piece.text):
            # Text from inside a line, or a part of longer text, would now open or close a block.
            piece = self._piece(start, before + _ZERO_WIDTH_SPACE)
        if not start:
            return piece
        torn = self.md[start - 1] != "\n"
        indent = self._item_indent(start, fence) if torn else self._indent(start, fence)
        return msgspec.structs.replace(piece, indent=indent, mid_line=torn) if indent else piece

    def _prefix(self, start: int, fence: Fence | None) -> str:
        """Return the text to repeat: an opening code line, a table's header, or quote marks."""
        if not start:
            return ""
        opening = f"{fence.opening}\n" if fence else ""
        line = self._line_start(start)
        if line < start:
            again = opening + self._quote_marks(line, start)
        else:
            again = opening or self._header(start)
        return again if text_length(again, self._unit) <= self._limit // 3 else opening

    def _quote_marks(self, line: int, start: int) -> str:
        """Return the quote marks of a line that continues at `start`."""
        stop = min(start, line + self._limit)  # longer marks are not repeated anyway
        if quoted := _QUOTED.match(self.md, line, stop):
            return quoted[0]
        quoted = _QUOTED_IN_ITEM.match(self.md, line, stop)
        if quoted and self._in_item[0] != line:
            self._in_item = (line, self._indent(line, None) > 0)
        return quoted["marks"] if quoted and self._in_item[1] else ""  # else code

    def _header(self, start: int) -> str:
        """Return the header of the table that continues at `start`."""
        if "|" not in self._line_at(start):
            return ""
        known = self._lines_above.headers
        if start not in known:
            known[start] = self._find_header(start)
        return known[start]

    def _find_header(self, start: int) -> str:
        line, below = start, ""
        while line > 0:
            if not below and line in self._lines_above.headers:
                return self._lines_above.headers[line]
            above = self.md.rfind("\n", 0, line - 1) + 1
            row = self.md[above : line - 1]
            if "|" not in row:
                return ""
            if below:
                return f"{row}\n{below}\n" if not row[:1].isspace() else ""
            if _COLUMNS.match(row):
                below = row
            line = above
        return ""

    def _line_start(self, place: int) -> int:
        """Return the start of the line of a place; fast for places in increasing order."""
        known, line = self._known_line
        if place < known:
            return self.md.rfind("\n", 0, place) + 1
        line = max(line, self.md.rfind("\n", known, place) + 1)
        self._known_line = (place, line)
        return line

    def _line_at(self, start: int) -> str:
        stop = self.md.find("\n", start)
        return self.md[start : stop if stop >= 0 else len(self.md)] if start < self.end else ""

    def _indent(self, start: int, fence: Fence | None) -> int:
        """Return the indentation that lines at `start` owe to a list item further above."""
        if fence:
            return _spaces(fence.lead + "x")
        line = self._next_line_with_text(start)
        indent = _spaces(line)
        if not indent:
            return 0
        above = self._find_less_indented(start, indent, quoted=bool(_quote(line)))
        if above < 0:
            return 0
        earlier = self._line_at(above)
        return indent if _POINT.match(earlier[_quote(earlier) :].lstrip()) else 0

    def _next_line_with_text(self, start: int) -> str:
        """Return the line at `start`, or the next one with text behind its quote marks."""
        begin, end = self._empty_lines
        place = end if begin <= start < end else start
        line = self._line_at(place)
        while not line[_quote(line) :].strip() and place < self.end:
            place += len(line) + 1
            line = self._line_at(place)
        self._empty_lines = (start, place)
        return line

    def _find_less_indented(self, start: int, indent: int, *, quoted: bool) -> int:
        """Return the start of the nearest line above with less indentation, or -1.

        A quote begins and ends the search. Lines between an earlier piece and the line found for it
        have at least the indentation of that piece.
        """
        found, above = -1, start
        while above > 0:
            known = self._lines_above.less_indented.get(above)
            if known and known.quoted is quoted and known.indent >= indent:
                above = known.start
                if above < 0:
                    break
            else:
                above = self.md.rfind("\n", 0, above - 1) + 1
            earlier = self._line_at(above)
            mark = _quote(earlier)
            if bool(mark) is not quoted:
                break
            if earlier[mark:].strip() and _spaces(earlier) < indent:
                found = above
                break
        self._lines_above.less_indented[start] = _LessIndented(indent, quoted, found)
        return found

    def _piece(self, start: int, before: str) -> TextPiece:
        room = self._limit - text_length(before, self._unit)
        inside = fence_at(self._fences, self.end)
        closing = f"\n{inside.closing}" if inside else ""
        if self._fits(start, self.end, room - len(closing)):
            return TextPiece(
                before=before,
                text=self.md[start : self.end],
                after=closing,
                gap=self.md[self.end :],
            )
        cut, inside = self._cut(start, room)
        if inside and not self._fits(start, cut, room - 1 - len(inside.closing)):
            cut, inside = self._cut(start, room - 1 - len(inside.closing))
        if inside:
            gap = self._gap_in_code(inside, cut)
            return TextPiece(
                before=before, text=self.md[start:cut], after=f"\n{inside.closing}", gap=gap
            )
        text = self.md[start:cut].rstrip(_BLANK)
        border = _BORDER.match(self.md, start + len(text))
        stop = max(border.end() if border else 0, cut)
        return TextPiece(before=before, text=text, after="", gap=self.md[start + len(text) : stop])

    def _needs_separator(self, start: int, fence: Fence | None, text: str) -> bool:
        line = text.partition("\n")[0]
        if fence:
            only_marks = not line.strip(fence.marker[0] + _BLANK)
            return only_marks and line.strip(_BLANK).startswith(fence.marker)
        if start and self.md[start - 1] != "\n" and _BLOCK.match(line):
            return True
        return looks_like_fence(line) and not self._has_fence_starting_at(start)

    def _has_fence_starting_at(self, place: int) -> bool:
        index = bisect_left(self._fences, place, key=lambda fence: fence.start)
        return index < len(self._fences) and self._fences[index].start == place

    def _fits(self, start: int, stop: int, room: int) -> bool:
        # A character is at least one unit, so the length alone settles most cases.
        return stop - start <= room and text_length(self.md[start:stop], self._unit) <= room

    def _reach(self, start: int, room: int) -> int:
        """Find the farthest place that still fits."""
        text = self.md[start : start + room]
        if self._unit is Unit.CHARACTERS or text.isascii():
            return min(start + room, self.end)
        encoding, width = _ENCODINGS[self._unit]
        fitting = text.encode(encoding, "replace")[: room * width]
        return start + len(fitting.decode(encoding, "ignore"))

    def _gap_in_code(self, fence: Fence, cut: int) -> str:
        if self.md[cut] != "\n":
            return ""
        if cut + 1 != fence.end:
            return "\n"
        blank = _BORDER.match(self.md, fence.after)
        return self.md[cut : blank.end() if blank else fence.after]

    def _cut(self, start: int, room: int) -> tuple[int, Fence | None]:
        """Return a cut, and the code block that must be closed there and opened again."""
        cut = self._border(start, self._reach(start, room))
        inside = fence_at(self._fences, cut)
        if inside and inside.closed:
            cut = min(cut, inside.end - 1)  # never through the closing line, which is added
        line = self.md.rfind("\n", start, cut) + 1
        if line and self._tears_mark(line, cut):
            return line - 1, fence_at(self._fences, line - 1)
        return cut, inside

    def _tears_mark(self, line: int, cut: int) -> bool:
        """Return True if cutting this line leaves text that would open or close a code block."""
        index = bisect_left(self._fences, line, key=lambda fence: fence.end)
        closing = index < len(self._fences) and self._fences[index].end == line
        whole = self.md[cut : cut + 1] == "\n"
        return not closing and not whole and looks_like_fence(self.md[line:cut])

    def _border(self, start: int, reach: int) -> int:
        half = start + (reach - start) // 2
        for cut in (
            self._paragraph(half, reach),
            self._line(half, reach),
            self._word(half, reach),
            self._line(start, reach),
        ):
            if cut > start:
                return self._avoid_tearing(start, cut)
        return self._anywhere(start, reach)

    def _item_indent(self, start: int, fence: Fence | None) -> int:
        """Return the indentation of lines below `start` that belong to the same list item."""
        if fence:
            return _spaces(fence.lead + "x")
        begin = self._line_start(start)
        line = self.md[begin : min(start, begin + self._limit)]
        point = _ITEM.match(line, _quote(line))
        if point:
            return point.end() - _quote(line)
        indent = _spaces(line)
        return indent if indent > 1 else 0

    def _avoid_tearing(self, start: int, cut: int) -> int:
        """Move a cut in front of a table header, a heading or a pair of marks that it would split."""
        low = start + (cut - start) // 4
        if fence_at(self._fences, cut):
            return cut
        if self.md[cut : cut + 1] == "\n":
            if (header := self._torn_header(start, cut)) > low:
                return header - 1
            if _UNDERLINE.match(self.md, cut + 1) and (title := self._title(start, cut)) > low:
                return title - 1
            if _BEGINS.match(self.md, cut + 1):
                return self._shallowest_cut(start + (cut - start) // 2, cut)
        first = cut
        while first > start and not (self.md[first - 1] == "\n" and _BEGINS.match(self.md, first)):
            first = (
                max(start, self.md.rfind("\n", start, first - 1) + 1) if first > start else start
            )
        mark = find_open_mark(self.md[first:cut], low - first)
        if mark is None:
            return cut
        better = first + mark
        while better > low and self.md[better - 1] not in _BLANK:
            better -= 1
        return better - 1 if better > low else cut

    def _shallowest_cut(self, low: int, cut: int) -> int:
        """Move a cut in a list to the least nested place, unless that wastes much room."""
        best, place = cut, cut
        indent = _spaces(self._line_at(cut + 1))
        while indent and place > low:
            place = self.md.rfind("\n", low, place)
            if place < 0 or fence_at(self._fences, place):
                break
            line = self._line_at(place + 1)
            if line.strip() and _spaces(line) < indent:
                best, indent = place, _spaces(line)
        return best

    def _title(self, start: int, cut: int) -> int:
        """Return the start of the lines that the underline below the cut makes a heading, or -1."""
        line = cut + 1
        while (above := self.md.rfind("\n", start, line - 1) + 1) > start:
            if not self.md[above : line - 1].strip("> \t\r"):
                break
            line = above
            if _BEGINS.match(self.md, line):
                break
        return line if line <= cut else -1

    def _torn_header(self, start: int, cut: int) -> int:
        """Return the start of a table header without a row before the cut, or -1."""
        line = self.md.rfind("\n", start, cut) + 1 or self._line_start(start)
        below = self._line_at(cut + 1)
        if "|" in below and "|" in self.md[line:cut] and _COLUMNS.match(below):
            return line
        above = self.md.rfind("\n", 0, max(0, line - 1)) + 1
        row = self.md[line:cut]
        if line and "|" in row and _COLUMNS.match(row) and "|" in self.md[above : line - 1]:
            return above
        return -1

    def _paragraph(self, low: int, high: int) -> int:
        """Return the last border between paragraphs or next to a code block, or -1."""
        best = -1
        first = bisect_right(self._fences, low, key=lambda fence: fence.after)
        last = bisect_right(self._fences, high + 1, key=lambda fence: fence.start)
        for fence in self._fences[first:last]:
            if low < fence.start - 1 <= high:
                best = fence.start - 1
            if low < fence.after <= high and fence.closed:
                best = fence.after
        cut = self.md.rfind("\n\n", low, high + 2)
        while cut > best and fence_at(self._fences, cut):
            cut = self.md.rfind("\n\n", low, cut + 1)
        return max(best, cut)

    def _line(self, low: int, high: int) -> int:
        cut = self.md.rfind("\n", low + 1, high + 1)
        fence = fence_at(self._fences, cut) if cut > 0 else None
        # Closing a block right after its opening line would leave an empty block.
        return fence.start - 1 if fence and cut == fence.body else cut

    def _word(self, low: int, high: int) -> int:
        cut = max(self.md.rfind(" ", low + 1, high + 1), self.md.rfind("\t", low + 1, high + 1))
        return -1 if cut > 0 and fence_at(self._fences, cut) else cut

    def _anywhere(self, start: int, reach: int) -> int:
        fence = fence_at(self._fences, reach)
        if fence and reach < fence.body and fence.start - 1 > start:
            return fence.start - 1  # never through an opening line
        cut = reach
        while (
            cut > start + 1 and reach - cut < _MAX_CLUSTER and _is_inseparable(self.md, start, cut)
        ):
            cut -= 1
        return reach if _is_inseparable(self.md, start, cut) else cut


def _spaces(line: str) -> int:
    """Return the indentation of a line, inside a quote if there is one."""
    start = _quote(line)
    return len(line) - start - len(line[start:].lstrip(" "))


def _quote(line: str) -> int:
    quoted = _QUOTED.match(line)
    return quoted.end() if quoted else 0


def _marker(line: str) -> str:
    return line[: len(line) - len(line.lstrip(line[:1]))] if line[:3] in {"```", "~~~"} else ""


def _outdent(text: str, indent: int, before: str) -> str:
    """Outdent lines, up to the first one indented less than those before it."""
    code = _marker(before.partition("\n")[0].lstrip("> "))
    lines: list[str] = []
    fell, swap, last = False, False, ""
    for line in text.split("\n"):
        start = _quote(line)
        bare = line[start:].strip()
        if not code and bare and _spaces(line) < indent:
            indent, fell = _spaces(line), True
            if lines and lines[-1].strip("> ") and _POINT.match(bare):
                lines.append(line[:start].rstrip())  # some list items cannot interrupt a paragraph
        moved = line[start + min(indent, _spaces(line)) :]
        if not code and (point := _NUMBER.match(moved)):
            # The other number style starts a new list, where the less nested one continues.
            swap = (point[2] == last) if fell else swap
            last = _OTHER[point[2]] if swap else point[2]
            moved, fell = f"{point[1]}{last}{moved[point.end() :]}", False
        lines.append(line[:start] + moved)
        if code and bare.startswith(code) and not bare.strip(code[0]):
            code = ""
        elif not code and looks_like_fence(line):
            code = _marker(bare)
    return "\n".join(lines)


def _is_inseparable(md: str, start: int, place: int) -> bool:
    """Return True if the characters on both sides form one grapheme or one mark.

    Pairs of regional indicators are counted from `start`, where the message begins.
    """
    left, right = md[place - 1 : place], md[place : place + 1]
    if left == right and left in "`*~|_":
        return True
    if right.isascii():  # the end of the text included
        return left == _ZERO_WIDTH_JOINER
    return (
        _ZERO_WIDTH_JOINER in {left, right}
        or unicodedata.category(right) in {"Mn", "Me", "Mc"}
        or "\U0001f3fb" <= right <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= right <= "\U000e007f"  # tags of regional flags
        or (
            _is_flag_half(left)
            and _is_flag_half(right)
            and _halves_between(md, start, place) % 2 == 1
        )
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _halves_between(md: str, start: int, place: int) -> int:
    count = 0
    while place - count > start and _is_flag_half(md[place - count - 1]):
        count += 1
    return count
