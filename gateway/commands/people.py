"""Commands about people and their access."""

from gateway.access.people import CodeDelayed
from gateway.access.policy import Role
from gateway.commands.contract import Command, CommandCall, CommandOutcome, NoticeReply
from sessions.values.notices import NoticeId


async def _start(call: CommandCall) -> CommandOutcome:
    if call.args and call.direct:
        try:
            if await call.services.access.claim(call.principal, call.name, call.args):
                return NoticeReply(NoticeId.CLAIMED)
        except CodeDelayed as error:
            return NoticeReply(NoticeId.CODE_DELAYED, {"seconds": error.seconds})
    return NoticeReply(NoticeId.GREETING)


async def _whoami(call: CommandCall) -> CommandOutcome:
    lines = (f"You are {call.principal} ({call.role.name.lower()}).", f"This chat is {call.key}.")
    return NoticeReply(NoticeId.PLAIN_TEXT, {"text": "\n".join(lines)})


async def _pair(call: CommandCall) -> CommandOutcome:
    verb, _, rest = call.args.partition(" ")
    match verb.lower(), rest.strip():
        case ("list", ""):
            return NoticeReply(NoticeId.PAIR_LIST, {"list": await call.services.access.pair_list()})
        case ("approve", code) if code:
            try:
                approved = await call.services.access.pair_approve(code)
            except CodeDelayed as error:
                return NoticeReply(NoticeId.CODE_DELAYED, {"seconds": error.seconds})
            if approved is None:
                return NoticeReply(NoticeId.PAIR_UNKNOWN)
            return NoticeReply(
                NoticeId.PAIR_APPROVED, {"principal": approved[0], "name": approved[1]}
            )
        case ("revoke", principal) if principal:
            if await call.services.access.pair_revoke(principal):
                return NoticeReply(NoticeId.PAIR_REVOKED, {"principal": principal})
            return NoticeReply(
                NoticeId.PLAIN_TEXT, {"text": f"{principal} has no access by pairing."}
            )
    return NoticeReply(NoticeId.PAIR_USAGE)


COMMANDS = (
    Command("start", "say hello", _start, role=Role.GUEST, args="[CODE]"),
    Command("whoami", "your id and role", _whoami, role=Role.GUEST, private=True),
    Command(
        "pair",
        "manage access",
        _pair,
        role=Role.ADMIN,
        args="list | approve CODE or ID | revoke ID",
        private=True,
    ),
)
