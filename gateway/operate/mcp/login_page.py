"""The login at a server: the address to open, and the redirect to this machine or a pasted address."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click

from agent.settings import McpSettings
from agent.tools.mcp.login import LoginFailed, LoginPrompt, RedirectAnswer, log_in, store_for
from gateway.errors import CannotStart

_LOGIN_SECONDS = 600.0
_MAX_REQUEST_BYTES = 16 * 1024
_READ_SECONDS = 10.0
_PAGE = "You are logged in. You can close this page and return to the terminal."


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
        async with (
            asyncio.timeout(_LOGIN_SECONDS),
            _redirect_listener(port) as (prompt, answer),
            _pasted_answer(answer),
        ):
            return await log_in(settings, store, prompt)
    except TimeoutError as error:
        msg = f"No one logged in within {_LOGIN_SECONDS / 60:g} minutes."
        raise CannotStart(msg) from error
    except (LoginFailed, OSError) as error:
        msg = f"The login at {settings.name} did not succeed: {error}."
        raise CannotStart(msg) from error


@contextlib.asynccontextmanager
async def _redirect_listener(
    port: int,
) -> AsyncIterator[tuple[LoginPrompt, asyncio.Future[RedirectAnswer]]]:
    """Listen on this machine for the redirect at the end of the login."""
    answer: asyncio.Future[RedirectAnswer] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
                status, page = _take_answer(words[1] if len(words) > 1 else "", answer)
                body = page.encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES)
    async with server:
        bound = server.sockets[0].getsockname()[1]

        async def wait() -> RedirectAnswer:
            return await answer

        prompt = LoginPrompt(
            redirect_url=f"http://127.0.0.1:{bound}/callback", show=_show_address, wait=wait
        )
        yield prompt, answer


async def _show_address(address: str) -> None:
    click.echo(f"Open this address and log in:\n\n{address}\n", err=True)
    click.echo(
        "If the browser runs on another machine, paste the address of the page that it cannot open:",
        err=True,
    )


def _take_answer(target: str, answer: asyncio.Future[RedirectAnswer]) -> tuple[str, str]:
    parts = urlsplit(target)
    if parts.path != "/callback":
        return "404 Not Found", "Not found."
    try:
        found = read_redirect(target)
    except LoginFailed as error:
        if not answer.done():
            answer.set_exception(error)
        return "400 Bad Request", str(error)
    if not answer.done():
        answer.set_result(found)
    return "200 OK", _PAGE


def read_redirect(address: str) -> RedirectAnswer:
    """Return the answer in a redirect address; raises `LoginFailed`."""
    values = {name: texts[0] for name, texts in parse_qs(urlsplit(address.strip()).query).items()}
    if error := values.get("error"):
        msg = f"the login was refused: {values.get('error_description') or error}"
        raise LoginFailed(msg)
    if not (code := values.get("code")):
        msg = "the address contains no code"
        raise LoginFailed(msg)
    return RedirectAnswer(code, values.get("state"), values.get("iss"))


@contextlib.asynccontextmanager
async def _pasted_answer(answer: asyncio.Future[RedirectAnswer]) -> AsyncIterator[None]:
    """Accept the address as a line of standard input, too."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        line = sys.stdin.readline()
        if not line:
            loop.remove_reader(sys.stdin)
        elif line.strip() and not answer.done():
            try:
                answer.set_result(read_redirect(line))
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
