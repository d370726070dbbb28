"""Sans-IO: requests that end with the beginning of an answer, which the agent continues."""

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.http.api.asked import RequestMessage
from sessions.records import MessageRole

_CUT_SHORT = "the client asked to continue it"
_CONTINUE = "[Continue your answer above exactly where it ends, without repeating any of it.]"


def ask_to_continue(messages: Sequence[RequestMessage]) -> list[RequestMessage]:
    """Return the messages, with a request to continue an answer at their end.

    The words of the answer that the model repeats all the same are removed.
    """
    seen = list(messages)
    if len(seen) <= 1:
        return seen
    last = seen[-1]
    if last.role is MessageRole.ASSISTANT and last.text.strip() and not last.tool_calls:
        seen[-1] = replace(last, interrupted=_CUT_SHORT)
        seen.append(RequestMessage(role=MessageRole.USER, text=_CONTINUE))
    return seen
