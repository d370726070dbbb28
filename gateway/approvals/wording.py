"""Sans-IO: text of approval requests for people, and of refusals for the model.

People decide by the text, so it shows the call itself, never a description, and makes every
character of the arguments visible.
"""

import re
from functools import partial

import msgspec

from gateway.approvals.rules import approval_code
from gateway.notices.catalogue import NOTICE_FIELDS
from sessions.records import Approval, ApprovalState
from sessions.values.notices import NoticeFields, NoticeId

MAX_SHOWN_CHARS = 1500
"""Characters of arguments up to which nothing is shortened."""

_MAX_TOTAL_CHARS = 8000  # of arguments with many keys; more are cut in the middle
_VALUE_ROOMS = (1300, 900, 600, 400, 200, 120, 80)  # longest shown value, the most generous first
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_UNIT = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_MINUTE_MS = 60_000

UNATTENDED = "it needs a person's approval, and this conversation has no person to ask."
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


def notice_fields(
    approval: Approval,
    notice: NoticeId,
    *,
    person: str = "",
    attached: bool = False,
    change: str = "",
) -> NoticeFields:
    """Return the fields of a notice about a request; `person` is named to admins.

    `attached` is True if a file with the whole arguments follows; `change` is the change of the
    tool that an answer accepts.
    """
    values: NoticeFields = {
        "tool": approval.tool,
        "arguments": format_arguments(approval.arguments),
        "code": approval_code(approval.id),
        "min": (approval.expires_at - approval.asked_at) // _MINUTE_MS,
        "by": approval.answered_by,
        "reason": approval.reason,
        "person": person,
        **({"change": format_change(change)} if change else {}),
        **({"attached": "yes"} if attached else {}),
    }
    required, optional = NOTICE_FIELDS[notice]
    return {name: value for name, value in values.items() if name in required | optional}


def format_arguments(arguments: str, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Format JSON arguments for a code block: indented, every character visible, length limited.

    Long values are shortened one by one, so that every key and every short value stays.
    """
    text = whole_arguments(arguments)
    if len(text) <= max_chars:
        return text
    if not _STRING.search(text):
        return _cut_middle(text, max_chars)
    short = text
    for room in _VALUE_ROOMS:
        short = _STRING.sub(partial(_shorten_string, room=room), text)
        if len(short) <= max_chars:
            break
    return _cut_middle(short, _MAX_TOTAL_CHARS)


def whole_arguments(arguments: str) -> str:
    """Format JSON arguments: indented, every character visible."""
    try:
        text = msgspec.json.format(arguments, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError):  # the latter for half a character
        text = arguments
    return _escape_hidden(text)


def format_change(change: str) -> str:
    """Format the change of a tool as a block of its own."""
    return f"\n🛠 Its server has changed this tool:\n```text\n{_escape_hidden(change)}\n```"


def _escape_hidden(text: str) -> str:
    """Escape characters that reorder or hide text, and backticks that would end a code block."""
    return "".join(
        char if char.isprintable() or char == "\n" else _json_escape(char) for char in text
    ).replace("```", _json_escape("`") * 3)


def is_shortened(arguments: str) -> bool:
    """Return True if a request does not show the whole arguments."""
    return len(whole_arguments(arguments)) > MAX_SHOWN_CHARS


def _shorten_string(match: re.Match[str], room: int) -> str:
    inside = match[0][1:-1]
    if len(inside) <= room:
        return match[0]
    return f'"{_cut_middle(inside, room)}"'


def _cut_middle(text: str, room: int) -> str:
    """Leave out the middle of a longer text, never a part of an escape."""
    units = _UNIT.findall(text)
    if len(units) <= room:
        return text
    tail = room // 4
    begin, end = "".join(units[: room - tail]), "".join(units[-tail:])
    between = "\n" if "\n" in text else " "
    left_out = len(text) - len(begin) - len(end)
    return f"{begin}{between}… {left_out} characters are not shown …{between}{end}"


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
    return f"it needs a person's approval, and the question was not answered within {within}."
