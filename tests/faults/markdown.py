"""Thousands of texts as models write them, and all beginnings of nasty ones, on every platform.

`python -m tests.faults.markdown` is the long form; a few texts run with the tests. What a text means
is read by another parser than ours, what is seen by readers of their own, and the two are compared.
"""

import argparse
import asyncio
import multiprocessing
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gateway.delivery.view import render_final, render_live
from platforms.core.contract import Capabilities, Unit
from platforms.core.errors import PlatformError
from platforms.core.markdown import has_open_fence
from platforms.core.split import TextPiece, split_pieces, text_length
from tests.faults.markdown_seen import slack
from tests.faults.markdown_signs import (
    LINE,
    UNSEEN,
    Dialect,
    Sign,
    Verdict,
    compare,
    looks_of,
    tree,
)
from tests.faults.markdown_stages import (
    DiscordStage,
    Seen,
    SlackStage,
    Stage,
    TelegramStage,
    expected_plain,
)
from tests.faults.markdown_texts import ANSWERS, NASTY, SAMPLES, text_of
from tests.faults.markdown_wire import differences

STAGES: dict[str, Callable[[], Stage]] = {
    "telegram": TelegramStage,
    "discord": DiscordStage,
    "slack": SlackStage,
}
LIMITS = (50, 200, 2_000, 12_000)
_SCREEN = 2_000
ENOUGH = 0.99  # of all texts must arrive with all of their looks


@dataclass
class Tally:
    """What became of the texts."""

    of: str
    texts: int = 0
    parts: int = 0
    lost: int = 0
    formatted: int = 0
    refused: int = 0
    over: int = 0
    violations: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.of}: {self.texts} texts in {self.parts} messages, {self.lost} with something "
            f"lost, {self.share:.2%} formatted, {self.over} messages over the limit, {self.refused} "
            f"refused, {len(self.violations)} violations, {self.seconds:.0f} s"
        )

    @property
    def share(self) -> float:
        return self.formatted / self.texts if self.texts else 1.0

    @property
    def good(self) -> bool:
        bad = self.lost or self.over or self.refused or self.violations
        return not bad and self.share >= ENOUGH

    def add(self, name: str, verdict: Verdict) -> None:
        self.texts += 1
        self.lost += bool(verdict.lost)
        self.formatted += verdict.formatted
        self.examples += [f"{name}: {each}" for each in list(verdict)[:1]]


# --- whole texts -----------------------------------------------------------------------------


def joined(messages: Iterable[Seen]) -> list[Sign]:
    """All that is seen, from the first message to the last."""
    signs: list[Sign] = []
    for message in messages:
        for number, sign in enumerate(message.signs):
            signs.append(sign if number else sign._replace(gap=LINE))
    return signs


async def try_text(stage: Stage, name: str, md: str, tally: Tally) -> list[Seen]:
    """Show one text in its final form, and judge what arrives."""
    parts = render_final(md, stage.capabilities)
    before = stage.refused
    messages = await stage.post(parts)
    tally.parts += len(messages)
    tally.refused += stage.refused - before
    tally.over += sum(_over(part, stage.capabilities) for part in parts)
    _take_violations(stage, name, tally, tables="cell" in looks_of(tree(md, stage.dialect)[0]))
    tally.add(name, judge(md, stage.dialect, joined(messages)))
    return messages


def judge(md: str, dialect: Dialect, seen: list[Sign]) -> Verdict:
    """Compare what is seen with what a text means; signs that nobody sees may count in it or not."""
    verdict = _judge(md, dialect, seen)
    if (plainer := UNSEEN.sub("", md)) != md and list(verdict):
        other = _judge(plainer, dialect, seen)
        verdict = min(verdict, other, key=lambda each: len(list(each)))
    return verdict


def _judge(md: str, dialect: Dialect, seen: list[Sign]) -> Verdict:
    signs, targets = tree(md, dialect)
    return compare(signs, seen, targets)


def _over(part: str, capabilities: Capabilities) -> bool:
    return text_length(part, capabilities.unit) > capabilities.text_limit


def _take_violations(stage: Stage, name: str, tally: Tally, *, tables: bool = True) -> None:
    """Half a table is shown as what it is."""
    found = [each for each in stage.violations if tables or each != "a table as text"]
    tally.violations += [f"{name}: {each}" for each in found]
    stage.violations.clear()


async def try_texts(platform: str, seeds: Iterable[int]) -> Tally:
    """Show the texts of some seeds."""
    stage, tally = STAGES[platform](), Tally(f"{platform}, whole texts")
    began = time.monotonic()
    for seed in seeds:
        await try_text(stage, f"text {seed}", text_of(seed), tally)
    tally.seconds = time.monotonic() - began
    return tally


# --- beginnings ------------------------------------------------------------------------------


