"""Sans-IO: text of approval requests for people, and of refusals for the model.

People decide by the text, so it shows the call itself, never a description, and makes every
character of the arguments visible.
"""

import msgspec

from gateway.approvals.rules import approval_code
from gateway.notices.catalogue import NoticeFields
from sessions.records import Approval, ApprovalState
from sessions.values.notices import NoticeId

MAX_SHOWN_CHARS = 1500
"""Characters of arguments that are shown; longer ones are cut in the middle."""

_TAIL_CHARS = 400
_MINUTE_MS = 60_000

UNATTENDED = (
    "it needs a person's approval, and there is nobody in this conversation who could be asked."
)
NO_ADMIN = "it needs an admin's approval, and no admin can be reached."
TURN_ENDED = "the turn ended first"
"""Reason of a request that was closed before it expired."""

PERMISSION_USED = "the permission for it was used already."


def choose_notice(
    approval: Approval, *, must_ask: bool = True, ask_admins: bool = False
) -> NoticeId:
    """Return the id of the notice for a request in its present state.

    `must_ask` is False for a repeated call that may have taken effect; `ask_admins` is True if only
    admins may answer.
    """
    match approval.state:
        case ApprovalState.OPEN:
            if ask_admins:
                return NoticeId.ASK_ADMIN
            return NoticeId.ASK if must_ask else NoticeId.ASK_AGAIN
        case ApprovalState.DENIED:
            return NoticeId.ASK_DENIED
        case ApprovalState.EXPIRED:
            return NoticeId.ASK_OVER if approval.reason else NoticeId.ASK_EXPIRED
        case ApprovalState.ALLOWED | ApprovalState.USED:
            return NoticeId.ASK_ALLOWED


def notice_fields(approval: Approval) -> NoticeFields:
    """Return the fields of all notices about a request."""
    return {
        "tool": approval.tool,
        "arguments": format_arguments(approval.arguments),
        "code": approval_code(approval.id),
        "min": (approval.expires_at - approval.asked_at) // _MINUTE_MS,
        "by": approval.answered_by,
        "reason": approval.reason,
    }


def format_arguments(arguments: str) -> str:
    """Format JSON arguments for a code block: indented, every character visible, length limited."""
    try:
        text = msgspec.json.format(arguments, indent=2)
    except msgspec.DecodeError:
        text = arguments
    # Characters that reorder or hide text, and backticks that would end the block, are escaped.
    text = "".join(
        char if char.isprintable() or char == "\n" else _json_escape(char) for char in text
    ).replace("```", _json_escape("`") * 3)
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    begin, end = text[: MAX_SHOWN_CHARS - _TAIL_CHARS], text[-_TAIL_CHARS:]
    left_out = len(text) - len(begin) - len(end)
    return f"{begin}\n… {left_out} characters are not shown …\n{end}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))


def refusal_text(approval: Approval) -> str:
    """Return the reason why a call does not run, for the model."""
    if approval.state is ApprovalState.DENIED:
        why = f": {approval.reason}" if approval.reason else "."
        return f"denied by {approval.answered_by}{why}"
    if approval.state is ApprovalState.USED:
        return PERMISSION_USED
    minutes, rest = divmod(approval.expires_at - approval.asked_at, _MINUTE_MS)
    within = f"{minutes} minutes" if minutes and not rest else "the time there was"
    return f"it needs somebody's approval, and nobody answered within {within}."
