"""Logins at real MCP servers: OAuth by a redirect or a pasted address, refresh, and stored tokens."""

import asyncio
import contextlib
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.errors import ToolError
from agent.settings import McpSettings
from agent.tools.mcp.contract import LoginFailed, LoginPrompt, RedirectAnswer
from agent.tools.mcp.link import LoginAccess
from agent.tools.mcp.login import log_in, store_for
from agent.tools.mcp.servers import McpServers
from agent.tools.output import ToolOutput
from gateway.mcp.redirect import read_redirect
from gateway.operate.mcp.login_page import log_in_at_terminal
from sessions.values.clock import SystemClock

PATIENCE = 15.0
SERVER = Path(__file__).parents[1] / "fakes" / "mcp_login_server.py"


class Context:
    idempotency_key = "s:t:c"
    workspace = Path("/nonexistent")
    ask_person = None

    def report_progress(self, _text: str) -> None:
        """Show nothing."""


HERE: Any = Context()


@contextlib.contextmanager
def guarded(*options: str) -> Iterator[McpSettings]:
    """Run a server with a login."""
    with subprocess.Popen(
        [sys.executable, str(SERVER), *options], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        try:
            yield McpSettings(name="vault", url=server.stdout.readline().decode().strip())
        finally:
            server.kill()


async def follow(address: str) -> str:
    """Open the login page as a browser does; return the address of the redirect."""
    async with httpx2.AsyncClient() as browser:
        page = await browser.get(address, follow_redirects=False)
    return str(page.headers["location"])


def prompt_of(redirects: list[str]) -> LoginPrompt:
    async def show(address: str) -> None:
        redirects.append(await follow(address))

    async def wait() -> RedirectAnswer:
        return read_redirect(redirects[-1])

    return LoginPrompt(redirect_url="http://127.0.0.1:1/callback", show=show, wait=wait)


async def logged_in(settings: McpSettings, folder: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await log_in(settings, store_for(folder, settings), prompt_of([]))


@contextlib.asynccontextmanager
async def connected(settings: McpSettings, folder: Path) -> AsyncIterator[McpServers]:
    servers = McpServers(
        [settings], SystemClock(), start_seconds=math.inf, logins=LoginAccess(folder=folder)
    )
    async with asyncio.timeout(PATIENCE), servers.running():
        yield servers


async def call(servers: McpServers) -> object:
    (tool,) = [each for each in servers.tools() if each.name == "vault_open_sesame"]
    return await tool.call({}, HERE)


async def counts(settings: McpSettings, path: str = "/revoke") -> dict[str, int]:
    async with httpx2.AsyncClient() as client:
        answer = await client.get((settings.url or "").replace("/mcp", path))
    found: dict[str, int] = answer.json()
    return found


async def test_a_login_is_stored_for_its_server_only_and_used_by_the_daemon(
    tmp_path: Path,
) -> None:
    with guarded() as settings:
        async with connected(settings, tmp_path) as servers:
            state = servers.status()["vault"]
            assert "it asks for a login; log in with: holdfast mcp login vault" in state
        assert (await counts(settings))["registered"] == 0  # the daemon registers no clients
        await logged_in(settings, tmp_path)
        file = tmp_path / "vault.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert json.loads(file.read_bytes())["url"] == settings.url
        async with connected(settings, tmp_path) as servers:
            assert await call(servers) == ToolOutput("gold")
        moved = McpSettings(name="vault", url=f"{settings.url}/elsewhere")
        assert not await store_for(tmp_path, moved).has_tokens()


async def test_an_expired_token_is_refreshed_before_it_is_used(tmp_path: Path) -> None:
    with guarded("--seconds", "1") as settings:  # counts as expired at once
        await logged_in(settings, tmp_path)
        async with connected(settings, tmp_path) as servers:
            assert await call(servers) == ToolOutput("gold")
        assert (await counts(settings))["refreshed"] >= 1


async def test_a_token_that_the_server_has_revoked_is_refreshed_in_a_call(tmp_path: Path) -> None:
    with guarded() as settings:
        await logged_in(settings, tmp_path)
        async with connected(settings, tmp_path) as servers:
            assert await call(servers) == ToolOutput("gold")
            assert (await counts(settings))["refreshed"] == 0
            assert await call(servers) == ToolOutput("gold")
            assert (await counts(settings))["refreshed"] == 1


async def test_a_login_that_was_revoked_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with guarded() as settings:
        await logged_in(settings, tmp_path)
        async with connected(settings, tmp_path) as servers:
            await counts(settings, "/revoke-all")
            with pytest.raises(ToolError, match=r"has NOT run: .*holdfast mcp login vault"):
                await call(servers)


async def test_a_redirect_to_this_machine_or_a_pasted_address_ends_the_login(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with guarded() as settings:

        async def browser() -> None:
            address = ""
            while not address:
                await asyncio.sleep(0.01)
                shown = capsys.readouterr().err.split()
                address = next((word for word in shown if word.startswith("http")), "")
            async with httpx2.AsyncClient() as client:
                page = await client.get(address, follow_redirects=True)
            assert "You are logged in" in page.text

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(browser())
            assert await log_in_at_terminal(settings, tmp_path)
        assert await store_for(tmp_path, settings).has_tokens()


def test_a_pasted_address_is_read() -> None:
    found = read_redirect(" http://127.0.0.1:1/callback?code=a%2Bb&state=s&iss=https%3A%2F%2Fx\n")
    assert found == RedirectAnswer("a+b", "s", "https://x")
    with pytest.raises(LoginFailed, match="refused: no thanks"):
        read_redirect("/callback?error=access_denied&error_description=no+thanks")
    with pytest.raises(LoginFailed, match="contains no code"):
        read_redirect("hello")


async def test_a_redirect_with_another_state_is_refused(tmp_path: Path) -> None:
    with guarded() as settings:

        async def show(_address: str) -> None:
            """Show nothing."""

        async def wait() -> RedirectAnswer:
            return RedirectAnswer("code", "forged")

        prompt = LoginPrompt(redirect_url="http://127.0.0.1:1/callback", show=show, wait=wait)
        with pytest.raises(LoginFailed, match="State parameter mismatch"):
            await log_in(settings, store_for(tmp_path, settings), prompt)
        assert not await store_for(tmp_path, settings).has_tokens()
