"""Sans-IO: the parser of the text inside a block."""

import functools
import html
import re
import unicodedata
from collections import Counter
from urllib.parse import urlsplit

from platforms.core.document.references import References
from platforms.core.document.tree import (
    Inline,
    InlineCode,
    InlineMath,
    Inlines,
    Link,
    PlainText,
    Styled,
    to_plain_text,
)

_SPECIAL = re.compile(r"[\\`*_~|\[<&!$]|https?://[^\s<>*~|`\\\[\]]+")
_MARKS = frozenset("*_~|")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]*)>|<([\w.+-]+@[\w-]+(?:\.[\w-]+)+)>")
_NAME = re.compile(
    r"__(?:init|main|name|file|str|repr|call|new|del|len|iter|next|enter|exit|get|set|add|sub|mul|eq|lt|"
    r"gt|hash|bool|dict|class|doc|all|slots|version|future|pycache|getattr|setattr|getitem|setitem|"
    r"contains|import|path|dir|post_init|init_subclass|annotations|module|qualname|tests|aenter|aexit|"
    r"await|anext|aiter)__(?!\w)"
)
"""Names with double underscores, which are not emphasis."""

_INVISIBLE = re.compile(
    "[\0-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
ENVIRONMENT = (
    r"\\begin\{(?P<environment_name>[A-Za-z]{1,20}\*?)\}.{0,2000}?\\end\{(?P=environment_name)\}"
)
"""A LaTeX environment inside a paragraph."""

_ENVIRONMENT = re.compile(ENVIRONMENT, re.DOTALL)
TAG = (
    r"<(?P<end>/?)(?P<name>b|strong|i|em|u|ins|s|del|strike|sub|sup|code|kbd)>|<(?P<link>a)(?=\s)"
    r"(?=[^<>]{0,2000}?\shref\s?=\s?(?:\"(?P<quoted>[^\"<>]*)\"|'(?P<single_quoted>[^'<>]*)'|(?P<bare>[^\s\"'<>]+)))"
    r"[^<>]{0,2000}>|<(?P<end_link>/)a>"
)
_HTML_TAG = re.compile(TAG, re.IGNORECASE)
_TAG_OR_CODE = re.compile(
    rf"\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|{TAG}", re.IGNORECASE | re.DOTALL
)
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_TARGET = re.compile(
    r"\(\s*(?:<(?P<braced>[^<>\n]*)>|(?P<bare>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*))"
    r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)
_BRACKET = re.compile(r"\\.|(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)|[\[\]]", re.DOTALL)
_DOLLARS = re.compile(r"\$(?=[^\s$])(?P<tex>[^$`\n]{0,300}?[^\s$`\\])\$(?![\w$])")
_DOUBLE_DOLLARS = re.compile(r"\$\$(?P<tex>[^$`]{1,1000})\$\$(?![\w$])")
_TEX = re.compile(r"[\\^_={}+*/<>]|^[A-Za-z]$")
_BRACKETED_TEX = re.compile(
    r"[\\^_={}]|^(?!.*[^\W\d_]{2})(?=.*[^\W\d_]).*[-+*/<>|()!]|[+*<>\u00d7\u00b7\u00f7≤≥≈≠∈→√∑∫]",
    re.DOTALL,
)
r"""Signs that make the text between `\(` and `\)` a formula: a sign of LaTeX, or an operator without words."""

_CJK_SYMBOLS = (("\u2e80", "\u33ff"), ("\ufe30", "\ufe6f"), ("\uff00", "\uffef"))
_PAIR = 2
_SAFE_SCHEMES = ("http://", "https://", "mailto:", "tel:")
_HOST = re.compile(
    r"(?:\w[\w+.-]*://|//|\bwww\.)(?:[^\s/@]*@)?(?P<named>[^\s/?#:@]+)"
    r"|^\s*(?P<bare>(?:[\w-]+\.)+(?:com|org|net|edu|gov|mil|info|biz|bank|shop|dev|app|io|example|uk|de|"
    r"fr|it|es|nl|ch|at|eu|us|ca|ru|cn|jp|in|br|au))(?::\d+)?(?:[/?#]\S*)?\s*$",
    re.IGNORECASE,
)
"""Host in the text of a link. A bare name such as `main.py` is a file, unless it ends as few files do."""

_STYLES = {("*", 1): "italic", ("_", 1): "italic", ("*", 2): "bold", ("_", 2): "bold"}
_STYLES |= {("~", 2): "strikethrough", ("|", 2): "spoiler"}
_TAG_STYLES = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("u", "ins"), "underline"),
    **dict.fromkeys(("s", "del", "strike"), "strikethrough"),
    "sub": "subscript",
    "sup": "superscript",
}
_CODE_TAGS = frozenset({"code", "kbd"})
_MAX_DEPTH = 40
"""Nesting depth of styles and links; deeper marks stay text."""


