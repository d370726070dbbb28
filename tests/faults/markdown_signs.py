"""What there is to see in a Markdown text, sign by sign, read by a parser that is not ours.

`tree` says what a text means; the readers of `markdown_seen` say what a person sees; `compare` tells
what was lost on the way, what has lost its looks, and which marks are seen that should not be.
"""
# ruff: noqa: RUF001 - in all scripts

import functools
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType

Look = str | tuple[str, str]

NO_GAP, SPACE, LINE = 0, 1, 2


class Sign(NamedTuple):
    """One character, what it looks like, and what stands before it: nothing, a space, a new line."""

    char: str
    looks: frozenset[Look]
    gap: int = NO_GAP


UNSEEN = re.compile(
    "[\0-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffd]"
)


SCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉ⁿ⁻", "01234567890123456789n−")
"""Subscripts and superscripts, which some platforms draw with characters of their own."""


def address(target: str) -> str:
    """One way to write an address."""
    target = UNSEEN.sub("", target).replace(" ", "%20")
    return target.replace("%28", "(").replace("%29", ")")


class Page:
    """Collects signs; blank space is only a gap between them, except in code blocks."""

    def __init__(self) -> None:
        self.signs: list[Sign] = []
        self._gap = LINE

    def space(self, gap: int) -> None:
        self._gap = max(self._gap, gap)

    def say(self, text: str, looks: frozenset[Look]) -> None:
        for char in UNSEEN.sub("", text).translate(SCRIPTS):
            if char.isspace():
                self.space(LINE if char == "\n" else SPACE)
            else:
                self.signs.append(Sign(char, looks, self._gap))
                self._gap = NO_GAP

    def code(self, text: str, looks: frozenset[Look]) -> None:
        """Indentation is what code is read by."""
        self.space(LINE)
        for line in UNSEEN.sub("", text).split("\n"):
            for char in line.rstrip():
                self.signs.append(Sign(char, looks, self._gap))
                self._gap = NO_GAP
            self.space(LINE)


@dataclass(frozen=True)
class Dialect:
    """What a platform is given beyond CommonMark, with tables and `~~`."""

    formulas: bool = False
    spoilers: bool = False
    sums: bool = False  # 2*3*4
    names: bool = False  # __init__
    addresses: bool = False  # nothing in a bare address is a mark
    breaks: bool = False  # <br>
    references: bool = False  # [a][b] with [b]: address, and [^1] with [^1]: note
    html: bool = False  # <b>, <a href>, <details> and some more
    scripts: bool = False  # emphasis beside punctuation in Chinese, Japanese and Korean text
    cells: bool = False  # a bar inside code does not end a cell
    bars: bool = (
        False  # a line without a bar is no row, since models write text right below a table
    )
    citations: bool = False  # [[1]][1] is one link
    plain_html: bool = False  # with neither underlines nor sections


# --- the parser ------------------------------------------------------------------------------

_FORMULA = re.compile(
    r"(?=\\begin)(?P<environment>\\begin\{([a-z]+\*?)\}.*?\\end\{\2\})|\$(?=[^\s$])(?P<single>[^$`\n]{0,300}?[^\s$`\\])\$(?![\w$])"
    r"|\\\((?P<round>.+?)\\\)|\$\$(.+?)\$\$|\\\[(?P<square>.+?)\\\]",
    re.DOTALL,
)
_LIKE_TEX = re.compile(r"[\\^_={}+*/<>]|^[A-Za-z]$")
_LIKE_BRACKETED_TEX = re.compile(r"[\\^_={}+*<>]")
_ADDRESS = re.compile(r"//[^\s<>\[\]`*|\\~]+")
_NAME = re.compile(r"__(?:init|main|name|file)__(?![\w])")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_UNSPACED = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")


class _ScriptsState(StateInline):
    """Takes punctuation beside a letter or a sign of these scripts for a letter."""

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803
        scanned = super().scanDelims(start, canSplitWord)
        before = self.src[start - 1 : start] or " "
        after = self.src[start + scanned.length : start + scanned.length + 1] or " "
        if self.src[start] != "*" or not (_UNSPACED.match(before) or _UNSPACED.match(after)):
            return scanned
        if before.isdigit() and after.isdigit():
            return scanned
        return Scanned(not after.isspace(), not before.isspace(), scanned.length)


