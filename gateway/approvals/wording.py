"""Sans-IO: how the question whether a tool may run is shown, and what the model reads of its answer.

People decide by what they see: what is shown is the call itself, never a description of it, and
nothing in it can look like anything else.
"""

import msgspec

from gateway.approvals.rules import approval_code
from gateway.notices.catalogue import NoticeFields
from sessions.records import Approval, ApprovalState
from sessions.values.notices import NoticeId

MAX_SHOWN_CHARS = 1500
"""Signs of the arguments that are shown; of longer ones the beginning and the end."""

_TAIL_CHARS = 400
_MINUTE_MS = 60_000

UNATTENDED = (
    "it needs a person's approval, and there is nobody in this conversation who could be asked."
)
NO_ADMIN = "it needs an admin's approval, and no admin can be reached."
TURN_ENDED = "the turn ended first"
"""The reason of a question that ended for another cause than its time."""

PERMISSION_USED = "the permission for it was used already."


def choose_notice(
    question: Approval, *, must_ask: bool = True, ask_admins: bool = False
) -> NoticeId:
    """Choose the words: `must_ask` is false where only a doubt asks, `admins` where they must."""
    match question.state:
        case ApprovalState.OPEN:
            if ask_admins:
                return NoticeId.ASK_ADMIN
            return NoticeId.ASK if must_ask else NoticeId.ASK_AGAIN
        case ApprovalState.DENIED:
            return NoticeId.ASK_DENIED
        case ApprovalState.EXPIRED:
            return NoticeId.ASK_OVER if question.reason else NoticeId.ASK_EXPIRED
        case ApprovalState.ALLOWED | ApprovalState.USED:
            return NoticeId.ASK_ALLOWED


def notice_fields(question: Approval) -> NoticeFields:
    """What the words say."""
    return {
        "tool": question.tool,
        "arguments": format_arguments(question.arguments),
        "code": approval_code(question.id),
        "min": (question.expires_at - question.asked_at) // _MINUTE_MS,
        "by": question.answered_by,
        "reason": question.reason,
    }


def format_arguments(arguments: str) -> str:
    """Write arguments for a code block: one to a line, every sign visible, not too long."""
    try:
        text = msgspec.json.format(arguments, indent=2)
    except msgspec.DecodeError:
        text = arguments
    # Signs that reorder or hide text, and what would end the block, stand there as JSON escapes.
    text = "".join(
        sign if sign.isprintable() or sign == "\n" else _json_escape(sign) for sign in text
    ).replace("```", _json_escape("`") * 3)
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    begin, end = text[: MAX_SHOWN_CHARS - _TAIL_CHARS], text[-_TAIL_CHARS:]
    left_out = len(text) - len(begin) - len(end)
    return f"{begin}\n… {left_out} characters are not shown …\n{end}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))


def refusal_text(question: Approval) -> str:
    """Say why a call may not run, as the model reads it."""
    if question.state is ApprovalState.DENIED:
        why = f": {question.reason}" if question.reason else "."
        return f"denied by {question.answered_by}{why}"
    if question.state is ApprovalState.USED:
        return PERMISSION_USED
    minutes, rest = divmod(question.expires_at - question.asked_at, _MINUTE_MS)
    within = f"{minutes} minutes" if minutes and not rest else "the time there was"
    return f"it needs somebody's approval, and nobody answered within {within}."
