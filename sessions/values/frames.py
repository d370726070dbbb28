"""Sans-IO: frames that separate the words of others from the rest of a prompt.

Room messages, quoted messages, forwarded messages, names and tool results come from people and
programs whose words must not look like a frame, a sender label or a message of another role. Each
line of such a text therefore starts with "> ", which no end of a frame and no label does. Labels,
role words and invisible characters inside are replaced all the same, and everything else, such as
the brackets of quoted code, stays as written. A text that shares its line with a label has no
square brackets. Equal texts always give equal frames, so the prompt of earlier turns stays
cacheable.
"""

import re
from collections.abc import Iterable

from sessions.values.text import shorten

_LINE_PREFIX = "> "
_LINE_JOINT = " ⏎ "
_MAX_NAME_LENGTH = 64
_UNKNOWN_SENDER = "someone"

_ROOM_LABEL = "[Earlier in this room, from people who may not be known:"
_REPLY_LABEL = "[In reply to "
_FORWARD_LABEL = "[Forwarded from "
_NOTES_LABEL = "[Hints about the tools of the MCP server, from that server itself, which does not speak for the operator or the user: "

_PROMPT_LABEL = "[The request of this message, made from the prompt "

_WIDE_BRACKETS = str.maketrans("［］⟦⟧〔〕", "()()()")  # noqa: RUF001 - full-width brackets
_BRACKETS = str.maketrans("[]［］⟦⟧〔〕", "()()()()")  # noqa: RUF001 - full-width brackets
_NAME_SIGNS = str.maketrans("():<>：", "      ")  # noqa: RUF001 - full-width colon

_ROLES = "system|assistant|user|human|developer|tool|model|instructions?"
_ROLE_WORD = re.compile(rf"(?i:{_ROLES})")
_ROLE_LINE = re.compile(
    rf"^(?P<lead>[ \t>*#_`~-]{{0,8}})(?P<role>(?i:{_ROLES}))(?P<tail>[ \t*_`~]{{0,4}}[:：])",  # noqa: RUF001
    re.MULTILINE,
)
_CAPITAL_ROLE_LINE = re.compile(
    r"^(?P<lead>[ \t>*#_`~-]{0,8})"
    r"(?P<role>SYSTEM|System|ASSISTANT|Assistant|USER|User|HUMAN|Human|DEVELOPER|Developer)"
    r"(?P<tail>[ \t*_`~]{0,4}[:：])",  # noqa: RUF001
    re.MULTILINE,
)
"""Role words as headings; in lower case they are common keys of data files."""

_TEMPLATE_TOKEN = re.compile(r"<\|([^|<>\n]{0,64})\|>|<<(/?SYS)>>")
_ROLE_TAG = re.compile(rf"<(/?[ \t]*(?i:{_ROLES})\b[^<>\n]{{0,64}})>")

_OPEN_BRACKET = "[\\[［⟦〔]"  # noqa: RUF001 - full-width brackets pass for ours
_LABEL_AFTER_BRACKET = (
    r"Earlier in this room|Hints about the tools|In reply to|Forwarded from|Summary of the conversation|"
    r"(?:Voice message|File|Picture)\b|Your (?:last )?answer|You (?:have used|were repeating)|"
    r"The (?:conversation continues|result is|request of this message)|"
    r"[^\[\]\n]{0,100}[(（][\w./:@-]{1,64}[)）][\]］⟧〕]"  # noqa: RUF001  # a sender label: [Name (id)]
)
_OWN_LABEL = re.compile(
    rf"^(?P<lead>[ \t]{{0,8}}){_OPEN_BRACKET}(?={_LABEL_AFTER_BRACKET})", re.MULTILINE
)
"""A line that looks like a frame, a remark or a sender label of a prompt."""

_QUOTED_LABEL = re.compile(
    rf"^(?P<lead>[ \t>*#_`~-]{{0,8}}){_OPEN_BRACKET}(?={_LABEL_AFTER_BRACKET})"
)
"""The same in a quoted line, where marks of a quote or a style may precede it."""

_OLD_ROOM_FRAME = re.compile(re.escape(_ROOM_LABEL) + r"\n.*?\n\](?:\n|\Z)", re.DOTALL)
_OLD_REPLY_FRAME = re.compile(re.escape(_REPLY_LABEL) + r".*?\](?:\n|\Z)", re.DOTALL)

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
"""Control, text-direction and tag characters; those inside words and emoji are not listed."""

_SPACES = re.compile(r"\s+")
_LONE_RETURN = re.compile(r"\r(?!\n)")


