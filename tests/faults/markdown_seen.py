"""What a person sees of a message: Telegram's entities and rich HTML, Discord's and Slack's Markdown.

Written after what the platforms say of themselves, and not after what our adapters do.
"""

import re
from html.parser import HTMLParser
from typing import Any

from tests.faults.markdown_signs import (
    LINE,
    SPACE,
    UNSEEN,
    Dialect,
    Look,
    Page,
    Sign,
    address,
    tree,
)

# --- Telegram --------------------------------------------------------------------------------

_MOST_ENTITIES = 100
_ENTITY_LOOKS = {
    "strikethrough": "strike",
    "blockquote": "quote",
    "expandable_blockquote": "quote",
}
_BULLET = re.compile(r"^([ ]*)[•◦▪](?= )", re.MULTILINE)


def telegram_text(text: str, entities: list[dict[str, Any]]) -> list[Sign]:
    """Read a text with entities; those after the first hundred are not shown."""
    page = Page()
    looks: dict[int, set[Look]] = {}
    code: set[int] = set()
    for entity in entities[:_MOST_ENTITIES]:
        look = _look(entity)
        for unit in range(entity["offset"], entity["offset"] + entity["length"]):
            looks.setdefault(unit, set()).add(look)
            if entity["type"] == "pre":
                code.add(unit)
    unit = 0
    bullets = {found.end() - 1 for found in _BULLET.finditer(text)}
    run: list[tuple[str, frozenset[Look]]] = []
    for place, char in enumerate(text):
        mine = frozenset(looks.get(unit, ())) | {"imitated"}
        inside = unit in code
        if run and (not inside or run[-1][1] != mine):
            _say_code(page, run)
        if inside:
            run.append((char, mine))
        else:
            page.say("•" if place in bullets else char, mine)
        unit += 1 + (ord(char) > 0xFFFF)
    if run:
        _say_code(page, run)
    return page.signs


def _say_code(page: Page, run: list[tuple[str, frozenset[Look]]]) -> None:
    page.code("".join(char for char, _ in run), run[0][1])
    run.clear()


def _look(entity: dict[str, Any]) -> Look:
    kind = str(entity["type"])
    if kind == "pre":
        return "pre", UNSEEN.sub("", str(entity.get("language") or ""))
    if kind == "text_link":
        return "link", address(str(entity["url"]))
    return _ENTITY_LOOKS.get(kind, kind)


_TAG_LOOKS = {
    "b": "bold", "i": "italic", "s": "strike", "tg-spoiler": "spoiler", "code": "code",
    "tg-math": "formula", "tg-math-block": "formula", "blockquote": "quote", "td": "cell", "th": "cell",
    "u": "underline", "details": "quote",
}  # fmt: skip
_ALONE = {"br", "hr", "input"}
_LINES = {
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "li",
    "tr",
    "br",
    "hr",
    "blockquote",
    "table",
    "details",
    "summary",
}


class _Rich(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._open: list[tuple[str, Look | None]] = []
        self._lists: list[int | None] = []
        self._point = ""
        self._code: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        look: Look | None = _TAG_LOOKS.get(tag)
        if tag in _LINES | {"tg-math-block"}:
            if tag == "br":
                self._say_point()
            self.page.space(LINE)
        if tag in {"td", "th"}:
            self.page.space(SPACE)
        if tag in {"ul", "ol"}:
            self._lists.append(int(given.get("start") or 1) if tag == "ol" else None)
        elif tag == "li":
            number = self._lists[-1]
            self._point = "•" if number is None else str(number)
            if number is not None:
                self._lists[-1] = number + 1
            return self._open.append((tag, None))
        elif tag == "input":
            if self._point != "•":
                self._say_point()
            self._point = ""
            self.page.say("☑" if "checked" in given else "☐", frozenset())
            self.page.space(SPACE)
        elif tag == "pre":
            look = ("pre", "")
        elif tag == "code" and self._open and self._open[-1][0] == "pre":
            language = str(given.get("class") or "").removeprefix("language-")
            look = ("pre", UNSEEN.sub("", language))
        elif tag == "a":
            look = ("link", address(str(given.get("href"))))
        elif re.fullmatch("h[1-6]", tag):
            look = ("heading", tag[1])
        if tag not in _ALONE:
            self._open.append((tag, look))
        return None

    def handle_endtag(self, tag: str) -> None:
        if tag in _ALONE:
            return
        if tag == "pre":
            self.page.code("".join(self._code), self._looks())
            self._code.clear()
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag in {"ul", "ol"}:
            self._lists.pop()
        if tag == "li":
            self._say_point()
        if tag in _LINES:
            self.page.space(LINE)

    def handle_data(self, data: str) -> None:
        self._say_point()
        looks = self._looks()
        if any(isinstance(look, tuple) and look[0] == "pre" for look in looks):
            self._inside = looks
            self._code.append(data)
            return
        self.page.say(data, looks)

    def _looks(self) -> frozenset[Look]:
        found = frozenset(look for _, look in self._open if look)
        if self._code:
            return self._inside
        return found

    def _say_point(self) -> None:
        if self._point:
            self.page.say(self._point, frozenset())
            self.page.space(SPACE)
        self._point = ""


def telegram_rich(html: str) -> list[Sign]:
    """Read a rich message."""
    reader = _Rich()
    reader.feed(html)
    reader.close()
    return reader.page.signs


# --- Discord ---------------------------------------------------------------------------------

_CODE_BLOCK = re.compile(
    r"```(?:([a-z0-9_+\-.#]+?)\n)?\n*([^\n].*?)\n*```", re.IGNORECASE | re.DOTALL
)
_CODE = re.compile(r"(`+)(.*?[^`])\1(?!`)", re.DOTALL)
_QUOTES = re.compile(r" *> [^\n]*(?:\n *> [^\n]*)*\n?")
_TITLE = re.compile(r" *(#{1,3})[ ]+((?:\\[^\n]|[^\\\n]|\\(?=\n|\Z))+?)#*[ ]*(?:\n|\Z)")
_POINT = re.compile(r" *(?:[-*]|(\d+)\.) (?=[^\n])")
_ESCAPE = re.compile(r"\\([^0-9A-Za-z\s])")
_MASKED = re.compile(
    r"\[((?:\[[^\]]*\]|[^\[\]]|\](?=[^\[]*\]))*)\]\(\s*<?((?:\([^()]*\)|[^\s\ufeff()\\]|\\.)*?)>?"
    r"(?:\s+['\"](.*?)['\"])?\s*\)",
    re.DOTALL,
)
_ANGLE = re.compile(r"<(https?://[^\s<>]+)>")
_BARE = re.compile(r"https?://[^\s<]+[^<.,:;\"'\]\s]")
_PING = re.compile(r"@(?:everyone|here)|<@[!&]?\d+>|<#\d+>")
_STRESS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("italic", re.compile(r"\*(?=\S)((?:\*\*|\\.|\s+(?:\\.|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)", re.DOTALL)),
    ("italic", re.compile(r"\b_((?:__|\\.|[^\\_])+?)_\b", re.DOTALL | re.ASCII)),
    ("bold", re.compile(r"\*\*((?:\\.|[^\\])+?)\*\*(?!\*)", re.DOTALL)),
    ("underline", re.compile(r"__((?:\\.|[^\\])+?)__(?!_)", re.DOTALL)),
    ("strike", re.compile(r"~~(.+?)~~(?!_)", re.DOTALL)),
    ("spoiler", re.compile(r"\|\|(.+?)\|\|", re.DOTALL)),
)  # fmt: skip