class _OpenMark:
    """An opening mark without a closing one so far, and the nodes that follow."""

    def __init__(self, char: str = "", count: int = 0, *, closes: bool = False) -> None:
        self.char = char
        self.count = count
        self.initial_count = count
        self.closes = closes
        self.nodes: list[Inline] = []

    @property
    def literal(self) -> str:
        """The mark as text, for a mark that is never closed."""
        return self.char * self.count


class _OpenTag(_OpenMark):
    """An opening HTML tag, and the nodes that follow."""

    def __init__(self, tag: re.Match[str]) -> None:
        super().__init__("<", 1)
        self.tag = tag

    @property
    def literal(self) -> str:
        return self.tag[0]


def parse_inlines(
    text: str, references: References | None = None, *, in_link: bool = False, depth: int = 0
) -> Inlines:
    """Parse the text of a paragraph; in a link only pictures are looked up in `references`."""
    if not _SPECIAL.search(text):
        return (PlainText(text),) if text else ()
    return _InlineParser(text, references, in_link=in_link, depth=depth).read()


class _InlineParser:
    """Parses one paragraph from left to right."""

    def __init__(
        self, text: str, references: References | None, *, in_link: bool, depth: int
    ) -> None:
        self._text = text
        self._references = references
        self._in_link = in_link
        self._depth = depth
        self._room = _MAX_DEPTH - depth  # for open marks
        self._stack = [_OpenMark()]
        self._partner: dict[int, int] | None = None  # of brackets, found when first needed
        self._tags: dict[int, int] | None = None  # place of the other tag of each pair
        self._unclosed_runs: set[int] = set()  # lengths of backtick runs that nothing closes

    def read(self) -> Inlines:
        text, at = self._text, 0
        while found := _SPECIAL.search(text, at):
            start = found.start()
            if start > at:
                self._add_text(text[at:start])
            char = text[start]
            at = self._mark(start, char) if char in _MARKS else self._special(found)
        self._add_text(text[at:])
        while len(self._stack) > 1:
            self._discard_opener()
        return tuple(self._stack[0].nodes)

    def _add_text(self, words: str) -> None:
        if not words:
            return
        nodes = self._stack[-1].nodes
        if nodes and isinstance(nodes[-1], PlainText):
            words = nodes.pop().text + words  # type: ignore[union-attr]
        nodes.append(PlainText(words))

    def _add(self, node: Inline) -> None:
        if isinstance(node, PlainText):
            self._add_text(node.text)
        else:
            self._stack[-1].nodes.append(node)

    def _special(self, found: re.Match[str]) -> int:
        """Parse the construct that begins with a special character; return the end."""
        at, char = found.start(), found[0][0]
        match char:
            case "`":
                after = self._inline_code(at)
            case "\\":
                after = self._escape(at)
            case "[" | "!":
                after = self._link(at)
            case "<":
                after = self._angle(at)
            case "&":
                after = self._reference(at)
            case "$":
                after = self._dollars(at)
            case _:
                after = 0
        if after:
            return after
        self._add_text(found[0])
        return found.end()

    def _inline_code(self, at: int) -> int:
        end = at
        while self._text[end : end + 1] == "`":
            end += 1
        length = end - at
        if length not in self._unclosed_runs:
            closing = re.compile(f"(?<!`){'`' * length}(?!`)").search(self._text, end)
            if closing:
                inside = self._text[end : closing.start()].replace("\n", " ")
                if inside.strip() and inside[0] == inside[-1] == " ":
                    inside = inside[1:-1]
                self._add(
                    InlineCode(inside)
                    if inside.strip()
                    else PlainText(self._text[at : closing.end()])
                )
                return closing.end()
            self._unclosed_runs.add(length)
        self._add_text(self._text[at:end])
        return end

    def _escape(self, at: int) -> int:
        following = self._text[at + 1 : at + 2]
        if following in {"(", "["}:
            end = self._text.find({"(": "\\)", "[": "\\]"}[following], at + 2)
            inside = self._text[at + 2 : end].strip() if end > 0 else ""
            if inside and is_formula(self._text, at, end + 2):
                self._add(InlineMath(inside))
                return end + 2
        if following and following in _PUNCTUATION:
            self._add_text(following)
            return at + 2
        if following == "b" and (environment := _ENVIRONMENT.match(self._text, at)):
            self._add(InlineMath(environment[0]))
            return environment.end()
        return 0

    def _link(self, at: int) -> int:
        start = at + 1 if self._text[at] == "!" else at
        if self._text[start : start + 1] != "[":
            return 0
        if start == at and (note := self._note(at)):
            return note
        end = self._brackets().get(start)
        if end is None or len(self._stack) > self._room:
            return 0
        picture = start > at
        if target := _TARGET.match(self._text, end + 1):
            bare = target["braced"] if target["braced"] is not None else target["bare"]
            url, after = html.unescape(bare), target.end()
        elif found := self._referenced(start, end, picture=picture):
            url, after = found
        else:
            return 0
        inside = parse_inlines(
            self._text[start + 1 : end],
            self._references,
            in_link=not picture,
            depth=self._depth + len(self._stack),
        )
        self._add_link(url, inside, picture=picture)
        return after

    def _add_link(self, url: str, inside: Inlines, *, picture: bool = False) -> None:
        """Add a link with a safe scheme; another one is shown as text with the target."""
        url = without_invisible(url)
        if not url.lower().startswith(_SAFE_SCHEMES) or not url.partition(":")[2].strip("/"):
            for node in inside:
                self._add(node)
            self._add_text(f" ({url})" if url else "")
        else:
            if names_another_host(to_plain_text(inside), url):
                inside = ()  # show the real address
            self._add(Link(url, inside or (PlainText(url),), is_image=picture))

    def _note(self, at: int) -> int:
        """Parse the label of a footnote."""
        found = self._references.match_note(self._text, at) if self._references else None
        if found is None:
            return 0
        self._add_text(f"[{found[1]}]")
        return found.end()

    def _referenced(self, start: int, end: int, *, picture: bool) -> tuple[str, int] | None:
        """Look up the reference between two brackets; return URL and end."""
        if self._references is None or (self._in_link and not picture):
            return None
        label, after = self._text[start + 1 : end], end + 1
        closing = self._brackets().get(after)
        if closing is not None:
            label = self._text[after + 1 : closing].strip() or label
            after = closing + 1
        url = self._references.url(label)
        return None if url is None else (url, after)

    def _brackets(self) -> dict[int, int]:
        """Return the place of the closing bracket for each opening one."""
        if self._partner is None:
            self._partner, opened = {}, []
            for found in _BRACKET.finditer(self._text):
                if found[0] == "[":
                    opened.append(found.start())
                elif found[0] == "]" and opened:
                    self._partner[opened.pop()] = found.start()
        return self._partner

    def _angle(self, at: int) -> int:
        if found := _AUTOLINK.match(self._text, at):
            words = without_invisible(found[1] or found[2])
            self._add(Link(words if found[1] else f"mailto:{words}", (PlainText(words),)))
            return found.end()
        if found := _BREAK.match(self._text, at):
            self._add_text("\n")
            return found.end()
        if found := _HTML_TAG.match(self._text, at):
            return self._tag(found)
        return 0

    def _tag(self, tag: re.Match[str]) -> int:
        """Parse a tag that has a partner; others are text."""
        partner = self._tag_pairs().get(tag.start())
        if partner is None:
            return 0
        if tag["end"] or tag["end_link"]:
            return self._close_tag(tag, partner)
        name = (tag["name"] or "a").lower()
        if name in _CODE_TAGS:
            inside = html.unescape(self._text[tag.end() : partner]).replace("\n", " ")
            self._add(InlineCode(inside) if inside.strip() else PlainText(inside))
            return self._text.index(">", partner) + 1
        if len(self._stack) > self._room or (name == "a" and self._in_link):
            return 0
        self._stack.append(_OpenTag(tag))
        return tag.end()

    def _close_tag(self, tag: re.Match[str], start: int) -> int:
        """Close the tag that was opened at `start`, unless it was left as text."""
        opened = (each for each in reversed(self._stack) if isinstance(each, _OpenTag))
        opener = next(opened, None)
        if opener is None or opener.tag.start() != start:
            return 0
        while self._stack[-1] is not opener:
            self._discard_opener()
        self._stack.pop()
        inside = tuple(opener.nodes)
        if opener.tag["link"]:
            url = opener.tag["quoted"] or opener.tag["single_quoted"] or opener.tag["bare"] or ""
            self._add_link(html.unescape(url).strip(), inside)
        elif inside:
            self._add(Styled(_TAG_STYLES[tag["name"].lower()], inside))
        return tag.end()

    def _tag_pairs(self) -> dict[int, int]:
        if self._tags is None:
            self._tags = tag_pairs(self._text)
        return self._tags

    def _reference(self, at: int) -> int:
        found = _REFERENCE.match(self._text, at)
        meant = html.unescape(found[0]) if found else ""
        if found is None or meant == found[0]:
            return 0
        self._add_text(meant)
        return found.end()

    def _dollars(self, at: int) -> int:
        found = _DOLLARS.match(self._text, at) or _DOUBLE_DOLLARS.match(self._text, at)
        tex = found["tex"].strip() if found else ""
        if found is None or not _TEX.search(tex):
            return 0
        self._add(InlineMath(tex))
        return found.end()

    # --- marks on both sides of text

    def _mark(self, at: int, char: str) -> int:
        text, end = self._text, at
        if char == "_" and (name := _NAME.match(text, at)) and not text[at - 1 : at].isalnum():
            self._add_text(name[0])
            return name.end()
        while text[end : end + 1] == char:
            end += 1
        count = end - at
        if char in "~|" and count != _PAIR:
            self._add_text(text[at:end])
            return end
        opens, closes = _can_open_and_close(text[at - 1 : at], text[end : end + 1], char)
        left = self._close(char, count, opens=opens) if closes else count
        if left and opens and len(self._stack) <= self._room:
            self._stack.append(_OpenMark(char, left, closes=closes))
        else:
            self._add_text(char * left)
        return end

    def _close(self, char: str, count: int, *, opens: bool) -> int:
        """Close open marks; return the number of marks left."""
        left = count
        while left:
            index = self._find_opener(char, count, opens=opens)
            if index is None:
                return left
            while len(self._stack) > index + 1:
                self._discard_opener()
            opener = self._stack[-1]
            used = _PAIR if left >= _PAIR and opener.count >= _PAIR else 1
            styled = Styled(_STYLES[char, used], tuple(opener.nodes))
            opener.count -= used
            left -= used
            if opener.count:
                opener.nodes = [styled]
            else:
                self._stack.pop()
                self._add(styled)
        return 0

    def _find_opener(self, char: str, count: int, *, opens: bool) -> int | None:
        for index in range(len(self._stack) - 1, 0, -1):
            opener = self._stack[index]
            if opener.char == "<":
                return None  # no pair of marks crosses a tag
            if opener.char != char or (index == len(self._stack) - 1 and not opener.nodes):
                continue
            # CommonMark's rule of three: `*foo**bar*` is not two pairs.
            odd = (opener.closes or opens) and (opener.initial_count + count) % 3 == 0
            if odd and (opener.initial_count % 3 or count % 3):
                continue
            return index
        return None

    def _discard_opener(self) -> None:
        """Turn an unclosed mark back into plain characters."""
        opener = self._stack.pop()
        self._add_text(opener.literal)
        for node in opener.nodes:
            self._add(node)


