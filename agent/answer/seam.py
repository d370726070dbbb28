"""Sans-IO: seam between the text of a cut answer and the model's continuation.

The continuation prompt asks the model to start by repeating the last words, so that the join is
exact to the character. The model may repeat more or fewer words, none, or restart the whole answer.
The continuation is held back while further input could still change the join, and only while it
matches the old text: a continuation that occurs nowhere near the end of the old text is shown at
once.

If several overlaps are possible, the longest wins, and an overlap wins over a restart: a wrong
guess then shows something twice or drops one of several equal pieces, but never loses unique text.
A text that only repeats itself ("abab…", "=====") may therefore lose some of its equal pieces, but
never gain any.
"""

import re
import unicodedata

import msgspec

_OVERLAP_WINDOW = 4000  # characters at the end of the old text that may be repeated
_MIN_OVERLAP = 12  # characters; shorter matches occur by chance
_MIN_RESTART = 48
_MIN_PREFILLED_RESTART = 3  # characters of a text that a service repeated as a whole
_KEEP_OLD_SHARE = 0.8  # a restart that repeats this share keeps the old text

_CLOSING = frozenset(".,;:!?)]}»›”’…%'。、，．：；！？）】」』》")  # noqa: RUF001 - Chinese marks
_OPENING = frozenset("([{«‹“„¿¡（【「『《")  # noqa: RUF001
_JOINER = "\u200d"  # zero-width joiner, inside composed emoji
_PAIRED_MARKUP = re.compile(r"\*+|_+|`+|~+|\"")
_BLOCK = re.compile(r"\s*(?:[-*+][ \t]|\d+[.)][ \t]|#{1,6}[ \t]|>|\|)")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")


class TextUpdate(msgspec.Struct, frozen=True):
    """Change to the visible text."""

    text: str = ""
    replaces: bool = False  # `text` replaces all visible text instead of being appended


