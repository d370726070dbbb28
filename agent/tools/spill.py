"""Limits for the length of results, and files for results that exceed the limits."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sessions.values.size import format_size

_RESULTS_FOLDER = (".holdfast", "results")
MAX_BYTES = 20_000_000  # as much as `read_file` reads
MAX_FILES = 100

_PREVIEW_CHARACTERS = (1000, 500)  # from the beginning and the end of a result
_CHARACTERS_PER_TOKEN = 4
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH = 64
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ResultCaps(msgspec.Struct, frozen=True):
    """Limits for results, in characters."""

    per_result: int = 100_000
    per_turn: int = 200_000  # sum of all results of a turn


_MAX_CAPS = ResultCaps()
_MIN_CAPS = ResultCaps(8_000, 16_000)


def caps_for(window_tokens: int | None) -> ResultCaps:
    """Return the limits for a model with this context window."""
    if window_tokens is None:
        return _MAX_CAPS
    per_result = window_tokens * _CHARACTERS_PER_TOKEN * 15 // 100
    return ResultCaps(
        min(max(per_result, _MIN_CAPS.per_result), _MAX_CAPS.per_result),
        min(max(2 * per_result, _MIN_CAPS.per_turn), _MAX_CAPS.per_turn),
    )


class SpilledResult(msgspec.Struct, frozen=True):
    """A result that was written to a file."""

    path: str  # relative to the workspace
    complete: bool


def fits(text: str, room: int) -> bool:
    """True if a text needs no preview: there is room, or a preview would be no shorter."""
    return len(text) <= max(room, sum(_PREVIEW_CHARACTERS))


def format_preview(text: str, spilled: SpilledResult, *, reader_tool: str | None) -> str:
    """Return the beginning and the end of a result, and the path of the file with the rest."""
    head, tail = _PREVIEW_CHARACTERS
    hint = f"; use {reader_tool} to read it" if reader_tool else ""
    saved = "The full result is" if spilled.complete else f"The first {format_size(MAX_BYTES)} are"
    return (
        f"[The result is {len(text):,} characters long. {saved} in {spilled.path}{hint}. "
        "Beginning of the result:]\n"
        f"{text[:head]}\n"
        f"[{len(text) - head - tail:,} characters left out. End of the result:]\n"
        f"{text[-tail:]}"
    )


def truncate(text: str, room: int) -> str:
    """Return the beginning of a text, at least as long as a preview."""
    shown = max(room, sum(_PREVIEW_CHARACTERS))
    return f"{text[:shown]}\n[{len(text) - shown} more characters were left out]"


async def spill_result(workspace: Path, call_id: str, text: str) -> SpilledResult:
    """Write a result to a file in the workspace.

    Raises:
        OSError: The file could not be written; no partial file remains.
    """
    return await asyncio.to_thread(_write_result, workspace, call_id, text)


def _write_result(workspace: Path, call_id: str, text: str) -> SpilledResult:
    data = text.encode(errors="replace")
    with _open_results_folder(workspace) as folder:
        _remove_oldest(folder)
        name, file = _create_file(folder, _NOT_IN_NAMES.sub("_", call_id)[:_MAX_NAME_LENGTH] or "_")
        try:
            with os.fdopen(file, "wb") as out:
                out.write(_truncate_bytes(data))
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise
    return SpilledResult("/".join((*_RESULTS_FOLDER, name)), complete=len(data) <= MAX_BYTES)


@contextlib.contextmanager
def _open_results_folder(workspace: Path) -> Iterator[int]:
    """Open the folder without following links, which could lead out of the workspace."""
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        folder = os.open(workspace, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        opened.callback(os.close, folder)
        for name in _RESULTS_FOLDER:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            folder = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            opened.callback(os.close, folder)
        yield folder


def _create_file(folder: int, name: str) -> tuple[str, int]:
    """Create a file with a unique name, because call ids repeat across conversations."""
    number = 1
    while True:
        candidate = f"{name}.txt" if number == 1 else f"{name}-{number}.txt"
        try:
            return candidate, os.open(candidate, _FILE_FLAGS, 0o600, dir_fd=folder)
        except FileExistsError:
            number += 1


def _remove_oldest(folder: int) -> None:
    """Remove the oldest files to make room for one more."""
    files = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            files.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name))
    for _, name in sorted(files, reverse=True)[MAX_FILES - 1 :]:
        with contextlib.suppress(OSError):  # already removed, or a folder
            os.unlink(name, dir_fd=folder)


def _truncate_bytes(data: bytes) -> bytes:
    if len(data) <= MAX_BYTES:
        return data
    return data[:MAX_BYTES].decode(errors="ignore").encode()  # drops a split character