def without_invisible(text: str) -> str:
    """Remove control characters and invisible signs, which no URL and no language name contains."""
    return text if text.isascii() and text.isprintable() else _INVISIBLE.sub("", text)


def is_formula(text: str, start: int, end: int) -> bool:
    r"""Return False for text such as `\[1\]`, whose brackets are only escaped."""
    if text[start + 1] == "[" and text.startswith("(", end):
        return False  # an escaped link
    inside = text[start + 2 : end - 2].strip()
    before = text[text.rfind("\n", 0, start) + 1 : start]
    alone = not before.strip() and text[end : end + 3].lstrip(" .,")[:1] in {"", "\n"}
    return bool(inside) and (alone or _BRACKETED_TEX.search(inside) is not None)


def looks_like_tex(text: str) -> bool:
    """Return False for text between dollars that is rather an amount."""
    return _TEX.search(text) is not None


def tag_pairs(text: str, offset: int = 0) -> dict[int, int]:
    """Return the place of the closing HTML tag for each opening one, and the reverse."""
    pairs: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    open_names: Counter[str] = Counter()
    for found in _TAG_OR_CODE.finditer(text):
        name, place = (found["name"] or "a").lower(), found.start() + offset
        if found["end"] or found["end_link"]:
            if open_names[name]:
                other, start = "", 0
                while other != name:  # forget the tags that were opened inside
                    other, start = opened.pop()
                    open_names[other] -= 1
                pairs[start], pairs[place] = place, start
        elif found["name"] or (found["link"] and not open_names["a"]):
            opened.append((name, place))
            open_names[name] += 1
    return pairs


