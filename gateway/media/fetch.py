"""Fetches what people attach into the workspace, and has voice messages written down.

Nothing here ends a turn: what cannot be had says why, in words for the model.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from agent.errors import ToolError
from agent.request.pictures import PICTURE_TYPES, SIGNATURE_BYTES, detect_media_type
from agent.tools.blocking import StopEvent, run_in_thread
from agent.tools.confine import IncomingFile, open_by_steps, open_workspace
from gateway.media.cleanup import MARKER_FILE, remove_old_files
from gateway.media.incoming import RECEIVED_FOLDER, to_file_part, too_large_message
from gateway.media.speech import SpeechToText, TranscriptionFailed
from platforms.core.contract import Adapter, Address
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from sessions.records import Attachment
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_WRITE_BUFFER_BYTES = 256 * 1024
_CONCURRENT_PER_TURN = 2  # files that are fetched side by side
_MAX_ATTEMPTS = 3
_STALE_AFTER_SECONDS = 1800.0  # seconds since the last piece of a file came

NO_TRANSCRIPTION = "it cannot be listened to, because no service for that is set up"
_OCTET_STREAM = "application/octet-stream"
NOT_CONNECTED = "the platform is not connected"
INTERNAL_ERROR = "an error inside the gateway"


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much, how long, and how many at once; seconds and bytes."""

    max_bytes: int = 20_000_000
    idle_seconds: float = 30.0  # without a piece
    file_seconds: float = 180.0  # for one file, with all tries
    queue_seconds: float = 300.0  # until it is a file's turn
    retry_delay_seconds: float = 0.5  # before the second try
    max_concurrent: int = 8  # of all chats together
    reserved_bytes: int = 50_000_000  # bytes of the disk that are left for everything else


class _FileTooLarge(Exception):
    """More came than is taken."""


