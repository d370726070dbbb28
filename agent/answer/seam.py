"""Sans-IO: joins the text of an answer that broke off with what the model sends to carry it on.

The model is asked to begin by repeating the last words, so that the place is found to the letter.
It may repeat more or fewer of them, none, or begin the whole answer anew. What it sends is held
back for as long as something that follows could change how it is joined, and never longer than
it agrees with the old text: a start that occurs nowhere near its end is shown at once.

Where several repetitions are possible the longest counts, and it counts before a new beginning:
a wrong guess then shows something twice or drops one of several equal pieces, but loses nothing
that was said once. So a text that only repeats itself ("abab…", "=====") may come out shorter by
some of its equal pieces, never longer.
"""

import re
import unicodedata

import msgspec

_OVERLAP_WINDOW = 4000  # characters at the end of the old text in which a repetition may begin
_MIN_OVERLAP = 12  # characters; fewer are the same by chance
_MIN_RESTART = 48
_KEEP_OLD_SHARE = 0.8  # of the old text, said again: the rest of the old text is kept as it is

_CLOSING = frozenset(".,;:!?)]}»›”’…%'。、，．：；！？）】」』》")  # noqa: RUF001 - as Chinese writes
_OPENING = frozenset("([{«‹“„¿¡（【「『《")  # noqa: RUF001
_JOINER = "\u200d"  # between the parts of one emoji
_PAIRED_MARKUP = re.compile(r"\*+|_+|`+|~+|\"")
_BLOCK = re.compile(r"\s*(?:[-*+][ \t]|\d+[.)][ \t]|#{1,6}[ \t]|>|\|)")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")


class TextUpdate(msgspec.Struct, frozen=True):
    """What to do with the text that is shown."""

    text: str = ""  # to be appended to it
    replaces: bool = False  # `text` takes the place of all of it: the model says something else


class Seam:
    """Feed the pieces of the continuation; each gives what becomes of the text that is shown.

    Without `may_replace` the old text stays whatever comes: a model that begins anew and says
    something else is not listened to.

    `apart`: the old text is whole, and what comes is said after it. Only what repeats it is left
    out; the rest begins a paragraph of its own.
    """

    def __init__(self, old: str, *, may_replace: bool = True, new_paragraph: bool = False) -> None:
        self._old = old.rstrip() if new_paragraph else old
        self._new_paragraph = new_paragraph
        self._trailing_blanks = old[len(self._old) :]  # the model may write them again
        self._tail = self._old[-_OVERLAP_WINDOW:]
        self._may_replace = may_replace
        self._held_pieces: list[str] = []  # held back
        self._held_characters = 0  # of them, in characters
        self._restart_characters = 0  # characters that agree with the beginning of the old text
        self._overlap_at = 0  # where in the tail all that is held occurs first; -1: nowhere
        self._joined = not old
        self._ignoring = False
        self._has_added = False
        self._restarted = False
        self._repeated_ending = False

    @property
    def added_nothing(self) -> bool:
        """Nothing was added, or blanks only; final after `close`."""
        return not self._has_added

    @property
    def repeated_ending(self) -> bool:
        """The model said again how the old text ends, and no more; final after `close`."""
        return self._repeated_ending

    @property
    def ignored_rewrite(self) -> bool:
        """The model began anew and says something else, which nobody is shown."""
        return self._ignoring

    @property
    def restarted(self) -> bool:
        """The model began the answer from its beginning; final after `close`."""
        return self._restarted

    def feed(self, text: str) -> TextUpdate:
        """Take a piece of the continuation."""
        if self._joined:
            return self._append(text)
        if self._new_paragraph and not self._held_pieces:
            text = text.lstrip()
        if not text:
            return TextUpdate()
        self._hold(text)
        return TextUpdate() if self._is_undecided() else self._join("".join(self._held_pieces))

    def close(self, *, cut: bool = False) -> TextUpdate:
        """Nothing follows; `cut` when the continuation was cut off as well.

        What may have been the beginning of a repetition is then dropped: the next continuation
        says it again, but what is shown twice stays.
        """
        if self._joined:
            return TextUpdate()
        held = "".join(self._held_pieces)
        self._repeated_ending = bool(held.strip()) and self._tail.rstrip().endswith(held.rstrip())
        if cut and self._is_undecided():
            self._joined = True
            self._held_pieces = []
            return TextUpdate()
        return self._join(held, closed=True)

    def _hold(self, text: str) -> None:
        if self._restart_characters == self._held_characters:
            expected = self._old[self._held_characters : self._held_characters + len(text)]
            self._restart_characters += (
                len(text) if text == expected else _common_prefix_length(text, expected)
            )
        self._held_pieces.append(text)
        # The place stays the same for as long as what comes is what stands there.
        if self._overlap_at >= 0 and not self._tail.startswith(
            text, self._overlap_at + self._held_characters
        ):
            self._overlap_at = self._tail.find("".join(self._held_pieces), self._overlap_at)
        self._held_characters += len(text)

    def _is_undecided(self) -> bool:
        # All that is held occurs near the end: the overlap may still become longer.
        # All that is held is the old text's beginning: the model may be saying all of it again.
        return self._overlap_at >= 0 or self._restart_characters == self._held_characters

    def _join(self, held: str, *, closed: bool = False) -> TextUpdate:
        if self._new_paragraph:
            return self._join_paragraph(held, closed=closed)
        self._joined = True
        self._held_pieces = []
        self._restarted = self._restart_characters >= self._restart_threshold(closed=closed)
        overlap = self._overlap_length(held, closed=closed)
        if overlap:
            self._restarted = overlap == len(self._old)
            return self._append(held[overlap:])
        if not self._restarted:
            return self._append(_separator(self._old, held) + held)
        if self._restart_characters == len(held):
            return TextUpdate()
        if self._restart_characters >= _KEEP_OLD_SHARE * len(self._old):
            rest = held[self._restart_characters :]
            return self._append(_separator(self._old, rest) + rest)
        self._ignoring = not self._may_replace
        return msgspec.structs.replace(self._append(held), replaces=self._may_replace)

    def _join_paragraph(self, held: str, *, closed: bool) -> TextUpdate:
        overlap = self._overlap_length(held, closed=closed)
        rest = held[overlap:]
        self._joined = closed or bool(rest.strip())
        if not rest.strip():
            return TextUpdate()  # blanks, so far; what they part may follow
        self._held_pieces = []
        if overlap and rest[0].isspace():
            return self._append(rest.removeprefix(self._trailing_blanks))
        return self._append("\n" * (2 - self._trailing_blanks.count("\n")) + rest)

    def _restart_threshold(self, *, closed: bool) -> float:
        # An answer cut off early in its second beginning had no time to show more of it, and most
        # of a short text says as much as a piece of a long one.
        whole = closed and self._restart_characters == self._held_characters
        most = 0.0 if whole else _KEEP_OLD_SHARE * len(self._old)
        return min(max(_MIN_OVERLAP, most), _MIN_RESTART)

    def _overlap_length(self, held: str, *, closed: bool) -> int:
        """How many characters at the end of the old text are repeated."""
        if self._restart_characters == len(self._old):
            return self._restart_characters
        if closed and self._tail.endswith(held):
            return len(held)
        most = min(len(held), len(self._tail))
        sizes = range(most, _MIN_OVERLAP - 1, -1)
        return next((size for size in sizes if self._tail.endswith(held[:size])), 0)

    def _append(self, text: str) -> TextUpdate:
        if self._ignoring:
            return TextUpdate()
        self._has_added = self._has_added or bool(text.strip())
        return TextUpdate(text)


