"""Sans-IO: results of client tools in the messages of a request, and in stored histories."""

from collections.abc import Collection, Iterable, Sequence

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


def keep_results(
    messages: Iterable[RequestMessage], open_calls: Collection[str]
) -> tuple[RequestMessage, ...]:
    """Return the messages without results of other calls, and without repeated results."""
    kept: dict[str, RequestMessage] = {}
    for number, message in enumerate(messages):
        if message.role is not MessageRole.TOOL:
            kept[f" {number}"] = message
        elif message.tool_call_id in open_calls:
            kept.setdefault(message.tool_call_id or "", message)
    return tuple(kept.values())


def complete_history(messages: Sequence[RequestMessage]) -> tuple[RequestMessage, ...]:
    """Return a client's whole conversation with exactly one result after each call.

    Raises `RequestRefused` if the last message is the result of a call that is not there.
    """
    seen: list[RequestMessage] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role is MessageRole.TOOL:
            continue  # the result of a call that is not there
        seen.append(message)
        after = at
        while at < len(messages) and messages[at].role is MessageRole.TOOL:
            at += 1
        results = {each.tool_call_id: each for each in reversed(messages[after:at])}
        for call in message.tool_calls:
            missing = RequestMessage(role=MessageRole.TOOL, text=_NO_RESULT, tool_call_id=call.id)
            seen.append(results.get(call.id, missing))
    if not seen or (
        messages[-1].role is MessageRole.TOOL and seen[-1].role is not MessageRole.TOOL
    ):
        raise no_such_call(messages[-1].tool_call_id or "")
    return tuple(seen)


def no_such_call(call_id: str) -> RequestRefused:
    """Return the refusal of a result for a call that does not wait for one."""
    msg = f"No tool call waits for the result of “{call_id[:80]}”."
    return invalid_request(msg, code="tool_call_not_found")


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
