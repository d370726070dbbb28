"""The whole gateway inside the test's own loop: real store, real model client, a platform in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.routing import BaseRoute

from agent.tools.contract import Tool
from agent.tools.mcp.servers import McpServers
from gateway.access.settings import AccessSettings
from gateway.conversations import Conversations
from gateway.observe.redact import Redactor
from gateway.process.context import ProcessContext
from gateway.process.successor import Successor
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, LimitSettings, Settings
from platforms.core.contract import Live, Op, PlatformSpec, Receipt, Repeat
from sessions.settings import SessionSettings
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, SystemClock
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.memory import MemoryAdapter, VisibleMessage
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here

PATIENCE = 8.0
START_PATIENCE = 30.0  # programs of tool servers may have to start
ME = "1001"


class Nothing(msgspec.Struct, frozen=True):
    """`[platforms.memory]`: there is nothing to configure."""


class Screen(MemoryAdapter):
    """A platform in memory that can be waited for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._changed = asyncio.Event()
        self.menu_refreshed = asyncio.Event()

    async def refresh_menu(self) -> None:
        self.menu_refreshed.set()

    async def deliver(self, op: Op) -> Receipt:
        try:
            return await super().deliver(op)
        finally:
            self._changed.set()

    async def until(
        self, chat: str, enough: Callable[[list[VisibleMessage]], bool], seconds: float = PATIENCE
    ) -> list[VisibleMessage]:
        """Wait until a chat looks as wanted."""
        try:
            async with asyncio.timeout(seconds):
                while not enough(self.messages(chat)):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            shown = "\n".join(self.screen(chat))
            msg = f"{chat} never came to look as wanted; it shows:\n{shown}"
            raise AssertionError(msg) from None
        return self.messages(chat)

    async def shows(self, chat: str, *texts: str) -> list[VisibleMessage]:
        """Wait until each of these is a part of some message."""
        return await self.until(
            chat,
            lambda messages: all(any(text in each.text for each in messages) for text in texts),
        )


class GatewayKit:
    """A gateway that runs, with its platform and its model."""

    def __init__(
        self, runner: GatewayRunner, screen: Screen, model: ModelServer, task: asyncio.Task[None]
    ) -> None:
        self.runner = runner
        self._task = task
        self.screen = screen
        self.model = model

    @property
    def conversations(self) -> Conversations:
        """Parts that serve conversations."""
        assert self.runner._open
        return self.runner._open.conversations

    @property
    def mcp_servers(self) -> McpServers:
        """The MCP servers."""
        return self.conversations._services.mcp

    async def mcp_is_connected(self, count: int = 1) -> None:
        """Wait until so many connections to MCP servers can be used."""
        changed = asyncio.Event()
        servers = self.mcp_servers
        for each in servers._connections:
            each._on_change = _both(each._on_change, changed.set)
        async with asyncio.timeout(PATIENCE):
            while sum(each.connected for each in servers._connections) < count:
                changed.clear()
                await changed.wait()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Routes of the HTTP port."""
        assert self.runner._open
        assert self.runner._open.app
        return self.runner._open.app.routes

    async def crash(self) -> None:
        """End without a word: nothing is drained, told or suspended."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def ended(self) -> None:
        """Wait until it has come to its end by itself."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({self._task})

    async def asked(self, number: int) -> list[dict[str, Any]]:
        """The messages of the model's n-th request, without the system prompt."""
        async with asyncio.timeout(PATIENCE):
            request = await self.model.request(number)
        return [each for each in request.body["messages"] if each["role"] != "system"]

    def system(self, number: int) -> str:
        """The system prompt of the model's n-th request."""
        messages = self.model.requests[number - 1].body["messages"]
        return "".join(each["content"] for each in messages if each["role"] == "system")


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def talkative(body: dict[str, Any]) -> Script:
    """Hangs or fails when asked to, else repeats the last paragraph that the user said."""
    said = [each["content"] for each in body["messages"] if each["role"] == "user"]
    last = str(said[-1]).rpartition("\n\n")[2]
    if "hang" in last:
        return 'H T"so far " HANG'
    if "fail" in last:
        return "S400"
    return words(f"echo: {last}")


@contextlib.asynccontextmanager
async def gateway(
    home: Path,
    model: ModelServer,
    screen: Screen | None = None,
    *,
    allow: tuple[str, ...] = ("memory:1001",),
    admins: tuple[str, ...] = (),
    settings: Settings | None = None,
    tools: tuple[Tool, ...] = (),
    clock: Clock | None = None,
    served: bool = False,
    reread: Callable[[], Settings] | None = None,
    successor: Successor | None = None,
    crashes: int = 0,
    redactor: Redactor | None = None,
    **changes: Any,
) -> AsyncIterator[GatewayKit]:
    """Run a gateway on a state folder until the block ends; then it drains."""
    used = screen or Screen(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)
    base = settings or Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=scripted_model(model),
        access=AccessSettings(allow=allow, admins=admins),
        limits=LimitSettings(messages_per_minute=10_000),
        sessions=SessionSettings(),
        platforms={"memory": Nothing()},
    )
    runner = GatewayRunner(
        msgspec.structs.replace(base, **changes),
        home,
        specs={"memory": PlatformSpec("memory", Nothing, lambda _config, _given: used)},
        serve_http=served,
        tools=tools,
        redactor=redactor,
        clock=clock or clock_here(),
        process=ProcessContext(successor=successor, read_settings=reread, crash_count=crashes),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run())
        async with asyncio.timeout(START_PATIENCE):
            await runner.ready.wait()
        try:
            yield GatewayKit(runner, used, model, task)
        finally:
            runner.stopping.set()
            runner.skip_drain.set()


@contextlib.asynccontextmanager
async def opened(home: Path) -> AsyncIterator[SessionStore]:
    """The store of a gateway that has ended."""
    store = await SessionStore.open(
        f"sqlite:///{home / 'holdfast.db'}", clock=SystemClock(), read_only=True
    )
    try:
        yield store
    finally:
        await store.close()
