"""Causes by which a text is shown otherwise than it is meant, each found without our parser.

A cause counts where its signs are seen on a surface and are not meant: the raw form of a reference
link, a tag, a mark beside Chinese, Japanese or Korean text; or where a formula has lost a sign.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser

from tests.faults.markdown_signs import SCRIPTS, UNSEEN, Dialect, Sign, address, tree

CAUSES = (
    *("reference links", "footnotes", "simple HTML", "emphasis beside CJK", "escaped brackets"),
    *("LaTeX damaged", "words lost"),
)
MEANING = Dialect(
    formulas=True,
    spoilers=True,
    sums=True,
    names=True,
    addresses=True,
    breaks=True,
    references=True,
    html=True,
    scripts=True,
    cells=True,
    citations=True,
)

_NESTED = "a link inside a link: the outer one is drawn, the words of the inner one are text"
_CHAINED = "Slack gets references as links of its own, each resolved without the one beside it"
_TARGET = "an escaped bracket in the target of a link is no formula"
ACCEPTED_CAUSES = {
    ("example 218", "Slack", "reference links"): "a definition inside a quote stays visible",
    ("example 498", "", "escaped brackets"): _TARGET,
    ("example 498", "", "LaTeX damaged"): _TARGET,
    ("example 533", "", "reference links"): _NESTED,
    (
        "example 564",
        "page",
        "reference links",
    ): "a mark in the words of a link closes one before it",
    ("example 568", "Slack", "reference links"): _CHAINED,
    ("example 570", "Slack", "reference links"): _CHAINED,
}
"""Reasons why a cause is accepted, by text, surface (all if empty) and cause."""

_CODE = re.compile(
    r"^ {0,9}(```+|~~~+).*?(?:^ {0,9}\1|\Z)|(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL
)
_UNSPACED = "\u2e80-\u9fff\uac00-\ud7a3\uff00-\uffef"
_STARS = re.compile(rf"\*+(?=[{_UNSPACED}])|(?<=[{_UNSPACED}])\*+")
_TAGS = re.compile(
    r"<(b|i|u|s|sub|sup|code|kbd|details|summary)>[^<>\n]*</\1>|<a href=[\"'][^<>]*>[^<>\n]*</a>|<br ?/?>"
)
_RAW_REFERENCE = re.compile(r"\]\[")
_DEFINITION = re.compile(r"^[ >]*\[([^\[\]^][^\[\]]*)\]:\s*<?([^\s<>]+)", re.MULTILINE)
_NOTE = re.compile(r"\[\^([\w-]+)\]")
_NOTE_DEFINITION = re.compile(r"^[ >]*\[\^([\w-]+)\]:", re.MULTILINE)
_ESCAPED = re.compile(
    r"(?<!\]\()\\\[([^\[\]\\\n^_={}+*<>]{1,40})\\\](?!\()|(?<!\]\()\\\(([^()\\\n^_={}+*<>]{1,40})\\\)"
)
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(\\begin\{([a-z]+\*?)\}.+?\\end\{\5\})"
    r"|(?<![\\$\w])\$(?=\S)([^$\n]{1,300}?)(?<=[^\s\\])\$(?![\w$])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Shown:
    """The visible text of a surface: `whole`, and `prose` without code and formulas."""

    prose: str
    whole: str


def shown(signs: Iterable[Sign]) -> Shown:
    """Return the text of signs."""
    prose, whole = "", ""
    for sign in signs:
        gap = ("", " ", "\n")[sign.gap]
        whole += gap + sign.char
        kinds = {look if isinstance(look, str) else look[0] for look in sign.looks}
        prose += gap if kinds & {"code", "pre", "formula"} else gap + sign.char
    return Shown(prose, whole)


def meaning(md: str) -> Shown:
    """Return the text as a parser of other people reads it, with the dialect of models."""
    return shown(tree(md, MEANING)[0])


class _Reference(HTMLParser):
    """Collects the text of HTML; pictures count with their description."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.prose = ""
        self.whole = ""
        self._in_code = 0
        self.feed(source)
        self.close()

    def handle_data(self, data: str) -> None:
        self.whole += data
        self.prose += "" if self._in_code else data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_code += tag in {"code", "pre"}
        if tag == "img":
            self.handle_data(dict(attrs).get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag in {"code", "pre"}


def reference(html: str) -> Shown:
    """Return the text of an example's HTML."""
    read = _Reference(html)
    return Shown(read.prose, read.whole)


def find_causes(md: str, meant: Shown, seen: Shown, *, words: bool = True) -> list[str]:
    """Name the causes that are found in what is seen of a text; `words` checks letters too."""
    prose = _CODE.sub(" ", md)
    found = []
    if _shows_references(md, prose, meant, seen):
        found.append("reference links")
    if any(f"[^{label}]" in seen.prose for label in _used_notes(prose)):
        found.append("footnotes")
    if _more(_TAGS, seen.prose, meant.prose):
        found.append("simple HTML")
    if _more(_STARS, seen.prose, meant.prose):
        found.append("emphasis beside CJK")
    if any(each not in _squeezed(seen.prose) for each in _escaped(prose)):
        found.append("escaped brackets")
    if damaged_formulas(md, seen.whole):
        found.append("LaTeX damaged")
    letters = iter(_letters(seen.whole))
    if words and any(each not in letters for each in _letters(meant.whole)):
        found.append("words lost")
    return found


def damaged_formulas(md: str, whole: str) -> list[str]:
    """Return the formulas of a text that are not seen with every sign of theirs."""
    text = _squeezed(whole)
    return [tex for tex in formulas(md) if _squeezed(re.sub(r"\n[ >]*", "\n", tex)) not in text]


def formulas(md: str) -> list[str]:
    """Return the LaTeX in a text, without the signs around it; only where it holds a sign of LaTeX."""
    found = []
    for each in _FORMULA.finditer(_CODE.sub(" ", md)):
        tex = next(group for group in (*each.groups()[:4], each[6]) if group is not None)
        if re.search(r"[\\^_{}]", tex) and "\n\n" not in tex:
            found.append(tex)
    return found


def _more(sign: re.Pattern[str], seen: str, meant: str) -> bool:
    return len(sign.findall(seen)) > len(sign.findall(meant))


def _shows_references(md: str, prose: str, meant: Shown, seen: Shown) -> bool:
    """Return whether a reference or a used definition is seen as it was written."""
    defined: dict[str, str] = {}
    for label, target in _DEFINITION.findall(prose):
        defined.setdefault(" ".join(label.split()).casefold(), target)
    if not defined:
        return False
    _, targets = tree(md, Dialect(references=True, citations=True))
    for label, target in _DEFINITION.findall(seen.prose):
        first = defined.get(" ".join(label.split()).casefold())
        if first == target and address(target) in targets and target not in meant.prose:
            return True
    return bool(targets) and _more(_RAW_REFERENCE, seen.prose, meant.prose)


def _used_notes(prose: str) -> set[str]:
    defined, named = _NOTE_DEFINITION.findall(prose), _NOTE.findall(prose)
    return {label for label in defined if named.count(label) > defined.count(label)}


def _escaped(prose: str) -> list[str]:
    """Return the brackets that are only escaped, as they have to be seen."""
    found = []
    for each in _ESCAPED.finditer(prose):
        line = prose[prose.rfind("\n", 0, each.start()) + 1 :].partition("\n")[0]
        if line.strip(" .,") == each[0]:
            continue  # a line of its own is a formula
        found.append(_squeezed(f"[{each[1]}]" if each[1] else f"({each[2]})"))
    return found


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", UNSEEN.sub("", text))


def _letters(text: str) -> str:
    return "".join(char for char in text.translate(SCRIPTS) if char.isalnum())
