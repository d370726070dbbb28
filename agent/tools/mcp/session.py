"""One connection to a server, by the official package.

Importing this imports the package, which takes a while; it is done only when a server is configured.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from typing import cast

from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from agent.errors import ToolError
from agent.settings import McpSettings
from agent.tools.mcp.arguments import checker
from agent.tools.mcp.contract import Arguments, Hears, Listed, NotSent, Unclear
from agent.tools.mcp.results import text_of
from agent.tools.mcp.transports import NOT_SENT, UNCLEAR, transport

IDEMPOTENCY_KEY = "holdfast/idempotencyKey"
"""Where a call carries what is the same for a repeat of the very same call."""

MOST_TOOLS = 500
_MOST_PAGES = 100
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds until changes are asked for again

_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
_WHO = Implementation(name="holdfast", version=version("holdfast"))


class OfficialSession:
    """See `Session`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> tuple[Listed, ...]:
        """See `Session`."""
        if self._client.server_capabilities.tools is None:
            return ()
        listed: dict[str, Listed] = {}
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                listed.setdefault(tool.name, _listed(tool))
            cursor = page.next_cursor
            if cursor is None or len(listed) >= MOST_TOOLS:
                break
        return tuple(listed.values())[:MOST_TOOLS]

    async def call(self, tool: str, arguments: Arguments, key: str) -> str:
        """See `Session`.

        Not by the package's own `call_tool`: that repeats calls, and throws away results that do
        not fit the tool's output schema although the call has had its effect.
        """
        meta = cast("RequestParamsMeta", {IDEMPOTENCY_KEY: key})
        request = CallToolRequest(
            params=CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
        )
        with _in_our_words():
            answer = await self._client.session.send_request(request, _ANSWER)
        if isinstance(answer, InputRequiredResult):
            msg = "It wants to ask its user something, which is not possible here."
            raise ToolError(msg)
        return text_of(answer)


@contextlib.asynccontextmanager
async def connected(settings: McpSettings, hears: Hears) -> AsyncIterator[OfficialSession]:
    """Connect to a server; see `Connect`."""

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            hears.look_again()

    reached = transport(settings, hears)
    async with (
        Client(reached, cache=None, client_info=_WHO, message_handler=hear) as client,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(_watch(client, hears), name=f"changes of {settings.name}")
        try:
            yield OfficialSession(client)
        finally:
            watching.cancel()


async def _watch(client: Client, hears: Hears) -> None:
    """Ask a server of the newer protocol to tell of changes, again whenever it stops doing so.

    `hear` is told of each change; here it only matters that nothing was missed between two times.
    """
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (
        tools and tools.list_changed
    ):
        return
    pause = _FIRST_PAUSE
    while True:
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                if pause > _FIRST_PAUSE:
                    hears.look_again()
                async for _ in changes:
                    pass
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except MCPError as error:
        if error.code in {NOT_SENT, HEADER_MISMATCH}:
            raise NotSent(error.message) from error
        if error.code in {UNCLEAR, CONNECTION_CLOSED}:
            raise Unclear(error.message) from error
        raise ToolError(error.message or f"It failed with the error {error.code}.") from error
    except ValidationError as error:
        msg = "its answer cannot be read"
        raise Unclear(msg) from error


def _listed(tool: Tool) -> Listed:
    hints = tool.annotations
    title = tool.title or (hints.title if hints else None)
    return Listed(
        name=tool.name,
        description=tool.description or title or "",
        schema=tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        check=checker(tool.name, tool.input_schema),
    )
