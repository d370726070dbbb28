"""Downloads attachments into the workspace, and transcribes voice messages.

A failure never ends a turn: the attachment gets an explanation for the model instead.
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
from agent.tools.received import MARKER_FILE
from gateway.media.cleanup import remove_old_files
from gateway.media.incoming import to_file_part, too_large_message
from gateway.media.speech import SpeechToText, TranscriptionFailed
from platforms.core.contract import Adapter, Address
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from sessions.records import Attachment
from sessions.values.clock import Clock
from sessions.values.file_names import RECEIVED_FOLDER
from sessions.values.text import count_of

log = logging.getLogger(__name__)

_WRITE_BUFFER_BYTES = 256 * 1024
_CONCURRENT_PER_TURN = 2
_MAX_ATTEMPTS = 3
_STALE_AFTER_SECONDS = 1800.0  # age of a partial file that is no longer being downloaded

NO_TRANSCRIPTION = "it cannot be transcribed, because no transcription service is configured"
_OCTET_STREAM = "application/octet-stream"
_NOT_CONNECTED = "the platform is not connected"
INTERNAL_ERROR = "an error inside the gateway"


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of downloads."""

    max_bytes: int = 20_000_000
    idle_seconds: float = 30.0  # without data
    file_seconds: float = 180.0  # for one file, including retries
    queue_seconds: float = 300.0  # waiting for a free slot
    retry_delay_seconds: float = 0.5  # before the second attempt
    max_concurrent: int = 8  # over all chats
    reserved_bytes: int = 50_000_000  # disk space left free


class _FileTooLarge(Exception):
    """The file exceeds the size limit."""


class AttachmentFetcher:
    """Downloads the attachments of all turns."""

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
        self._started_at = clock.now() / 1000 - 1  # file times may lag behind the clock

    async def fetch_all(
        self, files: Sequence[Attachment], address: Address, workspace: Path
    ) -> tuple[Attachment, ...]:
        """Download files into a workspace; return them with their results."""
        settled: dict[str, Attachment] = {}
        slots = asyncio.Semaphore(_CONCURRENT_PER_TURN)

        async def fetch_one(file: Attachment) -> None:
            async with slots:
                settled[file.path] = await self._fetch_and_transcribe(file, address, workspace)

        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(fetch_one(file))
        return tuple(settled[file.path] for file in files)

    async def remove_old(self, workspaces: Iterable[Path], keep_seconds: float) -> None:
        """Remove files older than `keep_seconds` (0: none), and stale partial files."""
        now = self._clock.now() / 1000
        before = now - keep_seconds if keep_seconds else None
        # Recent partial files of a dead process are removed by a later run.
        unfinished_before = max(self._started_at, now - _STALE_AFTER_SECONDS)
        for workspace in workspaces:
            removed = await self._remove_old_in(workspace, before, unfinished_before)
            if removed:
                log.info("%s: %s removed", workspace, count_of(removed, "old received file"))

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
            log.exception("%s: unexpected error while fetching", file.path)
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
        limits = self._limits
        if file.size is not None and file.size > limits.max_bytes:
            raise _FileTooLarge(too_large_message(limits.max_bytes, file.size))
        async with self._slot():
            try:
                async with (
                    asyncio.timeout(limits.file_seconds),
                    _incoming_file(workspace, file.path) as place,
                ):
                    await self._check_disk_space(workspace, file.size or 0)
                    size = await self._download(file, address, place)
                    await run_in_thread(lambda _: place.finish())
            except TimeoutError as error:
                msg = str(error) or f"it did not arrive within {limits.file_seconds:g} s"
                raise TimeoutError(msg) from None
        return size

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for one of the concurrent download slots."""
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
        """Download a file; retry after an interruption, because reading changes nothing."""
        for number in range(1, _MAX_ATTEMPTS):
            try:
                return await self._download_once(file, address, incoming)
            except (Unavailable, Unconfirmed) as error:
                log.info("%s: %s; retrying", file.path, error)
                retry_after = error.retry_after if isinstance(error, Unavailable) else None
                await asyncio.sleep(retry_after or self._limits.retry_delay_seconds * number)
            await run_in_thread(lambda _: incoming.restart())
        return await self._download_once(file, address, incoming)

    async def _download_once(
        self, file: Attachment, address: Address, incoming: IncomingFile
    ) -> int:
        adapter = self._adapter_for(address)
        if adapter is None:
            raise Unavailable(_NOT_CONNECTED)
        largest, size, buffer = self._limits.max_bytes, 0, bytearray()
        async with _open_stream(adapter, file) as chunks:
            while (chunk := await self._next_chunk(chunks)) is not None:
                size += len(chunk)
                if size > largest:
                    raise _FileTooLarge(too_large_message(largest))
                buffer += chunk
                if len(buffer) >= _WRITE_BUFFER_BYTES:
                    await _write_chunk(incoming, bytes(buffer))
                    buffer.clear()
        await _write_chunk(incoming, bytes(buffer))
        return size

    async def _next_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return await anext(chunks, None)
        except TimeoutError:
            msg = f"no data arrived for {self._limits.idle_seconds:g} s"
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
            log.warning("%s was not transcribed: %s", file.path, error.log_message)
            return replace(file, trouble=f"it could not be transcribed: {error}")
        except ToolError as error:
            return replace(file, trouble=f"it could not be transcribed: {error}")


@asynccontextmanager
async def _incoming_file(workspace: Path, path: str) -> AsyncIterator[IncomingFile]:
    """Create a received file; an incomplete one is removed."""
    opened_files: list[IncomingFile] = []

    def open_file(_stop: StopEvent) -> None:
        with open_workspace(workspace, create=True, opener=open_by_steps) as opened:
            opened.make_marked_folder(RECEIVED_FOLDER, MARKER_FILE)
            opened_files.append(opened.receive(path, path))

    def close(_stop: StopEvent) -> None:
        for file in opened_files:
            file.close()

    try:
        # On cancellation, `run_in_thread` still waits for the thread, so the file gets closed.
        await run_in_thread(open_file)
        yield opened_files[0]
    finally:
        await run_in_thread(close)


@asynccontextmanager
async def _open_stream(adapter: Adapter, file: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
    chunks = adapter.fetch(to_file_part(file))
    async with contextlib.AsyncExitStack() as closed:
        if aclose := getattr(chunks, "aclose", None):
            closed.push_async_callback(aclose)
        yield chunks


async def _write_chunk(incoming: IncomingFile, content: bytes) -> None:
    if content:
        await run_in_thread(lambda _: incoming.write(content))


async def _existing_size(workspace: Path, path: str) -> int | None:
    """Return the size of a file that already exists, for example after `/retry`."""

    def look(_stop: StopEvent) -> int | None:
        with (
            contextlib.suppress(ToolError),
            open_workspace(workspace, opener=open_by_steps) as opened,
        ):
            return opened.file_size(path)
        return None

    return await run_in_thread(look)


async def _detect_media_type(workspace: Path, file: Attachment) -> str:
    """Return the media type; for pictures and unknown types, detected from the content."""
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
