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

from agent.tools.blocking import Stop, in_thread
from agent.tools.confine import entered
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.files import scan
from agent.tools.files.scan import Hit, Tally
from agent.tools.text import many

SECONDS = 15.0  # that a search may take
MOST_HITS = 200
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


class Found:
    """What a search brought, also when it was not brought to its end."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.tally: Tally | None = None  # None: it was not brought to its end
        self.valid = True  # the pattern was a regular expression, or a plain text

    @property
    def full(self) -> bool:
        """There is no room for more."""
        return len(self.hits) >= MOST_HITS


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
    root: Path, pattern: str, path: str, glob: str, *, seconds: float = SECONDS
) -> str:
    """See `search_files`."""
    name, start = await in_thread(lambda _stop: _opened(root, path))
    found = Found()
    try:
        if _SPECIAL.search(pattern):
            await _apart(start, name, pattern, glob, seconds, found)
        else:
            await _here(start, name, pattern, glob, seconds, found)
    finally:
        os.close(start)
    return _told(found, pattern, seconds)


def _opened(root: Path, path: str) -> tuple[str, int]:
    with entered(root) as workspace:
        return workspace.name(path), workspace.open(path)


async def _here(
    start: int, name: str, pattern: str, glob: str, seconds: float, found: Found
) -> None:
    def work(stop: Stop) -> None:
        tally = Tally()
        for hit in scan.scan(start, name, glob, scan.plain(pattern), tally, stop.is_set):
            found.hits.append(hit)
            if found.full:
                return
        if not stop.is_set():
            found.tally = tally

    stop = Stop()
    timer = asyncio.get_running_loop().call_later(seconds, stop.set)
    try:
        await in_thread(work, stop)
    finally:
        timer.cancel()


async def _apart(
    start: int, name: str, pattern: str, glob: str, seconds: float, found: Found
) -> None:
    order = scan.Order(start, name, glob, pattern)
    try:
        async with asyncio.timeout(seconds), _scanner(start) as process:
            orders = cast("asyncio.StreamWriter", process.stdin)
            orders.write(json.dumps(order).encode())
            orders.close()
            await _read(cast("asyncio.StreamReader", process.stdout), found)
    except TimeoutError:
        pass


async def _read(lines: asyncio.StreamReader, found: Found) -> None:
    async for line in lines:
        said = json.loads(line)
        if isinstance(said, bool):
            found.valid = said
        elif len(said) == len(Hit._fields):
            found.hits.append(Hit(*said))
            if found.full:
                return
        else:
            found.tally = Tally(*said)


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


def _told(found: Found, pattern: str, seconds: float) -> str:
    notes = [many(len(found.hits), "match", "es") if found.hits else f"Nothing matches {pattern!r}"]
    if found.full:
        notes = [f"The first {len(found.hits):,} matches; narrow the search to see others"]
    elif found.tally is None:
        notes.append(f"given up after {seconds:g} s: search in fewer files, or more simply")
    if found.tally is not None:
        notes[0] += f" in {many(found.tally.files, 'file')} searched"
        if found.tally.skipped:
            notes.append(f"{many(found.tally.skipped, 'file')} too large or not readable")
    if not found.valid:
        notes.append("not a regular expression, so it was searched for as plain text")
    lines = [f"{hit.path}:{hit.line}: {hit.text}" for hit in found.hits]
    return "\n".join([f"[{'; '.join(notes)}]", *lines])
