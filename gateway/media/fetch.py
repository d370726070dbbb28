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
from agent.request.pictures import BEGINNING, KINDS, kind_of
from agent.tools.blocking import Stop, in_thread
from agent.tools.confine import Incoming, entered, open_by_steps
from gateway.media.cleanup import MARK, clear
from gateway.media.incoming import FOLDER, as_part, too_large
from gateway.media.speech import Listener, NotHeard
from platforms.core.contract import Adapter, Address
from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from sessions.records import Attachment
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_WRITTEN_AT_ONCE = 256 * 1024
_OF_ONE_TURN = 2  # files that are fetched side by side
_TRIES = 3
_SURELY_OVER = 1800.0  # seconds since the last piece of a file came

CANNOT_LISTEN = "it cannot be listened to, because no service for that is set up"
_ANY = "application/octet-stream"
NOT_CONNECTED = "the platform is not connected"
FAILED = "an error inside the gateway"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much, how long, and how many at once; seconds and bytes."""

    largest: int = 20_000_000
    silence: float = 30.0  # without a piece
    whole: float = 180.0  # for one file, with all tries
    wait: float = 300.0  # until it is a file's turn
    pause: float = 0.5  # before the second try
    at_once: int = 8  # of all chats together
    reserve: int = 50_000_000  # bytes of the disk that are left for everything else


class _TooLarge(Exception):
    """More came than is taken."""


class Attachments:
    """Fetches files for all turns."""

    def __init__(
        self,
        adapter: Callable[[Address], Adapter | None],
        clock: Clock,
        listener: Listener | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._adapter = adapter
        self._clock = clock
        self._listener = listener
        self._bounds = bounds = bounds or Bounds()
        self._slots = asyncio.Semaphore(bounds.at_once)
        self._begun = clock.now() / 1000 - 1  # a file's time may be a little behind the clock

    async def settle(
        self, files: Sequence[Attachment], address: Address, workspace: Path
    ) -> tuple[Attachment, ...]:
        """Fetch files that came to an address into a workspace; each says what came of it."""
        settled: dict[str, Attachment] = {}
        some = asyncio.Semaphore(_OF_ONE_TURN)

        async def one(file: Attachment) -> None:
            async with some:
                settled[file.path] = await self._settled(file, address, workspace)

        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(one(file))
        return tuple(settled[file.path] for file in files)

    async def clear(self, workspaces: Iterable[Path], keep: float) -> None:
        """Remove what is older than `keep` seconds (0: nothing), and what was left half-way."""
        now = self._clock.now() / 1000
        before = now - keep if keep else None
        # What a dead process left just before this one began is found by a later round.
        begun = max(self._begun, now - _SURELY_OVER)
        for workspace in workspaces:
            removed = await self._cleared(workspace, before, begun)
            if removed:
                log.info("%s: %d received files removed", workspace, removed)

    async def _cleared(self, workspace: Path, before: float | None, begun: float) -> int:
        return await in_thread(lambda _: clear(workspace, before=before, begun=begun))

    # --- one file -------------------------------------------------------------------------------

    async def _settled(self, file: Attachment, address: Address, workspace: Path) -> Attachment:
        try:
            file = await self._fetched(file, address, workspace)
            if file.fetched and file.voice and not file.heard:
                file = await self._listened(file, workspace)
        except Exception:
            log.exception("%s broke", file.path)
            return replace(file, trouble=FAILED)
        return file

    async def _fetched(self, file: Attachment, address: Address, workspace: Path) -> Attachment:
        try:
            size = await _size_there(workspace, file.path)
            if size is None:
                size = await self._fetch(file, address, workspace)
        except (PlatformError, ToolError, TimeoutError, _TooLarge) as error:
            log.warning("%s was not fetched: %s", file.path, error)
            return replace(file, trouble=str(error))
        return replace(file, fetched=True, size=size, media_type=await _kind(workspace, file))

    async def _fetch(self, file: Attachment, address: Address, workspace: Path) -> int:
        bounds = self._bounds
        if file.size is not None and file.size > bounds.largest:
            raise _TooLarge(too_large(bounds.largest, file.size))
        async with self._slot():
            try:
                async with asyncio.timeout(bounds.whole), _incoming(workspace, file.path) as place:
                    await self._check_room(workspace, file.size or 0)
                    size = await self._tried(file, address, place)
                    await in_thread(lambda _: place.finish())
            except TimeoutError as error:
                msg = str(error) or f"it did not come within {bounds.whole:g} s"
                raise TimeoutError(msg) from None
        return size

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait until fewer than the most are fetched."""
        try:
            async with asyncio.timeout(self._bounds.wait):
                await self._slots.acquire()
        except TimeoutError:
            msg = "too many other files were being fetched"
            raise TimeoutError(msg) from None
        try:
            yield
        finally:
            self._slots.release()

    async def _check_room(self, workspace: Path, size: int) -> None:
        def free(_stop: Stop) -> int:
            with entered(workspace) as opened:
                return opened.free()

        if await in_thread(free) < size + self._bounds.reserve:
            msg = "the disk is full"
            raise ToolError(msg)

    async def _tried(self, file: Attachment, address: Address, place: Incoming) -> int:
        """Read it; what breaks off is begun again, for reading changes nothing."""
        for number in range(1, _TRIES):
            try:
                return await self._stream(file, address, place)
            except (Unavailable, Unconfirmed) as error:
                log.info("%s: %s; trying again", file.path, error)
                asked = error.retry_after if isinstance(error, Unavailable) else None
                await asyncio.sleep(asked or self._bounds.pause * number)
            await in_thread(lambda _: place.restart())
        return await self._stream(file, address, place)

    async def _stream(self, file: Attachment, address: Address, place: Incoming) -> int:
        adapter = self._adapter(address)
        if adapter is None:
            raise Unavailable(NOT_CONNECTED)
        largest, size, kept = self._bounds.largest, 0, bytearray()
        async with _read(adapter, file) as pieces:
            while (piece := await self._next(pieces)) is not None:
                size += len(piece)
                if size > largest:
                    raise _TooLarge(too_large(largest))
                kept += piece
                if len(kept) >= _WRITTEN_AT_ONCE:
                    await _write(place, bytes(kept))
                    kept.clear()
        await _write(place, bytes(kept))
        return size

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._bounds.silence):
                return await anext(pieces, None)
        except TimeoutError:
            msg = f"nothing came of it for {self._bounds.silence:g} s"
            raise TimeoutError(msg) from None

    # --- voice ----------------------------------------------------------------------------------

    async def _listened(self, file: Attachment, workspace: Path) -> Attachment:
        if self._listener is None:
            return replace(file, trouble=CANNOT_LISTEN)
        size = file.size or 0

        async def speech() -> bytes:
            return await in_thread(lambda _: _content(workspace, file.path, size))

        try:
            return replace(file, heard=await self._listener.heard(speech, file.media_type, size))
        except NotHeard as error:
            log.warning("%s was not written down: %s", file.path, error.log)
            return replace(file, trouble=f"it could not be listened to: {error}")
        except ToolError as error:
            return replace(file, trouble=f"it could not be listened to: {error}")


