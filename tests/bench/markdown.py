"""The Markdown parser of `platforms.core.document` against markdown-it-py, over the same answers.

`python -m tests.bench.markdown` prints CPU milliseconds of both parsers and their ratio: for whole
answers, for an answer that grows by 40 characters an edit, and for the import. markdown-it-py is
measured up to its tokens: building the tree that the renderers read would come on top. The syntax is
the same on both sides as far as mdit-py-plugins has it; spoilers and our other additions would be
further rules. Both sides take turns in one process, so a busy machine disturbs both.
"""

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.tasklists import tasklists_plugin

from platforms.core.document import parse
from platforms.core.split import split
from tests.faults.markdown_texts import text_of

SIZES = (1_000, 4_000, 50_000)
"""Characters of the whole answers; a Telegram message holds 4,096."""

GROWN = 4_000  # characters of the answer that grows
STEP = 40  # characters between two edits
ROUNDS = 9
_SAMPLES = 5  # answers of each size
_LEAST = 100_000  # characters that one round reads, so that the clock has something to measure

LIMIT = 1 / 1.5
"""Share of markdown-it-py's CPU time that our parser may take for whole answers."""


class Measured(msgspec.Struct, frozen=True):
    """CPU seconds of each round, ours and markdown-it-py's."""

    name: str
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Median of our share of markdown-it-py's time."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))


def answers(size: int) -> list[str]:
    """Answers of this size, each from seeds of its own."""
    found: list[str] = []
    seed = 0
    while len(found) < _SAMPLES:
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            parts.append(text_of(seed))
            seed += 1
        found.append("\n\n".join(parts)[:size])
    return found


def contestant() -> MarkdownIt:
    """markdown-it-py with the syntax of `platforms.core.document` that plugins offer."""
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    reader.use(footnote_plugin)
    reader.use(dollarmath_plugin, double_inline=True, allow_space=False, allow_digits=False)
    return reader.use(tasklists_plugin)


class LastBlock:
    """Finds where the last top-level block of a growing text begins.

    An answer can be followed by parsing this block alone and keeping the blocks before. Too
    optimistic for an adapter: a definition at the end changes links in blocks before it, which would
    have to be parsed again.
    """

    def __init__(self, reader: MarkdownIt) -> None:
        self._reader = reader
        self._start = 0

    def __call__(self, md: str) -> str:
        """Parse what follows the last start, and give the last block of the text."""
        tokens = self._reader.parse(md[self._start :])
        lines = [token.map[0] for token in tokens if token.level == 0 and token.map]
        for _ in range(lines[-1] if lines else 0):
            self._start = md.index("\n", self._start) + 1
        return md[self._start :]


