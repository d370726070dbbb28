"""A chat that outlasts the daemon: reconnects to the next one and loses no message."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from gateway.errors import CannotStart
from gateway.process.chat_stream import ChatFinished, InputStored, TerminalInput
from gateway.process.control_socket import (
    ControlConnection,
    NotAnswering,
    NotRunning,
    read_response,
)
from platforms.console import AnswerFrame, NoteFrame, StatusFrame, TerminalFrame, UserFrame
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids

_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 1.0
"""Seconds between attempts to reconnect."""

ENDED_NOTE = NoteFrame(
    "Holdfast has stopped. Your messages are kept until it runs again. Ctrl-D leaves."
)
BACK_NOTE = NoteFrame("Holdfast is running again.")


class DaemonGone(CannotStart):
    """Holdfast has stopped. Received messages are answered after the next start."""


class RemoteChat:
    """A screen of the running daemon, kept across restarts of the daemon.

    Messages without confirmation are sent again to the next daemon, which recognizes duplicates by
    their id.
    """

    def __init__(
        self,
        wire: ControlConnection,
        connect: Callable[[], Awaitable[ControlConnection]],
        rejoin_seconds: float | None = None,
    ) -> None:
        self._wire: ControlConnection | None = wire  # None while disconnected
        self._connect = connect
        self._rejoin_seconds = rejoin_seconds  # None: wait for the next daemon forever
        self._ids = Ids(SystemClock())
        self._sent_ids: list[str] = []
        self._unconfirmed: dict[str, TerminalInput] = {}
        self._finished = False

    async def frames(self) -> AsyncIterator[TerminalFrame]:
        """See `gateway.operate.cli.terminal.ChatConnection`."""
        while self._wire:
            async for frame in self._read_frames(self._wire):
                yield frame
            await self.close()
            if self._finished:
                return
            yield StatusFrame("")
            yield ENDED_NOTE
            await self._reconnect()
            yield BACK_NOTE

    async def _read_frames(self, wire: ControlConnection) -> AsyncIterator[TerminalFrame]:
        while not self._finished and (line := await wire.read()) is not None:
            try:
                frame = msgspec.json.decode(
                    line,
                    type=AnswerFrame
                    | NoteFrame
                    | UserFrame
                    | StatusFrame
                    | InputStored
                    | ChatFinished,
                )
            except msgspec.ValidationError:
                read_response(line)  # not a frame: raises the error that the line reports
                continue
            if isinstance(frame, InputStored):
                self._unconfirmed.pop(frame.message, None)
            elif isinstance(frame, ChatFinished):
                self._finished = True
            else:
                yield frame

    async def _reconnect(self) -> None:
        began, pause = time.monotonic(), _MIN_RETRY_SECONDS
        while self._wire is None:
            if self._rejoin_seconds is not None and time.monotonic() - began > self._rejoin_seconds:
                raise DaemonGone
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_RETRY_SECONDS)
            with contextlib.suppress(NotRunning, NotAnswering, ConnectionError):
                wire = await self._connect()
                try:
                    await self._resend(wire)
                    self._wire = wire
                finally:
                    if self._wire is not wire:  # the connection broke again
                        await wire.close()

    async def _resend(self, wire: ControlConnection) -> None:
        """Send unconfirmed messages in order; messages typed meanwhile follow."""
        sent: set[str] = set()
        while missing := [text for text in self._unconfirmed.values() if text.id not in sent]:
            for text in missing:
                await wire.write(text)
                sent.add(text.id)

    async def send(self, text: str) -> None:
        """See `gateway.operate.cli.terminal.ChatConnection`."""
        message = TerminalInput(say=text, id=self._ids.new("c"))
        self._sent_ids.append(message.id)
        await self._send(message)

    async def finish(self) -> None:
        """See `gateway.operate.cli.terminal.ChatConnection`."""
        await self._send(TerminalInput(id=self._ids.new("c"), end=True, of=tuple(self._sent_ids)))

    async def _send(self, message: TerminalInput) -> None:
        self._unconfirmed[message.id] = message
        if self._wire:
            with contextlib.suppress(ConnectionError):  # sent again to the next daemon
                await self._wire.write(message)

    async def close(self) -> None:
        """Close the connection to the daemon."""
        wire, self._wire = self._wire, None
        if wire:
            await wire.close()