class _Discord:
    """Reads from left to right; at each place the first rule that fits counts."""

    def __init__(self) -> None:
        self.page = Page()
        self.pings: list[str] = []

    def read(self, text: str, looks: frozenset[Look], *, blocks: bool = True) -> None:
        at = 0
        while at < len(text):
            fresh = at == 0 or text[at - 1] == "\n"
            at = (blocks and fresh and self._block(text, at, looks)) or self._inline(
                text, at, looks
            )

    def _block(self, text: str, at: int, looks: frozenset[Look]) -> int:
        if "quote" not in looks and (found := _QUOTES.match(text, at)):
            self.page.space(LINE)
            inner = re.sub(r"^ *> ", "", found[0], flags=re.MULTILINE)
            self.read(inner, looks | {"quote"})
            self.page.space(LINE)
            return found.end()
        if found := _TITLE.match(text, at):
            self.page.space(LINE)
            self.read(found[2], looks | {("heading", str(len(found[1])))}, blocks=False)
            self.page.space(LINE)
            return found.end()
        if found := _POINT.match(text, at):
            self.page.space(LINE)
            self.page.say(found[1] or "•", looks)
            self.page.space(SPACE)
            return found.end()
        return 0

    def _inline(self, text: str, at: int, looks: frozenset[Look]) -> int:
        char = text[at]
        if char == "\\" and (found := _ESCAPE.match(text, at)):
            self.page.say(found[1], looks)
            return found.end()
        if char == "`":
            if found := _CODE_BLOCK.match(text, at):
                self.page.code(found[2], looks | {("pre", found[1] or "")})
                return found.end()
            if found := _CODE.match(text, at):
                self.page.say(found[2], looks | {"code"})
                return found.end()
        if char == "[" and (found := _MASKED.match(text, at)) and _leads(found):
            self.read(found[1], looks | {("link", address(found[2]))}, blocks=False)
            return found.end()
        if found := _ANGLE.match(text, at) or _BARE.match(text, at):
            self.page.say(found[found.lastindex or 0], looks)
            return found.end()
        if found := _PING.match(text, at):
            self.pings.append(found[0])
        if char in "*_~|" and (best := self._stress(text, at)):
            self.read(best[1][1], looks | {best[0]}, blocks=False)
            return at + best[1].end()
        self.page.say(char, looks)
        return at + 1

    def _stress(self, text: str, at: int) -> tuple[str, re.Match[str]] | None:
        rest = text[at:]  # Discord's rules see nothing of the text before
        found = [(name, match) for name, rule in _STRESS if (match := rule.match(rest))]
        return max(found, key=lambda each: len(each[1][0]), default=None)


def _leads(masked: re.Match[str]) -> bool:
    """Discord shows no link whose words look like an address."""
    return bool(re.match("https?://", masked[2])) and not re.match("https?://", masked[1])


def discord(text: str) -> tuple[list[Sign], list[str]]:
    """Read a message, and say which people or rooms it would name."""
    reader = _Discord()
    reader.read(text, frozenset({"imitated4"}))
    return reader.page.signs, reader.pings


# --- Slack -----------------------------------------------------------------------------------

_SLACK = Dialect()


def slack(markdown: str) -> list[Sign]:
    """Read a block of Markdown; Slack draws what CommonMark, tables and `~~` mean."""
    return tree(markdown, _SLACK)[0]


SLACK_CALLS = re.compile(
    r"<!(?:channel|here|everyone|subteam\^)|@(?:channel|here|everyone)\b|<@[UWB][A-Z0-9]"
)