# --- measuring -------------------------------------------------------------------------------


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep old objects out of garbage collections, and tracing out of the measured code."""
    gc.freeze()
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracing)
        gc.unfreeze()


def _seconds(work: Callable[[], object], times: int) -> float:
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def _compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], times: int, rounds: int
) -> Measured:
    measured = Measured(name, [], [])
    with _undisturbed():
        ours()
        theirs()
        for _ in range(rounds):
            measured.ours.append(_seconds(ours, times))
            measured.theirs.append(_seconds(theirs, times))
    return measured


def whole(size: int, rounds: int = ROUNDS) -> Measured:
    """Parse whole answers; the seconds are those of one answer."""
    texts, reader = answers(size), contestant()
    measured = _compare(
        f"whole answer, {size:,} characters",
        lambda: [parse(text) for text in texts],
        lambda: [reader.parse(text) for text in texts],
        max(1, _LEAST // (size * _SAMPLES)),
        rounds,
    )
    return _each(measured, _SAMPLES)


Parse = Callable[[str], object]


def _edits() -> Iterator[list[str]]:
    """Beginnings of answers, one for each live edit."""
    for text in answers(GROWN):
        yield [text[:end] for end in range(STEP, GROWN + 1, STEP)]


def growing(rounds: int = ROUNDS) -> Measured:
    """Parse the whole message at each live edit, as the adapters do; seconds of one edit."""
    texts = [text for each in _edits() for text in each]
    return _edited("live edit, whole message", texts, texts, contestant().parse, rounds)


def last_blocks(rounds: int = ROUNDS) -> Measured:
    """Parse only the last block at each live edit, on both sides; seconds of one edit."""
    reader = contestant()
    texts: list[str] = []
    for beginnings in _edits():
        texts += map(LastBlock(reader), beginnings)
    return _edited("live edit, last block of both", texts, texts, reader.parse, rounds)


def last_blocks_of_theirs(rounds: int = ROUNDS) -> Measured:
    """Parse the whole message with ours and the last block with markdown-it-py."""
    reader = contestant()
    whole_texts: list[str] = []
    last: list[str] = []
    for beginnings in _edits():
        whole_texts += beginnings
        last += map(LastBlock(reader), beginnings)
    name = "live edit, whole message against their last block"
    return _edited(name, whole_texts, last, reader.parse, rounds)


def _edited(name: str, ours: list[str], theirs: list[str], read: Parse, rounds: int) -> Measured:
    measured = _compare(
        name,
        lambda: [parse(text) for text in ours],
        lambda: [read(text) for text in theirs],
        1,
        rounds,
    )
    return _each(measured, len(ours))


def cited(rounds: int = ROUNDS) -> Measured:
    """Parse answers that cite ten addresses by reference; ours reads such answers twice."""
    definitions = "\n".join(f"[{number}]: https://example.org/{number}" for number in range(10))
    uses = " ".join(f"[{number}]" for number in range(10))
    texts = [f"{text}\n\nSee {uses}.\n\n{definitions}" for text in answers(GROWN)]
    reader = contestant()
    measured = _compare(
        f"whole answer, {GROWN:,} characters and ten citations",
        lambda: [parse(text) for text in texts],
        lambda: [reader.parse(text) for text in texts],
        _LEAST // (GROWN * _SAMPLES),
        rounds,
    )
    return _each(measured, _SAMPLES)


def pieces(limit: int = 2_000, rounds: int = ROUNDS) -> Measured:
    """Parse the messages of long answers after they were cut; the seconds are those of one message."""
    reader = contestant()
    messages = [piece for text in answers(20_000) for piece in split(text, limit)]
    measured = _compare(
        f"messages of at most {limit:,} characters",
        lambda: [parse(text) for text in messages],
        lambda: [reader.parse(text) for text in messages],
        1,
        rounds,
    )
    return _each(measured, len(messages))


def _each(measured: Measured, count: int) -> Measured:
    return Measured(
        measured.name,
        [seconds / count for seconds in measured.ours],
        [seconds / count for seconds in measured.theirs],
    )


_IMPORT = """
import time
import collections.abc, html, re, typing, msgspec  # the gateway has them in any case
began = time.process_time()
import {}
print(time.process_time() - began)
"""
_THEIRS = (
    "markdown_it, mdit_py_plugins.footnote, mdit_py_plugins.dollarmath, mdit_py_plugins.tasklists"
)


def imports(rounds: int = ROUNDS) -> Measured:
    """Import each parser in a new process."""
    measured = Measured("import", [], [])
    for _ in range(rounds):
        measured.ours.append(_import("platforms.core.document"))
        measured.theirs.append(_import(_THEIRS))
    return measured


def _import(names: str) -> float:
    command = [sys.executable, "-c", _IMPORT.format(names)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def line(measured: Measured) -> str:
    """One line of the report."""
    ours, theirs = (statistics.median(each) * 1000 for each in (measured.ours, measured.theirs))
    return (
        f"{measured.name:56} {ours:8.2f} ms {theirs:8.2f} ms   "
        f"ours takes {measured.ratio:.2f} of markdown-it-py's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    measured = [whole(size, rounds) for size in SIZES]
    measured += [cited(rounds), pieces(rounds=rounds)]
    measured += [growing(rounds), last_blocks(rounds), last_blocks_of_theirs(rounds)]
    measured.append(imports(rounds))
    sys.stdout.write("".join(f"{line(each)}\n" for each in measured))
    if any(each.ratio > LIMIT for each in measured[: len(SIZES)]):
        sys.exit(1)


if __name__ == "__main__":
    main()
