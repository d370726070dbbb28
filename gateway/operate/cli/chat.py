"""`holdfast chat`: joins the running daemon, or runs a gateway without HTTP until the chat ends.

Such a gateway connects no platforms, unless `--platforms` is given.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from gateway.config.loader import ConfigOptions, LoadedConfig, read_environment
from gateway.operate.cli.common import (
    ask_daemon,
    config_options,
    control_socket,
    load_settings,
    store_url,
)
from gateway.operate.cli.found_config import confirm_found_config
from gateway.operate.cli.remote import DaemonGone, RemoteChat
from gateway.operate.cli.run import configure_logging, configured_platforms
from gateway.operate.cli.terminal import ChatConnection, open_standard_terminal
from gateway.process.control_socket import ControlConnection, NotRunning, open_stream
from gateway.process.lock import hold_state_folder
from gateway.process.service import STOP_SIGNALS, serve
from gateway.runner import GatewayRunner
from gateway.settings import Settings
from platforms.console import CHAT, ConsoleAdapter
from platforms.core.registry import load_specs

_REJOIN_SECONDS = 60.0
"""Seconds piped input waits for a daemon that ended; at a terminal the person decides."""


@click.command(help="Chat with the agent in this terminal. Ctrl-C stops an answer, Ctrl-D leaves.")
@click.argument("chat", default=CHAT, required=False, metavar="[NAME]")
@click.option(
    "--platforms",
    is_flag=True,
    help="Without a running gateway: also connect the configured platforms.",
)
@config_options
def chat(options: ConfigOptions, chat: str, *, platforms: bool) -> None:
    """See the help."""
    asyncio.run(_run_chat(options, chat, with_platforms=platforms))


async def _run_chat(options: ConfigOptions, name: str, *, with_platforms: bool) -> None:
    async def join() -> ControlConnection:
        return await open_stream(control_socket(), "chat", chat=name)

    try:
        await asyncio.to_thread(ask_daemon, "status")  # waits for a daemon that is starting
        wire = await join()
    except NotRunning:
        loaded = load_settings(options)
        confirm_found_config(options)
        await _run_standalone(loaded, name, with_platforms=with_platforms)
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


def console_only(settings: Settings) -> Settings:
    """Return the settings without any platform besides the terminal.

    A second gateway on the same bots would receive a part of their messages.
    """
    terminal = {name: table for name, table in settings.platforms.items() if name == "console"}
    return replace(settings, platforms=terminal)


def standalone_notice(platforms: Sequence[str], home: Path, *, connected: bool) -> str:
    """Return the line that says which platforms a chat without a daemon connects; may be empty."""
    if not platforms:
        return ""
    names = " and ".join(filter(None, (", ".join(platforms[:-1]), platforms[-1])))
    if connected:
        return f"Holdfast is not running on {home}. This chat also connects {names}."
    return (
        f"Holdfast is not running on {home}. This chat does not connect {names}; "
        "`holdfast run` does, or this chat with --platforms."
    )


async def _run_standalone(loaded: LoadedConfig, name: str, *, with_platforms: bool) -> None:
    """Run a gateway without HTTP for as long as this terminal is open."""
    notice = standalone_notice(configured_platforms(loaded), loaded.home, connected=with_platforms)
    if notice:
        click.echo(notice, err=True)
    redactor = configure_logging(loaded, quiet=True)
    with hold_state_folder(loaded.home, store_url=store_url(loaded)) as folder:
        runner = GatewayRunner(
            loaded.settings if with_platforms else console_only(loaded.settings),
            loaded.home,
            specs=load_specs(),
            serve_http=False,
            redactor=redactor,
        )
        await serve(
            runner,
            folder,
            read_environment(),
            on_ready=lambda: _talk_standalone(runner, name),
            handle_signals=False,
        )


async def _talk_standalone(runner: GatewayRunner, name: str) -> None:
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
