"""Sans-IO: who may answer which question of a tool.

An admin may answer every one. Who asked for the turn may answer alone unless the tool runs programs
on this machine. People name a question by its code, the last signs of its id; codes are used again,
so that a button carries the whole id.
"""

from collections.abc import Iterable, Sequence

import msgspec

from agent.tools.risk import Risk
from gateway.access.policy import OWNERS, Holders, Person, Policy, parse_admin
from gateway.delivery.view import read_address
from gateway.notices.catalogue import Fields
from platforms.core.contract import Address
from sessions.key import parse_key
from sessions.records import Approval

UNATTENDED = frozenset({"api", "schedule"})
"""Conversations of these begin without a person who could be asked."""

_LENGTH = 4
_SIGNS = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_MISREAD = str.maketrans("OIL", "011")
_LIST_ENTRY = 60


class Answerer(msgspec.Struct, frozen=True):
    """Somebody who answers, and where."""

    principal: str
    admin: bool
    address: str
    direct: bool


class Refusal(msgspec.Struct, frozen=True):
    """Why there is nothing for them to answer, as a notice."""

    notice: str
    fields: Fields = {}


# --- people ------------------------------------------------------------------------------------


def by_requester(risk: Risk) -> bool:
    """Whether the person whose turn it is may answer without being an admin."""
    return risk is not Risk.EXEC


def may_answer(question: Approval, principal: str, *, admin: bool) -> bool:
    """Whether somebody is entitled to answer."""
    return admin or (question.by_requester and principal == question.person)


def forbidden(question: Approval) -> Refusal:
    """Say to somebody who is not entitled who is."""
    return Refusal("not_yours" if question.by_requester else "admins_only")


def unattended(key: str) -> bool:
    """Whether a conversation has nobody who reads along."""
    return parse_key(key).platform in UNATTENDED


def is_admin(policy: Policy, principal: str, place: Address) -> bool:
    """Whether somebody is an admin by name; who is one by a role shows only when they answer."""
    if principal in OWNERS or principal in policy.appointed:
        return True
    platform, _, id_ = principal.partition(":")
    named = {Person(platform, id_), Person(platform, id_, place.account)}
    return not named.isdisjoint(policy.admins)


def admins_by_role(policy: Policy, place: Address) -> bool:
    """Whether people whom no list names may turn out to be admins there."""
    return any(
        isinstance(entry, Holders) and entry.platform == place.platform for entry in policy.admins
    )


def places_of(admins: Iterable[str]) -> tuple[Address, ...]:
    """Where admins are written to in private, each once."""
    found = (parse_admin(entry) for entry in admins)
    return tuple(
        dict.fromkeys(
            Address(each.platform, each.id, each.account)
            for each in found
            if isinstance(each, Person)
        )
    )


# --- questions ---------------------------------------------------------------------------------


def code_of(question_id: str) -> str:
    """How people name a question."""
    return question_id[-_LENGTH:].upper()


def read_code(text: str) -> str:
    """Undo what people do to codes: small letters, and signs that look like others."""
    return text.upper().translate(_MISREAD)


def code_and_reason(args: str, questions: Iterable[Approval]) -> tuple[str, str]:
    """Read `[CODE] [REASON]`; the code is empty where the first word can only be a reason."""
    first, *rest = args.split() or [""]
    known = {code_of(each.id) for each in questions}
    if read_code(first) in known or _looks_like_a_code(first):
        return first, " ".join(rest)
    return "", " ".join([first, *rest])


def _looks_like_a_code(word: str) -> bool:
    # Without a digit it may as well be a word of four letters.
    return len(word) == _LENGTH and not word.isalpha() and _SIGNS.issuperset(word.upper())


def choose(questions: Sequence[Approval], who: Answerer, code: str) -> Approval | Refusal:
    """Find the question that somebody answers: by its code, or the only one they can mean.

    Those of the chat they write in come first; an admin in a private chat can mean any other, too.
    """
    if code:
        return _by_code(questions, who, code)
    here = [each for each in questions if _same_chat(each.address, who.address)]
    if not here and who.admin and who.direct:
        here = list(questions)
    theirs = [each for each in here if may_answer(each, who.principal, admin=who.admin)]
    if len(theirs) == 1:
        return theirs[0]
    if theirs:
        return Refusal("ask.several", {"list": "\n".join(map(_line, theirs))})
    return forbidden(here[0]) if here else Refusal("ask.none")


def _by_code(questions: Sequence[Approval], who: Answerer, code: str) -> Approval | Refusal:
    for each in questions:
        if code_of(each.id) == read_code(code):
            mine = may_answer(each, who.principal, admin=who.admin)
            return each if mine else forbidden(each)
    return Refusal("ask.unknown", {"code": code})


def _same_chat(one: str, other: str) -> bool:
    return read_address(one) == read_address(other)


def _line(question: Approval) -> str:
    arguments = " ".join(question.arguments.replace("`", "'").split())
    if len(arguments) > _LIST_ENTRY:
        arguments = f"{arguments[: _LIST_ENTRY - 1]}…"
    return f"{code_of(question.id)} {question.tool} `{arguments}`"
