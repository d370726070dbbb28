"""The client side of the MCP conformance suite: `python -m tests.conformance_client URL`.

The suite starts this program once per scenario, with the scenario in the environment, against a
server of its own. The program does what a person and a model would do with our parts: log in if the
server asks for it, list the tools, call each once, and leave the fields of forms at their defaults.
"""

import asyncio
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from agent.errors import ToolError
from agent.settings import McpOauthSettings, McpSettings
from agent.tools.mcp.contract import LoginPrompt, RedirectAnswer
from agent.tools.mcp.link import LoginAccess
from agent.tools.mcp.login import log_in, store_for
from agent.tools.mcp.servers import McpServers
from agent.tools.questions import PersonAnswer, PersonQuestion
from gateway.mcp.redirect import read_redirect
from sessions.values.clock import SystemClock
from sessions.values.secret import Secret

_LOGINS = 3  # a server may ask for more rights while it is used


async def _skip(question: PersonQuestion) -> PersonAnswer:
    skips = question.free_text or "Skip" in question.options
    return PersonAnswer(accepted=True, text="Skip" if skips else "")


class Context(msgspec.Struct, frozen=True):
    """The services that our tools use, for each call."""

    workspace: Path
    idempotency_key: str = "s:t:c"
    report_progress: Any = print
    ask_person: Any = _skip


def _settings(url: str) -> McpSettings:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")  # noqa: TID251 - the suite's
    if "client_id" not in given:
        return McpSettings(name="server", url=url)
    secret = given.get("client_secret")
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")  # noqa: TID251 - the suite's
    oauth = McpOauthSettings(
        grant="client_credentials" if "client-credentials" in scenario else "authorization_code",
        client_id=given["client_id"],
        client_secret=Secret(secret) if secret else None,
    )
    return McpSettings(name="server", url=url, oauth=oauth)


async def _log_in(settings: McpSettings, folder: Path) -> None:
    redirects: list[str] = []

    async def show(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(address, follow_redirects=False)
        redirects.append(str(page.headers["location"]))

    async def wait() -> RedirectAnswer:
        return read_redirect(redirects[-1])

    prompt = LoginPrompt(redirect_url="http://127.0.0.1:9/callback", show=show, wait=wait)
    await log_in(settings, store_for(folder, settings), prompt)


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"number": 2, "integer": 2, "string": "test", "boolean": True}
    properties = schema.get("properties") or {}
    return {name: values.get(each.get("type"), "test") for name, each in properties.items()}


async def _use(settings: McpSettings, folder: Path) -> str:
    """Connect, and call each tool; return the first problem."""
    servers = McpServers(
        [settings], SystemClock(), start_seconds=math.inf, logins=LoginAccess(folder=folder)
    )
    async with servers.running():
        if problem := servers.problems().get("server", ""):
            return problem
        for tool in servers.tools():
            if not tool.name.startswith("server_"):
                continue
            try:
                context: Any = Context(folder)
                print(await tool.call(_arguments(tool.schema.parameters), context))  # noqa: T201 - for the report
            except ToolError as error:
                return str(error)
    return ""


async def _run(url: str) -> int:
    settings = _settings(url)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem = ""
        for _ in range(_LOGINS):
            problem = await _use(settings, folder)
            if "holdfast mcp login" not in problem or (
                settings.oauth and settings.oauth.grant == "client_credentials"
            ):
                break
            await _log_in(settings, folder)
    if problem:
        sys.stderr.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(sys.argv[1])))
