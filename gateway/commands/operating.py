"""Commands about the gateway as a whole."""

from gateway.access.policy import Role
from gateway.commands.contract import Command, CommandCall, CommandOutcome


async def _restart(call: CommandCall) -> CommandOutcome:
    return await call.services.restart.request_restart(call)


COMMANDS = (Command("restart", "restart the gateway", _restart, role=Role.ADMIN),)