@asynccontextmanager
async def _incoming(workspace: Path, path: str) -> AsyncIterator[Incoming]:
    """Make the place of a file; one that does not become whole leaves nothing behind."""
    made: list[Incoming] = []

    def begin(_stop: Stop) -> None:
        with entered(workspace, create=True, opener=open_by_steps) as opened:
            opened.claim(FOLDER, MARK)
            made.append(opened.receive(path, path))

    def close(_stop: Stop) -> None:
        for each in made:
            each.close()

    try:
        # Whoever is cancelled here still waits for the thread, and closes what it has made.
        await in_thread(begin)
        yield made[0]
    finally:
        await in_thread(close)


@asynccontextmanager
async def _read(adapter: Adapter, file: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
    pieces = adapter.fetch(as_part(file))
    async with contextlib.AsyncExitStack() as closed:
        if aclose := getattr(pieces, "aclose", None):
            closed.push_async_callback(aclose)
        yield pieces


async def _write(place: Incoming, content: bytes) -> None:
    if content:
        await in_thread(lambda _: place.write(content))


async def _size_there(workspace: Path, path: str) -> int | None:
    """Tell the size of a file that is there already, as after `/retry`."""

    def look(_stop: Stop) -> int | None:
        with contextlib.suppress(ToolError), entered(workspace, opener=open_by_steps) as opened:
            return opened.size(path)
        return None

    return await in_thread(look)


async def _kind(workspace: Path, file: Attachment) -> str:
    """Say what a file is; whether it is a picture shows in it, not in what it is called."""
    if not file.media_type.startswith(("image/", _ANY)):
        return file.media_type

    def look(_stop: Stop) -> bytes:
        with entered(workspace, opener=open_by_steps) as opened:
            return opened.beginning(file.path, BEGINNING)

    named = _ANY if file.media_type in KINDS else file.media_type
    with contextlib.suppress(ToolError):
        return kind_of(await in_thread(look)) or named
    return named


def _content(workspace: Path, path: str, size: int) -> bytes:
    with entered(workspace, opener=open_by_steps) as opened:
        return opened.read(path, size)[0]
