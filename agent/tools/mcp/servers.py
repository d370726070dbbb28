"""All configured servers and their current tools."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from types import TracebackType

from agent.model.contract import ToolSchema
from agent.settings import McpSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.mcp import shown
from agent.tools.mcp.contract import CallArguments, ListedTool
from agent.tools.mcp.link import McpConnection
from agent.tools.mcp.memory import ToolMemory
from agent.tools.mcp.names import ToolSource, assign_names
from sessions.values.clock import Clock
from sessions.values.tasks import start_task

_START_SECONDS = 5.0  # longest delay of the start by slow servers
_EMOJI = "🔌"


class _ConnectionTasks(asyncio.TaskGroup):
    """The tasks of the connections, which are cancelled at the end of the block.

    An exception of the block is not wrapped in an exception group.
    """

    def __init__(self) -> None:
        super().__init__()
        self._connection_tasks: list[tuple[McpConnection, asyncio.Task[None]]] = []

    def keep_connected(self, connection: McpConnection) -> None:
        """Keep a server connected until the end of the block."""
        if task := start_task(self, connection.run(), name=f"mcp {connection.name}"):
            self._connection_tasks.append((connection, task))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for link, task in self._connection_tasks:
            link.stop()
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await super().__aexit__(kind, error, trace)
        else:
            await super().__aexit__(None, None, None)


class McpServers:
    """The configured servers; without any, nothing is imported or started."""

    def __init__(
        self,
        settings: Sequence[McpSettings],
        clock: Clock,
        *,
        taken_names: Collection[str] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        start_seconds: float = _START_SECONDS,
        memory: ToolMemory | None = None,
    ) -> None:
        """Prepare the connections; `taken_names` holds all other tool names, enabled or not."""
        self._memory = memory or ToolMemory(clock)
        self._connections = [
            McpConnection(
                server, clock, on_change=self._clear_tools, sleep=sleep, memory=self._memory
            )
            for server in settings
        ]
        self._taken_names = frozenset(taken_names)
        self._start_seconds = start_seconds
        self._tools: tuple[Tool, ...] | None = ()
        self._reserved_names: frozenset[str] | None = frozenset()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep all servers connected during the block; then disconnect and end their programs.

        The block begins after one attempt to connect per server, or after `start_seconds`.
        """
        await self._memory.load()
        async with _ConnectionTasks() as group:
            for link in self._connections:
                group.keep_connected(link)
            await self._wait_first_attempts()
            await self._memory.forget_unseen()
            yield

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools of all connected servers."""
        if self._tools is None:
            self._tools = tuple(self._build_tools())
        return self._tools

    def reserved_names(self) -> frozenset[str]:
        """Return the names of tools that cannot be called: of disconnected servers, or disabled."""
        if self._reserved_names is None:
            self._reserved_names = frozenset(self._find_reserved_names())
        return self._reserved_names

    def status(self) -> dict[str, str]:
        """Return a short description of each server for people."""
        return {link.name: link.status for link in self._connections}

    def problems(self) -> dict[str, str]:
        """Return the state of each server that cannot be called."""
        return {link.name: link.status for link in self._connections if not link.connected}

    async def _wait_first_attempts(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._start_seconds):
                for link in self._connections:
                    await link.first_attempt_done.wait()

    def _clear_tools(self) -> None:
        self._tools = self._reserved_names = None

    def _find_reserved_names(self) -> Iterator[str]:
        names = self._assign_names()
        for link in self._connections:
            yield from link.disabled_tools
            if not link.connected:
                yield from (names[link.name, tool.name] for tool in link.tools)

    def _assign_names(self) -> dict[ToolSource, str]:
        # Tools of disconnected servers keep their names, so that no other tool changes its name.
        return assign_names(
            ((link.name, tool.name) for link in self._connections for tool in link.tools),
            self._taken_names,
        )

    def _build_tools(self) -> Iterator[Tool]:
        names = self._assign_names()
        for link in self._connections:
            if link.connected:
                for tool in link.tools:
                    yield _build_tool(link, tool, names[link.name, tool.name])


def _risk_of(listed: ListedTool) -> Risk:
    if listed.change:
        return Risk.EXEC  # each call asks, and only an admin may answer
    return Risk.READ if listed.read_only and not listed.open_world else Risk.NET


def _build_tool(connection: McpConnection, listed: ListedTool, name: str) -> Tool:
    async def call(arguments: CallArguments, context: ToolContext) -> str:
        return await connection.call(listed, name, arguments, context.idempotency_key)

    return Tool(
        name=name,
        risk=_risk_of(listed),
        schema=ToolSchema(
            name,
            shown.shorten_description(listed.description, connection.name),
            shown.shrink_schema(listed.schema),
        ),
        arguments=dict,
        call=call,
        emoji=_EMOJI,
        parallel=listed.read_only and not listed.change,
        label=shown.label_argument(listed.schema),
        sends=not listed.read_only,
        change=listed.change,
        check=listed.check,
    )
