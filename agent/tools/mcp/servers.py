"""All configured servers and their current tools."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from types import TracebackType

import msgspec

from agent.errors import ToolError
from agent.model.contract import ToolSchema
from agent.settings import McpSettings
from agent.tools.contract import Risk, Tool, ToolContext, ToolOutput
from agent.tools.mcp import shown
from agent.tools.mcp.contract import CallArguments, CallHooks, ListedTool, people_with_login
from agent.tools.mcp.link import LoginAccess, McpConnection
from agent.tools.mcp.memory import ToolMemory
from agent.tools.mcp.names import ToolSource, assign_names, earlier_names
from agent.tools.mcp.output import save_output
from agent.tools.mcp.prompts import OfferedPrompt, assign_words
from agent.tools.mcp.resources import RESOURCE_TOOL_NAMES, make_resource_tools
from sessions.values.clock import Clock
from sessions.values.tasks import start_task
from sessions.values.text import count_of

_START_SECONDS = 5.0  # longest delay of the start by slow servers
_EMOJI = "🔌"
_ASKS = {"auto": None, "ask": True, "never": False}


class ServersHost(msgspec.Struct, frozen=True, kw_only=True):
    """The program around the servers: its commands, and receivers of changes."""

    command_words: Collection[str] = ()  # that no prompt may have
    on_prompts_changed: Callable[[], None] = lambda: None
    on_logins_changed: Callable[[], None] = lambda: None  # see `McpServers.login_needs`


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
        logins: LoginAccess | None = None,
        host: ServersHost | None = None,
    ) -> None:
        """Prepare the connections; `taken_names` holds all other tool names, enabled or not."""
        self._clock, self._sleep = clock, sleep
        self._logins = logins
        self._host = host or ServersHost()
        self._memory = memory or ToolMemory(clock)
        enabled = [server for server in settings if not server.disabled]
        self._personal = {server.name: server for server in enabled if server.login == "person"}
        """Servers where each person has an own login, and so an own connection."""
        self._connections = [
            self._make_connection(server) for server in enabled if server.login == "shared"
        ]
        self._tasks: _ConnectionTasks | None = None  # while running
        self._taken_names = frozenset((*taken_names, *RESOURCE_TOOL_NAMES))
        self._start_seconds = start_seconds
        self._tools: dict[str, tuple[Tool, ...]] = {}  # by person
        self._prompts: tuple[OfferedPrompt, ...] = ()
        self._reserved_names: dict[str, frozenset[str]] = {}  # by person
        self._login_needs: dict[str, bool] = {}
        self._earlier_names: Mapping[str, str] | None = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep all servers connected during the block; then disconnect and end their programs.

        The block begins after one attempt to connect per server, or after `start_seconds`.
        """
        await self._memory.load()
        if self._logins:
            folder = self._logins.folder
            for name, server in self._personal.items():
                for person in await asyncio.to_thread(people_with_login, folder, name):
                    self._connections.append(self._make_connection(server, person))
        async with _ConnectionTasks() as self._tasks:
            for link in self._connections:
                self._tasks.keep_connected(link)
            await self._wait_first_attempts()
            await self._memory.forget_unseen()
            yield

    def _make_connection(self, settings: McpSettings, person: str = "") -> McpConnection:
        logins = self._logins and msgspec.structs.replace(self._logins, person=person)
        return McpConnection(
            settings,
            self._clock,
            on_change=self._refresh_offers,
            sleep=self._sleep,
            memory=self._memory,
            logins=logins,
        )

    def use_login(self, server: str, person: str = "") -> None:
        """Connect with a login that was just stored: of a server, or of one person there."""
        for link in self._connections:
            if (link.name, link.person) == (server, person):
                link.reconnect()
                return
        if server in self._personal and self._tasks:
            connection = self._make_connection(self._personal[server], person)
            self._connections.append(connection)
            self._tasks.keep_connected(connection)

    def _of(self, person: str) -> list[McpConnection]:
        """Return the connections that a person may use."""
        return [link for link in self._connections if link.person in {"", person}]

    def missing_logins(self, person: str) -> list[str]:
        """Return the servers at which a person has to log in before their tools can be used."""
        usable = {link.name for link in self._of(person) if not link.needs_login}
        return [name for name in self._personal if name not in usable]

    def login_needs(self) -> Mapping[str, bool]:
        """Return whether an admin has to log in, for each server of which that is known."""
        return {
            link.name: link.needs_login
            for link in self._connections
            if not link.person and (link.needs_login or link.connected)
        }

    def tools(self, person: str = "") -> tuple[Tool, ...]:
        """Return the tools of all connected servers, as far as a person may use them."""
        if person not in self._tools:
            self._tools[person] = tuple(self._build_tools(person))
        return self._tools[person]

    def reserved_names(self, person: str = "") -> frozenset[str]:
        """Return the names of tools that a person cannot call.

        They are disabled, of disconnected servers, or need a login that this person does not have.
        """
        if person not in self._reserved_names:
            self._reserved_names[person] = frozenset(self._find_reserved_names(person))
        return self._reserved_names[person]

    def earlier_names(self) -> Mapping[str, str]:
        """Return names that older versions gave to tools, each with the present name."""
        if self._earlier_names is None:
            self._earlier_names = earlier_names(self._assign_names(), self._taken_names)
        return self._earlier_names

    def prompts(self) -> tuple[OfferedPrompt, ...]:
        """Return the prompts of all servers; those of disconnected servers keep their words."""
        return self._prompts

    async def get_prompt(
        self, offered: OfferedPrompt, arguments: Mapping[str, str], person: str = ""
    ) -> str:
        """Return the text of a prompt, with the login of a person; raises `ToolError`."""
        for link in self._of(person):
            if link.name == offered.server and not link.needs_login:
                return await link.get_prompt(offered.prompt.name, arguments)
        msg = f"it needs a login; log in with: /mcp login {offered.server}"
        raise ToolError(msg)

    def instructions(self, person: str = "") -> str:
        """Return notes about the tools of the servers, for the system prompt of a person's turns."""
        notes = [
            shown.quote_instructions(link.name, link.instructions)
            for link in self._of(person)
            if link.tools and link.instructions.strip()
        ]
        notes += [shown.describe_missing_login(name) for name in self.missing_logins(person)]
        return "\n\n".join(notes)

    async def accept_instructions(self, server: str) -> bool:
        """Give the changed instructions of a server to the model; return False if there are none."""
        accepted = [
            await link.accept_instructions() for link in self._connections if link.name == server
        ]
        return any(accepted)

    def status(self) -> dict[str, str]:
        """Return a short description of each server for people."""
        shared = {link.name: link.status for link in self._connections if not link.person}
        logins = Counter(link.name for link in self._connections if link.connected and link.person)
        personal = {
            name: f"each person has a login, {count_of(logins[name], 'login')} connected"
            for name in self._personal
        }
        return shared | personal

    def problems(self) -> dict[str, str]:
        """Return the state of each server that cannot be called; missing logins of people are none."""
        return {
            link.name: link.status
            for link in self._connections
            if not link.connected and not link.person
        }

    async def _wait_first_attempts(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._start_seconds):
                for link in self._connections:
                    await link.first_attempt_done.wait()

    def _clear_tools(self) -> None:
        self._tools, self._reserved_names, self._earlier_names = {}, {}, None

    def _refresh_offers(self) -> None:
        self._clear_tools()
        listed = {
            (link.name, prompt.name): prompt
            for link in self._connections
            for prompt in link.prompts
        }
        prompts = tuple(
            OfferedPrompt(words=words, server=source[0], prompt=listed[source])
            for source, words in assign_words(listed, self._host.command_words).items()
        )
        if prompts != self._prompts:
            self._prompts = prompts
            self._host.on_prompts_changed()
        if (needs := dict(self.login_needs())) != self._login_needs:
            self._login_needs = needs
            self._host.on_logins_changed()

    def _find_reserved_names(self, person: str) -> Iterator[str]:
        names = self._assign_names()
        if not self._with_resources(person):
            yield from RESOURCE_TOOL_NAMES
        callable_ = {tool.name for tool in self.tools(person)}
        for link in self._connections:
            yield from (names[link.name, name] for name in link.disabled_tools)
            yield from (
                name
                for tool in link.tools
                if (name := names[link.name, tool.name]) not in callable_
            )

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

    def _with_resources(self, person: str) -> dict[str, McpConnection]:
        return {link.name: link for link in self._of(person) if link.has_resources}

    def _build_tools(self, person: str) -> Iterator[Tool]:
        names = self._assign_names()
        if self._with_resources(person):
            yield from make_resource_tools(partial(self._with_resources, person))
        for link in self._of(person):
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
