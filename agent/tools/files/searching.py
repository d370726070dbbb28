"""The search tool: plain text in a thread, regular expressions in a process that can be killed."""

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Annotated, cast

from msgspec import Meta

from agent.errors import ToolError
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import open_workspace
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.files import scan
from agent.tools.files.scan import Hit, ScanStats
from agent.tools.masks import has_placeholder, mask_lines
from agent.tools.text import pluralize
from sessions.values.masks import MaskedText, MaskSecrets

_SEARCH_SECONDS = 15.0
_MAX_HITS = 200
_MAX_READ_BYTES = 50_000_000  # of all files with hits
_REGEX_CHARACTERS = re.compile(r"[\\.^$*+?{}\[\]|()]")


class SearchResults:
    """Results of a search, complete or not."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.stats: ScanStats | None = None  # None: the search did not finish
        self.is_pattern_valid = True  # False: an invalid regular expression
        self.dropped = 0  # matches inside of secrets

    @property
    def is_full(self) -> bool:
        """True if the maximum number of hits is reached."""
        return len(self.hits) + self.dropped >= _MAX_HITS


@tool(risk=Risk.READ, emoji="🔎", parallel=True, label="pattern", family="files")
async def search_files(
    context: ToolContext,
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)],
    path: str = ".",
    glob: Annotated[str, Meta(min_length=1, max_length=200)] = "*",
) -> str:
    """Search the text files in the workspace line by line. Hits have the form `path:line: text`.

    Links, binary files and the folders .git, .holdfast, .venv, __pycache__ and node_modules are
    skipped, unless `path` is one of these folders.

    Args:
        context: Not part of the call.
        pattern: Python regular expression; start it with (?i) to ignore case. An invalid
            expression is searched for as plain text.
        path: File or folder to search, relative to the workspace root.
        glob: Files to search: a pattern for names such as *.py, or for paths such as src/*.py.
    """
    return await search(context.workspace, pattern, path, glob, mask=context.mask)


async def search(
    root: Path,
    pattern: str,
    path: str,
    glob: str,
    *,
    mask: MaskSecrets = MaskedText,
    seconds: float = _SEARCH_SECONDS,
) -> str:
    """Search as `search_files` does, with another time limit."""
    name, start = await run_in_thread(lambda _stop: _open_start(root, path))
    try:
        results = await _search(start, name, pattern, glob, seconds)
    finally:
        os.close(start)
    masked = await run_in_thread(lambda stop: _masked_lines(root, results.hits, mask, stop))
    if masked:
        await _replace_masked_hits(results, masked, pattern, seconds)
    return _format_results(results, pattern, seconds)


async def _search(start: int, name: str, pattern: str, glob: str, seconds: float) -> SearchResults:
    results = SearchResults()
    if _REGEX_CHARACTERS.search(pattern):
        await _search_in_process(start, name, pattern, glob, seconds, results)
    else:
        await _search_in_thread(start, name, pattern, glob, seconds, results)
    return results


def _masked_lines(
    root: Path, hits: Sequence[Hit], mask: MaskSecrets, stop: StopEvent
) -> dict[int, str]:
    """Return the masked lines of the hits in lines with secrets, by the index of the hit."""
    found: dict[int, str] = {}
    room = _MAX_READ_BYTES
    with open_workspace(root) as workspace:
        for path, group in groupby(enumerate(hits), key=lambda item: item[1].path):
            try:
                content, _ = workspace.read(path, min(scan.MAX_FILE_BYTES, room))
            except ToolError:  # changed meanwhile, or no room: the line is masked alone
                continue
            room -= len(content)
            lines = content.decode(errors="replace").split("\n")
            for index, hit in group:
                if hit.line > len(lines) or stop.is_set():
                    continue
                (line,) = mask_lines(lines, hit.line - 1, hit.line, mask)
                if has_placeholder(line):
                    found[index] = line
    return found


async def _replace_masked_hits(
    results: SearchResults, masked: dict[int, str], pattern: str, seconds: float
) -> None:
    """Show masked lines; drop hits that match only in secrets, which would tell their characters."""
    with tempfile.TemporaryFile() as file:
        file.write("\n".join(masked.values()).encode())
        file.seek(0)
        again = await _search(file.fileno(), "", pattern, "*", seconds)
    shown = {hit.line: hit.text for hit in again.hits}
    texts = {index: shown.get(line) for line, index in enumerate(masked, 1)}
    hits = [
        hit._replace(text=text)
        for index, hit in enumerate(results.hits)
        if (text := texts.get(index, hit.text)) is not None
    ]
    results.dropped = len(results.hits) - len(hits)
    results.hits = hits


def _open_start(root: Path, path: str) -> tuple[str, int]:
    with open_workspace(root) as workspace:
        return workspace.relative_name(path), workspace.open(path)


async def _search_in_thread(
    start: int, name: str, pattern: str, glob: str, seconds: float, results: SearchResults
) -> None:
    def work(stop: StopEvent) -> None:
        stats = ScanStats()
        for hit in scan.scan(start, name, glob, scan.match_text(pattern), stats, stop.is_set):
            results.hits.append(hit)
            if results.is_full:
                return
        if not stop.is_set():
            results.stats = stats

    stop = StopEvent()
    timer = asyncio.get_running_loop().call_later(seconds, stop.set)
    try:
        await run_in_thread(work, stop)
    finally:
        timer.cancel()


async def _search_in_process(
    start: int, name: str, pattern: str, glob: str, seconds: float, results: SearchResults
) -> None:
    order = scan.ScanRequest(start, name, glob, pattern)
    try:
        async with asyncio.timeout(seconds), _scanner(start) as process:
            stdin = cast("asyncio.StreamWriter", process.stdin)
            stdin.write(json.dumps(order).encode())
            stdin.close()
            await _read_results(cast("asyncio.StreamReader", process.stdout), results)
    except TimeoutError:
        pass


async def _read_results(lines: asyncio.StreamReader, results: SearchResults) -> None:
    async for line in lines:
        record = json.loads(line)
        if isinstance(record, bool):
            results.is_pattern_valid = record
        elif len(record) == len(Hit._fields):
            results.hits.append(Hit(*record))
            if results.is_full:
                return
        else:
            results.stats = ScanStats(*record)


@asynccontextmanager
async def _scanner(start: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-X", "utf8", scan.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(start,),
        env={},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _format_results(results: SearchResults, pattern: str, seconds: float) -> str:
    hits, stats = results.hits, results.stats
    notes = [pluralize(len(hits), "match", "es") if hits else f"No match for {pattern!r}"]
    if results.is_full:
        notes = [f"The first {len(hits):,} matches; narrow the search to see others"]
    elif stats is None:
        notes.append(f"stopped after {seconds:g} s: search fewer files or use a simpler pattern")
    if stats is not None:
        notes[0] += f" in {pluralize(stats.files, 'file')} searched"
        if stats.skipped:
            notes.append(f"skipped {pluralize(stats.skipped, 'file')}, too large or not readable")
    if not results.is_pattern_valid:
        notes.append("invalid regular expression, so it was searched for as plain text")
    lines = [f"{hit.path}:{hit.line}: {hit.text}" for hit in hits]
    return "\n".join([f"[{'; '.join(notes)}]", *lines])
