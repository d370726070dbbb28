"""Sans-IO: Markdown rewritten for a platform that draws Markdown, but not the whole dialect.

HTML tags become marks, formulas become code, and reference links become links with their URL. Emphasis
next to Chinese, Japanese and Korean punctuation gets the space that CommonMark needs.
"""

import html
import re

from platforms.core.document.inlines import (
    ENVIRONMENT,
    TAG,
    is_formula,
    looks_like_tex,
    needs_space_for_emphasis,
    tag_pairs,
)
from platforms.core.document.references import References, footnote_labels, may_define_links
from platforms.core.document.tree import SCRIPTS
from platforms.core.markdown import find_fences

_MAY_CHANGE = re.compile(r"<[/a-zA-Z]|\$|\\[(\[b]|\]:|\*[^\x00-\x7f]|[^\x00-\x7f]\*|\|.*`")
_PARAGRAPH_END = re.compile(r"(\n[ \t]*\n)")
_HEADING_LINE = re.compile(r"(^ {0,3}#{1,6}[ \t][^\n]*\n)", re.MULTILINE)
_ROW = re.compile(r"^[ \t]*\|.*", re.MULTILINE)
_CODE_IN_ROW = re.compile(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)")
_BAR = re.compile(r"(?<!\\)\|")
_TOKEN = re.compile(
    rf"(?P<environment>{ENVIRONMENT})"
    r"|\\\((?P<round>.{1,600}?)\\\)|\\\[(?P<square>.{1,600}?)\\\]|\$\$(?P<double>[^$`]{1,1000})\$\$(?![\w$])"
    r"|(?<!\$)\$(?=[^\s$])(?P<single>[^$`\n]{0,300}?[^\s$`\\])\$(?![\w$])|(?P<line_break><br ?/?>)"
    rf"|\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|{TAG}",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_FREE = r"(?:(?<!\\)|(?<=(?<!\\)\\\\))"  # not escaped
_UNFINISHED = re.compile(
    rf"\\begin\{{.*\Z|\\[a-z]{{0,5}}\Z|\\[(\[](?:(?!\n\n).){{0,400}}\Z|{_FREE}\$\$[^$`]{{0,1000}}\$?\Z"
    rf"|{_FREE}\$(?![\s\d$])[^$`\n]{{0,300}}\Z|{_FREE}\$\d(?:[^\s$`]{{0,40}}|[^$`\n]{{0,300}}[\\^_{{][^$`\n]{{0,300}})\Z"
    rf"|{_FREE}`+[^`\n]*\Z"
    rf"|{_FREE}</?[a-z]{{0,8}}\Z|{_FREE}<(?:a|details)\s[^<>]*\Z"
    rf"|{_FREE}<(?:b|strong|i|em|u|ins|s|del|strike|sub|sup|code|kbd|summary|a\s[^<>]*)>.*\Z",
    re.DOTALL | re.IGNORECASE,
)
_OPENINGS = frozenset({"\\(", "\\[", "\\b"})  # of a formula that has no end
_DETAILS = re.compile(r"^ {0,3}</?details\b[^<>]*>[ \t]*", re.IGNORECASE | re.MULTILINE)
_LINE_START = re.compile(r"[ >]*(?:(?:[-*+]|\d{1,9}[.)])[ ]+(?:\[[ xX]\][ ]+)?)*")
_COLUMNS = re.compile(r"^[ >]*\|?[ ]*:?-+:?[ ]*\|", re.MULTILINE)
_QUOTE_MARKS = re.compile(r"\n[ \t]*>[ >]*")
_DETAILS_END = re.compile(r"</details>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_SUMMARY = re.compile(r"<summary>\s*(.*?)\s*(?:</summary>[ \t]*|\Z)", re.IGNORECASE | re.DOTALL)
_REFERENCE = re.compile(
    r"\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|\[\^(?P<note>[^\[\]^\s]{1,99})\]"
    r"|!?\[(?P<words>(?:[^\[\]\n]|\[[^\[\]\n]{0,80}\]){1,300})\](?:\[(?P<label>[^\[\]\n]{0,300})\])?(?![(:\[])",
    re.DOTALL,
)
_EMPHASIS = re.compile(
    r"\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)"
    r"|(?<!\*)(?P<mark>\*{1,3})(?![\s*])(?P<inside>[^*\n]{1,500})(?<![\s\\])(?P=mark)(?!\*)",
    re.DOTALL,
)
_ESCAPE_LENGTH = 2
_HAIR_SPACE = "\u200a"
_MARKS = {
    **dict.fromkeys(("b", "strong"), "**"),
    **dict.fromkeys(("i", "em"), "*"),
    **dict.fromkeys(("s", "del", "strike"), "~~"),
    **dict.fromkeys(("u", "ins", "sub", "sup"), ""),
}
_CODE_TAGS = ("code", "kbd")
_SAFE_SCHEMES = ("http://", "https://", "mailto:")


def rewrite_markdown(text: str, *, references: bool = True) -> str:
    """Return Markdown without HTML, formulas, reference links and footnotes.

    A growing text leaves references alone, because a definition at the end would change the
    beginning.
    """
    if not _MAY_CHANGE.search(text):
        return text
    parts, prose = _split(text)
    for number in prose:
        parts[number] = _rewrite_paragraph(parts[number])
    if references:  # not while the text grows, because a space may be added at its beginning
        for number in prose:
            parts[number] = _EMPHASIS.sub(_with_hair_spaces, parts[number])
    if references and "]:" in text:
        _resolve_references(parts, prose, footnote_labels(text), defines=may_define_links(text))
    return "".join(parts)


def _split(text: str) -> tuple[list[str], list[int]]:
    """Split a text into parts, and return the numbers of those that are not code blocks."""
    parts: list[str] = []
    prose: list[int] = []
    place = 0
    for fence in find_fences(text):
        found = _PARAGRAPH_END.split(text[place : fence.start])
        prose += range(len(parts), len(parts) + len(found))
        parts += [*found, text[fence.start : fence.after]]
        place = fence.after
    found = _PARAGRAPH_END.split(text[place:])
    prose += range(len(parts), len(parts) + len(found))
    return parts + found, prose


def _resolve_references(
    parts: list[str], prose: list[int], notes: frozenset[str], *, defines: bool
) -> None:
    collected = References({}, notes, collecting=True)
    for number in prose if defines else ():
        for piece in _HEADING_LINE.split(parts[number]):
            if piece.lstrip().startswith("["):
                collected.without_definitions(piece.strip())
    references = References(collected.urls, notes)
    for number in prose:
        parts[number] = _resolve(parts[number], references)
    used = {label: url for label, url in references.urls.items() if label in references.used}
    hidden = References(used, notes)
    for number in prose if used else ():
        pieces = _HEADING_LINE.split(parts[number])
        for place, piece in enumerate(pieces):
            if piece.lstrip().startswith("["):
                shown = hidden.without_definitions(piece.strip())
                if shown != piece.strip():
                    pieces[place] = shown.replace("&#91;", "\\[")
        parts[number] = "".join(pieces)


def without_unfinished_source(text: str) -> str:
    """Cut off a tag or formula that is still open, so that the text of a stream only grows."""
    fences = find_fences(text)
    if fences and not fences[-1].closed:
        return text
    start = max(text.rfind("\n\n") + 2 if "\n\n" in text else 0, fences[-1].after if fences else 0)
    place = start
    pairs = tag_pairs(text[start:], start) if "<" in text else {}
    for token in _TOKEN.finditer(text, start):
        opens_tag = token["name"] or token["link"]
        if token[0] in _OPENINGS or (opens_tag and token.start() not in pairs):
            break
        may_be_inside = token["environment"] and "$" in text[place : token.start()]
        if not may_be_inside and (token[0][0] != "\\" or len(token[0]) > _ESCAPE_LENGTH):
            place = token.end()  # else a formula that is not closed may hold the token
    cut = _UNFINISHED.search(text, place)
    return text[: cut.start()] if cut else text


def _rewrite_paragraph(text: str) -> str:
    if not _MAY_CHANGE.search(text):
        return text
    if "<" in text:
        text = _SUMMARY.sub(_title, text)
        text = _DETAILS_END.sub("", _DETAILS.sub("", text))
    if "|" in text and "`" in text:
        text = _ROW.sub(_with_escaped_bars, text)
    pairs = tag_pairs(text) if "<" in text else {}
    out, place = [], 0
    for token in _TOKEN.finditer(text):
        if token.start() < place:
            continue
        new, end = _rewrite_token(text, token, pairs)
        if new is not None:
            out += [text[place : token.start()], new]
            place = end
    return "".join(out) + text[place:]


def _with_escaped_bars(row: re.Match[str]) -> str:
    """Escape the bars inside the code of a table row, which would end a cell."""
    return _CODE_IN_ROW.sub(lambda code: _BAR.sub(r"\\|", code[0]), row[0])


def _title(summary: re.Match[str]) -> str:
    words = " ".join(summary[1].split())
    if not words or words.count("**") % 2 or "***" in words:
        return f"{words}\n\n"
    return f"**{words.replace('**', '')}**\n\n"


def _rewrite_token(
    text: str, token: re.Match[str], pairs: dict[int, int]
) -> tuple[str | None, int]:
    """Return the replacement of a token, None to keep it, and the end of what it replaces."""
    end = token.end()
    if token["line_break"]:
        return _line_break(text, token.start()), end
    if token["environment"]:
        return _code(text, token, token["environment"]), end
    for group in ("round", "square", "single", "double"):
        if tex := token[group]:
            bracketed = group in {"round", "square"}
            good = (
                is_formula(text, token.start(), end) if bracketed else looks_like_tex(tex.strip())
            )
            return (_code(text, token, tex) if good else None), end
    if token.start() not in pairs:
        return None, end
    return _rewrite_tag(text, token, pairs[token.start()])


def _line_break(text: str, place: int) -> str:
    """Return a line break, or a space where a line break would end a table row or a heading."""
    start = text.rfind("\n", 0, place) + 1
    if _LINE_START.fullmatch(text, start, place):
        return ""
    line = text[start:].partition("\n")[0].lstrip(" >")
    return " " if line.startswith(("|", "#")) or _COLUMNS.search(text) else "\n"


def _rewrite_tag(text: str, token: re.Match[str], partner: int) -> tuple[str | None, int]:
    name = (token["name"] or "a").lower()
    closes = bool(token["end"] or token["end_link"])
    if name == "a":
        opening = re.compile(TAG, re.IGNORECASE).match(text, partner) if closes else token
        url = html.unescape(
            (opening["quoted"] or opening["single_quoted"] or opening["bare"] or "")
            if opening
            else ""
        )
        if not url.lower().startswith(_SAFE_SCHEMES):
            return (f" ({url})" if closes else ""), token.end()
        url = url.strip().replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        return (f"]({url})" if closes else "["), token.end()
    if closes:
        return (
            ""
            if name in _CODE_TAGS
            else _mark(name, text[text.index(">", partner) + 1 : token.start()])
        ), token.end()
    inside, after = text[token.end() : partner], text.index(">", partner) + 1
    if name in _CODE_TAGS:
        return f"`{html.unescape(inside)}`" if "`" not in inside else inside, after
    if name in {"sub", "sup"} and "<" not in inside:
        sign, table = SCRIPTS["subscript" if name == "sub" else "superscript"]
        drawn = inside.translate(table)
        return (drawn if all(ord(char) in table for char in inside) else f"{sign}({inside})"), after
    return _mark(name, inside), token.end()


def _mark(name: str, inside: str) -> str:
    """Return the mark of a tag; beside a space a mark would be shown as it is."""
    return _MARKS[name] if inside.strip() == inside and inside else ""


def _with_hair_spaces(emphasis: re.Match[str]) -> str:
    """Separate marks from Chinese, Japanese and Korean letters where CommonMark needs a space."""
    inside = emphasis["inside"]
    if not inside:
        return emphasis[0]
    text, start, end = emphasis.string, emphasis.start(), emphasis.end()
    left = needs_space_for_emphasis(text[start - 1 : start], inside[0])
    right = needs_space_for_emphasis(text[end : end + 1], inside[-1])
    return f"{_HAIR_SPACE * left}{emphasis[0]}{_HAIR_SPACE * right}"


def _code(text: str, token: re.Match[str], tex: str) -> str | None:
    if "`" in tex:
        return None
    tex = _QUOTE_MARKS.sub("\n", tex).strip()
    before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
    after = text[token.end() :].partition("\n")[0]
    if token["round"] or token["single"] or before.strip() or after.strip(" .,"):
        return f"`{' '.join(tex.split())}`"
    lines = [line.removeprefix(before) for line in tex.split("\n")]
    return f"\n{before}".join(("```latex", *lines, "```"))


def _resolve(text: str, references: References) -> str:
    """Replace references by links with their URL, and the labels of footnotes by plain ones."""

    def link(found: re.Match[str]) -> str:
        if found["note"]:
            return f"\\[{found['note']}\\]" if found["note"] in references.notes else found[0]
        if not found["words"]:
            return found[0]
        if url := references.url(found["label"] or found["words"]):
            return f"[{found['words']}]({url})"
        if "[" not in found["words"]:
            return found[0]
        first = found[0].index("[") + 1
        return found[0][:first] + _REFERENCE.sub(link, found[0][first:])

    return _REFERENCE.sub(link, text)
