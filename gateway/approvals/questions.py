"""Sans-IO: questions of running tools, stored as approval requests.

Such a request has the name of the asker as its tool and the question as its arguments. Its reason,
once it is allowed, is the answer.
"""

import msgspec

from agent.tools.questions import PersonAnswer, PersonQuestion
from sessions.records import Approval, ApprovalState

_CALL_PREFIX = "question:"


def call_id_of(call_id: str) -> str:
    """Return the id under which a question of this call is stored."""
    return f"{_CALL_PREFIX}{call_id}"


def is_question(approval: Approval) -> bool:
    """True if a request is a question of a running tool."""
    return approval.call_id.startswith(_CALL_PREFIX)


def write_question(question: PersonQuestion) -> str:
    """Encode a question for the store."""
    return msgspec.json.encode(question).decode()


def read_question(approval: Approval) -> PersonQuestion:
    """Decode the question of a request."""
    return msgspec.json.decode(approval.arguments, type=PersonQuestion)


def read_answer(settled: Approval) -> PersonAnswer | None:
    """Return the answer to a closed question; None if there is none."""
    match settled.state:
        case ApprovalState.ALLOWED | ApprovalState.USED:
            return PersonAnswer(accepted=True, text=settled.reason)
        case ApprovalState.DENIED:
            return PersonAnswer(accepted=False)
        case ApprovalState.OPEN | ApprovalState.EXPIRED:
            return None


def chosen_text(question: PersonQuestion, text: str) -> str | None:
    """Return the answer that a typed text means; None if the question needs another one."""
    if question.options:
        found = (each for each in question.options if each.casefold() == text.strip().casefold())
        return next(found, None)
    if question.free_text:
        return text.strip() or None
    return ""
