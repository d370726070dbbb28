"""Two readers of Discord's Markdown judge where they agree with each other.

The one gives runs of words, the other HTML. Both become letters with their looks, as `markdown_seen`
reads a message; the same letters with other looks are a difference.
"""

from collections.abc import Iterable
from html.parser import HTMLParser
from typing import NamedTuple

from tests.faults.markdown_seen import discord
from tests.faults.markdown_signs import SCRIPTS, UNSEEN, Sign

Letter = tuple[str, frozenset[str]]

_RELATIVE = "Discord draws links with http and https alone; the readers draw every target"
ACCEPTED = {
    "example 342": _RELATIVE,
    "example 487": _RELATIVE,
    "example 525": _RELATIVE,
}
"""Texts that both readers read otherwise than `markdown_seen`, with the reason why that is right."""

_MARKS = frozenset("*_~|`\\[]()")
_TAGS = {
    "strong": "bold", "em": "italic", "u": "underline", "del": "strike", "code": "code", "pre": "code",
    "blockquote": "quote", "h1": "heading", "h2": "heading", "h3": "heading",
}  # fmt: skip
_LOOKS = {"bold", "italic", "underline", "strike", "spoiler", "code", "quote", "heading"}


class Reading(NamedTuple):
    """The text and styles that one reader sees."""

    letters: list[Letter]

    @property
    def words(self) -> str:
        """The letters without their looks."""
        return "".join(letter for letter, _ in self.letters)


def _letters(text: str, looks: Iterable[str]) -> list[Letter]:
    kept = frozenset(looks)
    kept = frozenset({"code"}) & kept or kept  # nothing is drawn inside code
    return [
        (char, kept)
        for char in UNSEEN.sub("", text).translate(SCRIPTS)
        if char.isalpha() or (char in _MARKS and "code" not in kept)
    ]


def read_runs(runs: list[tuple[str, list[str]]]) -> Reading:
    """Return the letters of runs of words."""
    return Reading([each for text, looks in runs for each in _letters(text, looks)])


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.letters: list[Letter] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"br", "input", "img"}:
            if tag == "img":
                self.handle_data(given.get("alt") or "")
            return
        look = _TAGS.get(tag, "")
        if tag == "span" and "d-spoiler" in (given.get("class") or ""):
            look = "spoiler"
        if tag == "a":
            look = "link"
        self._open.append((tag, look))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.letters += _letters(data, (look for _, look in self._open if look))


def read_html(html: str) -> Reading:
    """Return the letters of HTML."""
    reader = _Html()
    reader.feed(html)
    reader.close()
    return Reading(reader.letters)


def read_signs(signs: Iterable[Sign]) -> Reading:
    """Return the letters that `markdown_seen` sees."""
    found: list[Letter] = []
    for sign in signs:
        kinds = {look if isinstance(look, str) else look[0] for look in sign.looks}
        kinds = {"code" if kind == "pre" else kind for kind in kinds}
        found += _letters(sign.char, kinds & (_LOOKS | {"link"}))
    return Reading(found)


def _plain_links(reading: Reading) -> list[Letter]:
    """Leave out links: the readers differ in what they make of a bare address."""
    return [(letter, looks - {"link"}) for letter, looks in reading.letters]


def agree(first: Reading, second: Reading) -> bool:
    """Return whether two readers see the same letters with the same looks."""
    return _plain_links(first) == _plain_links(second)


def our_reading(message: str) -> Reading:
    """Return the letters that `markdown_seen` sees in a message."""
    return read_signs(discord(message)[0])


def difference(first: Reading, second: Reading) -> str:
    """Return the first letters that two readers see otherwise."""
    one, other = _plain_links(first), _plain_links(second)
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            start = max(0, place - 12)
            return (
                f"{first.words[start : place + 12]!r} with {sorted(left[1])} "
                f"and {second.words[start : place + 12]!r} with {sorted(right[1])}"
            )
    shorter = min(len(one), len(other))
    return f"after {first.words[:shorter][-12:]!r}: {first.words[shorter:][:20]!r}, {second.words[shorter:][:20]!r}"
