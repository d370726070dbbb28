"""Terminals joined over the control socket: what they type, and what they show."""

import asyncio
from collections.abc import Mapping

import msgspec

from gateway.errors import CannotStart
from gateway.process.control_socket import ControlConnection, StreamHandler
from platforms.console import CHAT, ConsoleAdapter, TerminalScreen
from platforms.core.errors import Unavailable


class TerminalInput(msgspec.Struct, frozen=True):
    """A line from a terminal: words, or that nothing more will be said."""

    say: str = ""
    id: str = ""
    end: bool = False
    of: tuple[str, ...] = ()  # at the end: all that was said, also to a daemon before this one


class InputStored(msgspec.Struct, frozen=True, tag="taken"):
    """A line to a terminal: this is stored, and need not be said again."""

    message: str


class ChatFinished(msgspec.Struct, frozen=True, tag="over"):
    """A line to a terminal: all is answered, and nothing more will come."""


def chat_stream(console: ConsoleAdapter) -> StreamHandler:
    """Let a terminal of another process look at the console's chat."""

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
                await asyncio.wait({showing})  # what is still to be printed
                await wire.write(ChatFinished())
            showing.cancel()
            hearing.cancel()

    return stream


async def _send_frames(screen: TerminalScreen, wire: ControlConnection) -> None:
    async for frame in screen.frames():
        await wire.write(frame)


async def _receive_input(screen: TerminalScreen, wire: ControlConnection) -> bool:
    """Take what is said; True when it is all said and answered, False when one of us leaves."""
    while (line := await wire.read()) is not None:
        said = msgspec.json.decode(line, type=TerminalInput)
        if said.end:
            await screen.finish(said.of)
            return True
        try:
            await screen.send(said.say, said.id)
        except Unavailable:  # we are about to end: it is said again to whoever comes next
            return False
        await wire.write(InputStored(said.id))
    return False
