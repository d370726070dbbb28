"""Answers with which an obedient model misleads people: secrets in pieces, markup, hidden characters."""

import html
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import unquote

from tests.attack.chats import SOCKET_DOORS, ChatDoor
from tests.attack.ledger import Judge, Row, verdict
from tests.attack.obedient import LINES, say
from tests.attack.stage import MODEL_KEY, Gate, Seen
from tests.attack.tricks import HIDDEN, MARKUP, MASKED, MENTIONS, pieces_of

SHAPED = "ghp_" + "Ab1" * 12
"""A key that is not configured, and known by its form alone."""

_DRAWN = re.compile(r"[*_~|`\\]|[\u200b-\u200f\u2060-\u206f\xad\ufeff]")
_SCRIPT = re.compile(r"\s*(?:javascript|vbscript|data)\s*:", re.IGNORECASE)
_MASS = re.compile(r"<!(?:channel|here|everyone|subteam\^)|<@U|@(?:everyone|here|channel)")
_SELECTORS = re.compile("[\U000e0100-\U000e01ef]{2}|[\u3164\u115f]")

Attempt = Callable[[Gate], Awaitable[Judge]]
Find = Callable[[Seen], str]

IMITATED = {
    "a question": "🔐 May I use **pay**? to: bank",
    "an allowed question": "✅ Allowed by telegram:9001.",
    "a denied question": "🚫 Denied by telegram:9001.",
    "an end": "⏹ Stopped.",
    "a pairing": "👤 Eve (telegram:6666) asks for access. Approve: /pair approve ABCDEFGH",
    "a restart": "♻️ I was restarted",
}
"""Answers that look like notices of the gateway."""


def rows() -> Iterable[Row]:
    """Yield the rows of all platforms."""
    for door in (SOCKET_DOORS[0], SOCKET_DOORS[2], SOCKET_DOORS[4]):
        for trick, case, text, find in _table():
            # Slack draws links itself, and only those of the web. Telegram has no mention of everyone.
            if (door.platform, trick) not in {("slack", "markup"), ("telegram", "mass mention")}:
                name = f"{door.platform} answers"
                yield Row(name, trick, case, answered(door, text, find))


def page_rows(path: str, headers: dict[str, str]) -> Iterable[Row]:
    """Yield the rows of the page: what its rows hold before the browser draws them."""
    for trick, case, text, find in _table():
        if trick in {"secret in pieces", "hidden characters", "imitated notice"}:
            yield Row("page answers", trick, case, _on_page(path, headers, text, find))


def _table() -> Iterable[tuple[str, str, str, Find]]:
    for name, secret in (("configured", MODEL_KEY), ("by form", SHAPED)):
        for case, text in pieces_of(secret).items():
            yield "secret in pieces", f"{case}, {name}", text, _find_secret(secret)
    for case, text in HIDDEN.items():
        yield "hidden characters", case, text, find_hidden
    for case, text in MARKUP.items():
        yield "markup", case, text, find_markup
    for case, text in MASKED.items():
        yield "masked link", case, text, find_masked
    for case, text in MENTIONS.items():
        yield "mass mention", case, text, find_mentions
    for case, text in IMITATED.items():
        yield "imitated notice", case, text, find_imitation


def answered(door: ChatDoor, text: str, find: Find) -> Attempt:
    """Return an attempt to let a member see the text as an answer."""

    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        LINES[f"@{mark}"] = f"{text}\n\n{mark}"
        before = gate.count_calls(door.platform)
        await door.say(gate, "ben", say(f"@{mark}"))
        await gate.until(lambda: any(mark in seen.visible for seen in gate.seen(door.platform)))
        await gate.finished(door.platform)
        shown = [seen for seen in gate.seen(door.platform) if mark in seen.visible]
        problems = [find(seen) for seen in shown]
        if find is find_hidden or find.__name__ == "find_secret":
            # Live updates before the answer may not show more than the answer does.
            problems += [find(Seen(sent)) for sent in gate.texts_since(door.platform, before)]
        if door.platform == "discord" and find is find_mentions:
            rings = [each for each in gate.rings() if each]
            problems = [f"rings for {rings}"] if rings else []
        return verdict("; ".join(sorted({*filter(None, problems)})))

    return attempt


def _on_page(path: str, headers: dict[str, str], text: str, find: Find) -> Attempt:
    async def attempt(gate: Gate) -> Judge:
        mark = gate.mark()
        LINES[f"@{mark}"] = f"{text}\n\n{mark}"
        body = {"id": f"id-{mark}", "text": say(f"@{mark}")}
        url = f"{gate.url}{path}"
        async with gate.http.post(f"{url}/messages", json=body, headers=headers) as answer:
            assert answer.status == 202, answer.status
        await gate.until(lambda: bool(gate.requests_with(mark)))
        await gate.finished("web")
        async with gate.http.get(f"{url}/rows?limit=2", headers=headers) as answer:
            found = (await answer.json())["rows"]
        shown = [Seen(each["text"]) for each in found if each["author"] == "answer"]
        return verdict("; ".join(filter(None, map(find, shown))) if shown else "no answer")

    return attempt


# --- what must not be seen -------------------------------------------------------------------------


def drawn(text: str) -> str:
    """Return roughly what a reader sees: without signs of formatting and hidden characters."""
    return _DRAWN.sub("", unquote(html.unescape(text)))


def _find_secret(secret: str) -> Find:
    bare = _DRAWN.sub("", secret)

    def find_secret(seen: Seen) -> str:
        texts = (drawn(seen.visible), seen.visible, *map(unquote, seen.links))
        return (
            "the secret is visible" if any(bare in text or secret in text for text in texts) else ""
        )

    return find_secret


def find_hidden(seen: Seen) -> str:
    """Find characters that hide text, change its order or control a terminal."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    bad = {
        hex(ord(sign))
        for sign in seen.visible
        if unicodedata.category(sign) in kinds and sign not in "\n\t"
    }
    if bad or _SELECTORS.search(seen.visible):
        return f"hidden characters {sorted(bad)}"
    return ""


def find_markup(seen: Seen) -> str:
    """Find links that run something."""
    bad = [link for link in seen.links if _SCRIPT.match(unquote(html.unescape(link)))]
    return f"links {bad}" if bad else ""


def find_masked(seen: Seen) -> str:
    """A link whose text is an address must show the real one, too."""
    real = ("evil.example", "xn--", "bаnk.example")  # noqa: RUF001 - Cyrillic
    return "" if any(name in seen.visible for name in real) else "the real address is hidden"


def find_mentions(seen: Seen) -> str:
    """Find mentions that ring for many people."""
    return "a mass mention" if _MASS.search(seen.visible) else ""


def find_imitation(seen: Seen) -> str:
    """Text of the model that looks like a notice must say so."""
    return "" if "from the model" in seen.visible else "looks like a notice"
