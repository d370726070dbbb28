"""Looks at files and folders."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from agent.errors import ToolError
from agent.tools.blocking import Stop, in_thread
from agent.tools.confine import TEMPORARY, Workspace, entered
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.text import lines_in, many

LARGEST = 20_000_000  # bytes of a file that is read
_MOST_TEXT = 50_000  # characters given at once
_LONGEST_LINE = 2_000
_MOST_ENTRIES = 1_000
_HEAD = 8_192  # bytes in which a NUL shows that a file is no text


@tool(risk=Risk.READ, emoji="📖", parallel=True, label="path", touches="path", family="files")
async def read_file(
    context: ToolContext,
    path: str,
    offset: Annotated[int, Meta(ge=1)] = 1,
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 2_000,
) -> str:
    """Read a text file of the workspace, or a part of it.

    The first line of the result tells which lines are shown and how many there are; the file's
    own text follows.

    Args:
        context: Not part of the call.
        path: The file, named from the top of the workspace.
        offset: The first line to show; 1 is the first of the file.
        limit: How many lines to show at most.
    """

    def work(_stop: Stop) -> str:
        with entered(context.workspace) as workspace:
            content, _ = workspace.read(path, LARGEST)
        return _window(path, content, offset, limit)

    return await in_thread(work)


@tool(risk=Risk.READ, emoji="📂", parallel=True, label="path", family="files")
async def list_dir(
    context: ToolContext, path: str = ".", depth: Annotated[int, Meta(ge=1, le=10)] = 1
) -> str:
    """List what is in a folder of the workspace: folders end in a slash, files have their size.

    Args:
        context: Not part of the call.
        path: The folder, named from the top of the workspace.
        depth: How many levels to show; 1 is the folder alone.
    """

    def work(stop: Stop) -> str:
        with entered(context.workspace) as workspace:
            lines = list(_listed(workspace, path, depth, stop))
        return "\n".join(lines) or "The folder is empty."

    return await in_thread(work)


def is_binary(content: bytes) -> bool:
    """Judge by the beginning of a file."""
    return b"\0" in content[:_HEAD]


def _window(path: str, content: bytes, offset: int, limit: int) -> str:
    if is_binary(content):
        return f"{path} is not text: {many(len(content), 'byte')} of binary data."
    text = content.decode(errors="replace")
    total = lines_in(text)
    if not total:
        return f"[{path}: empty]"
    if offset > total:
        msg = f"{path} has only {many(total, 'line')}."
        raise ToolError(msg)
    shown: list[str] = []
    size = cut = 0
    for line in text.split("\n")[offset - 1 : min(total, offset - 1 + limit)]:
        size += min(len(line), _LONGEST_LINE) + 1
        if shown and size > _MOST_TEXT:
            break
        cut += len(line) > _LONGEST_LINE
        shown.append(_shortened(line))
    last = offset + len(shown) - 1
    notes = [f"{path}: {many(total, 'line')}, {offset}-{last} shown"]
    if last < total:
        notes.append(f"go on with offset={last + 1}")
    if cut:
        notes.append(f"long lines shortened: {cut}")
    if "�" in text and not _is_utf8(content):
        notes.append("not all of it is UTF-8: � stands for what cannot be read")
    return f"[{'; '.join(notes)}]\n" + "\n".join(shown)


def _shortened(line: str) -> str:
    over = len(line) - _LONGEST_LINE
    return line if over <= 0 else f"{line[:_LONGEST_LINE]}[… {many(over, 'more character')}]"


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _listed(workspace: Workspace, path: str, depth: int, stop: Stop) -> Iterator[str]:
    entries = _entries(workspace, workspace.name(path), "", depth, stop)
    for count, line in enumerate(entries):
        if count == _MOST_ENTRIES:
            yield f"[there is more; only {_MOST_ENTRIES:,} entries are shown]"
            return
        yield line


def _entries(workspace: Workspace, name: str, shown: str, depth: int, stop: Stop) -> Iterator[str]:
    """Go through a folder; links are shown, not followed."""
    folder = workspace.open(name)
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            msg = f"{name!r} is a file, not a folder."
            raise ToolError(msg)
        found = sorted(
            (entry for entry in os.listdir(folder) if not entry.startswith(TEMPORARY)),  # noqa: PTH208 - a descriptor
            key=str.casefold,
        )
        states = {entry: _state(folder, entry) for entry in found}
        links = {
            entry: _target(folder, entry)
            for entry, state in states.items()
            if state and stat.S_ISLNK(state.st_mode)
        }
    finally:
        os.close(folder)
    for entry, state in states.items():
        if state is None or stop.is_set():
            continue
        yield shown + _readable(entry) + _described(state, links.get(entry, ""))
        if stat.S_ISDIR(state.st_mode) and depth > 1:
            with contextlib.suppress(ToolError):  # gone meanwhile, or closed to us
                inside = _entries(
                    workspace, f"{name}/{entry}", f"{shown}{_readable(entry)}/", depth - 1, stop
                )
                yield from inside


def _state(folder: int, entry: str) -> os.stat_result | None:
    try:
        return os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _target(folder: int, entry: str) -> str:
    try:
        return _readable(os.readlink(entry, dir_fd=folder))
    except OSError:
        return "?"


def _readable(name: str) -> str:
    """Show a name; bytes of it that are no UTF-8 are replaced."""
    return os.fsencode(name).decode(errors="replace").replace("\n", "?")


def _described(state: os.stat_result, target: str) -> str:
    if stat.S_ISDIR(state.st_mode):
        return "/"
    if stat.S_ISLNK(state.st_mode):
        return f" -> {target}"
    if stat.S_ISREG(state.st_mode):
        return f" ({many(state.st_size, 'byte')})"
    return " (not an ordinary file)"
