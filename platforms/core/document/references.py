"""Sans-IO: link definitions and footnotes, which other lines of the same text refer to."""

import html
import re
from collections import Counter

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


class References:
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
            bare = found["bare"] or ""
            if bare.count("(") != bare.count(")"):
                break  # such an address may still be written
            label = _label(found["label"])
            url = html.unescape(found["bare"] or found["braced"])
            if self.collecting and label:
                self.urls.setdefault(label, url)
            elif not label or self.urls.get(label) != url:
                kept += f"&#91;{found[0][1:]}"  # its own label must not become a link
            place = found.end()
        return (kept + text[place:]).strip() if place else text

    def match_note(self, text: str, at: int) -> re.Match[str] | None:
        """Match the label of a known footnote; the label is the first group."""
        found = _NOTE.match(text, at)
        return found if found and found[1] in self.notes else None

    def begins_note(self, text: str) -> bool:
        """Return True if a paragraph begins with the definition of a footnote.

        Nothing in this message need refer to it: the reference may be in another message.
        """
        return _NOTE_DEFINITION.match(text) is not None


def _label(text: str) -> str:
    """Normalize a label, ignoring case and the width of spaces."""
    return " ".join(text.split()).casefold()


def may_define_links(md: str) -> bool:
    """Return True if the text may define links, not only footnotes."""
    return md.count("]:") > len(_NOTE_DEFINITION.findall(md))


def footnote_labels(md: str) -> frozenset[str]:
    """Return the labels of footnotes that are both defined and referred to."""
    if "[^" not in md:
        return frozenset()
    defined = Counter(_NOTE_DEFINITION.findall(md))
    named = Counter(_NOTE.findall(md))
    return frozenset(label for label in defined if named[label] > defined[label])
