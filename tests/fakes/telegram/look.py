"""Rendering of messages for assertions, and checks that their formatting is valid."""

from collections import defaultdict
from html.parser import HTMLParser
from typing import Any

from tests.fakes.telegram.faults import Answer

RICH_LIMIT = 32_768

_MARKS = {
    "bold": "**",
    "italic": "*",
    "strikethrough": "~~",
    "spoiler": "||",
    "code": "`",
    "underline": "",
    "blockquote": "",
    "expandable_blockquote": "",
    "text_link": "",
}


def markdown_of(text: str, entities: list[dict[str, Any]]) -> str:
    """Return the shown text as Markdown, for use in assertions."""
    units = text.encode("utf-16-le")
    inserts: dict[int, list[str]] = defaultdict(list)
    for entity in sorted(entities, key=lambda each: (each["offset"], -each["length"])):
        start, end = entity["offset"], entity["offset"] + entity["length"]
        if entity["type"] == "pre":
            inserts[start].append(f"```{entity.get('language', '')}\n")
            inserts[end].insert(0, "\n```")
        elif entity["type"] == "text_link":
            inserts[start].append("[")
            inserts[end].insert(0, f"]({entity['url']})")
        else:
            inserts[start].append(_MARKS[entity["type"]])
            inserts[end].insert(0, _MARKS[entity["type"]])
    out, last = [], 0
    for place in sorted(inserts):
        out += [units[2 * last : 2 * place].decode("utf-16-le"), *inserts[place]]
        last = place
    return "".join(out) + units[2 * last :].decode("utf-16-le")


def is_low(units: bytes, place: int) -> bool:
    pair = units[2 * place : 2 * place + 2]
    return len(pair) == 2 and 0xDC <= pair[1] <= 0xDF


def overlaps(entities: list[dict[str, Any]]) -> list[str]:
    """Return the violations of nesting: entities that overlap code or cross each other."""
    found = []
    for entity in entities:
        for other in entities:
            if other is entity:
                continue
            start, end = entity["offset"], entity["offset"] + entity["length"]
            begin, stop = other["offset"], other["offset"] + other["length"]
            if start < begin < end < stop:
                found.append(f"entities that cross: {entity} and {other}")
            touches = start < stop and begin < end
            if entity["type"] in {"code", "pre"} and touches and "blockquote" not in other["type"]:
                found.append(f"{other} goes through code")
    return found


_TAGS = (
    "a b strong i em u s del code mark sub sup tg-spoiler tg-math tg-math-block h1 h2 h3 h4 h5 h6 "
    "p pre hr ul ol li input blockquote br table tr th td details summary"
)


class _Rich(HTMLParser):
    """Parser of rich HTML, as strict as Telegram's documentation."""

    allowed = frozenset(_TAGS.split())
    alone = frozenset({"br", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.deepest = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.allowed:
            raise Answer(400, f"Bad Request: can't parse rich message: unsupported tag {tag}")
        if tag in {"p", "h1", "h2", "h3", "li", "tr", "pre", "br", "blockquote"}:
            self.words.append("\n")
        elif tag in {"td", "th"}:
            self.words.append(" ")
        if tag not in self.alone:
            self.open.append(tag)
            self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.alone:
            return
        if not self.open or self.open.pop() != tag:
            raise Answer(400, "Bad Request: can't parse rich message: tags are not balanced")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def checked_html(rich: dict[str, str]) -> str:
    html = rich["html"]
    reader = _Rich()
    reader.feed(html)
    reader.close()
    if reader.open:
        raise Answer(400, "Bad Request: can't parse rich message: a tag is not closed")
    if len("".join(reader.words)) > RICH_LIMIT:
        raise Answer(400, "Bad Request: rich message is too long")
    if not "".join(reader.words).strip() and "<hr" not in html:
        raise Answer(400, "Bad Request: rich message is empty")
    return html


def words_of(html: str) -> str:
    reader = _Rich()
    reader.feed(html)
    reader.close()
    return "".join(reader.words).strip()
