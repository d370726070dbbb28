"""Programs of other people judge what we send: TDLib, two readers of Discord's Markdown, Slack's types,
and the examples of CommonMark.

`python -m tests.faults.markdown_judges` prints a table for each judge, and a table of causes by surface. All
judges see the examples of CommonMark, the answers of `markdown_answers.txt`, the samples that are nasty on
purpose and texts made up from a seed. A judge that is not installed is skipped and named;
`make markdown` installs all of them.
"""

import asyncio
import functools
import html
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from gateway.delivery.view import render_final
from platforms.core.document import parse
from platforms.discord.capabilities import CAPABILITIES as DISCORD
from platforms.discord.format import render
from platforms.slack.capabilities import CAPABILITIES as SLACK
from platforms.slack.format import growing_markdown, markdown_blocks
from platforms.telegram.capabilities import PRIVATE
from platforms.telegram.format_entities import (
    MAX_ENTITIES,
    FormattedText,
    TextEntity,
    format_text,
)
from platforms.telegram.format_rich import format_html
from tests.fakes.chromium import CHROMIUM, HAVE_CHROMIUM
from tests.faults.markdown_causes import (
    ACCEPTED_CAUSES,
    CAUSES,
    Shown,
    damaged_formulas,
    find_causes,
    formulas,
    meaning,
    reference,
    shown,
)
from tests.faults.markdown_daemon import texts_of_daemon
from tests.faults.markdown_discord import (
    ACCEPTED,
    agree,
    difference,
    our_reading,
    read_html,
    read_runs,
)
from tests.faults.markdown_page import shown_on_page
from tests.faults.markdown_seen import discord, slack, telegram_rich, telegram_text
from tests.faults.markdown_texts import ANSWERS, NASTY, text_of

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


def texts(count: int) -> dict[str, str]:
    """Return whole answers, difficult samples and generated texts by name."""
    return ANSWERS | NASTY | {f"text {seed}": text_of(seed) for seed in range(count)}


@functools.cache
def examples() -> tuple[dict[str, Any], ...]:
    """Return the examples of CommonMark."""
    return tuple(node("spec"))


def judged_texts() -> dict[str, str]:
    """Return the texts of the table of causes: the examples of CommonMark, and whole answers."""
    return {f"example {each['number']}": each["markdown"] for each in examples()} | ANSWERS


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


ACROSS_CODE = {
    "`<https://foo.bar.`baz>`\n": "letters directly behind code continue the address inside it"
}
"""Texts in which Telegram's own link may begin inside our code, with the reason."""


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
        code = [
            each
            for each in shown.entities
            if each.type in {"code", "pre"} and md not in ACROSS_CODE
        ]
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
    table = {name: Counter(dict.fromkeys(ZERO, 0)) for name in ("Telegram", "Discord")}
    read = node("discord", [render(each["markdown"]) for each in examples()])
    for example, (runs, second) in zip(examples(), read, strict=True):
        md, meant = example["markdown"], _Content(example["html"]).text
        table["Telegram"]["examples"] += 1
        table["Telegram"][cause(md, meant, format_text(parse(md)).text) or "the same words"] += 1
        first = "".join(words for words, _ in runs)
        readings = {_letters(first), _letters(_Content(second).text)}
        table["Discord"]["examples"] += 1
        if len(readings) > 1:
            table["Discord"]["the readers disagree"] += 1
        else:
            table["Discord"][cause(md, meant, first) or "the same words"] += 1
    return table


# --- Discord and Slack -----------------------------------------------------------------------


def judge_discord(samples: dict[str, str]) -> tuple[Counter[str], list[str]]:
    """Let two readers read what we send to Discord; they judge where they agree.

    They judge `markdown_seen`, which in turn judges what is sent against the meaning of a text.
    """
    messages = {
        f"{name} ({number})" if number else name: render(part)
        for name, md in samples.items()
        for number, part in enumerate(render_final(md, DISCORD))
    }
    tally: Counter[str] = Counter({"read otherwise by both": 0})
    wrong = []
    read = node("discord", list(messages.values()))
    for (name, message), (runs, second) in zip(messages.items(), read, strict=True):
        tally["messages"] += 1
        first, other, ours = read_runs(runs), read_html(second), our_reading(message)
        if not agree(first, other):
            tally["the readers disagree"] += 1
        elif agree(first, ours):
            tally["read alike by all"] += 1
        elif name in ACCEPTED:
            tally["accepted differences"] += 1
        else:
            tally["read otherwise by both"] += 1
            wrong.append(f"{name}: {difference(first, ours)}")
    return tally, wrong


def judge_slack(samples: Iterable[str]) -> Counter[str]:
    """Check our blocks against the official types."""
    blocks = [markdown_blocks(part, ()) for md in samples for part in render_final(md, SLACK)]
    verdict = node("slack", blocks)
    return Counter(
        {"messages": len(blocks), "refused": len(verdict["wrong"]), "blind": not verdict["refuses"]}
    )


# --- causes ----------------------------------------------------------------------------------


CHATS = ("Telegram, rich", "Telegram, text", "Discord", "Slack", "Slack, stream")


def _entity_data(entity: TextEntity) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(entity)
    return found


