"""Sans-IO: calls of client tools in a history: their ids, and placeholders for their results."""

import re
from collections.abc import Sequence

from sessions.records import AWAITING_CLIENT, Message, MessageRole

_NO_RESULT = (
    "No result: the call was handed to the client program, which has not returned a result. It may "
    "or may not have run."
)
_CALL_ID = re.compile(r"call_(?P<turn>[0-9a-z]+)_[0-9a-f]{12}")


def turn_of_call(call_id: str) -> str:
    """Return the turn whose answer contained a call of a client's tool; empty for other ids."""
    match = _CALL_ID.fullmatch(call_id)
    return f"t_{match['turn']}" if match else ""


def placeholder(call_id: str) -> Message:
    """Return the result row of a call for which the client has not returned a result."""
    return Message(MessageRole.TOOL, _NO_RESULT, tool_call_id=call_id, interrupted=AWAITING_CLIENT)


def steps_of_loop(history: Sequence[Message]) -> int:
    """Return the number of answers with calls since the last message of the user.

    It is above 0 only if a history ends with results that the client returned.
    """
    steps = 0
    for row in reversed(history):
        if row.role == MessageRole.USER:
            break
        steps += bool(row.tool_calls)
    return steps if history and history[-1].role == MessageRole.TOOL else 0