async def try_beginnings(platform: str, names: Iterable[str], step: int = 1) -> tuple[Tally, Tally]:
    """Show every beginning of some samples: as an answer that goes on, and as one that ended there."""
    stage = STAGES[platform]()
    live, final = Tally(f"{platform}, live beginnings"), Tally(f"{platform}, final beginnings")
    began = time.monotonic()
    for name in names:
        for end in range(1, len(SAMPLES[name]) + 1, step):
            md = SAMPLES[name][:end]
            if md.strip():
                await try_live(stage, f"{name}[:{end}]", md, live)
    live.seconds, began = time.monotonic() - began, time.monotonic()
    for name in names:
        for end in range(1, len(SAMPLES[name]) + 1, step):
            if SAMPLES[name][:end].strip():
                await try_text(stage, f"{name}[:{end}]", SAMPLES[name][:end], final)
    final.seconds = time.monotonic() - began
    return live, final


_TYPED = re.compile(r"(?:^|\n)[ >]*(?:[-*+] |\d+[.)] )*(?:`{1,}|~{1,})[^\n]*\Z")


_TAGS = re.compile(
    r"</?(?:b|i|u|s|sub|sup|code|kbd|(?<=/)a)>|<a href[^<>]*>|</?[a-z]*\Z", re.IGNORECASE
)
"""Tags that are closed while the text grows, or may become one."""

_HALF_LINK = re.compile(
    r"\]\((?:<[^<>\n]*|[^\s<>()]*(?:\([^\s()]*\)?[^\s()]*)?(?: +(?:\"[^\"\n]*\"?)?)?)\Z"
)
"""The target of a link that is being typed, which is not shown."""


async def try_live(stage: Stage, name: str, md: str, tally: Tally) -> None:
    """Show a text that is being written: all words are seen, and what is whole has its looks."""
    capabilities = getattr(stage, "in_dms", stage.capabilities)
    parts = render_live(md, capabilities)
    before = stage.refused
    messages = await stage.live(parts) if parts else []
    tally.parts += len(messages)
    tally.refused += stage.refused - before
    tally.over += sum(_over(part, capabilities) for part in parts)
    _take_violations(stage, name, tally)
    seen = joined(messages)
    # What is being typed may become anything: of that only the words count.
    settled = md[: md.rstrip().rfind("\n\n") + 1]
    if "]:" in md[len(settled) :]:  # a new definition changes what stands above it
        settled = ""
    verdict = compare(tree(settled, stage.dialect)[0], seen, set())
    verdict.literal.clear()
    spoken = md[: found.start()] if (found := _TYPED.search(md)) else md
    spoken = _HALF_LINK.sub("", _TAGS.sub("", spoken))
    words = [sign for sign in tree(spoken, stage.dialect)[0] if sign.char.isalnum()]
    shown = iter(sign.char for sign in seen)
    if missing := [sign.char for sign in words if sign.char not in shown]:
        verdict.lost.append(f"words: {missing[:3]}")
    tally.add(name, verdict)


async def try_streams(names: Iterable[str], step: int = 1) -> Tally:
    """Let samples grow in Slack's streams: what was seen once stays, and the end is the whole."""
    stage, tally = SlackStage(), Tally("slack, streams")
    began = time.monotonic()
    for name in names:
        md = SAMPLES[name]
        parts = [render_live(md[:end], stage.capabilities) for end in range(1, len(md) + 1, step)]
        texts = ["".join(each) for each in parts if each]
        moments, final = await stage.stream([*texts, *render_final(md, stage.capabilities)])
        tally.parts += len(moments)
        if any(not later.startswith(earlier) for earlier, later in pairwise(moments)):
            tally.violations.append(f"{name}: what was seen was taken back")
        _take_violations(stage, name, tally)
        tally.add(name, judge(md, stage.dialect, final.signs))
    tally.refused, tally.seconds = stage.refused, time.monotonic() - began
    return tally


async def try_wire(seeds: Sequence[int]) -> Tally:
    """Send some over the wire, and see that the same arrives."""
    tally = Tally("all three, over the wire")
    began = time.monotonic()
    for platform in STAGES:
        different = await differences(platform, seeds)
        tally.violations += [f"{platform}: {each}" for each in different]
        tally.texts += len(seeds)
        tally.formatted = tally.texts
    tally.seconds = time.monotonic() - began
    return tally


# --- refusals --------------------------------------------------------------------------------


async def try_refusals(texts: dict[str, str]) -> list[Tally]:
    """Let each form be refused in its turn: the next one is shown, and nothing is lost."""
    plainer = Tally("telegram, no rich messages")
    plain = Tally("telegram, entities refused")
    blunt = Tally("slack, Markdown refused")
    entities, raw, sections = (
        TelegramStage("rich"),
        TelegramStage("rich", "entities"),
        SlackStage(refuse=True),
    )
    for name, md in texts.items():
        await try_text(entities, name, md, plainer)
        parts = [part for part in render_final(md, raw.capabilities) if part.strip()]
        for tally, stage, expect in (
            (plain, raw, str),
            (blunt, sections, expected_plain),
        ):
            wanted = render_final(md, stage.capabilities) if stage is sections else parts
            messages = await stage.post(wanted)
            verdict = Verdict()
            for part, message in zip(wanted, messages, strict=True):
                if message.form != "plain" or message.raw == expect(part):
                    continue
                # Without entities there was nothing to refuse, and it is drawn as ever.
                if judge(part, stage.dialect, message.signs).lost:
                    verdict.lost.append(f"{message.raw[:40]!r} is not {part[:40]!r}")
            tally.parts += len(messages)
            tally.add(name, verdict)
            _take_violations(stage, name, tally)
    # Rich messages were refused by that server once, or it was known by then that it has none.
    plainer.refused = 0
    return [plainer, plain, blunt]


