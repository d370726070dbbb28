"""Sans-IO: who may answer an approval request, and which request an answer means.

An admin may answer every request. The person who started the turn may answer too, unless the tool
runs programs on this machine. People name a request by its code, the last characters of its id.
Codes repeat over time, so buttons carry the whole id.
"""

from collections.abc import Iterable, Sequence

import msgspec

from agent.tools.risk import Risk
from gateway.access.entries import PersonEntry, RoleEntry
from gateway.access.policy import OWNERS, Policy
from platforms.core.contract import Address
from sessions.key import parse_key
from sessions.records import Approval
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.text import shorten
from sessions.values.visible_text import visible_text

_UNATTENDED_PLATFORMS = frozenset({"api", "schedule"})
"""Platforms whose conversations have no person who could answer."""

_CODE_LENGTH = 4
_CODE_ALPHABET = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_MISREAD_CHARACTERS = str.maketrans("OIL", "011")
_MAX_ARGUMENTS_LENGTH = 60


class Answerer(msgspec.Struct, frozen=True):
    """Person who answers, and the chat of the answer."""

    principal: str
    admin: bool
    address: Address
    direct: bool


class AnswerRefusal(msgspec.Struct, frozen=True):
    """Notice for a person whose answer is not accepted."""

    notice: NoticeId
    fields: NoticeFields = {}


# --- people ------------------------------------------------------------------------------------


def can_requester_answer(risk: Risk) -> bool:
    """Return True if the person who started the turn may answer without being an admin."""
    return risk is not Risk.EXEC


def can_answer(approval: Approval, principal: str, *, admin: bool) -> bool:
    """Return True if a person may answer this request."""
    return admin or (approval.by_requester and principal == approval.person)


def refuse_answer(approval: Approval) -> AnswerRefusal:
    """Return the notice that names the people who may answer."""
    return AnswerRefusal(NoticeId.NOT_YOURS if approval.by_requester else NoticeId.ADMINS_ONLY)


def is_unattended(key: str) -> bool:
    """Return True if no person reads this conversation."""
    return parse_key(key).platform in _UNATTENDED_PLATFORMS


def is_admin(policy: Policy, principal: str, place: Address) -> bool:
    """Return True if a person is an admin by name; roles are known only when the person writes."""
    if principal in OWNERS or principal in policy.appointed:
        return True
    platform, _, id_ = principal.partition(":")
    named = {PersonEntry(platform, id_), PersonEntry(platform, id_, place.account)}
    return not named.isdisjoint(policy.admins)


def has_admin_roles(policy: Policy, place: Address) -> bool:
    """Return True if a role on this platform can make people admins."""
    return any(
        isinstance(entry, RoleEntry) and entry.platform == place.platform for entry in policy.admins
    )


# --- requests ----------------------------------------------------------------------------------


def approval_code(approval_id: str) -> str:
    """Return the code that people type for a request."""
    return approval_id[-_CODE_LENGTH:].upper()


def correct_code(text: str) -> str:
    """Return a typed code in upper case, with look-alike letters replaced by digits."""
    return text.upper().translate(_MISREAD_CHARACTERS)


def parse_answer_args(args: str, approvals: Iterable[Approval]) -> tuple[str, str]:
    """Split `[CODE] [REASON]`; the code is empty if the first word is part of a reason."""
    first, *rest = args.split() or [""]
    known = {approval_code(approval.id) for approval in approvals}
    if correct_code(first) in known or _is_code_like(first):
        return first, " ".join(rest)
    return "", " ".join([first, *rest])


def _is_code_like(word: str) -> bool:
    # Without a digit, four letters may be an ordinary word.
    return (
        len(word) == _CODE_LENGTH and not word.isalpha() and _CODE_ALPHABET.issuperset(word.upper())
    )


def find_question(
    approvals: Sequence[Approval], answerer: Answerer, code: str
) -> Approval | AnswerRefusal:
    """Find the request that an answer means: by its code, or the only candidate.

    Candidates are the requests of the same chat. If there are none, an admin in a private chat may
    mean a request of any chat.
    """
    if code:
        return _find_by_code(approvals, answerer, code)
    here = [row for row in approvals if row.address == answerer.address]
    if not here and answerer.admin and answerer.direct:
        here = list(approvals)
    allowed = [row for row in here if can_answer(row, answerer.principal, admin=answerer.admin)]
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        return AnswerRefusal(NoticeId.ASK_SEVERAL, {"list": "\n".join(map(_list_line, allowed))})
    return refuse_answer(here[0]) if here else AnswerRefusal(NoticeId.ASK_NONE)


def _find_by_code(
    approvals: Sequence[Approval], answerer: Answerer, code: str
) -> Approval | AnswerRefusal:
    for approval in approvals:
        if approval_code(approval.id) == correct_code(code):
            allowed = can_answer(approval, answerer.principal, admin=answerer.admin)
            return approval if allowed else refuse_answer(approval)
    return AnswerRefusal(NoticeId.ASK_UNKNOWN, {"code": code})


def _list_line(approval: Approval) -> str:
    arguments = " ".join(visible_text(approval.arguments).replace("`", "'").split())
    shown = shorten(arguments, _MAX_ARGUMENTS_LENGTH)
    return f"{approval_code(approval.id)} {approval.tool} `{shown}`"
