"""A trial connection to one server, for people who set it up."""

import asyncio
from pathlib import Path

import msgspec

from agent.settings import McpSettings
from agent.tools.mcp.contract import ListedTool
from agent.tools.mcp.link import LoginAccess, McpConnection
from sessions.values.clock import Clock

PROBE_SECONDS = 45.0
_END_SECONDS = 15.0  # for the end of the server's program


class ProbedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a trial connection."""

    name: str
    problem: str = ""  # why the server cannot be used; empty if it can
    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()  # tools that the settings do not offer
    has_resources: bool = False
    seconds: float = 0.0  # until the tools were listed


async def probe_server(
    settings: McpSettings, clock: Clock, logins: Path | None = None
) -> ProbedServer:
    """Connect once, list the tools, and disconnect; no tool is called."""
    began = clock.monotonic()
    access = LoginAccess(folder=logins) if logins else None
    link = McpConnection(settings, clock, on_change=lambda: None, logins=access)
    task = asyncio.get_running_loop().create_task(link.run(), name=f"trial of {settings.name}")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await link.first_attempt_done.wait()
        problem = "" if link.connected else link.status.removeprefix("not connected: ")
        return ProbedServer(
            name=settings.name,
            problem=problem,
            tools=link.tools,
            left_out=tuple(sorted(link.disabled_tools)),
            has_resources=link.has_resources,
            seconds=clock.monotonic() - began,
        )
    except TimeoutError:
        problem = f"it did not answer within {PROBE_SECONDS:g} s"
        return ProbedServer(name=settings.name, problem=problem)
    finally:
        link.stop()
        task.cancel()
        await asyncio.wait({task}, timeout=_END_SECONDS)