def _common_prefix_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _separator(old: str, new: str) -> str:
    """Say what belongs between two texts of which neither repeats anything of the other."""
    if not new or old[-1].isspace() or new[0].isspace():
        return ""
    open_fence, last_closes = _fence_state(old)
    if last_closes:
        return "\n"  # anything else on the line of a closing fence would open it again
    last_line = old[old.rfind("\n") + 1 :]
    if open_fence or _continues_word(old[-1], new[0]) or _closes_markup(last_line, new):
        return ""
    return "\n" if _BLOCK.match(last_line) else " "


def _continues_word(last: str, first: str) -> bool:
    """Tell whether a character may stand directly behind another inside one sentence or word.

    Letters that have no case, as Chinese or Arabic ones, say nothing about where a word begins;
    like small letters they are taken for the rest of one.
    """
    letter = first.isalpha() and not first.isupper()
    number = last.isdecimal() and first.isdecimal()
    part = unicodedata.category(first) in ("Mn", "Me", "Mc", "Sk") or _JOINER in (last, first)
    return letter or number or part or first in _CLOSING or last in _OPENING


def _closes_markup(line: str, new: str) -> bool:
    """Tell whether a text begins with the second of two equal marks, as around bold words."""
    mark = _PAIRED_MARKUP.match(new)
    return mark is not None and line.count(mark[0]) % 2 == 1


def _fence_state(text: str) -> tuple[bool, bool]:
    """Tell whether a text ends inside a code block, and whether its last line closes one."""
    opening = ""
    closes = False
    for line in text.split("\n"):
        closes = False
        fence = _FENCE.match(line)
        if fence is None:
            continue
        marks, rest = fence[1], fence[2]
        if not opening:
            # Backticks behind the marks make it a piece of code inside a line.
            opening = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(opening) and not rest.strip():
            opening, closes = "", True
    return bool(opening), closes
