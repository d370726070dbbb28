"""Searches files: a plain text in a thread, a regular expression in a process that can be killed."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, cast

from msgspec import Meta

from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import open_workspace
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.files import scan
from agent.tools.files.scan import Hit, ScanStats
from agent.tools.text import pluralize

SEARCH_SECONDS = 15.0  # that a search may take
MAX_HITS = 200
_REGEX_CHARACTERS = re.compile(r"[\\.^$*+?{}\[\]|()]")


class SearchResults:
    """What a search brought, also when it was not brought to its end."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.stats: ScanStats | None = None  # None: it was not brought to its end
        self.is_pattern_valid = True  # the pattern was a regular expression, or a plain text

    @property
    def is_full(self) -> bool:
        """There is no room for more."""
        return len(self.hits) >= MAX_HITS


@tool(risk=Risk.READ, emoji="🔎", parallel=True, label="pattern", family="files")
async def search_files(
    context: ToolContext,
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)],
    path: str = ".",
    glob: Annotated[str, Meta(min_length=1, max_length=200)] = "*",
) -> str:
    """Search the text files of the workspace, line by line; gives `path:line: text`.

    Links, binary files and the folders .git, .holdfast, .venv, __pycache__ and node_modules are
    passed over, unless `path` names one of these folders.

    Args:
        context: Not part of the call.
        pattern: A regular expression as in Python; (?i) at its beginning ignores case. What is
            none is searched for as plain text.
        path: The file or folder to search in, named from the top of the workspace.
        glob: Which files: a pattern of names such as *.py, or of paths such as src/*.py.
    """
    return await search(context.workspace, pattern, path, glob)


async def search(
    root: Path, pattern: str, path: str, glob: str, *, seconds: float = SEARCH_SECONDS
) -> str:
    """See `search_files`."""
    name, start = await run_in_thread(lambda _stop: _open_start(root, path))
    found = SearchResults()
    try:
        if _REGEX_CHARACTERS.search(pattern):
            await _search_in_process(start, name, pattern, glob, seconds, found)
        else:
            await _search_in_thread(start, name, pattern, glob, seconds, found)
    finally:
        os.close(start)
    return _format_results(found, pattern, seconds)


def _open_start(root: Path, path: str) -> tuple[str, int]:
    with open_workspace(root) as workspace:
        return workspace.relative_name(path), workspace.open(path)


async def _search_in_thread(
    start: int, name: str, pattern: str, glob: str, seconds: float, found: SearchResults
) -> None:
    def work(stop: StopEvent) -> None:
        tally = ScanStats()
        for hit in scan.scan(start, name, glob, scan.match_text(pattern), tally, stop.is_set):
            found.hits.append(hit)
            if found.is_full:
                return
        if not stop.is_set():
            found.stats = tally

    stop = StopEvent()
    timer = asyncio.get_running_loop().call_later(seconds, stop.set)
    try:
        await run_in_thread(work, stop)
    finally:
        timer.cancel()


async def _search_in_process(
    start: int, name: str, pattern: str, glob: str, seconds: float, found: SearchResults
) -> None:
    order = scan.ScanRequest(start, name, glob, pattern)
    try:
        async with asyncio.timeout(seconds), _scanner(start) as process:
            orders = cast("asyncio.StreamWriter", process.stdin)
            orders.write(json.dumps(order).encode())
            orders.close()
            await _read_results(cast("asyncio.StreamReader", process.stdout), found)
    except TimeoutError:
        pass


async def _read_results(lines: asyncio.StreamReader, found: SearchResults) -> None:
    async for line in lines:
        said = json.loads(line)
        if isinstance(said, bool):
            found.is_pattern_valid = said
        elif len(said) == len(Hit._fields):
            found.hits.append(Hit(*said))
            if found.is_full:
                return
        else:
            found.stats = ScanStats(*said)


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


def _format_results(found: SearchResults, pattern: str, seconds: float) -> str:
    notes = [
        pluralize(len(found.hits), "match", "es") if found.hits else f"Nothing matches {pattern!r}"
    ]
    if found.is_full:
        notes = [f"The first {len(found.hits):,} matches; narrow the search to see others"]
    elif found.stats is None:
        notes.append(f"given up after {seconds:g} s: search in fewer files, or more simply")
    if found.stats is not None:
        notes[0] += f" in {pluralize(found.stats.files, 'file')} searched"
        if found.stats.skipped:
            notes.append(f"{pluralize(found.stats.skipped, 'file')} too large or not readable")
    if not found.is_pattern_valid:
        notes.append("not a regular expression, so it was searched for as plain text")
    lines = [f"{hit.path}:{hit.line}: {hit.text}" for hit in found.hits]
    return "\n".join([f"[{'; '.join(notes)}]", *lines])
