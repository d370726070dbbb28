"""Commands about the gateway as a whole."""

from gateway.access.policy import Role
from gateway.commands.contract import Call, Command, Outcome


async def _restart(call: Call) -> Outcome:
    return await call.desk.restart.asked(call)


COMMANDS = (Command("restart", "restart the gateway", _restart, role=Role.ADMIN),)
