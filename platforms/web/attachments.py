"""Files uploaded by the page, kept until the gateway has fetched them."""

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
"""Bytes of one file; the HTTP port accepts hardly more per request."""

RETENTION_SECONDS = 30 * 86_400.0
"""Seconds for which a message may wait with a stopped conversation and show its files."""

_CHUNK_BYTES = 1 << 18
_REF = re.compile(r"[a-f0-9]{32}")


class UploadTooLarge(Exception):
    """A file has more than `MAX_FILE_BYTES` bytes."""


class UploadFolder:
    """The folder of uploaded files; file operations run in threads."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def save(self, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store a file; return reference and size."""
        if self._folder is None:
            msg = "No folder for files is configured."
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
        """Return the path of a file; None if the file is missing."""
        if self._folder is None or not _REF.fullmatch(ref):
            return None
        path = self._folder / ref
        return path if path.is_file() else None

    async def read(self, ref: str, name: str) -> AsyncIterator[bytes]:
        """Read a file in chunks."""
        path = self.path_of(ref)
        if path is None:
            msg = f"{name} is no longer available."
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
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a concurrent upload may rename a file
                if path.stat().st_mtime < before:
                    path.unlink()


async def _write_file(path: Path, chunks: AsyncIterator[bytes]) -> int:
    size, unwritten = 0, bytearray()
    file = await asyncio.to_thread(path.open, "xb")
    try:
        async for piece in chunks:
            size += len(piece)
            if size > MAX_FILE_BYTES:  # browsers show a refusal only after sending everything
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
    """Flush to disk, so that a stored message finds the file even after a power cut."""
    flush()
    os.fsync(descriptor)
