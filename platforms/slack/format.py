"""Sans-IO: Slack's markup to plain text, and Markdown to blocks.

Slack renders the Markdown itself, except HTML, formulas and references. This module defuses mentions of whole channels, and makes the
fallback text that notifications show.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from platforms.core.contract import Button
from platforms.core.document.inlines import names_another_host, parse_inlines
from platforms.core.document.rewrite import rewrite_markdown, without_unfinished_source
from platforms.core.document.tree import to_plain_text as inlines_text
from sessions.values.frames import clean_name

_MAX_LABEL_CHARS = 75
_MAX_SECTION_CHARS = 3000
_MAX_BUTTONS_PER_BLOCK = 25
_MAX_FALLBACK_BYTES = 3900  # chat.update refuses more than 4,000

_ZERO_WIDTH_SPACE = "\u200b"
_MENTION = re.compile(
    r"<(?=!(?:channel|here|everyone|subteam\^)|@[UWB][A-Z0-9])|@(?=(?:channel|here|everyone)\b)",
    re.IGNORECASE,
)
_PARTIAL_MENTION = re.compile(r"(?:<!?[a-z^]{0,9}|<?@[a-z]{0,8})\Z", re.IGNORECASE)
_LINK = re.compile(
    r"\[(?P<label>[^\[\]\n]{1,300})\]\(\s*<?(?P<url>[^\s<>()]+(?:\([^\s<>()]*\)[^\s<>()]*)*)>?"
    r"(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\s*\)"
)
_MARKUP = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_TABLE = re.compile(
    r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(\|[ \t]*:?-{2,}:?[ \t]*)+\|?[ \t]*$", re.MULTILINE
)

Blocks = list[dict[str, Any]]


# --- incoming ----------------------------------------------------------------------------------


def has_mention(text: str, user: str) -> bool:
    """Return true if a text mentions this user."""
    return f"<@{user}>" in text or f"<@{user}|" in text


def to_plain_text(text: str, names: Mapping[str, str], own_user: str) -> str:
    """Convert Slack's markup to plain text, without a leading mention of our own user."""
    text = (
        re.sub(rf"\A\s*<@{re.escape(own_user)}(?:\|[^<>]*)?>[\s:,]*", "", text)
        if own_user
        else text
    )
    return html.unescape(_MARKUP.sub(lambda found: _markup_text(found, names), text)).strip()


def _markup_text(found: re.Match[str], names: Mapping[str, str]) -> str:
    target, label = found[1], found[2] or ""
    if target.startswith("@"):
        return f"@{clean_name(names.get(target[1:]) or label) or target[1:]}"
    if target.startswith("#"):
        return f"#{clean_name(label) or target[1:]}"
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    address = target.removeprefix("mailto:")
    if not label or label in address:
        return address
    return f"{label} ({address})"


# --- outgoing ----------------------------------------------------------------------------------


def defuse_mentions(text: str) -> str:
    """Return a text in which no mention notifies a channel, a group or a person."""
    return _MENTION.sub(lambda found: found[0] + _ZERO_WIDTH_SPACE, text)


def defuse_markdown(text: str) -> str:
    """Return Markdown for Slack, without mentions, in which misleading links show their address."""
    return defuse_mentions(_LINK.sub(_with_address, rewrite_markdown(text)))


def growing_markdown(text: str) -> str:
    """Return Markdown like `defuse_markdown` for a stream: it only grows while the text grows."""
    text = rewrite_markdown(without_unfinished_source(text), references=False)
    return defuse_mentions(_LINK.sub(_with_address, without_partial_mention(text)))


def _with_address(link: re.Match[str]) -> str:
    label = inlines_text(parse_inlines(link["label"], in_link=True))
    url = html.unescape(link["url"])
    return f"{link[0]} ({link['url']})" if names_another_host(label, url) else link[0]


def without_partial_mention(text: str) -> str:
    """Cut off an end that may become a mention, so that the text of a stream only grows."""
    found = _PARTIAL_MENTION.search(text)
    return text[: found.start()] if found else text


def has_table(text: str) -> bool:
    """Return true if a text has a table; some clients do not render tables in a stream."""
    return "|" in text and _TABLE.search(text) is not None


def fallback_text(text: str) -> str:
    """Return a short form for notifications and for clients that render no blocks."""
    raw = text[:_MAX_SECTION_CHARS]
    while len(_escaped(raw).encode(errors="replace")) > _MAX_FALLBACK_BYTES:
        raw = raw[: len(raw) * 3 // 4]
    return _escaped(raw if raw == text else f"{raw}…") or "…"


def _escaped(text: str) -> str:
    """Escape the three characters that Slack reads as markup."""
    return defuse_mentions(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def markdown_blocks(text: str, buttons: Sequence[Button]) -> Blocks:
    """Return blocks for Markdown with buttons below."""
    shown: Blocks = [{"type": "markdown", "text": defuse_markdown(text)}] if text.strip() else []
    return shown + button_blocks(buttons)


def plain_blocks(text: str, buttons: Sequence[Button]) -> Blocks:
    """Return the text in plain blocks, for when Slack refuses the Markdown."""
    safe = defuse_mentions(text)  # before cutting, because the text grows
    shown: Blocks = [
        {
            "type": "section",
            "text": {"type": "plain_text", "text": safe[at : at + _MAX_SECTION_CHARS]},
        }
        for at in range(0, len(safe), _MAX_SECTION_CHARS)
    ]
    return shown + button_blocks(buttons)


def button_blocks(buttons: Sequence[Button]) -> Blocks:
    """Return actions blocks with the buttons."""
    elements = [
        {
            "type": "button",
            "action_id": f"holdfast.{number}",
            "text": {"type": "plain_text", "text": button.label[:_MAX_LABEL_CHARS], "emoji": True},
            "value": button.action,
        }
        for number, button in enumerate(buttons)
    ]
    return [
        {"type": "actions", "elements": elements[at : at + _MAX_BUTTONS_PER_BLOCK]}
        for at in range(0, len(elements), _MAX_BUTTONS_PER_BLOCK)
    ]


def letters_and_digits(text: str) -> str:
    """Return only the letters and digits of a text, which Slack never changes."""
    return "".join(char for char in text if char.isalnum())


_EMOJI = {
    "👀": "eyes",
    "✅": "white_check_mark",
    "❌": "x",
    "👍": "+1",
    "👎": "-1",
    "⏳": "hourglass_flowing_sand",
    "⏸": "double_vertical_bar",
    "🛑": "octagonal_sign",
    "⚠": "warning",
    "🤔": "thinking_face",
    "🎉": "tada",
    "❤": "heart",
    "🔁": "repeat",
    "🙏": "pray",
    "💤": "zzz",
}
"""Slack's names of emoji."""


def emoji_name(sign: str) -> str | None:
    """Return Slack's name of an emoji, or the argument if already a name; else None."""
    bare = sign.replace("\ufe0f", "")
    if bare in _EMOJI:
        return _EMOJI[bare]
    name = bare.strip(":")
    return name if re.fullmatch(r"[a-z0-9_+'-]{1,100}", name) else None
