"""The end of a login at a server: a redirect to this machine, or its address as pasted text."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs, urlsplit

from agent.tools.mcp.contract import LoginFailed, LoginPrompt, RedirectAnswer

_CALLBACK_PATH = "/callback"
_MAX_REQUEST_BYTES = 16 * 1024
_READ_SECONDS = 10.0
_PAGE = "You are logged in. You can close this page."
_OTHER_LOGIN = "This address is the end of another login. Use the newest one."


class OtherLogin(LoginFailed):
    """The answer belongs to another login."""


class LoginRefused(LoginFailed):
    """The login has ended without success, by the word of the login server."""


class AwaitedRedirect:
    """The answer that one login waits for; the answers of other logins are refused."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[RedirectAnswer] = asyncio.get_running_loop().create_future()
        self._state = ""

    def begin(self, login_address: str) -> None:
        """Accept the answers to a login page from now on.

        Raises:
            LoginFailed: The address is not one of a web page, or it is a second one.
        """
        if self._state:
            msg = "the server asks for a second login"
            raise LoginFailed(msg)
        parts = urlsplit(login_address)
        if parts.scheme not in {"http", "https"}:
            msg = "the server names a login page that is not a web page"
            raise LoginFailed(msg)
        self._state = parse_qs(parts.query).get("state", [""])[0]

    async def wait(self) -> RedirectAnswer:
        """Wait for the answer; raises `LoginFailed` if the login was refused."""
        return await self._answer

    def take_address(self, address: str) -> None:
        """Take the address of a redirect.

        Raises:
            OtherLogin: The address belongs to another login.
            LoginRefused: The address says that the login was refused; the login has ended.
            LoginFailed: The address has no code.
        """
        values = _parameters(address)
        if not self._state or not secrets.compare_digest(
            values.get("state", "").encode(), self._state.encode()
        ):
            raise OtherLogin(_OTHER_LOGIN)
        try:
            self._set(read_redirect(address))
        except LoginFailed as error:
            if "error" not in values:
                raise
            if not self._answer.done():
                self._answer.set_exception(error)
            raise LoginRefused(str(error)) from error

    def take_code(self, code: str) -> None:
        """Take the code alone, from the person who was sent the address of the login page."""
        self._set(RedirectAnswer(code.strip(), self._state))

    def _set(self, answer: RedirectAnswer) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)


def read_redirect(address: str) -> RedirectAnswer:
    """Return the answer in a redirect address; raises `LoginFailed`."""
    values = _parameters(address)
    if error := values.get("error"):
        msg = f"the login was refused: {values.get('error_description') or error}"
        raise LoginFailed(msg)
    if not (code := values.get("code")):
        msg = "the address contains no code"
        raise LoginFailed(msg)
    return RedirectAnswer(code, values.get("state"), values.get("iss"))


def _parameters(address: str) -> dict[str, str]:
    try:
        query = urlsplit(address.strip()).query
    except ValueError:
        return {}
    return {name: texts[0] for name, texts in parse_qs(query).items()}


@contextlib.asynccontextmanager
async def listen_for_redirect(
    port: int, awaited: AwaitedRedirect, show: Callable[[str], None]
) -> AsyncIterator[LoginPrompt]:
    """Listen on this machine for the redirect at the end of a login; `show` gets the login page."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
                status, page = _take_request(words[1] if len(words) > 1 else "", awaited)
                body = page.encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        writer.close()

    async def begin(address: str) -> None:
        awaited.begin(address)
        show(address)

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES)
    async with server:
        bound = server.sockets[0].getsockname()[1]
        yield LoginPrompt(
            redirect_url=f"http://127.0.0.1:{bound}{_CALLBACK_PATH}", show=begin, wait=awaited.wait
        )


def _take_request(target: str, awaited: AwaitedRedirect) -> tuple[str, str]:
    if urlsplit(target).path != _CALLBACK_PATH:
        return "404 Not Found", "Not found."
    try:
        awaited.take_address(target)
    except LoginFailed as error:
        return "400 Bad Request", str(error)
    return "200 OK", _PAGE
