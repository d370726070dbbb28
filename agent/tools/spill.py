"""Keeps results that are too long for the model in files that it can read on in."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

RESULTS_FOLDER = (".holdfast", "results")
MAX_BYTES = 20 * 1024 * 1024  # bytes
MAX_FILES = 100

_PREVIEW_CHARACTERS = (1000, 500)  # characters of a result's beginning and end
_CHARACTERS_PER_TOKEN = 4  # of a token
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_LENGTH = 64
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ResultCaps(msgspec.Struct, frozen=True):
    """How long results may be, in characters."""

    per_result: int = 100_000
    per_turn: int = 200_000  # all of one turn together


_MAX_CAPS = ResultCaps()
_MIN_CAPS = ResultCaps(8_000, 16_000)


def caps_for(window_tokens: int | None) -> ResultCaps:
    """Scale the caps down to a model that takes in only so many tokens."""
    if window_tokens is None:
        return _MAX_CAPS
    each = window_tokens * _CHARACTERS_PER_TOKEN * 15 // 100
    return ResultCaps(
        min(max(each, _MIN_CAPS.per_result), _MAX_CAPS.per_result),
        min(max(2 * each, _MIN_CAPS.per_turn), _MAX_CAPS.per_turn),
    )


class SpilledResult(msgspec.Struct, frozen=True):
    """Where a result was kept."""

    path: str  # inside the workspace
    complete: bool


def fits(text: str, room: int) -> bool:
    """A text that is hardly longer than its preview stays whole, even where no room is left."""
    return len(text) <= max(room, sum(_PREVIEW_CHARACTERS))


def format_preview(text: str, spilled: SpilledResult, *, reader_tool: str | None) -> str:
    """Show a result's beginning and end, and where the rest is."""
    head, tail = _PREVIEW_CHARACTERS
    how = f"; read on with {reader_tool}" if reader_tool else ""
    kept = "All of it is" if spilled.complete else "Its first 20 MB are"
    return (
        f"[The result is {len(text):,} characters long. {kept} in {spilled.path}{how}. It begins:]\n"
        f"{text[:head]}\n"
        f"[{len(text) - head - tail:,} characters further on, it ends:]\n"
        f"{text[-tail:]}"
    )


def truncate(text: str, room: int) -> str:
    """Show as much as there is room for."""
    shown = max(room, sum(_PREVIEW_CHARACTERS))
    return f"{text[:shown]}\n[{len(text) - shown} more characters were left out]"


async def spill_result(workspace: Path, call_id: str, text: str) -> SpilledResult:
    """Write a result to a file in the workspace.

    Raises:
        OSError: It could not be written; nothing of it is left.
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
    return SpilledResult("/".join((*RESULTS_FOLDER, name)), complete=len(data) <= MAX_BYTES)


@contextlib.contextmanager
def _open_results_folder(workspace: Path) -> Iterator[int]:
    """Open the folder step by step: a link in its place could lead out of the workspace."""
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)  # nothing may have been written yet
    with contextlib.ExitStack() as opened:
        folder = os.open(workspace, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
        opened.callback(os.close, folder)
        for name in RESULTS_FOLDER:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            folder = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            opened.callback(os.close, folder)
        yield folder


def _create_file(folder: int, name: str) -> tuple[str, int]:
    """Ids of calls repeat from one conversation to the next; files do not take each other's place."""
    number = 1
    while True:
        candidate = f"{name}.txt" if number == 1 else f"{name}-{number}.txt"
        try:
            return candidate, os.open(candidate, _FILE_FLAGS, 0o600, dir_fd=folder)
        except FileExistsError:
            number += 1


def _remove_oldest(folder: int) -> None:
    """Remove the oldest files, so that there is room for one more."""
    files = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            files.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name))
    for _, name in sorted(files, reverse=True)[MAX_FILES - 1 :]:
        with contextlib.suppress(OSError):  # gone already, or somebody made a folder there
            os.unlink(name, dir_fd=folder)


def _truncate_bytes(data: bytes) -> bytes:
    if len(data) <= MAX_BYTES:
        return data
    return data[:MAX_BYTES].decode(errors="ignore").encode()  # without a part of a character
