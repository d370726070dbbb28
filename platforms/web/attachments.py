"""Files that come from the page: kept in a folder of ours until the gateway has fetched them."""

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from platforms.core.errors import Rejected
from sessions.values.clock import Clock

MAX_FILE_BYTES = 15_000_000
"""Bytes of a file; the HTTP port takes no body of much more."""

RETENTION_SECONDS = 30 * 86_400.0
"""As long as a message may wait with a stopped conversation, and people may look at it."""

_CHUNK_BYTES = 1 << 18
_REF = re.compile(r"[a-f0-9]{32}")


class UploadTooLarge(Exception):
    """A file has more than `LARGEST` bytes."""


class UploadFolder:
    """The folder; nothing blocks the loop."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def save(self, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        """Keep a file; gives its name here, and its size."""
        if self._folder is None:
            msg = "There is no place to keep files in."
            raise Rejected(msg)
        await asyncio.to_thread(self._delete_expired, self._folder)
        ref = secrets.token_hex(16)
        partial = self._folder / f"{ref}.part"
        try:
            size = await _write_file(partial, chunks)
            await asyncio.to_thread(partial.rename, self._folder / ref)
        finally:
            await asyncio.to_thread(partial.unlink, missing_ok=True)
        return ref, size

    def path_of(self, ref: str) -> Path | None:
        """Where a file is; None when it is not there, or no more."""
        if self._folder is None or not _REF.fullmatch(ref):
            return None
        path = self._folder / ref
        return path if path.is_file() else None

    async def read(self, ref: str, name: str) -> AsyncIterator[bytes]:
        """Give a file piece by piece."""
        path = self.path_of(ref)
        if path is None:
            msg = f"{name} is not there any more."
            raise Rejected(msg)
        file = await asyncio.to_thread(path.open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield piece
        finally:
            file.close()

    def _delete_expired(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = self._clock.now() / 1000 - RETENTION_SECONDS
        for each in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another that arrives just now is renamed
                if each.stat().st_mtime < before:
                    each.unlink()


async def _write_file(path: Path, chunks: AsyncIterator[bytes]) -> int:
    size, unwritten = 0, bytearray()
    file = await asyncio.to_thread(path.open, "xb")
    try:
        async for piece in chunks:
            size += len(piece)
            if size > MAX_FILE_BYTES:  # only who is listened to to the end hears why it is refused
                continue
            unwritten += piece
            if len(unwritten) >= _CHUNK_BYTES:
                await asyncio.to_thread(file.write, bytes(unwritten))
                unwritten.clear()
        if size > MAX_FILE_BYTES:
            raise UploadTooLarge
        await asyncio.to_thread(file.write, bytes(unwritten))
        await asyncio.to_thread(_flush_to_disk, file.fileno(), file.flush)
    finally:
        file.close()
    return size


def _flush_to_disk(descriptor: int, flush: Callable[[], None]) -> None:
    """A message that names a file must find it after a power cut."""
    flush()
    os.fsync(descriptor)
