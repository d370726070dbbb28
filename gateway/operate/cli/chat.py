"""`holdfast chat`: joins the running daemon, or is one itself until it ends."""

import asyncio
import sys

import click

from gateway.config.loader import Loaded, Options, environment
from gateway.operate.cli.common import configured, control_socket, settings_of
from gateway.operate.cli.remote import Gone, Remote
from gateway.operate.cli.run import prepared_log
from gateway.operate.cli.terminal import Line, standard
from gateway.process.control_socket import NotRunning, Wire, connect
from gateway.process.service import SIGNALS, serve
from gateway.runner import GatewayRunner
from platforms.console import CHAT, ConsoleAdapter
from platforms.core.registry import specs

_RETURN = 60.0
"""Seconds in which a script waits for a Holdfast that has ended; a person at a terminal decides."""


@click.command(help="Talk to the agent in this terminal; Ctrl-C stops an answer, Ctrl-D leaves.")
@click.argument("chat", default=CHAT, required=False, metavar="[NAME]")
@configured
def chat(options: Options, chat: str) -> None:
    """See the help."""
    asyncio.run(_chat(options, chat))


async def _chat(options: Options, name: str) -> None:
    async def join() -> Wire:
        return await connect(control_socket(), "chat", chat=name)

    try:
        wire = await join()
    except NotRunning:
        await _alone(settings_of(options), name)
        return
    remote = Remote(wire, join, None if sys.stdin.isatty() else _RETURN)
    try:
        await _talk(remote)
    finally:
        await remote.close()


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
