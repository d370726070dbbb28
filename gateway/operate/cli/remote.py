"""A chat with the running daemon that outlasts it: the next one is joined, and nothing is lost."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from gateway.errors import CannotStart
from gateway.process.control_socket import NotAnswering, NotRunning, Wire, read_answer
from gateway.process.service import Over, Said, Taken
from platforms.console import Answer, Frame, Heard, Note, Status
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two looks whether Holdfast runs again."""

ENDED = Note("Holdfast has ended. What you say is kept until it runs again; Ctrl-D leaves.")
BACK = Note("Holdfast runs again.")


class Gone(CannotStart):
    """Holdfast has ended; what it has taken is answered when it runs again."""


class Remote:
    """A screen of the daemon, and of the one after it.

    What was said and not confirmed is said again there; its id tells whether it had arrived.
    """

    def __init__(
        self, wire: Wire, join: Callable[[], Awaitable[Wire]], patience: float | None = None
    ) -> None:
        self._wire: Wire | None = wire  # None while nobody is there
        self._join = join
        self._patience = patience  # seconds until nobody waits for the next daemon any more
        self._ids = Ids(SystemClock())
        self._said: list[str] = []
        self._unconfirmed: dict[str, Said] = {}
        self._over = False

    async def frames(self) -> AsyncIterator[Frame]:
        """See `gateway.operate.cli.terminal.Line`."""
        while self._wire:
            async for frame in self._received(self._wire):
                yield frame
            await self.close()
            if self._over:
                return
            yield Status("")
            yield ENDED
            await self._rejoin()
            yield BACK

    async def _received(self, wire: Wire) -> AsyncIterator[Frame]:
        while not self._over and (line := await wire.read()) is not None:
            try:
                frame = msgspec.json.decode(
                    line, type=Answer | Note | Heard | Status | Taken | Over
                )
            except msgspec.ValidationError:
                read_answer(line)  # it is not a frame but says what went wrong
                continue
            if isinstance(frame, Taken):
                self._unconfirmed.pop(frame.message, None)
            elif isinstance(frame, Over):
                self._over = True
            else:
                yield frame

    async def _rejoin(self) -> None:
        began, pause = time.monotonic(), FIRST_PAUSE
        while self._wire is None:
            if self._patience is not None and time.monotonic() - began > self._patience:
                raise Gone
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            with contextlib.suppress(NotRunning, NotAnswering, ConnectionError):
                wire = await self._join()
                try:
                    await self._say_again(wire)
                    self._wire = wire
                finally:
                    if self._wire is not wire:  # it died again
                        await wire.close()

    async def _say_again(self, wire: Wire) -> None:
        """Say what may not have arrived, in its order; what is said meanwhile comes after it."""
        again: set[str] = set()
        while missing := [said for said in self._unconfirmed.values() if said.id not in again]:
            for said in missing:
                await wire.write(said)
                again.add(said.id)

    async def say(self, text: str) -> None:
        """See `gateway.operate.cli.terminal.Line`."""
        said = Said(say=text, id=self._ids.new("c"))
        self._said.append(said.id)
        await self._write(said)

    async def finish(self) -> None:
        """See `gateway.operate.cli.terminal.Line`."""
        await self._write(Said(id=self._ids.new("c"), end=True, of=tuple(self._said)))

    async def _write(self, said: Said) -> None:
        self._unconfirmed[said.id] = said
        if self._wire:
            with contextlib.suppress(ConnectionError):  # it is said again to the next one
                await self._wire.write(said)

    async def close(self) -> None:
        """Leave."""
        wire, self._wire = self._wire, None
        if wire:
            await wire.close()