class AttachmentFetcher:
    """Fetches files for all turns."""

    def __init__(
        self,
        adapter_for: Callable[[Address], Adapter | None],
        clock: Clock,
        transcriber: SpeechToText | None = None,
        limits: FetchLimits | None = None,
    ) -> None:
        self._adapter_for = adapter_for
        self._clock = clock
        self._transcriber = transcriber
        self._limits = limits = limits or FetchLimits()
        self._slots = asyncio.Semaphore(limits.max_concurrent)
        self._started_at = clock.now() / 1000 - 1  # a file's time may be a little behind the clock

    async def fetch_all(
        self, files: Sequence[Attachment], address: Address, workspace: Path
    ) -> tuple[Attachment, ...]:
        """Fetch files that came to an address into a workspace; each says what came of it."""
        settled: dict[str, Attachment] = {}
        some = asyncio.Semaphore(_CONCURRENT_PER_TURN)

        async def one(file: Attachment) -> None:
            async with some:
                settled[file.path] = await self._fetch_and_transcribe(file, address, workspace)

        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(one(file))
        return tuple(settled[file.path] for file in files)

    async def remove_old(self, workspaces: Iterable[Path], keep_seconds: float) -> None:
        """Remove what is older than `keep` seconds (0: nothing), and what was left half-way."""
        now = self._clock.now() / 1000
        before = now - keep_seconds if keep_seconds else None
        # What a dead process left just before this one began is found by a later round.
        begun = max(self._started_at, now - _STALE_AFTER_SECONDS)
        for workspace in workspaces:
            removed = await self._remove_old_in(workspace, before, begun)
            if removed:
                log.info("%s: %d received files removed", workspace, removed)

    async def _remove_old_in(
        self, workspace: Path, before: float | None, unfinished_before: float
    ) -> int:
        return await run_in_thread(
            lambda _: remove_old_files(
                workspace, older_than=before, unfinished_before=unfinished_before
            )
        )

    # --- one file -------------------------------------------------------------------------------

    async def _fetch_and_transcribe(
        self, file: Attachment, address: Address, workspace: Path
    ) -> Attachment:
        try:
            file = await self._fetch_or_explain(file, address, workspace)
            if file.fetched and file.voice and not file.heard:
                file = await self._transcribe(file, workspace)
        except Exception:
            log.exception("%s broke", file.path)
            return replace(file, trouble=INTERNAL_ERROR)
        return file

    async def _fetch_or_explain(
        self, file: Attachment, address: Address, workspace: Path
    ) -> Attachment:
        try:
            size = await _existing_size(workspace, file.path)
            if size is None:
                size = await self._fetch(file, address, workspace)
        except (PlatformError, ToolError, TimeoutError, _FileTooLarge) as error:
            log.warning("%s was not fetched: %s", file.path, error)
            return replace(file, trouble=str(error))
        return replace(
            file, fetched=True, size=size, media_type=await _detect_media_type(workspace, file)
        )

    async def _fetch(self, file: Attachment, address: Address, workspace: Path) -> int:
        bounds = self._limits
        if file.size is not None and file.size > bounds.max_bytes:
            raise _FileTooLarge(too_large_message(bounds.max_bytes, file.size))
        async with self._slot():
            try:
                async with (
                    asyncio.timeout(bounds.file_seconds),
                    _incoming_file(workspace, file.path) as place,
                ):
                    await self._check_disk_space(workspace, file.size or 0)
                    size = await self._download(file, address, place)
                    await run_in_thread(lambda _: place.finish())
            except TimeoutError as error:
                msg = str(error) or f"it did not come within {bounds.file_seconds:g} s"
                raise TimeoutError(msg) from None
        return size

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait until fewer than the most are fetched."""
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._slots.acquire()
        except TimeoutError:
            msg = "too many other files were being fetched"
            raise TimeoutError(msg) from None
        try:
            yield
        finally:
            self._slots.release()

    async def _check_disk_space(self, workspace: Path, size: int) -> None:
        def free(_stop: StopEvent) -> int:
            with open_workspace(workspace) as opened:
                return opened.free_bytes()

        if await run_in_thread(free) < size + self._limits.reserved_bytes:
            msg = "the disk is full"
            raise ToolError(msg)

    async def _download(self, file: Attachment, address: Address, incoming: IncomingFile) -> int:
        """Read it; what breaks off is begun again, for reading changes nothing."""
        for number in range(1, _MAX_ATTEMPTS):
            try:
                return await self._download_once(file, address, incoming)
            except (Unavailable, Unconfirmed) as error:
                log.info("%s: %s; trying again", file.path, error)
                asked = error.retry_after if isinstance(error, Unavailable) else None
                await asyncio.sleep(asked or self._limits.retry_delay_seconds * number)
            await run_in_thread(lambda _: incoming.restart())
        return await self._download_once(file, address, incoming)

    async def _download_once(
        self, file: Attachment, address: Address, incoming: IncomingFile
    ) -> int:
        adapter = self._adapter_for(address)
        if adapter is None:
            raise Unavailable(NOT_CONNECTED)
        largest, size, kept = self._limits.max_bytes, 0, bytearray()
        async with _open_stream(adapter, file) as pieces:
            while (piece := await self._next_chunk(pieces)) is not None:
                size += len(piece)
                if size > largest:
                    raise _FileTooLarge(too_large_message(largest))
                kept += piece
                if len(kept) >= _WRITE_BUFFER_BYTES:
                    await _write_chunk(incoming, bytes(kept))
                    kept.clear()
        await _write_chunk(incoming, bytes(kept))
        return size

    async def _next_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await anext(chunks, None)
        except TimeoutError:
            msg = f"nothing came of it for {self._limits.idle_seconds:g} s"
            raise TimeoutError(msg) from None

    # --- voice ----------------------------------------------------------------------------------

    async def _transcribe(self, file: Attachment, workspace: Path) -> Attachment:
        if self._transcriber is None:
            return replace(file, trouble=NO_TRANSCRIPTION)
        size = file.size or 0

        async def speech() -> bytes:
            return await run_in_thread(lambda _: _read_content(workspace, file.path, size))

        try:
            return replace(
                file, heard=await self._transcriber.transcribe(speech, file.media_type, size)
            )
        except TranscriptionFailed as error:
            log.warning("%s was not written down: %s", file.path, error.log_message)
            return replace(file, trouble=f"it could not be listened to: {error}")
        except ToolError as error:
            return replace(file, trouble=f"it could not be listened to: {error}")


@asynccontextmanager
async def _incoming_file(workspace: Path, path: str) -> AsyncIterator[IncomingFile]:
    """Make the place of a file; one that does not become whole leaves nothing behind."""
    made: list[IncomingFile] = []

    def begin(_stop: StopEvent) -> None:
        with open_workspace(workspace, create=True, opener=open_by_steps) as opened:
            opened.make_marked_folder(RECEIVED_FOLDER, MARKER_FILE)
            made.append(opened.receive(path, path))

    def close(_stop: StopEvent) -> None:
        for each in made:
            each.close()

    try:
        # Whoever is cancelled here still waits for the thread, and closes what it has made.
        await run_in_thread(begin)
        yield made[0]
    finally:
        await run_in_thread(close)


@asynccontextmanager
async def _open_stream(adapter: Adapter, file: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
    pieces = adapter.fetch(to_file_part(file))
    async with contextlib.AsyncExitStack() as closed:
        if aclose := getattr(pieces, "aclose", None):
            closed.push_async_callback(aclose)
        yield pieces


async def _write_chunk(incoming: IncomingFile, content: bytes) -> None:
    if content:
        await run_in_thread(lambda _: incoming.write(content))


async def _existing_size(workspace: Path, path: str) -> int | None:
    """Tell the size of a file that is there already, as after `/retry`."""

    def look(_stop: StopEvent) -> int | None:
        with (
            contextlib.suppress(ToolError),
            open_workspace(workspace, opener=open_by_steps) as opened,
        ):
            return opened.file_size(path)
        return None

    return await run_in_thread(look)


async def _detect_media_type(workspace: Path, file: Attachment) -> str:
    """Say what a file is; whether it is a picture shows in it, not in what it is called."""
    if not file.media_type.startswith(("image/", _OCTET_STREAM)):
        return file.media_type

    def look(_stop: StopEvent) -> bytes:
        with open_workspace(workspace, opener=open_by_steps) as opened:
            return opened.read_beginning(file.path, SIGNATURE_BYTES)

    named = _OCTET_STREAM if file.media_type in PICTURE_TYPES else file.media_type
    with contextlib.suppress(ToolError):
        return detect_media_type(await run_in_thread(look)) or named
    return named


def _read_content(workspace: Path, path: str, size: int) -> bytes:
    with open_workspace(workspace, opener=open_by_steps) as opened:
        return opened.read(path, size)[0]