class _ScriptsParser(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _ScriptsState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


@functools.cache
def parser(dialect: Dialect) -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False, "maxNesting": 60})
    md.enable(["table", "strikethrough"])
    md.disable(["html_block", "html_inline"])
    if not dialect.references:
        md.disable("reference")
    md.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    md.normalizeLink = lambda url: url  # type: ignore[method-assign]
    if dialect.scripts:
        md.inline = _ScriptsParser()
        md.enable("strikethrough")
        md.disable("html_inline")
    rules = md.inline.ruler
    if dialect.formulas:
        rules.before("escape", "formula", _formula)
    if dialect.spoilers:
        md.inline.add_terminator_char("|")
        rules.before("emphasis", "spoiler", _spoiler)
    if dialect.sums:
        rules.before("emphasis", "sum", _sum)
    if dialect.names:
        rules.before("emphasis", "name", _name)
    if dialect.html:
        rules.before("autolink", "tag", _tag)
    if dialect.addresses:
        rules.before("escape", "address", _address)
    return md


def _formula(state: StateInline, silent: bool) -> bool:
    found = _FORMULA.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    tex = next(each for each in found.groups() if each is not None)
    if found["environment"] and state.src[: found.start()].rpartition("\n")[2].strip():
        return False
    if found["single"] is not None and not _LIKE_TEX.search(tex):
        return False
    if not tex.strip() or "\n\n" in tex:
        return False
    if found["round"] is not None or found["square"] is not None:
        beside = state.src[state.src.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        rest = state.src[found.end() :].partition("\n")[0].strip(" .,")
        escaped = found["square"] is not None and rest.startswith("(")
        if escaped or ((beside or rest) and not _LIKE_BRACKETED_TEX.search(tex)):
            return False
    if not silent:
        state.push("formula", "", 0).content = tex
    state.pos = found.end()
    return True


def _spoiler(state: StateInline, silent: bool) -> bool:
    start, end = state.pos + 2, state.posMax
    if not state.src.startswith("||", state.pos) or state.src[start : start + 1].isspace():
        return False
    stop = state.src.find("||", start + 1, end)
    if stop < 0 or state.src[stop - 1].isspace() or state.src[state.pos - 1 : state.pos] == "|":
        return False
    if not silent:
        state.push("spoiler_open", "", 1)
        state.pos, state.posMax = start, stop
        state.md.inline.tokenize(state)
        state.push("spoiler_close", "", -1)
    state.pos, state.posMax = stop + 2, end
    return True


def _said(state: StateInline, silent: bool, end: int) -> bool:
    if not silent:
        state.pending += state.src[state.pos : end]
    state.pos = end
    return True


def _sum(state: StateInline, silent: bool) -> bool:
    at = state.pos
    around = state.src[at - 1 : at] if at else "", state.src[at + 1 : at + 2]
    if state.src[at] != "*" or not all(each.isdigit() for each in around):
        return False
    return _said(state, silent, at + 1)


def _name(state: StateInline, silent: bool) -> bool:
    found = _NAME.match(state.src, state.pos)
    before = state.src[state.pos - 1 : state.pos] if state.pos else ""
    if found is None or before.isalnum() or before == "_":
        return False
    return _said(state, silent, found.end())


def _address(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != ":" or not re.search(r"https?\Z", state.src[: state.pos]):
        return False
    found = _ADDRESS.match(state.src, state.pos + 1)
    return bool(found) and _said(state, silent, found.end() if found else 0)


_TAG = re.compile(
    r"<(b|strong|i|em|u|s|del|sub|sup|code|kbd)>|<a href=([\"'])([^<>]*?)\2>", re.IGNORECASE
)
_TAG_KINDS = {"b": "strong", "i": "em", "del": "s", "a": "link"}


def _tag(state: StateInline, silent: bool) -> bool:
    """Read a tag up to its partner; without one it is text."""
    found = _TAG.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    name = (found[1] or "a").lower()
    depth, stop = 1, found.end()
    for each in re.compile(rf"`[^`]*`|<(/?){name}\b[^<>]*>", re.IGNORECASE).finditer(
        state.src, stop, state.posMax
    ):
        if each[0][0] != "`":
            depth += -1 if each[1] else 1
        if depth == 0:
            break
    else:
        return False
    start, stop, end, outer = found.end(), each.start(), each.end(), state.posMax
    if not silent and name in {"code", "kbd"}:
        state.push("code_inline", "code", 0).content = html.unescape(state.src[start:stop])
    elif not silent and stop > start:
        kind = _TAG_KINDS.get(name, name)
        state.push(f"{kind}_open", name, 1).attrs = {"href": html.unescape(found[3] or "")}
        state.pos, state.posMax = start, stop
        state.md.inline.tokenize(state)
        state.push(f"{kind}_close", name, -1)
    state.pos, state.posMax = end, outer
    return True


_DETAILS = re.compile(
    r"^<details(?: open)?>\s*(?:<summary>(.*?)(?:</summary>|\n\s*\n|\Z))?(.*?)(?:</details>[ ]*|\Z)",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)


def _quoted(found: re.Match[str]) -> str:
    """Write a section that can be folded as a quote."""
    lines = [found[1] or "…", "", *found[2].split("\n")]
    return "\n".join(f"> {line}" for line in lines) + "\n\n"


def _unfolded(found: re.Match[str]) -> str:
    """Write a section that can be folded as a title and its content."""
    words = " ".join((found[1] or "").split())
    mark = "**" if words and not words.count("**") % 2 and "***" not in words else ""
    return f"{mark}{words}{mark}\n\n{found[2]}\n\n"


_NOTE = re.compile(r"\[\^(\w+)\]")


def _notes(md: str) -> set[str]:
    """Footnotes that are both defined and referred to."""
    defined = re.findall(r"^[ >]*\[\^(\w+)\]:", md, re.MULTILINE)
    named = _NOTE.findall(md)
    return {label for label in defined if named.count(label) > defined.count(label)}


def _outdented(found: re.Match[str]) -> str:
    """Write the further paragraphs of a footnote as paragraphs."""
    return found[1] + re.sub("^ {4}", "", found[2], flags=re.MULTILINE)


_TEXT_BELOW_ROWS = re.compile(
    r"^( {0,3}\|? *:?-+:? *\|[-:| ]*+\n(?:[^|\n]*+\|.*+\n)*+)(?=(?! *+$)[^|\n]++$)", re.MULTILINE
)


def _joined_cells(row: re.Match[str]) -> str:
    """Escape the bars inside the code of a row."""
    return re.sub(r"`[^`]*`", lambda code: re.sub(r"(?<!\\)\|", r"\\|", code[0]), row[0])


def _bracketed(notes: set[str], found: re.Match[str]) -> str:
    """Write the label of a footnote as text in brackets that is no reference."""
    return f"&#91;{'' if found[1] in notes else '^'}{found[1]}&#93;"


# --- the meaning of a text -------------------------------------------------------------------

_BLOCKS = {
    "paragraph_open", "heading_open", "list_item_open", "blockquote_open", "tr_open", "hr",
    "table_open", "bullet_list_open", "ordered_list_open",
}  # fmt: skip
_LOOKS = {
    "strong_open": "bold", "em_open": "italic", "s_open": "strike", "spoiler_open": "spoiler",
    "blockquote_open": "quote", "th_open": "cell", "td_open": "cell", "u_open": "underline",
    "sub_open": "script", "sup_open": "script",
}  # fmt: skip
_TASK = re.compile(r"\[([ xX])\][ \t]+")


class Tree:
    """Walks through the tokens of a text."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._page = Page()
        self._looks: list[Look] = []
        self._lists: list[int | None] = []
        self._item = ""  # the sign of a point that nothing was said of yet
        self._targets: set[str] = set()
        self._begun = -1  # how many signs there were when a point had got its own

    def read(self, md: str) -> tuple[list[Sign], set[str]]:
        """Give the signs of a text, and where its links lead."""
        md = md.replace("\r\n", "\n").replace(
            "\r", "\n"
        )  # the patterns below know only one line end
        if self._dialect.formulas:
            md = re.sub(
                r"^( *)\$\$\n(.+?)\n *\$\$ *$", r"\1$$\2$$", md, flags=re.MULTILINE | re.DOTALL
            )
        if self._dialect.html:
            section = _unfolded if self._dialect.plain_html else _quoted
            md = re.sub(r"^</details>[ ]*$", "", _DETAILS.sub(section, md), flags=re.MULTILINE)
        if self._dialect.citations:
            md = re.sub(r"\[\[([^\[\]]*)\]\](?=\[)", r"[\\[\1\\]]", md)
        if self._dialect.cells:
            md = re.sub(r"^\|.*", _joined_cells, md, flags=re.MULTILINE)
        if self._dialect.bars:
            md = _TEXT_BELOW_ROWS.sub(r"\1\n", md)
        if self._dialect.references:
            notes = r"^( *\[\^\w+\]:.*(?:\n.+)*)((?:\n\n? {4,}.*)+)"
            md = re.sub(notes, _outdented, md, flags=re.MULTILINE)
            md = _NOTE.sub(functools.partial(_bracketed, _notes(md)), md)
        self._walk(parser(self._dialect).parse(md))
        return self._page.signs, self._targets

    def _walk(self, tokens: list[Token]) -> None:
        for token in tokens:
            self._block(token)

    def _block(self, token: Token) -> None:
        kind, page = token.type, self._page
        if kind in _BLOCKS:
            page.space(LINE)
        if kind in {"th_open", "td_open"}:
            page.space(SPACE)
        if kind == "heading_open":
            self._looks.append(("heading", token.tag[1:]))
        elif kind in _LOOKS:
            self._looks.append(_LOOKS[kind])
        elif kind == "heading_close" or kind.replace("close", "open") in _LOOKS:
            self._looks.pop()
        elif kind in {"bullet_list_open", "ordered_list_open"}:
            first = int(token.attrGet("start") or 1) if kind[0] == "o" else None
            if token.attrGet("start") == 0:
                first = 0
            self._lists.append(first)
        elif kind in {"bullet_list_close", "ordered_list_close"}:
            self._lists.pop()
        elif kind == "list_item_open":
            number = self._lists[-1]
            self._looks.append("item")
            self._item = "•" if number is None else str(number)
            if number is not None:
                self._lists[-1] = number + 1
        elif kind == "list_item_close":
            self._looks.pop()
            if self._item != "•":  # the number of an empty point is seen, too
                self._point()
            self._item = ""
        elif kind in {"fence", "code_block"}:
            self._point()
            language = (UNSEEN.sub("", "".join(token.info.split()[:1]))) if kind == "fence" else ""
            page.code(token.content, frozenset((*self._looks, ("pre", language))))
        elif kind == "inline":
            self._inline(token)

    def _point(self) -> None:
        if self._item:
            self._page.say(self._item, frozenset())
            self._page.space(SPACE)
            self._begun = len(self._page.signs)
        self._item = ""

    def _inline(self, token: Token) -> None:
        children = token.children or []
        if self._item and children and children[0].type == "text":
            task = _TASK.match(children[0].content)
            if task and (task.end() < len(children[0].content) or len(children) > 1):
                if self._item == "•":
                    self._item = ""
                self._point()
                self._page.say("☐" if task[1] == " " else "☑", frozenset())
                self._page.space(SPACE)
                self._begun = len(self._page.signs)
                children[0].content = children[0].content[task.end() :]
        self._point()
        for number, child in enumerate(children):
            self._child(child, children[number:])

    def _child(self, token: Token, rest: list[Token]) -> None:
        kind, page = token.type, self._page
        looks = frozenset(self._looks)
        if kind == "text":
            parts = _BREAK.split(token.content) if self._dialect.breaks else [token.content]
            for number, part in enumerate(parts):
                if number and self._begun != len(page.signs):  # not the first in its point
                    page.space(LINE)
                page.say(part, looks)
        elif kind == "code_inline":
            page.say(token.content, looks | {"code"})
        elif kind == "formula":
            page.say(token.content, looks | {"formula"})
        elif kind in {"softbreak", "hardbreak"}:
            page.space(LINE)
        elif kind == "image":
            target = address(str(token.attrGet("src")))
            self._targets.add(target)
            words = "".join(each.content for each in token.children or [])
            page.say(words, looks | {("link", target)})
        elif kind == "link_open":
            target = address(str(token.attrGet("href")))
            self._targets.add(target)
            self._looks.append(("link", "" if _is_itself(rest, target) else target))
        elif kind in _LOOKS:
            plain = kind == "u_open" and self._dialect.plain_html
            self._looks.append("script" if plain else _LOOKS[kind])
        elif kind == "link_close" or kind.replace("close", "open") in _LOOKS:
            self._looks.pop()


def _is_itself(rest: list[Token], target: str) -> bool:
    return (
        len(rest) > 1
        and rest[1].type == "text"
        and rest[1].content in {target, target.removeprefix("mailto:")}
    )


def tree(md: str, dialect: Dialect) -> tuple[list[Sign], set[str]]:
    """Say what there is to see in a text, and where its links lead."""
    return Tree(dialect).read(md)


# --- the comparison --------------------------------------------------------------------------

MARKS = frozenset("*_~`#>|\\")
_BORDERS = frozenset("|│─┼")
_NEAREST_FIRST = (
    *((8, 30), (3, 12), (8, 120), (12, 400), (16, 1000), (8, 400), (12, 6000), (6, 6000), (3, 500)),
    (1, 60),
)
"""How many signs must be the same, and how far they may be away, after something was added."""

_PICTURE = "🖼"
_LONG_RUN, _FAR, _SEED = 100, 6000, 3


@dataclass
class Verdict:
    """What is wrong with what arrived."""

    lost: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)  # looks that are missing
    literal: list[str] = field(default_factory=list)  # marks that are seen
    joined: list[str] = field(default_factory=list)  # words and lines that have run together

    @property
    def formatted(self) -> bool:
        return not (self.plain or self.literal or self.joined)

    def weight(self) -> tuple[int, int]:
        """Return the number of losses, and of all that is wrong."""
        others = len(self.plain) + len(self.literal) + len(self.joined)
        return len(self.lost), len(self.lost) + others

    def __iter__(self) -> Iterator[str]:
        for name in ("lost", "plain", "literal", "joined"):
            yield from (f"{name}: {each}" for each in getattr(self, name)[:3])


def compare(meant: list[Sign], seen: list[Sign], targets: set[str]) -> Verdict:
    """Compare what a text means, and where its links lead, with what is seen.

    The same words may come twice, so there are several ways to pair the signs. One in which
    everything is there proves that everything is there.
    """
    if not meant:
        return Verdict()  # there is nothing to see: it does not matter how that is shown
    nearest = _compare(meant, seen, targets, _nearest)
    if not list(nearest):
        return nearest
    return min(nearest, _compare(meant, seen, targets, _longest), key=Verdict.weight)


Search = Callable[[str, int, str, int, set[str]], int]


def _compare(meant: list[Sign], seen: list[Sign], targets: set[str], search: Search) -> Verdict:
    verdict = Verdict()
    meant, indents = _folded(meant)
    seen, blanks = _folded(seen)
    added = {f"({each})" for target in targets if target for each in (target, _bare(target))}
    pairs, lost = _aligned(meant, seen, added, search)
    if lost and (missing := _first_missing(meant, seen)) is not None:
        verdict.lost += [_around(meant, place) for place in (missing, *lost)]
    shown = "".join(sign.char for sign in seen)
    led = {look[1] for sign in seen for look in sign.looks if isinstance(look, tuple)}
    verdict.lost += [
        f"the address {each}" for each in targets if each not in led and _bare(each) not in shown
    ]
    partners = dict(pairs)
    for place, other in pairs:
        missing_look = _missing(meant[place].looks, seen[other].looks)
        if missing_look:
            verdict.plain.append(f"{missing_look} {_around(meant, place)}")
        before = partners.get(place - 1, other - 1) + 1
        blank = "".join(blanks[before : other + 1])
        if indents[place] not in blank and "cell" not in meant[place].looks:
            verdict.lost.append(f"blank space before {_around(meant, place)}")
        if meant[place].gap > NO_GAP and place and place - 1 in partners:
            need = SPACE if "cell" in meant[place].looks else meant[place].gap
            gaps = [each.gap for each in seen[before : other + 1]]
            if max(SPACE if blank else NO_GAP, *gaps) < need:
                verdict.joined.append(_around(meant, place))
    used = set(partners.values())
    for place, sign in enumerate(seen):
        if place in used or sign.char not in MARKS or _in_table(sign):
            continue
        word = _word(seen, place)
        if "://" not in word and not any(target and target in word for target in targets):
            verdict.literal.append(_around(seen, place))
    return verdict


def _in_table(sign: Sign) -> bool:
    """Tell whether this is, or may be, a table that is drawn with signs."""
    languages = {look[1] for look in sign.looks if isinstance(look, tuple) and look[0] == "pre"}
    return "cell" in sign.looks or languages == {""}


def _aligned(
    meant: list[Sign], seen: list[Sign], added: set[str], search: Search
) -> tuple[list[tuple[int, int]], list[int]]:
    """Pair the signs, in order; what was `added`, and anything else, is passed over."""
    said = "".join(sign.char for sign in meant)
    shown = "".join(sign.char for sign in seen)
    pairs, lost, at = [], [], 0
    for place, char in enumerate(said):
        at = _after_added(said, place, shown, at, added)
        if shown[at : at + 1] != char:
            found = search(said, place, shown, at, added)
            if found < 0:
                lost.append(place)
                continue
            at = found
        pairs.append((place, at))
        at += 1
    return pairs, lost


def _after_added(said: str, place: int, shown: str, at: int, added: set[str]) -> int:
    for each in added if shown[at : at + 1] == "(" else ():
        if shown.startswith(each, at) and not said.startswith(each, place):
            return at + len(each)
    picture = shown[at : at + 1] == _PICTURE != said[place]
    return at + picture


def _nearest(said: str, place: int, shown: str, at: int, _added: set[str]) -> int:
    """Find where the same signs go on, near by."""
    for length, far in _NEAREST_FIRST:
        found = shown.find(said[place : place + length], at, at + far)
        if found >= 0:
            return found
    return -1


def _longest(said: str, place: int, shown: str, at: int, added: set[str]) -> int:
    """Find where the most signs are the same, with what was `added` in between."""
    best, most, far = -1, 0, at + _FAR
    found = shown.find(said[place : place + _SEED], at, far)
    while found >= 0 and most < _LONG_RUN:
        run, there = 0, found
        while run < _LONG_RUN and place + run < len(said):
            there = _after_added(said, place + run, shown, there, added)
            if shown[there : there + 1] != said[place + run]:
                break
            run, there = run + 1, there + 1
        if run > most:
            best, most = found, run
        found = shown.find(said[place : place + _SEED], found + 1, far)
    return best if best >= 0 else _nearest(said, place, shown, at, added)


def _folded(signs: list[Sign]) -> tuple[list[Sign], list[str]]:
    """Take the blank space of code out, and tell what of it stands before each sign."""
    found, blanks = [], []
    blank, gap = "", NO_GAP
    for sign in signs:
        gap = max(gap, sign.gap)
        if sign.char.isspace():
            blank += sign.char
            continue
        if sign.char in _BORDERS and _in_table(sign):
            gap = max(gap, SPACE)
            continue
        found.append(sign._replace(gap=gap))
        blanks.append(blank)
        blank, gap = "", NO_GAP
    return found, blanks


def _first_missing(meant: list[Sign], seen: list[Sign]) -> int | None:
    left = iter(sign.char for sign in seen)
    return next((place for place, sign in enumerate(meant) if sign.char not in left), None)


def _missing(meant: frozenset[Look], seen: frozenset[Look]) -> Look | None:
    """Say which of the looks is not there; code hides others, and so does a table that is drawn."""
    plain = {look for look in seen if isinstance(look, str)}
    kinds = {look[0] for look in seen if isinstance(look, tuple)}
    blocks = {look for look in meant if isinstance(look, tuple) and look[0] == "pre"}
    if "quote" in meant and "quote" not in plain:
        return "quote"
    for block in blocks:
        same = block in seen or (not block[1] and "pre" in kinds)
        return None if same else block
    if "cell" in meant and "cell" not in plain:
        return None if "pre" in kinds else "cell"
    for look in meant:
        if isinstance(look, tuple) and look not in seen and not _excused(look, meant, plain, kinds):
            return look
    if meant & {"code", "formula"}:
        inside = plain & {"code", "formula"} or kinds & {"pre", "link"}
        return None if inside else "code"
    wanted = ("bold", "italic", "underline", "strike", "spoiler")
    return next((look for look in wanted if look in meant and look not in plain), None)


def _excused(
    look: tuple[str, str], meant: frozenset[Look], plain: set[str], kinds: set[str]
) -> bool:
    """Tell whether a link or a heading may be shown as something else."""
    if look[0] == "link":
        return not look[1].startswith(("http://", "https://")) or "://localhost" in look[1]
    small = "imitated4" in plain and (look[1] >= "4" or "item" in meant)
    return ("imitated" in plain or small) and bool(plain & {"bold", "code"} or "pre" in kinds)


def _bare(address: str) -> str:
    return re.sub(r"\s", "", address.removeprefix("mailto:"))


def _word(signs: list[Sign], place: int) -> str:
    start = place
    while start > 0 and signs[start].gap == NO_GAP:
        start -= 1
    end = place + 1
    while end < len(signs) and signs[end].gap == NO_GAP:
        end += 1
    return "".join(sign.char for sign in signs[start:end])


def _around(signs: list[Sign], place: int) -> str:
    start = max(0, place - 15)
    text = "".join(" " * bool(sign.gap) + sign.char for sign in signs[start : place + 20])
    return f"{signs[place].char!r} in {text!r}"


def looks_of(signs: list[Sign]) -> set[str]:
    """Name the kinds of looks that occur."""
    return {look if isinstance(look, str) else look[0] for sign in signs for look in sign.looks}
