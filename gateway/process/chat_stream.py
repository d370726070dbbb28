"""Terminals attached over the control socket: their input, and the frames that they show."""

import asyncio
from collections.abc import Mapping

import msgspec

from gateway.errors import CannotStart
from gateway.process.control_socket import ControlConnection, StreamHandler
from platforms.console import CHAT, ConsoleAdapter, TerminalScreen
from platforms.core.errors import Unavailable


class TerminalInput(msgspec.Struct, frozen=True):
    """A line from a terminal: a message, or the end of input."""

    say: str = ""
    id: str = ""
    end: bool = False
    of: tuple[str, ...] = ()
    """With `end`: ids of all messages, including those sent to an earlier daemon process."""


class InputStored(msgspec.Struct, frozen=True, tag="taken"):
    """A line to a terminal: the message is stored and need not be sent again."""

    message: str


class ChatFinished(msgspec.Struct, frozen=True, tag="over"):
    """A line to a terminal: every message is answered and shown; the stream ends."""


def chat_stream(console: ConsoleAdapter) -> StreamHandler:
    """Return the stream handler that attaches a terminal of another process to the console chat."""

    async def stream(wire: ControlConnection, args: Mapping[str, object]) -> None:
        chat = args.get("chat", CHAT)
        if not isinstance(chat, str) or not chat:
            msg = "The chat needs a name."
            raise CannotStart(msg)
        async with console.attach(chat) as screen, asyncio.TaskGroup() as both:
            showing = both.create_task(_send_frames(screen, wire))
            hearing = both.create_task(_receive_input(screen, wire))
            await asyncio.wait({showing, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done() and not hearing.exception() and hearing.result():
                await asyncio.wait({showing})  # the remaining frames
                await wire.write(ChatFinished())
            showing.cancel()
            hearing.cancel()

    return stream


async def _send_frames(screen: TerminalScreen, wire: ControlConnection) -> None:
    async for frame in screen.frames():
        await wire.write(frame)


async def _receive_input(screen: TerminalScreen, wire: ControlConnection) -> bool:
    """Read input; True if all of it was answered, False if terminal or daemon disconnects."""
    while (line := await wire.read()) is not None:
        typed = msgspec.json.decode(line, type=TerminalInput)
        if typed.end:
            await screen.finish(typed.of)
            return True
        try:
            await screen.send(typed.say, typed.id)
        except Unavailable:  # shutting down: the terminal repeats the line to the next process
            return False
        await wire.write(InputStored(typed.id))
    return False