# --- cuts ------------------------------------------------------------------------------------


def try_cuts(texts: dict[str, str]) -> Tally:
    """Cut texts at several limits, in all units, and read the pieces as CommonMark."""
    tally = Tally("cut at " + ", ".join(map(str, LIMITS)))
    began = time.monotonic()
    for number, (name, md) in enumerate(texts.items()):
        signs, targets = tree(md, Dialect())
        for limit in LIMITS:
            unit = list(Unit)[(number + limit) % len(Unit)]
            found = split_pieces(md, limit, unit)
            shown = [piece.message for piece in found]
            tally.parts += len(shown)
            tally.over += sum(text_length(part, unit) > limit for part in shown)
            tally.violations += [f"{name}: {each}" for each in _torn([each.text for each in found])]
            if limit < _SCREEN:  # there is hardly room for a mark
                verdict = _same(md, found)
            else:
                seen = joined(Seen(slack(part), part, "") for part in shown)
                verdict = compare(signs, seen, targets)
            tally.add(f"{name} at {limit}", verdict)
    tally.seconds = time.monotonic() - began
    return tally


def _same(md: str, found: list[TextPiece]) -> Verdict:
    """All that was written is there; what stands at a border is blank, or closes a code block."""
    verdict = Verdict()
    md = md.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join(piece.text + piece.gap for piece in found)
    if not md.endswith(kept) or md[: len(md) - len(kept)].strip():
        verdict.lost.append(f"{len(md) - len(kept)} characters")
    verdict.lost += [each.gap for each in found if re.sub("[`~>]", "", each.gap).strip()]
    verdict.plain += [
        f"open: {each.message[:40]!r}" for each in found if has_open_fence(each.message)
    ]
    return verdict


def _torn(texts: list[str]) -> list[str]:
    found = []
    for first, second in pairwise(texts):
        if not (first and second):
            continue
        joins = (
            unicodedata.category(second[0]) in {"Mn", "Me"}
            or "\U0001f3fb" <= second[0] <= "\U0001f3ff"
        )
        if joins or "\u200d" in {first[-1], second[0]}:
            found.append(f"a sign is torn: {first[-5:]!r} {second[:5]!r}")
        flags = re.search("[\U0001f1e6-\U0001f1ff]*\\Z", first)
        if flags and len(flags[0]) % 2 and "\U0001f1e6" <= second[0] <= "\U0001f1ff":
            found.append(f"a flag is torn: {first[-5:]!r} {second[:5]!r}")
    return found


# --- the long form ---------------------------------------------------------------------------


def _work(job: tuple[str, int]) -> list[Tally]:
    try:
        return _tried(*job)
    except PlatformError as error:  # one of its own kind cannot be handed to another process
        msg = f"{job[0]}: {error}"
        raise RuntimeError(msg) from None


def _tried(kind: str, count: int) -> list[Tally]:
    match kind:
        case "telegram" | "discord" | "slack":
            return [asyncio.run(try_texts(kind, range(count)))]
        case "streams":
            return [asyncio.run(try_streams(SAMPLES))]
        case "refusals":
            return asyncio.run(try_refusals(_some(count // 5)))
        case "wire":
            return [asyncio.run(try_wire(range(count // 25)))]
        case "cuts":
            return [try_cuts(_some(count // 5))]
        case _:
            platform, *_, of = kind.split()
            return list(
                asyncio.run(try_beginnings(platform, NASTY if of == "beginnings" else ANSWERS))
            )


def _some(count: int) -> dict[str, str]:
    return NASTY | {f"text {seed}": text_of(seed) for seed in range(count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=5_000, help="on each platform")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--only", help="a part of it: a platform, 'cuts', …")
    parser.add_argument("--examples", type=int, default=10, help="of what went wrong, shown")
    chosen = parser.parse_args()
    kinds = [
        *STAGES,
        *(f"{name} beginnings" for name in STAGES),
        *(f"{name} beginnings of answers" for name in STAGES),
        "streams",
        "refusals",
        "wire",
        "cuts",
    ]
    work = [(kind, chosen.texts) for kind in kinds if not chosen.only or chosen.only in kind]
    good = True
    with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
        for tallies in pool.imap(_work, work):
            for tally in tallies:
                good = good and tally.good
                sys.stdout.write(f"{tally}\n")
                wrong = tally.violations[: chosen.examples] + tally.examples[: chosen.examples]
                sys.stdout.writelines(f"    {each}\n" for each in wrong)
                sys.stdout.flush()
    sys.exit(not good)


if __name__ == "__main__":
    main()
