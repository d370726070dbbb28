"""Sans-IO: results of client tools in the messages of a request, and in stored histories."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from agent.client_calls import placeholder, turn_of_call
from gateway.http.api.asked import RequestMessage
from gateway.http.api.failures import RequestRefused, invalid_request
from sessions.records import Message, MessageRole

_NO_RESULT = "No result: the client did not send one."


def new_messages(messages: Sequence[RequestMessage]) -> Sequence[RequestMessage]:
    """Return the messages after the last answer."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role is MessageRole.ASSISTANT:
            return messages[index + 1 :]
    return messages


def result_ids(messages: Iterable[RequestMessage]) -> tuple[str, ...]:
    """Return the ids of the calls whose results are among these messages."""
    return tuple(each.tool_call_id or "" for each in messages if each.role is MessageRole.TOOL)


def complete_messages(
    messages: Sequence[RequestMessage], open_calls: Collection[str] = ()
) -> tuple[RequestMessage, ...]:
    """Return messages to add to a history, with exactly one result for each call.

    `open_calls` are calls at the end of the history; their results come first, and repetitions of
    the calls are left out. Raises `RequestRefused` if the last message is the result of a call that
    is nowhere.
    """
    results = _results_of(messages, open_calls)
    seen: list[RequestMessage] = list(results.values())
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role is MessageRole.TOOL:
            continue  # of an open call, or of a call that is not there
        after = at
        while at < len(messages) and messages[at].role is MessageRole.TOOL:
            at += 1
        calls = tuple(call for call in message.tool_calls if call.id not in open_calls)
        if calls != message.tool_calls:
            message = replace(message, tool_calls=calls)
            if not calls and not message.text.strip():
                continue
        seen.append(message)
        own = _results_of(messages[after:at], {call.id for call in calls})
        for call in calls:
            missing = RequestMessage(role=MessageRole.TOOL, text=_NO_RESULT, tool_call_id=call.id)
            seen.append(own.get(call.id, missing))
    last = messages[-1]
    known = {each.tool_call_id for each in seen if each.role is MessageRole.TOOL}
    if last.role is MessageRole.TOOL and last.tool_call_id not in known:
        raise no_such_call(last.tool_call_id or "")
    return tuple(seen)


def _results_of(
    messages: Iterable[RequestMessage], calls: Collection[str]
) -> dict[str, RequestMessage]:
    """Return the first result of each of these calls."""
    found: dict[str, RequestMessage] = {}
    for message in messages:
        if message.role is MessageRole.TOOL and message.tool_call_id in calls:
            found.setdefault(message.tool_call_id or "", message)
    return found


def no_such_call(call_id: str) -> RequestRefused:
    """Return the refusal of a result for a call that does not wait for one."""
    msg = f"No tool call waits for the result of “{call_id[:80]}”."
    return invalid_request(msg, code="tool_call_not_found")


def rows_up_to(rows: Sequence[Message], calls: Collection[str]) -> tuple[Message, ...]:
    """Return a stored history up to the answer with these calls, with their results.

    Without such an answer it is returned whole.
    """
    found = (at for at, row in enumerate(rows) if any(call.id in calls for call in row.tool_calls))
    end = next(found, len(rows)) + 1
    while end < len(rows) and rows[end].role == MessageRole.TOOL:
        end += 1
    return tuple(rows[:end])


def reopen_calls(rows: Sequence[Message], brought: Collection[str]) -> tuple[Message, ...]:
    """Return a stored history up to an answer, as it was before the client's results arrived.

    The results of the calls in `brought` are left out, because the request brings them.
    """
    last = max((at for at, row in enumerate(rows) if row.role == MessageRole.ASSISTANT), default=-1)
    reopened = [
        placeholder(row.tool_call_id or "") if turn_of_call(row.tool_call_id or "") else row
        for row in rows[last + 1 :]
        if row.tool_call_id not in brought
    ]
    return (*rows[: last + 1], *reopened)
