"""Sans-IO: who may answer which question of a tool.

An admin may answer every one. Who asked for the turn may answer alone unless the tool runs programs
on this machine. People name a question by its code, the last signs of its id; codes are used again,
so that a button carries the whole id.
"""

from collections.abc import Iterable, Sequence

import msgspec

from agent.tools.risk import Risk
from gateway.access.policy import OWNERS, PersonEntry, Policy, RoleEntry
from gateway.delivery.view import read_address
from gateway.notices.catalogue import NoticeFields
from platforms.core.contract import Address
from sessions.key import parse_key
from sessions.records import Approval
from sessions.values.notices import NoticeId

UNATTENDED_PLATFORMS = frozenset({"api", "schedule"})
"""Conversations of these begin without a person who could be asked."""

_CODE_LENGTH = 4
_CODE_ALPHABET = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_MISREAD_CHARACTERS = str.maketrans("OIL", "011")
_MAX_ARGUMENTS_LENGTH = 60


class Answerer(msgspec.Struct, frozen=True):
    """Somebody who answers, and where."""

    principal: str
    admin: bool
    address: str
    direct: bool


class AnswerRefusal(msgspec.Struct, frozen=True):
    """Why there is nothing for them to answer, as a notice."""

    notice: NoticeId
    fields: NoticeFields = {}


# --- people ------------------------------------------------------------------------------------


def can_requester_answer(risk: Risk) -> bool:
    """Whether the person whose turn it is may answer without being an admin."""
    return risk is not Risk.EXEC


def can_answer(question: Approval, principal: str, *, admin: bool) -> bool:
    """Whether somebody is entitled to answer."""
    return admin or (question.by_requester and principal == question.person)


def refuse_answer(question: Approval) -> AnswerRefusal:
    """Say to somebody who is not entitled who is."""
    return AnswerRefusal(NoticeId.NOT_YOURS if question.by_requester else NoticeId.ADMINS_ONLY)


def is_unattended(key: str) -> bool:
    """Whether a conversation has nobody who reads along."""
    return parse_key(key).platform in UNATTENDED_PLATFORMS


def is_admin(policy: Policy, principal: str, place: Address) -> bool:
    """Whether somebody is an admin by name; who is one by a role shows only when they answer."""
    if principal in OWNERS or principal in policy.appointed:
        return True
    platform, _, id_ = principal.partition(":")
    named = {PersonEntry(platform, id_), PersonEntry(platform, id_, place.account)}
    return not named.isdisjoint(policy.admins)


def has_admin_roles(policy: Policy, place: Address) -> bool:
    """Whether people whom no list names may turn out to be admins there."""
    return any(
        isinstance(entry, RoleEntry) and entry.platform == place.platform for entry in policy.admins
    )


# --- questions ---------------------------------------------------------------------------------


def approval_code(question_id: str) -> str:
    """How people name a question."""
    return question_id[-_CODE_LENGTH:].upper()


def normalize_code(text: str) -> str:
    """Undo what people do to codes: small letters, and signs that look like others."""
    return text.upper().translate(_MISREAD_CHARACTERS)


def parse_answer_args(args: str, questions: Iterable[Approval]) -> tuple[str, str]:
    """Read `[CODE] [REASON]`; the code is empty where the first word can only be a reason."""
    first, *rest = args.split() or [""]
    known = {approval_code(each.id) for each in questions}
    if normalize_code(first) in known or _is_code_like(first):
        return first, " ".join(rest)
    return "", " ".join([first, *rest])


def _is_code_like(word: str) -> bool:
    # Without a digit it may as well be a word of four letters.
    return (
        len(word) == _CODE_LENGTH and not word.isalpha() and _CODE_ALPHABET.issuperset(word.upper())
    )


def find_question(
    questions: Sequence[Approval], answerer: Answerer, code: str
) -> Approval | AnswerRefusal:
    """Find the question that somebody answers: by its code, or the only one they can mean.

    Those of the chat they write in come first; an admin in a private chat can mean any other, too.
    """
    if code:
        return _find_by_code(questions, answerer, code)
    here = [each for each in questions if _is_same_chat(each.address, answerer.address)]
    if not here and answerer.admin and answerer.direct:
        here = list(questions)
    theirs = [each for each in here if can_answer(each, answerer.principal, admin=answerer.admin)]
    if len(theirs) == 1:
        return theirs[0]
    if theirs:
        return AnswerRefusal(NoticeId.ASK_SEVERAL, {"list": "\n".join(map(_list_line, theirs))})
    return refuse_answer(here[0]) if here else AnswerRefusal(NoticeId.ASK_NONE)


def _find_by_code(
    questions: Sequence[Approval], answerer: Answerer, code: str
) -> Approval | AnswerRefusal:
    for each in questions:
        if approval_code(each.id) == normalize_code(code):
            mine = can_answer(each, answerer.principal, admin=answerer.admin)
            return each if mine else refuse_answer(each)
    return AnswerRefusal(NoticeId.ASK_UNKNOWN, {"code": code})


def _is_same_chat(one: str, other: str) -> bool:
    return read_address(one) == read_address(other)


def _list_line(question: Approval) -> str:
    arguments = " ".join(question.arguments.replace("`", "'").split())
    if len(arguments) > _MAX_ARGUMENTS_LENGTH:
        arguments = f"{arguments[: _MAX_ARGUMENTS_LENGTH - 1]}…"
    return f"{approval_code(question.id)} {question.tool} `{arguments}`"
