"""`holdfast chat`: joins the running daemon, or runs a gateway without HTTP until the chat ends."""

import asyncio
import sys

import click

from gateway.config.loader import ConfigOptions, LoadedConfig, read_environment
from gateway.operate.cli.common import config_options, control_socket, load_settings
from gateway.operate.cli.remote import DaemonGone, RemoteChat
from gateway.operate.cli.run import configure_logging
from gateway.operate.cli.terminal import ChatConnection, open_standard_terminal
from gateway.process.control_socket import ControlConnection, NotRunning, open_stream
from gateway.process.service import STOP_SIGNALS, serve
from gateway.runner import GatewayRunner
from platforms.console import CHAT, ConsoleAdapter
from platforms.core.registry import load_specs

_REJOIN_SECONDS = 60.0
"""Seconds piped input waits for a daemon that ended; at a terminal the person decides."""


@click.command(help="Chat with the agent in this terminal. Ctrl-C stops an answer, Ctrl-D leaves.")
@click.argument("chat", default=CHAT, required=False, metavar="[NAME]")
@config_options
def chat(options: ConfigOptions, chat: str) -> None:
    """See the help."""
    asyncio.run(_run_chat(options, chat))


async def _run_chat(options: ConfigOptions, name: str) -> None:
    async def join() -> ControlConnection:
        return await open_stream(control_socket(), "chat", chat=name)

    try:
        wire = await join()
    except NotRunning:
        await _run_standalone(load_settings(options), name)
        return
    remote = RemoteChat(wire, join, None if sys.stdin.isatty() else _REJOIN_SECONDS)
    try:
        await _talk(remote)
    finally:
        await remote.close()


async def _talk(line: ChatConnection) -> bool:
    """Chat until the person leaves; return True if running answers need not be awaited."""
    if sys.stdin.isatty():
        click.echo("Ctrl-C stops an answer, Ctrl-D leaves. /help lists commands.")
    terminal = open_standard_terminal()
    if not await terminal.run(line):
        raise DaemonGone
    return terminal.left_early


async def _run_standalone(loaded: LoadedConfig, name: str) -> None:
    """Run a gateway without HTTP for as long as this terminal is open."""
    redactor = configure_logging(loaded, quiet=True)
    runner = GatewayRunner(
        loaded.settings, loaded.home, specs=load_specs(), serve_http=False, redactor=redactor
    )

    async def talk() -> None:
        console = runner.adapter("console")
        assert isinstance(console, ConsoleAdapter)  # noqa: S101 - always there
        try:
            async with console.attach(name) as screen:
                left_early = await _talk(screen)
        finally:
            runner.stopping.set()
            for number in STOP_SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, runner.skip_drain.set)
        if left_early:
            runner.skip_drain.set()
        elif sys.stdin.isatty():
            click.echo("Leaving after the running answer is finished. Ctrl-C leaves now.")

    await serve(runner, loaded.home, read_environment(), on_ready=talk, handle_signals=False)
