"""The tools that list and read the resources of servers."""

from collections.abc import Callable, Mapping

import msgspec

from agent.errors import ToolError
from agent.tools.contract import Risk, Tool, ToolContext, ToolOutput
from agent.tools.define import tool
from agent.tools.mcp.link import McpConnection
from agent.tools.mcp.output import save_output

_EMOJI = "🔌"
RESOURCE_TOOL_NAMES = ("list_resources", "read_resource")


def make_resource_tools(connections: Callable[[], Mapping[str, McpConnection]]) -> tuple[Tool, ...]:
    """Return the tools; `connections` returns the present servers with resources, by name.

    By the protocol, reading a resource has no effects, so these tools do not ask.
    """

    def find(server: str) -> McpConnection:
        found = connections()
        if server not in found:
            names = ", ".join(found) or "none"
            msg = f"No connected server {server!r} has resources. Servers with resources: {names}."
            raise ToolError(msg)
        return found[server]

    @tool(risk=Risk.NET, parallel=True, label="server", emoji=_EMOJI)
    async def list_resources(_context: ToolContext, server: str) -> str:
        """List the resources (files, records, pages) that an MCP server offers for reading.

        Args:
            server: Name of the MCP server.
        """
        return await find(server).list_resources()

    @tool(risk=Risk.NET, parallel=True, label="uri", emoji=_EMOJI)
    async def read_resource(context: ToolContext, server: str, uri: str) -> ToolOutput:
        """Read a resource of an MCP server, such as one that a tool's result links to.

        Args:
            context: Not part of the call.
            server: Name of the MCP server.
            uri: Address of the resource, exactly as the server named it.
        """
        output = await find(server).read_resource(uri, context.report_progress)
        return await save_output(output, context)

    return tuple(
        msgspec.structs.replace(each, sends=False) for each in (list_resources, read_resource)
    )
