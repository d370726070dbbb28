"""Tools that read files and list folders."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from agent.errors import ToolError
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import TEMPORARY_PREFIX, Workspace, open_workspace
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from agent.tools.masks import mask_lines
from agent.tools.text import count_lines, pluralize
from sessions.values.masks import MaskSecrets

MAX_FILE_BYTES = 20_000_000
_MAX_TEXT_LENGTH = 50_000  # characters per call
_MAX_LINE_LENGTH = 2_000
_MAX_ENTRIES = 1_000
_HEAD_BYTES = 8_192  # a NUL in these first bytes marks a binary file


@tool(risk=Risk.READ, emoji="📖", parallel=True, label="path", touches="path", family="files")
async def read_file(
    context: ToolContext,
    path: str,
    offset: Annotated[int, Meta(ge=1)] = 1,
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 2_000,
) -> str:
    """Read a text file in the workspace, or part of it.

    The first line of the result gives the number of lines and the range shown; the text of the
    file follows.

    Args:
        context: Not part of the call.
        path: File path, relative to the workspace root.
        offset: First line to show; 1 is the first line of the file.
        limit: Maximum number of lines to show.
    """

    def work(_stop: StopEvent) -> str:
        with open_workspace(context.workspace) as workspace:
            content, _ = workspace.read(path, MAX_FILE_BYTES)
        return _format_window(path, content, offset, limit, context.mask)

    return await run_in_thread(work)


@tool(risk=Risk.READ, emoji="📂", parallel=True, label="path", family="files")
async def list_dir(
    context: ToolContext, path: str = ".", depth: Annotated[int, Meta(ge=1, le=10)] = 1
) -> str:
    """List a folder in the workspace. Folders end in a slash; files are listed with their size.

    Args:
        context: Not part of the call.
        path: Folder path, relative to the workspace root.
        depth: Number of levels to show; 1 shows only the folder itself.
    """

    def work(stop: StopEvent) -> str:
        with open_workspace(context.workspace) as workspace:
            lines = list(_list_entries(workspace, path, depth, stop))
        return "\n".join(lines) or "The folder is empty."

    return await run_in_thread(work)


def is_binary(content: bytes) -> bool:
    """True if the beginning of a file contains a NUL byte."""
    return b"\0" in content[:_HEAD_BYTES]


def _format_window(path: str, content: bytes, offset: int, limit: int, mask: MaskSecrets) -> str:
    if is_binary(content):
        return f"{path} is not text: {pluralize(len(content), 'byte')} of binary data."
    text = content.decode(errors="replace")
    total = count_lines(text)
    if not total:
        return f"[{path}: empty]"
    if offset > total:
        msg = f"{path} has only {pluralize(total, 'line')}."
        raise ToolError(msg)
    lines = text.split("\n")
    size = cut = 0
    last = offset - 1
    for line in lines[offset - 1 : min(total, offset - 1 + limit)]:
        size += min(len(line), _MAX_LINE_LENGTH) + 1
        if last >= offset and size > _MAX_TEXT_LENGTH:
            break
        cut += len(line) > _MAX_LINE_LENGTH
        last += 1
    masked = mask_lines(lines, offset - 1, last, mask)
    shown = [
        _shorten_line(line, len(lines[number]) - _MAX_LINE_LENGTH)
        for number, line in enumerate(masked, offset - 1)
    ]
    notes = [f"{path}: {pluralize(total, 'line')}, {offset}-{last} shown"]
    if last < total:
        notes.append(f"continue with offset={last + 1}")
    if cut:
        notes.append(f"long lines shortened: {cut}")
    if "�" in text and not _is_utf8(content):
        notes.append("not valid UTF-8: � replaces invalid bytes")
    return f"[{'; '.join(notes)}]\n" + "\n".join(shown)


def _shorten_line(line: str, over: int) -> str:
    """Shorten a line; `over` is the number of characters beyond the limit."""
    return (
        line if over <= 0 else f"{line[:_MAX_LINE_LENGTH]}[… {pluralize(over, 'more character')}]"
    )


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _list_entries(workspace: Workspace, path: str, depth: int, stop: StopEvent) -> Iterator[str]:
    entries = _walk_entries(workspace, workspace.relative_name(path), "", depth, stop)
    for count, line in enumerate(entries):
        if count == _MAX_ENTRIES:
            yield f"[only the first {_MAX_ENTRIES:,} entries are shown]"
            return
        yield line


def _walk_entries(
    workspace: Workspace, name: str, shown: str, depth: int, stop: StopEvent
) -> Iterator[str]:
    """Yield the entries of a folder; links are shown, not followed."""
    folder = workspace.open(name)
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            msg = f"{name!r} is a file, not a folder."
            raise ToolError(msg)
        entries = sorted(
            (entry for entry in os.listdir(folder) if not entry.startswith(TEMPORARY_PREFIX)),  # noqa: PTH208 - a descriptor
            key=str.casefold,
        )
        states = {entry: _entry_state(folder, entry) for entry in entries}
        links = {
            entry: _link_target(folder, entry)
            for entry, state in states.items()
            if state and stat.S_ISLNK(state.st_mode)
        }
    finally:
        os.close(folder)
    for entry, state in states.items():
        if state is None or stop.is_set():
            continue
        yield shown + _printable_name(entry) + _describe_entry(state, links.get(entry, ""))
        if stat.S_ISDIR(state.st_mode) and depth > 1:
            with contextlib.suppress(ToolError):  # removed meanwhile, or not readable
                children = _walk_entries(
                    workspace,
                    f"{name}/{entry}",
                    f"{shown}{_printable_name(entry)}/",
                    depth - 1,
                    stop,
                )
                yield from children


def _entry_state(folder: int, entry: str) -> os.stat_result | None:
    try:
        return os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _link_target(folder: int, entry: str) -> str:
    try:
        return _printable_name(os.readlink(entry, dir_fd=folder))
    except OSError:
        return "?"


def _printable_name(name: str) -> str:
    """Return a name with line ends and bytes that are not UTF-8 replaced."""
    return os.fsencode(name).decode(errors="replace").replace("\n", "?")


def _describe_entry(state: os.stat_result, target: str) -> str:
    if stat.S_ISDIR(state.st_mode):
        return "/"
    if stat.S_ISLNK(state.st_mode):
        return f" -> {target}"
    if stat.S_ISREG(state.st_mode):
        return f" ({pluralize(state.st_size, 'byte')})"
    return " (not a regular file)"
