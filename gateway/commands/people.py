"""Commands about people: who I am, who is let in."""

from gateway.access.policy import Role
from gateway.commands.contract import Call, Command, Outcome, Tell


async def _start(call: Call) -> Outcome:
    if call.args and call.direct and await call.desk.claim(call.principal, call.name, call.args):
        return Tell("claimed")
    return Tell("start")


async def _whoami(call: Call) -> Outcome:
    lines = (f"You are {call.principal} ({call.role.name.lower()}).", f"This chat is {call.key}.")
    return Tell("text", {"text": "\n".join(lines)})


async def _pair(call: Call) -> Outcome:
    verb, _, rest = call.args.partition(" ")
    match verb.lower(), rest.strip():
        case ("list", ""):
            return Tell("pair_list", {"list": await call.desk.pair_list()})
        case ("approve", code) if code:
            found = await call.desk.pair_approve(code)
            if found is None:
                return Tell("pair_unknown")
            return Tell("pair_approved", {"principal": found[0], "name": found[1]})
        case ("revoke", principal) if principal:
            if await call.desk.pair_revoke(principal):
                return Tell("pair_revoked", {"principal": principal})
            return Tell("text", {"text": f"{principal} was not let in by pairing."})
    return Tell("pair_usage")


COMMANDS = (
    Command("start", "say hello", _start, role=Role.GUEST, args="[CODE]"),
    Command("whoami", "your stable id and role", _whoami, role=Role.GUEST),
    Command(
        "pair", "let people in", _pair, role=Role.ADMIN, args="list | approve CODE | revoke ID"
    ),
)
