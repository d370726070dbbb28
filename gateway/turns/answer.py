"""Sans-IO: rows of an answer in the history, and its items in the outbox."""

from collections.abc import Iterable

import msgspec

from agent.client_calls import turn_of_call
from gateway.delivery.view import ItemBody, write_body
from sessions.conversation.events import RunningTurn
from sessions.records import (
    AWAITING_CLIENT,
    ItemKind,
    ItemState,
    Message,
    MessageRole,
    OutboxItem,
    ToolCall,
)
from sessions.values.ids import unique_part
from sessions.values.item_ids import ItemId, answer_id, reasoning_id

CAPPED = "length"
"""Cause of a turn that is done although its text ends at the requested output limit."""


HANDED_TO_CLIENT = "tool_calls"
"""Cause of a turn that is done because its client has to run the calls of its tools."""


def answer_item(turn: RunningTurn, text: str, now: int, reply_to: str = "") -> OutboxItem:
    """Return the outbox item of a turn's answer."""
    return OutboxItem(
        id=answer_id(_origin(turn)),
        address=turn.address,
        kind=ItemKind.ANSWER,
        state=ItemState.PENDING,
        body=write_body(ItemBody(text=text)),
        created_at=now,
        turn_id=turn.id,
        reply_to=reply_to or None,
    )


def reasoning_item(turn: RunningTurn, text: str, now: int) -> OutboxItem:
    """Return the outbox item of a turn's reasoning."""
    item = answer_item(turn, text, now)
    return msgspec.structs.replace(item, id=reasoning_id(_origin(turn)), kind=ItemKind.NOTICE)


def _origin(turn: RunningTurn) -> str:
    """Return the part that the ids of all items of a turn share."""
    return turn.origin or unique_part(turn.id)


def answer_origin(items: Iterable[OutboxItem]) -> str:
    """Return the origin in the id of a stored answer, so that a resumed turn continues that item."""
    answers = (ItemId.parse(item.id) for item in items if item.kind is ItemKind.ANSWER)
    return next((answer.origin for answer in answers if answer), "")


def join_step_texts(texts: Iterable[str]) -> str:
    """Join the texts of several steps into the text of one message."""
    return "\n\n".join(text for text in texts if text.strip())


def partial_row(text: str, cause: str) -> Message:
    """Return the history row of an incomplete text, marked with the cause."""
    return Message(MessageRole.ASSISTANT, content=text, interrupted=cause)


def rows_since_request(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the rows after the newest row of the requester: a message, or a client tool's result."""
    for index in range(len(history) - 1, -1, -1):
        row = history[index]
        if row.role == MessageRole.USER or _is_from_client(row):
            return history[index + 1 :]
    return history


def _is_from_client(row: Message) -> bool:
    is_result = row.role == MessageRole.TOOL and row.interrupted != AWAITING_CLIENT
    return is_result and bool(turn_of_call(row.tool_call_id or ""))


def client_calls_in(rows: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the calls that wait for a result of the client, at the end of these rows.

    Empty if the last answer has none, or if a message or a result of the client follows it.
    """
    calls: tuple[ToolCall, ...] = ()
    for row in rows:
        if row.role == MessageRole.ASSISTANT:
            calls = tuple(call for call in row.tool_calls if turn_of_call(call.id))
        elif row.role == MessageRole.USER or _is_from_client(row):
            calls = ()
    return calls


def answer_texts(rows: Iterable[Message]) -> list[str]:
    """Return the texts of the assistant rows."""
    return [row.content for row in rows if row.role == MessageRole.ASSISTANT]
