"""All configured servers and their current tools."""

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from types import TracebackType

from agent.model.contract import ToolSchema
from agent.settings import McpSettings
from agent.tools.contract import Risk, Tool, ToolContext, ToolOutput
from agent.tools.mcp import shown
from agent.tools.mcp.contract import CallArguments, CallHooks, ListedTool
from agent.tools.mcp.link import McpConnection
from agent.tools.mcp.memory import ToolMemory
from agent.tools.mcp.names import ToolSource, assign_names, earlier_names
from agent.tools.mcp.output import save_output
from agent.tools.mcp.prompts import OfferedPrompt, assign_words
from agent.tools.mcp.resources import RESOURCE_TOOL_NAMES, make_resource_tools
from sessions.values.clock import Clock
from sessions.values.tasks import start_task

_START_SECONDS = 5.0  # longest delay of the start by slow servers
_EMOJI = "🔌"
_ASKS = {"auto": None, "ask": True, "never": False}


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
        logins: Path | None = None,
        command_words: Collection[str] = (),
        on_prompts_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the connections.

        `taken_names` holds all other tool names, enabled or not; `logins` is the folder of stored
        logins; `command_words` are the words that no prompt may have.
        """
        self._command_words = frozenset(command_words)
        self._on_prompts_changed = on_prompts_changed
        self._memory = memory or ToolMemory(clock)
        self._connections = [
            McpConnection(
                server,
                clock,
                on_change=self._refresh_offers,
                sleep=sleep,
                memory=self._memory,
                logins=logins,
            )
            for server in settings
            if not server.disabled
        ]
        self._resource_tools = make_resource_tools(self._with_resources)
        self._taken_names = frozenset((*taken_names, *RESOURCE_TOOL_NAMES))
        self._start_seconds = start_seconds
        self._tools: tuple[Tool, ...] | None = ()
        self._prompts: tuple[OfferedPrompt, ...] = ()
        self._reserved_names: frozenset[str] | None = frozenset()
        self._earlier_names: Mapping[str, str] | None = {}

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

    def earlier_names(self) -> Mapping[str, str]:
        """Return names that older versions gave to tools, each with the present name."""
        if self._earlier_names is None:
            self._earlier_names = earlier_names(self._assign_names(), self._taken_names)
        return self._earlier_names

    def prompts(self) -> tuple[OfferedPrompt, ...]:
        """Return the prompts of all servers; those of disconnected servers keep their words."""
        return self._prompts

    async def get_prompt(self, offered: OfferedPrompt, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt; raises `ToolError`."""
        connection = next(link for link in self._connections if link.name == offered.server)
        return await connection.get_prompt(offered.prompt.name, arguments)

    def instructions(self) -> str:
        """Return the notes of the connected servers about their tools, for the system prompt."""
        return "\n\n".join(
            shown.quote_instructions(link.name, link.instructions)
            for link in self._connections
            if link.tools and link.instructions.strip()
        )

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
        self._tools = self._reserved_names = self._earlier_names = None

    def _refresh_offers(self) -> None:
        self._clear_tools()
        listed = {
            (link.name, prompt.name): prompt
            for link in self._connections
            for prompt in link.prompts
        }
        prompts = tuple(
            OfferedPrompt(words=words, server=source[0], prompt=listed[source])
            for source, words in assign_words(listed, self._command_words).items()
        )
        if prompts != self._prompts:
            self._prompts = prompts
            self._on_prompts_changed()

    def _find_reserved_names(self) -> Iterator[str]:
        names = self._assign_names()
        if not self._with_resources():
            yield from RESOURCE_TOOL_NAMES
        for link in self._connections:
            yield from (names[link.name, name] for name in link.disabled_tools)
            if not link.connected:
                yield from (names[link.name, tool.name] for tool in link.tools)

    def _assign_names(self) -> dict[ToolSource, str]:
        # Tools of disconnected servers keep their names, so that no other tool changes its name.
        return assign_names(
            (
                (link.name, name)
                for link in self._connections
                for name in (*(tool.name for tool in link.tools), *sorted(link.disabled_tools))
            ),
            self._taken_names,
        )

    def _with_resources(self) -> dict[str, McpConnection]:
        return {link.name: link for link in self._connections if link.has_resources}

    def _build_tools(self) -> Iterator[Tool]:
        names = self._assign_names()
        if self._with_resources():
            yield from self._resource_tools
        for link in self._connections:
            if link.connected:
                for tool in link.tools:
                    yield _build_tool(link, tool, names[link.name, tool.name])


def _risk_of(listed: ListedTool) -> Risk:
    if listed.change:
        return Risk.EXEC  # each call asks, and only an admin may answer
    return Risk.READ if listed.read_only and not listed.open_world else Risk.NET


def _build_tool(connection: McpConnection, listed: ListedTool, name: str) -> Tool:
    async def call(arguments: CallArguments, context: ToolContext) -> ToolOutput:
        hooks = CallHooks(context.report_progress, context.ask_person)
        output = await connection.call(listed, name, arguments, context.idempotency_key, hooks)
        return await save_output(output, context)

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
        timeout=connection.settings.timeout,
        asks=_ASKS[connection.settings.approval],
        change=listed.change,
        check=listed.check,
    )
