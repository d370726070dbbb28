"""The MCP servers: each can be connected and lists its tools."""

from collections.abc import Iterator, Sequence

from agent.settings import McpSettings
from agent.tools.mcp.contract import MCP_LOGIN_FOLDER
from gateway.operate.doctor.check import Check
from gateway.operate.doctor.context import DoctorContext
from sessions.values.finding import Finding, ok, warn
from sessions.values.text import count_of

_MARGIN_SECONDS = 20.0


def mcp_checks(context: DoctorContext) -> Iterator[Check]:
    """Yield a check for each server, unless a running gateway reports about its servers."""
    if context.daemon.may_be_running:  # a second copy of a program could disturb the first one
        return
    from agent.tools.mcp.probe import PROBE_SECONDS  # noqa: PLC0415 - slow, and rarely needed

    for settings in context.settings.mcp:
        if not settings.disabled and settings.login == "shared":
            yield Check(
                "MCP servers",
                _McpCheck(settings).run,
                PROBE_SECONDS + _MARGIN_SECONDS,
                needs_network=settings.url is not None,
            )


class _McpCheck:
    """Check of one server."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings

    async def run(self, context: DoctorContext) -> Sequence[Finding]:
        """Connect to the server and list its tools."""
        from agent.tools.mcp.probe import probe_server  # noqa: PLC0415 - see above

        probed = await probe_server(self._settings, context.clock, context.home / MCP_LOGIN_FOLDER)
        if probed.problem:
            fix = f"Correct its settings, and try it with `holdfast mcp test {probed.name}`."
            return [warn(probed.name, probed.problem, fix)]
        return [ok(probed.name, count_of(len(probed.tools), "tool"), seconds=probed.seconds)]