def names_another_host(words: str, url: str) -> bool:
    """Return True if the text of a link is an address at another host than the link's."""
    real = _host(url)
    return any(
        _plain_host(found["named"] or found["bare"]) != real for found in _HOST.finditer(words)
    )


def _host(url: str) -> str:
    try:
        return _plain_host(urlsplit(url).hostname or "")
    except ValueError:  # such as half a pair of brackets
        return ""


def _plain_host(host: str) -> str:
    return host.lower().removeprefix("www.").strip(".…,;!)]")


def _can_open_and_close(before: str, after: str, char: str) -> tuple[bool, bool]:
    """Return whether a mark between these characters can open, and whether it can close."""
    blank_before, blank_after = not before or before.isspace(), not after or after.isspace()
    sign_before, sign_after = _is_punctuation(before), _is_punctuation(after)
    # Chinese, Japanese and Korean text has no spaces between words, so punctuation stops no mark.
    cjk = (sign_before or sign_after) and (_is_cjk(before) or _is_cjk(after))
    left = not blank_after and (not sign_after or blank_before or sign_before or cjk)
    right = not blank_before and (not sign_before or blank_after or sign_after or cjk)
    if char == "*" and before.isdigit() and after.isdigit():
        return False, False  # 2*3*4 is a product, unlike in CommonMark
    if char == "_":
        return left and (not right or sign_before), right and (not left or sign_after)
    return left, right


def needs_space_for_emphasis(outside: str, inside: str) -> bool:
    """Return True if a mark between these characters is emphasis here, but not in CommonMark."""
    return (
        _is_punctuation(inside)
        and bool(outside.strip())
        and not _is_punctuation(outside)
        and (_is_cjk(outside) or _is_cjk(inside))
    )


@functools.lru_cache(maxsize=1_024)
def _is_punctuation(char: str) -> bool:
    if not char or char.isalnum() or char.isspace():
        return False
    return char.isascii() or unicodedata.category(char)[0] != "M"  # accents and vowel signs


def _is_cjk(char: str) -> bool:
    """Return True for Chinese, Japanese and Korean characters and punctuation, but not emoji."""
    if not char or char.isascii() or unicodedata.east_asian_width(char) not in "WFH":
        return False
    return unicodedata.category(char)[0] != "S" or any(
        first <= char <= last for first, last in _CJK_SYMBOLS
    )
