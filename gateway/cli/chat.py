"""`holdfast chat`: joins the running daemon, or is one itself until it ends."""

import asyncio
import sys
from collections.abc import AsyncIterator

import click
import msgspec

from gateway.cli.common import configured, control_socket, settings_of
from gateway.cli.run import prepared_log
from gateway.config import Loaded, Options, environment
from gateway.control import NotRunning, Wire, connect, read_answer
from gateway.errors import CannotStart
from gateway.runner import GatewayRunner
from gateway.service import SIGNALS, Said, serve
from gateway.terminal import Line, standard
from platforms.console import CHAT, Answer, ConsoleAdapter, Frame, Heard, Note, Status
from platforms.core.registry import specs
from sessions.values.clock import SystemClock
from sessions.values.ids import Ids


class Gone(CannotStart):
    """Holdfast has ended; what you said is kept and answered when it runs again."""


@click.command(help="Talk to the agent in this terminal; Ctrl-C stops an answer, Ctrl-D leaves.")
@click.argument("chat", default=CHAT, required=False, metavar="[NAME]")
@configured
def chat(options: Options, chat: str) -> None:
    """See the help."""
    asyncio.run(_chat(options, chat))


async def _chat(options: Options, name: str) -> None:
    try:
        wire = await connect(control_socket(), "chat", chat=name)
    except NotRunning:
        await _alone(settings_of(options), name)
        return
    try:
        await _talk(Remote(wire))
    finally:
        await wire.close()


async def _talk(line: Line) -> bool:
    """Talk until the person leaves; True when nothing is to be waited for."""
    if sys.stdin.isatty():
        click.echo("Ctrl-C stops an answer, Ctrl-D leaves. /help lists commands.")
    terminal = standard()
    if not await terminal.run(line):
        raise Gone
    return terminal.hurried


async def _alone(loaded: Loaded, name: str) -> None:
    """Be the gateway: without HTTP, for as long as this terminal is there."""
    redactor = prepared_log(loaded, quiet=True)
    runner = GatewayRunner(
        loaded.settings, loaded.home, specs=specs(), http=False, redactor=redactor
    )

    async def talk() -> None:
        console = runner.adapter("console")
        assert isinstance(console, ConsoleAdapter)  # noqa: S101 - always there
        try:
            async with console.attach(name) as screen:
                hurried = await _talk(screen)
        finally:
            runner.stopping.set()
            for number in SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, runner.hurry.set)
        if hurried:
            runner.hurry.set()
        elif sys.stdin.isatty():
            click.echo("Leaving; what is being answered is finished first. Ctrl-C does not wait.")

    await serve(runner, loaded.home, environment(), then=talk, signals=False)


class Remote:
    """A screen of the running daemon."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ids = Ids(SystemClock())

    async def frames(self) -> AsyncIterator[Frame]:
        """See `gateway.terminal.Line`."""
        while (line := await self._wire.read()) is not None:
            try:
                yield msgspec.json.decode(line, type=Answer | Note | Heard | Status)
            except msgspec.ValidationError:
                read_answer(line)  # it is not a frame but says what went wrong

    async def say(self, text: str) -> None:
        """See `gateway.terminal.Line`."""
        await self._wire.write(Said(say=text, id=self._ids.new("c")))

    async def finish(self) -> None:
        """See `gateway.terminal.Line`."""
        await self._wire.write(Said(end=True))
