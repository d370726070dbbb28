"""Programs of other people judge what we send: TDLib, two readers of Discord's Markdown, Slack's types,
and the examples of CommonMark.

`python -m tests.faults.markdown_judges` prints a table for each judge. A judge that is not installed
is skipped and named; `make markdown` installs all of them.
"""

import html
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from platforms.core.document import parse
from platforms.discord.format import render
from platforms.slack.format import markdown_blocks
from platforms.telegram.format_entities import MAX_ENTITIES, FormattedText, format_text
from tests.faults.markdown_texts import NASTY, text_of

FOLDER = Path(__file__).parents[1] / "node" / "markdown"
TEXTS = 1_000
ZERO = ("reference links", "simple HTML", "LaTeX brackets")
"""Causes that must not occur."""


class Missing(Exception):
    """A judge is not installed."""


def node(command: str, given: object = None) -> Any:
    """Run a judge for Node."""
    if not (FOLDER / "node_modules").is_dir():
        msg = f"{command}: tests/node/markdown/node_modules is missing"
        raise Missing(msg)
    done = subprocess.run(
        ["node", "judge.mjs", command],
        cwd=FOLDER,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        msg = f"{command}: {done.stderr.strip().splitlines()[-1:]}"
        raise Missing(msg)
    return json.loads(done.stdout)


def texts(count: int) -> list[str]:
    """Return difficult samples and generated answers."""
    return [*NASTY.values(), *(text_of(seed) for seed in range(count))]


# --- TDLib -----------------------------------------------------------------------------------

_TAGS = {
    "bold": "b", "italic": "i", "underline": "u", "strikethrough": "s", "spoiler": "tg-spoiler",
    "code": "code", "blockquote": "blockquote", "expandable_blockquote": "blockquote",
}  # fmt: skip


def _units(text: str) -> list[str]:
    """Return the characters by UTF-16 unit; the second unit of a pair is empty."""
    return [part for char in text for part in ((char,) if char <= "\uffff" else (char, ""))]


def twin(shown: FormattedText) -> str:
    """Write a text with entities in Telegram's HTML."""
    opens: dict[int, list[str]] = {}
    closes: dict[int, list[str]] = {}
    order = sorted(shown.entities, key=lambda each: (each.offset, -each.length))
    for entity in order:
        first = _TAGS.get(entity.type, "")
        opening, closing = f"<{first}>", f"</{first}>"
        if entity.type == "expandable_blockquote":
            opening = "<blockquote expandable>"
        elif entity.type == "text_link":
            opening, closing = f'<a href="{html.escape(entity.url)}">', "</a>"
        elif entity.type == "pre":
            language = html.escape(entity.language)
            opening = f'<pre><code class="language-{language}">' if language else "<pre>"
            closing = "</code></pre>" if language else "</pre>"
        opens.setdefault(entity.offset, []).append(opening)
        closes.setdefault(entity.offset + entity.length, []).insert(0, closing)
    units = _units(shown.text)
    out = []
    for place in range(len(units) + 1):
        out += [*closes.get(place, ()), *opens.get(place, ())]
        out.append(html.escape(units[place], quote=False) if place < len(units) else "")
    return "".join(out)


def _styles(length: int, entities: Iterable[tuple[str, int, int]]) -> list[frozenset[str]]:
    found: list[set[str]] = [set() for _ in range(length)]
    for kind, offset, size in entities:
        for place in range(offset, min(offset + size, length)):
            found[place].add(kind)
    return [frozenset(each) for each in found]


def _plain_kind(kind: str) -> str:
    name = kind.removeprefix("textEntityType").replace("_", "").lower()
    return {"texturl": "textlink", "precode": "pre"}.get(name, name)


def judge_telegram(samples: Iterable[str]) -> Counter[str]:
    """Compare our entities with those that TDLib reads from the same text as HTML."""
    try:
        tdjson = importlib.import_module("tdjson")  # not installed in every environment
    except ImportError as error:
        msg = "TDLib: the package tdjson is missing"
        raise Missing(msg) from error

    def ask(kind: str, **given: object) -> dict[str, Any]:
        answer = tdjson.td_execute(json.dumps({"@type": kind, **given}).encode())
        found: dict[str, Any] = json.loads(answer)
        return found

    ask("setLogVerbosityLevel", new_verbosity_level=0)
    tally: Counter[str] = Counter(
        dict.fromkeys(
            ("refused", "other text", "other entities", "automatic entity across code"), 0
        )
    )
    for md in samples:
        shown = format_text(parse(md))
        if not shown.text.strip() or len(shown.entities) > MAX_ENTITIES:
            continue
        tally["texts"] += 1
        read = ask("parseTextEntities", text=twin(shown), parse_mode={"@type": "textParseModeHTML"})
        if read["@type"] == "error":
            tally["refused"] += 1
            continue
        units = len(_units(shown.text))
        theirs = (
            (_plain_kind(each["type"]["@type"]), each["offset"], each["length"])
            for each in read["entities"]
        )
        ours = ((_plain_kind(each.type), each.offset, each.length) for each in shown.entities)
        if read["text"] != shown.text:
            tally["other text"] += 1
        elif _styles(units, ours) != _styles(units, theirs):
            tally["other entities"] += 1
        code = [each for each in shown.entities if each.type in {"code", "pre"}]
        for each in ask("getTextEntities", text=shown.text)["entities"]:
            start, end = each["offset"], each["offset"] + each["length"]
            for block in code:
                stop = block.offset + block.length
                if (
                    start < stop
                    and block.offset < end
                    and not (block.offset <= start and end <= stop)
                ):
                    tally["automatic entity across code"] += 1
    return tally


# --- CommonMark ------------------------------------------------------------------------------

_SIMPLE = re.compile(
    r"</?(?:b|i|u|s|sub|sup|code|strong|em|del|details|summary)>|<a href=[\"'][^<>]*>|<br ?/?>"
)
_PAIR = re.compile(
    r"<(b|i|u|s|sub|sup|code|strong|em|del|a)\b[^<>]*>[^\n]*</\1>|<br ?/?>|<details>"
)
_ADDRESS = re.compile(r" ?\([^()\s]*\)")


class _Content(HTMLParser):
    """Collects the text of HTML; pictures count with their description."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(source)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.text += dict(attrs).get("alt") or ""


def _letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def cause(md: str, meant: str, shown: str) -> str:
    """Name the cause of a difference between the words that are meant and those that are shown."""
    if _letters(meant) == _letters(shown):
        return ""
    if _letters(meant) == _letters(_ADDRESS.sub("", shown)):
        return "relative address shown"
    if _PAIR.search(shown) and _letters(_SIMPLE.sub("", shown)) == _letters(meant):
        return "simple HTML"
    if re.search(r"^\[[^\]]+\]:", shown, re.MULTILINE):
        return "unused definition shown"
    if "<" in md:
        return "other HTML and autolinks"
    if "]:" in md and "][" in shown:
        return "reference links"
    if "\\[" in md or "\\(" in md.replace("](", ""):
        return "escaped address" if re.search(r"\]\([^\s]*\\", md) else "LaTeX brackets"
    return "others"


def judge_commonmark() -> dict[str, Counter[str]]:
    """Compare the words of CommonMark's examples with those that Telegram and Discord show."""
    examples = node("spec")
    table = {name: Counter(dict.fromkeys(ZERO, 0)) for name in ("Telegram", "Discord")}
    discord = node("discord", [render(each["markdown"]) for each in examples])
    for example, (first, second) in zip(examples, discord, strict=True):
        md, meant = example["markdown"], _Content(example["html"]).text
        table["Telegram"]["examples"] += 1
        table["Telegram"][cause(md, meant, format_text(parse(md)).text) or "the same words"] += 1
        readings = {_letters(first), _letters(_Content(second).text)}
        table["Discord"]["examples"] += 1
        if len(readings) > 1:
            table["Discord"]["the readers disagree"] += 1
        else:
            table["Discord"][cause(md, meant, first) or "the same words"] += 1
    return table


# --- Discord and Slack -----------------------------------------------------------------------


def _words(text: str) -> str:
    """Return the letters; the readers differ in the numbers of lists."""
    return "".join(char for char in text if char.isalpha())


def judge_discord(samples: list[str]) -> Counter[str]:
    """Let two readers read what we send to Discord; they judge where they agree."""
    tally: Counter[str] = Counter({"words missing in both": 0})
    for md, (first, second) in zip(
        samples, node("discord", list(map(render, samples))), strict=True
    ):
        tally["texts"] += 1
        if _words(first) != _words(_Content(second).text):
            tally["the readers disagree"] += 1
            continue
        shown = iter(_words(first))
        telegram = _words(format_text(parse(md)).text)
        tally["words missing in both"] += any(char not in shown for char in telegram)
    return tally


def judge_slack(samples: list[str]) -> Counter[str]:
    """Check our blocks against the official types."""
    verdict = node("slack", [markdown_blocks(md, ()) for md in samples])
    return Counter(
        {"texts": len(samples), "refused": len(verdict["wrong"]), "blind": not verdict["refuses"]}
    )


def main() -> None:
    samples, good = texts(TEXTS), True
    judges: tuple[tuple[str, Callable[[], dict[str, Counter[str]]]], ...] = (
        ("TDLib", lambda: {"Telegram": judge_telegram(samples)}),
        ("CommonMark", judge_commonmark),
        ("Discord's readers", lambda: {"Discord": judge_discord(samples)}),
        ("Slack's types", lambda: {"Slack": judge_slack(samples)}),
    )
    for name, judge in judges:
        try:
            table = judge()
        except Missing as error:
            sys.stdout.write(f"SKIPPED {name}: {error}\n")
            continue
        for platform, tally in table.items():
            sys.stdout.write(f"{name}, {platform}\n")
            sys.stdout.writelines(
                f"    {what:32} {count:6}\n" for what, count in sorted(tally.items())
            )
            bad = (
                "refused",
                "other text",
                "other entities",
                "automatic entity across code",
                "blind",
                *ZERO,
            )
            good = good and not any(tally[what] for what in bad)
    sys.exit(not good)


if __name__ == "__main__":
    main()
