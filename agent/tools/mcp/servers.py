"""All configured servers, and the tools they have at this moment."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from types import TracebackType

from agent.model.contract import ToolSchema
from agent.settings import McpSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.mcp import shown
from agent.tools.mcp.contract import Arguments, Listed
from agent.tools.mcp.link import Link
from agent.tools.mcp.names import joined_names
from sessions.values.clock import Clock

START_SECONDS = 5.0  # the daemon waits no longer for its servers
_EMOJI = "🔌"


class _Owners(asyncio.TaskGroup):
    """The tasks that hold the connections; they end with the block.

    What the block raises stays as it is, so that its callers need not know of this group.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owned: list[tuple[Link, asyncio.Task[None]]] = []

    def own(self, link: Link) -> None:
        """Keep a server connected as long as the block lasts."""
        self._owned.append((link, self.create_task(link.run(), name=f"mcp {link.name}")))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for link, task in self._owned:
            link.leave()
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await super().__aexit__(kind, error, trace)
        else:
            await super().__aexit__(None, None, None)


class McpServers:
    """The servers of the configuration; without any, nothing is imported or started."""

    def __init__(
        self,
        settings: Sequence[McpSettings],
        clock: Clock,
        *,
        taken: Collection[str] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """`taken` are the names of all other tools, whether they are enabled or not."""
        self._links = [Link(each, clock, changed=self._forget, sleep=sleep) for each in settings]
        self._taken = frozenset(taken)
        self._start_seconds = start_seconds
        self._tools: tuple[Tool, ...] | None = ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep all servers connected; at the end they are left, and programs are ended.

        It begins when each was tried once, or after `start_seconds`.
        """
        async with _Owners() as group:
            for link in self._links:
                group.own(link)
            await self._first_chances()
            yield

    def tools(self) -> tuple[Tool, ...]:
        """Those of the servers that are connected, as a turn may use them."""
        if self._tools is None:
            self._tools = tuple(self._made())
        return self._tools

    def status(self) -> dict[str, str]:
        """How each server stands, in a few words."""
        return {link.name: link.status for link in self._links}

    async def _first_chances(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._start_seconds):
                for link in self._links:
                    await link.tried.wait()

    def _forget(self) -> None:
        self._tools = None

    def _made(self) -> Iterator[Tool]:
        # A server that is away keeps its tools' names, so that another's do not change meanwhile.
        names = joined_names(
            ((link.name, tool.name) for link in self._links for tool in link.tools), self._taken
        )
        for link in self._links:
            if link.connected:
                for tool in link.tools:
                    yield _tool(link, tool, names[link.name, tool.name])


def _tool(link: Link, listed: Listed, name: str) -> Tool:
    async def call(arguments: Arguments, context: ToolContext) -> str:
        return await link.call(listed, name, arguments, context.idempotency_key)

    return Tool(
        name=name,
        risk=Risk.READ if listed.read_only else Risk.NET,
        schema=ToolSchema(
            name, shown.description(listed.description, link.name), shown.parameters(listed.schema)
        ),
        arguments=dict,
        call=call,
        emoji=_EMOJI,
        parallel=listed.read_only,
        label=shown.label(listed.schema),
        sends=not listed.read_only,
        check=listed.check,
    )
