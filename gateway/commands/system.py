"""Commands about models, costs, approvals and the gateway as a whole."""

from gateway.access.policy import Role
from gateway.commands.contract import Command, CommandCall, CommandOutcome


async def _model(call: CommandCall) -> CommandOutcome:
    return await call.services.side_requests.model(call)


async def _reasoning(call: CommandCall) -> CommandOutcome:
    return await call.services.side_requests.reasoning(call)


async def _usage(call: CommandCall) -> CommandOutcome:
    return await call.services.side_requests.usage(call)


async def _compact(call: CommandCall) -> CommandOutcome:
    return await call.services.side_requests.compact(call)


async def _btw(call: CommandCall) -> CommandOutcome:
    return await call.services.side_requests.btw(call)


async def _approve(call: CommandCall) -> CommandOutcome:
    return await call.services.approvals.answer(call, allow=True)


async def _deny(call: CommandCall) -> CommandOutcome:
    return await call.services.approvals.answer(call, allow=False)


async def _restart(call: CommandCall) -> CommandOutcome:
    return await call.services.restart.request_restart(call)


async def _mcp(call: CommandCall) -> CommandOutcome:
    return await call.services.mcp.mcp(call)


MODEL_COMMANDS = (
    Command("model", "show or switch the model", _model, args="[NAME]"),
    Command("reasoning", "show or set the reasoning effort", _reasoning, args="[LEVEL]"),
    Command("usage", "show tokens and cost", _usage, private=True),
    Command("compact", "summarise the conversation so far", _compact),
    Command("btw", "ask a side question", _btw, args="TEXT"),
    Command("approve", "allow a tool call", _approve, args="[CODE]"),
    Command("deny", "deny a tool call", _deny, args="[CODE] [REASON]"),
)
GATEWAY_COMMANDS = (
    Command(
        "mcp",
        "MCP servers: their state, and logins",
        _mcp,
        args="[login NAME]",
        admin_args="[login NAME | accept NAME]",
        private=True,
    ),
    Command("restart", "restart the gateway", _restart, role=Role.ADMIN),
)