class Seam:
    """Join of an old text and its streamed continuation; each piece yields a `TextUpdate`.

    Without `may_replace` the old text always stays: a continuation that restarts the answer with
    different content is ignored.

    With `new_paragraph` the old text is complete. Repeated text is trimmed, and the rest starts a
    new paragraph.

    With `may_end` the old text may be complete: a continuation that repeats nothing starts a new
    paragraph.

    With `prefilled` the model was given the old text as the beginning of its own answer, so the
    join is exact, and only a service that ignores the beginning repeats it, from the first word.
    """

    def __init__(
        self,
        old: str,
        *,
        may_replace: bool = True,
        new_paragraph: bool = False,
        may_end: bool = False,
        prefilled: bool = False,
    ) -> None:
        self._old = old.rstrip() if new_paragraph else old
        self._new_paragraph = new_paragraph
        self._trailing_blanks = old[len(self._old) :]  # the model may repeat them
        self._tail = self._old[-_OVERLAP_WINDOW:]
        self._may_replace = may_replace
        self._may_end = may_end
        self._prefilled = prefilled
        self._held_pieces: list[str] = []
        self._held_characters = 0
        self._restart_characters = 0  # length of the prefix shared with the old text
        self._overlap_at = 0  # first occurrence of the held text in the tail; -1: none
        self._joined = not old
        self._ignoring = False
        self._has_added = False
        self._restarted = False
        self._repeated_ending = False

    @property
    def added_nothing(self) -> bool:
        """True if the continuation added nothing but blanks; final after `close`."""
        return not self._has_added

    @property
    def repeated_ending(self) -> bool:
        """True if the model only repeated the end of the old text; final after `close`."""
        return self._repeated_ending

    @property
    def ignored_rewrite(self) -> bool:
        """True if the model restarted with different content, which is not shown."""
        return self._ignoring

    @property
    def restarted(self) -> bool:
        """True if the model restarted the answer from its beginning; final after `close`."""
        return self._restarted

    def feed(self, text: str) -> TextUpdate:
        """Add a piece of the continuation."""
        if self._joined:
            return self._append(text)
        if self._new_paragraph and not self._held_pieces:
            text = text.lstrip()
        if not text:
            return TextUpdate()
        self._hold(text)
        return TextUpdate() if self._is_undecided() else self._join("".join(self._held_pieces))

    def close(self, *, cut: bool = False) -> TextUpdate:
        """Decide about the held text; `cut` means that the continuation was cut off as well.

        After a cut, an undecided overlap is dropped: the next continuation will contain it again,
        while text shown twice could not be taken back.
        """
        if self._joined:
            return TextUpdate()
        held = "".join(self._held_pieces)
        ending = self._tail.rstrip().endswith(held.rstrip()) and not self._prefilled
        self._repeated_ending = ending and bool(held.strip())
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
        # Search again only if the new piece differs from the text at the known position.
        if self._overlap_at >= 0 and not self._tail.startswith(
            text, self._overlap_at + self._held_characters
        ):
            self._overlap_at = self._tail.find("".join(self._held_pieces), self._overlap_at)
        self._held_characters += len(text)

    def _is_undecided(self) -> bool:
        # Either the held text occurs near the end of the old text, so the overlap may still grow,
        # or the held text is a prefix of the old text, so the model may be repeating everything.
        may_overlap = self._overlap_at >= 0 and not self._prefilled
        return may_overlap or self._restart_characters == self._held_characters

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
            return self._append(self._separator(held) + held)
        if self._restart_characters == len(held):
            return TextUpdate()
        if self._restart_characters >= _KEEP_OLD_SHARE * len(self._old):
            rest = held[self._restart_characters :]
            return self._append(_separator(self._old, rest) + rest)
        self._ignoring = not self._may_replace
        return msgspec.structs.replace(self._append(held), replaces=self._may_replace)

    def _separator(self, held: str) -> str:
        if self._prefilled:
            return ""
        choose = _paragraph_separator if self._may_end else _separator
        return choose(self._old, held)

    def _join_paragraph(self, held: str, *, closed: bool) -> TextUpdate:
        overlap = self._overlap_length(held, closed=closed)
        rest = held[overlap:]
        self._joined = closed or bool(rest.strip())
        if not rest.strip():
            return TextUpdate()  # only blanks so far; text may follow
        self._held_pieces = []
        if overlap and rest[0].isspace():
            return self._append(rest.removeprefix(self._trailing_blanks))
        return self._append("\n" * (2 - self._trailing_blanks.count("\n")) + rest)

    def _restart_threshold(self, *, closed: bool) -> float:
        if self._prefilled:
            return _MIN_RESTART
        # A continuation that ends early in a restart cannot match more characters, and most of a
        # short text is as significant as 48 characters of a long one.
        whole = closed and self._restart_characters == self._held_characters
        most = 0.0 if whole else _KEEP_OLD_SHARE * len(self._old)
        return min(max(_MIN_OVERLAP, most), _MIN_RESTART)

    def _overlap_length(self, held: str, *, closed: bool) -> int:
        """Return the length of the longest overlap of old suffix and held prefix."""
        if self._restart_characters == len(self._old):
            # The first letters of a prefilled answer may well be followed by the same letters.
            short = self._prefilled and len(self._old) < _MIN_PREFILLED_RESTART
            return 0 if short else self._restart_characters
        if self._prefilled:
            return 0
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
    """Choose the separator between two texts that do not overlap."""
    if not new or old[-1].isspace() or new[0].isspace():
        return ""
    open_fence, last_closes = _fence_state(old)
    if last_closes:
        return "\n"  # text on the line of a closing fence would reopen the code block
    last_line = old[old.rfind("\n") + 1 :]
    if open_fence or _continues_word(old[-1], new[0]) or _closes_markup(last_line, new):
        return ""
    return "\n" if _BLOCK.match(last_line) else " "


def _paragraph_separator(old: str, new: str) -> str:
    """Choose the separator between two texts that are complete; a code block stays one block."""
    if not new.strip():
        return ""
    ending = old[len(old.rstrip()) :] + new[: len(new) - len(new.lstrip())]
    breaks = 1 if _fence_state(old)[0] else 2
    return "\n" * (breaks - ending.count("\n"))


def _continues_word(last: str, first: str) -> bool:
    """Return True if `first` may directly follow `last` within a word or sentence.

    Caseless letters, as in Chinese or Arabic, do not show word boundaries and are treated like
    lower-case letters.
    """
    letter = first.isalpha() and not first.isupper()
    number = last.isdecimal() and first.isdecimal()
    part = unicodedata.category(first) in ("Mn", "Me", "Mc", "Sk") or _JOINER in (last, first)
    return letter or number or part or first in _CLOSING or last in _OPENING


def _closes_markup(line: str, new: str) -> bool:
    """Return True if `new` starts with a markup delimiter that `line` left open, such as `**`."""
    mark = _PAIRED_MARKUP.match(new)
    return mark is not None and line.count(mark[0]) % 2 == 1


def _fence_state(text: str) -> tuple[bool, bool]:
    """Return whether a text ends inside a code block, and whether its last line closes one."""
    opening = ""
    closes = False
    for line in text.split("\n"):
        closes = False
        fence = _FENCE.match(line)
        if fence is None:
            continue
        marks, rest = fence[1], fence[2]
        if not opening:
            # Further backticks on the line make this inline code.
            opening = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(opening) and not rest.strip():
            opening, closes = "", True
    return bool(opening), closes
