"""Sans-IO: marks lines of a model's text that look like a question or a notice of Holdfast.

Signs that answers rarely use are marked wherever they begin a line. Others, such as a tick, are common
in answers: such a line is marked only if the words of a notice follow. The mark of a line that begins
with a rare sign stands before the sign, the other mark after the words, because text that a stream
has shown cannot be changed.
"""

import re
from collections.abc import Iterator

MODEL_MARK = "(from the model)"

_RARE_SIGNS = "🔐⏹♻🛟👤⏳⌛⛔↻⇄↩🗜"
_ENTITIES = r"&#(?:128272|[xX]0*1[fF]510);|:closed_lock_with_key:"

_WORDS = {
    "✅": "You now have access|The model answers again|The disk has free space|Safe mode is over"
    "|Back after|Allowed by|Allowed:|Answered by|The model gets the instructions",
    "❌": "Sorry, I couldn't finish this",
    "⚠": "The model spent its whole output|The model declined|This may be a duplicate",
    "🚫": "The person who asked no longer|Denied by|Denied:|Declined by",
    "❓": "The MCP server",
    "👋": "Hello! I don't know you yet|Hello! Just write to me",
    "🔑": "You are now the owner|Log in at|Logged in at|The login at|The login link for"
    "|The MCP server",
    "🆕": "New conversation",
    "📝": "Saved[.] Your answer counts",
    "📎": "Not received:",
    "🤖": "From your next message on",
    "🧠": "Reasoning here",
    "💬": "Sorry, I couldn't answer your side question|Sorry, the MCP server",
    "🛠": "The model can't be used|The disk is nearly full|Sorry, I can't do that|The MCP server"
    "|Sorry, I couldn't save my last answer",
    "💾": "Kept [0-9]",
    "🔄": "I'm restarting|Restarting[.]|I'm already restarting",
}
"""First words of notices, by their sign."""

_LATER_WORDS = {
    "✅": "now has access|works again[.] The problem",
    "⚠": "was cut off and has NOT run",
    "🚫": "no longer has access",
    "🛠": "of the daily limit of|has had a problem for|Some conversations fail",
    "⏱": "rate limit, retrying in|finished after I had stopped waiting",
}
"""Words of notices that begin with a name, by their sign."""

_ASCII_SIGNS = ("&#", ":closed_lock_with_key:")
_SIGNS = (*_RARE_SIGNS, *_WORDS, *_LATER_WORDS, *_ASCII_SIGNS)

_BETWEEN = r"[\ufe0f \t*_~`]*"


def _loose(words: str) -> str:
    """Return a pattern that also finds the words with other spaces, marks and apostrophes."""
    return words.replace("'", "['’]").replace(" ", "[ \u00a0*_]+")  # noqa: RUF001 - both are used


def _phrase_patterns() -> Iterator[str]:
    for sign, words in _WORDS.items():
        yield f"{sign}{_BETWEEN}(?:{_loose(words)})"
    for sign, words in _LATER_WORDS.items():
        yield f"{sign}[^\\n]{{1,200}}?(?:{_loose(words)})"


_ANY_SIGN = re.compile(
    f"[{_RARE_SIGNS}]|{'|'.join((*_WORDS, *_LATER_WORDS))}|{_ENTITIES}", re.IGNORECASE
)
_RARE_BEGINNING = re.compile(
    rf"(?P<before>[^\w{_RARE_SIGNS}&:]*)(?=[{_RARE_SIGNS}]|{_ENTITIES})", re.IGNORECASE
)
_PHRASES = tuple(
    re.compile(rf"[^\w]{{0,40}}?{pattern}", re.IGNORECASE) for pattern in _phrase_patterns()
)


def mark_imitations(text: str) -> str:
    """Return the text of a model with a mark in each line that imitates Holdfast."""
    signs = _ASCII_SIGNS if text.isascii() else _SIGNS
    if not any(sign in text for sign in signs):
        return text  # the usual case, many times faster
    return "\n".join(_mark_line(line) for line in text.split("\n"))


def _mark_line(line: str) -> str:
    if not _ANY_SIGN.search(line):
        return line
    if rare := _RARE_BEGINNING.match(line):
        before = rare["before"]
        return f"{before}{MODEL_MARK} {line[len(before) :]}"
    # The phrase that ends first counts, so that text after it cannot move the mark.
    ends = [found.end() for phrase in _PHRASES if (found := phrase.match(line))]
    return f"{line[: min(ends)]} {MODEL_MARK}{line[min(ends) :]}" if ends else line