def shown_in_chats(md: str) -> dict[str, Shown]:
    """Return what is seen of a text on each chat platform."""
    parts = render_final(md, PRIVATE)
    rich = [sign for part in parts for sign in telegram_rich(format_html(parse(part)))]
    plain = [
        sign
        for part in parts
        for drawn in (format_text(parse(part)),)
        for sign in telegram_text(drawn.text, list(map(_entity_data, drawn.entities)))
    ]
    found = {"Telegram, rich": shown(rich), "Telegram, text": shown(plain)}
    found["Discord"] = shown(
        sign for part in render_final(md, DISCORD) for sign in discord(render(part))[0]
    )
    blocks = [block for part in render_final(md, SLACK) for block in markdown_blocks(part, ())]
    found["Slack"] = shown(sign for block in blocks for sign in slack(block["text"]))
    found["Slack, stream"] = shown(slack(growing_markdown(md + "\n\n")))
    return found


def count_causes(
    judged: dict[str, str], pages: dict[str, Shown] | None, printed: dict[str, str]
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return how often each cause is found, by surface, and the texts concerned."""
    table: dict[str, Counter[str]] = {}
    wrong = []
    html_of = {f"example {each['number']}": each["html"] for each in examples()}
    for name, md in judged.items():
        meant = reference(html_of[name]) if name in html_of else meaning(md)
        seen = shown_in_chats(md) | ({"page": pages[name]} if pages else {})
        for surface, each in seen.items():
            causes = find_causes(md, meant, each, words=name not in html_of)
            if surface == "Slack, stream":  # a later definition cannot change the beginning
                causes = [cause for cause in causes if cause not in LATER]
            accepted = [
                cause
                for cause in causes
                if {(name, surface, cause), (name, "", cause)} & ACCEPTED_CAUSES.keys()
            ]
            causes = [cause for cause in causes if cause not in accepted]
            tally = table.setdefault(surface, Counter())
            tally["texts"] += 1
            tally["formulas"] += len(formulas(md))
            tally["accepted"] += len(accepted)
            tally.update(causes)
            wrong += [f"{surface}, {name}: {cause}" for cause in causes]
    number = sum(len(formulas(md)) for md in judged.values())
    for surface, text in printed.items():
        damaged = [tex for md in judged.values() for tex in damaged_formulas(md, text)]
        table[surface] = Counter(
            {"texts": len(judged), "formulas": number, "LaTeX damaged": len(damaged)}
        )
        wrong += [f"{surface}: {tex}" for tex in damaged]
    return table, wrong


LATER = ("reference links", "footnotes", "emphasis beside CJK")
"""Causes that a stream of Slack can show until its end, when the whole text replaces it."""


def joined_answers(judged: dict[str, str]) -> str:
    """Return all texts as one answer."""
    return "\n\n".join(judged.values())


def print_causes(table: dict[str, Counter[str]]) -> None:
    """Print causes by surface; a dash where a surface prints the source."""
    width = max(map(len, table)) + 2
    columns = ("texts", "formulas", "accepted", *CAUSES)
    sys.stdout.write("Causes by surface\n")
    for number, column in enumerate(columns):
        sys.stdout.write(f"    {'':{width}}{'|' * number}{' ' if number else ''}{column}\n")
    for surface, tally in table.items():
        raw = "page" not in surface and surface not in CHATS
        cells = [
            "-" if raw and column in CAUSES and column != "LaTeX damaged" else str(tally[column])
            for column in columns
        ]
        sys.stdout.write(f"    {surface:{width}}" + " ".join(f"{cell:>6}" for cell in cells) + "\n")


BAD = (
    *("refused", "other text", "other entities", "automatic entity across code", "blind"),
    *("read otherwise by both", *ZERO, *CAUSES),
)
"""Counts that must be zero."""


def judge_causes() -> tuple[dict[str, Counter[str]], list[str]]:
    """Count the causes on all surfaces."""
    judged = judged_texts()
    pages = None
    if HAVE_CHROMIUM:
        pages = dict(zip(judged, asyncio.run(shown_on_page(judged.values())), strict=True))
    else:
        sys.stdout.write(f"SKIPPED page: {CHROMIUM} is missing\n")
    with tempfile.TemporaryDirectory() as folder:
        printed = asyncio.run(texts_of_daemon(Path(folder) / "home", joined_answers(judged)))
    return count_causes(judged, pages, printed)


def main() -> None:
    good = True
    try:
        samples = texts(TEXTS) | judged_texts()
    except Missing:
        samples = texts(TEXTS)
    everything = list(samples.values())
    wrong: list[str] = []

    def discord_readers() -> dict[str, Counter[str]]:
        tally, differences = judge_discord(samples)
        wrong.extend(differences)
        return {"Discord": tally}

    judges: tuple[tuple[str, Callable[[], dict[str, Counter[str]]]], ...] = (
        ("TDLib", lambda: {"Telegram": judge_telegram(everything)}),
        ("CommonMark", judge_commonmark),
        ("Discord's readers", discord_readers),
        ("Slack's types", lambda: {"Slack": judge_slack(everything)}),
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
            good = good and not any(tally[what] for what in BAD)
    try:
        causes, found = judge_causes()
    except Missing as error:
        sys.stdout.write(f"SKIPPED causes: {error}\n")
    else:
        print_causes(causes)
        wrong += found
        good = good and not any(tally[what] for tally in causes.values() for what in BAD)
    sys.stdout.writelines(f"    {each}\n" for each in wrong)
    sys.exit(not good)


if __name__ == "__main__":
    main()