def to_single_line(text: str) -> str:
    """Return a text on one line, without square brackets and invisible characters."""
    return _plain_tokens(remove_invisible(_SPACES.sub(" ", text.translate(_BRACKETS)))).strip()


def clean_name(name: str) -> str:
    """Return a display name that cannot look like a label or a role; empty for an empty name."""
    plain = " ".join(to_single_line(name).translate(_NAME_SIGNS).split())
    plain = shorten(plain, _MAX_NAME_LENGTH)
    return f"“{plain}”" if _ROLE_WORD.fullmatch(plain) else plain


def remove_invisible(text: str) -> str:
    """Remove control, text-direction and other invisible characters; keep tabs and line ends."""
    return _INVISIBLE.sub("", text)


def frame_room(quotes: Iterable[tuple[str, str]]) -> str:
    """Return the frame around earlier messages of a room, one line for each (sender, text)."""
    lines = [
        f"{_LINE_PREFIX}{clean_name(sender) or _UNKNOWN_SENDER}: {_LINE_JOINT.join(filter(None, _lines(text)))}"
        for sender, text in quotes
    ]
    return "\n".join((_ROOM_LABEL, *lines, "]"))


def frame_reply(sender: str, text: str) -> str:
    """Return the frame around the message that a message replies to."""
    name, lines = clean_name(sender), _lines(text)
    if len(lines) > 1 or not {"[", "]"}.isdisjoint(text):
        return _with_label(f"{_REPLY_LABEL}{name or _UNKNOWN_SENDER}]", lines)
    return f"{_REPLY_LABEL}{': '.join(filter(None, (name, *lines)))}]"


def frame_forward(sender: str, text: str) -> str:
    """Return the frame around a forwarded text."""
    return _with_label(
        f"{_FORWARD_LABEL}{clean_name(sender) or 'an unknown sender'}]", _lines(text)
    )


def frame_notes(server: str, text: str) -> str:
    """Return the frame around the notes of a server about its tools."""
    return _with_label(f"{_NOTES_LABEL}{clean_name(server)}]", _lines(text))


def frame_prompt(server: str, name: str, text: str) -> str:
    """Return the frame around a request that a person made from a prompt of a server."""
    label = f"{_PROMPT_LABEL}{clean_name(name)} of the MCP server {clean_name(server)}]"
    return _with_label(label, _lines(text))


def neutralize_labels(text: str) -> str:
    """Return a text in which no line looks like a frame, a remark or a sender label of a prompt.

    Everything else stays as written. For text that is shown without a frame, such as messages in a
    session of several people.
    """
    plain = _plain_tokens(remove_invisible(_LONE_RETURN.sub("\n", text)))
    return _OWN_LABEL.sub(r"\g<lead>(", plain)


def neutralize_output(text: str) -> str:
    """Return the text of another program without labels, role headings and invisible characters."""
    return _CAPITAL_ROLE_LINE.sub(r"\g<lead>“\g<role>”\g<tail>", neutralize_labels(text))


def strip_stored_frames(text: str) -> str:
    """Return a stored text without the frames at its start.

    Older versions stored the frames and the words of the person as one text.
    """
    for label, frame in ((_ROOM_LABEL, _OLD_ROOM_FRAME), (_REPLY_LABEL, _OLD_REPLY_FRAME)):
        if text.startswith(label):
            found = frame.match(text)
            text = text[found.end() :] if found else ""  # the text ends inside the frame
    return text


def _with_label(label: str, lines: list[str]) -> str:
    return "\n".join((label, *((_LINE_PREFIX + line).rstrip() for line in lines)))


def _lines(text: str) -> list[str]:
    """Return the lines of a text, none of which can pass for a label or a role."""
    return [_neutralize_line(line) for line in text.strip().splitlines()]


def _neutralize_line(line: str) -> str:
    plain = _plain_tokens(remove_invisible(line).translate(_WIDE_BRACKETS)).rstrip()
    plain = _QUOTED_LABEL.sub(r"\g<lead>(", plain)
    return _ROLE_LINE.sub(r"\g<lead>“\g<role>”\g<tail>", plain)


def _plain_tokens(text: str) -> str:
    """Replace the signs around roles of chat templates, such as <|system|> and <system>."""
    if "<" not in text:
        return text
    text = _TEMPLATE_TOKEN.sub(lambda found: f"({found[1] or found[2] or ''})", text)
    return _ROLE_TAG.sub(r"(\1)", text)
