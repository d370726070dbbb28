"""The login at a server from a terminal: the address to open, and a redirect or a pasted address."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click

from agent.settings import McpSettings
from agent.tools.mcp.contract import LoginFailed
from agent.tools.mcp.login import log_in, store_for
from gateway.errors import CannotStart
from gateway.mcp.redirect import AwaitedRedirect, listen_for_redirect

_LOGIN_SECONDS = 600.0


async def log_in_at_terminal(settings: McpSettings, folder: Path) -> bool:
    """Log in at a server; return False if it needs no login.

    Raises:
        CannotStart: The login did not succeed.
    """
    store = store_for(folder, settings)
    try:
        if settings.oauth and settings.oauth.grant == "client_credentials":
            return await log_in(settings, store, None)
        port = (settings.oauth and settings.oauth.redirect_port) or 0
        awaited = AwaitedRedirect()
        async with (
            asyncio.timeout(_LOGIN_SECONDS),
            listen_for_redirect(port, awaited, _show_address) as prompt,
            _pasted_answer(awaited),
        ):
            return await log_in(settings, store, prompt)
    except TimeoutError as error:
        msg = f"No one logged in within {_LOGIN_SECONDS / 60:g} minutes."
        raise CannotStart(msg) from error
    except (LoginFailed, OSError) as error:
        msg = f"The login at {settings.name} did not succeed: {error}."
        raise CannotStart(msg) from error


def _show_address(address: str) -> None:
    click.echo(f"Open this address and log in:\n\n{address}\n", err=True)
    click.echo(
        "If the browser runs on another machine, paste the address of the page that it cannot open:",
        err=True,
    )


@contextlib.asynccontextmanager
async def _pasted_answer(awaited: AwaitedRedirect) -> AsyncIterator[None]:
    """Accept the address as a line of standard input, too."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        line = sys.stdin.readline()
        if not line:
            loop.remove_reader(sys.stdin)
        elif line.strip():
            try:
                awaited.take_address(line)
            except LoginFailed as error:
                click.echo(f"{error}. Paste the whole address.", err=True)

    try:
        loop.add_reader(sys.stdin, on_input)
    except (OSError, ValueError):  # standard input is closed, or a file
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)
