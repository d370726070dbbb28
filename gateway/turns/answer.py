"""Sans-IO: rows of an answer in the history, and its items in the outbox."""

from collections.abc import Iterable

import msgspec

from gateway.delivery.view import ItemBody, write_body
from sessions.conversation.events import RunningTurn
from sessions.records import ItemState, Message, OutboxItem

CAPPED = "length"
"""Cause of a turn that is done although its text ends at the requested output limit."""

_ANSWER = "answer"


def answer_item(turn: RunningTurn, text: str, now: int, reply_to: str = "") -> OutboxItem:
    """Return the outbox item of a turn's answer."""
    return OutboxItem(
        id=f"a_{_id_suffix(turn)}",
        address=turn.address,
        kind=_ANSWER,
        state=ItemState.PENDING,
        body=write_body(ItemBody(text=text)),
        created_at=now,
        turn_id=turn.id,
        reply_to=reply_to or None,
    )


def reasoning_item(turn: RunningTurn, text: str, now: int) -> OutboxItem:
    """Return the outbox item of a turn's reasoning."""
    item = answer_item(turn, text, now)
    return msgspec.structs.replace(item, id=f"r_{_id_suffix(turn)}", kind="notice")


def _id_suffix(turn: RunningTurn) -> str:
    """Return the part that the ids of all items of a turn share."""
    return turn.origin or turn.id.partition("_")[2]


def answer_origin(items: Iterable[OutboxItem]) -> str:
    """Return the origin in the id of a stored answer, so that a resumed turn continues that item."""
    return next((item.id.partition("_")[2] for item in items if item.kind == _ANSWER), "")


def join_step_texts(texts: Iterable[str]) -> str:
    """Join the texts of several steps into the text of one message."""
    return "\n\n".join(text for text in texts if text.strip())


def partial_row(text: str, cause: str) -> Message:
    """Return the history row of an incomplete text, marked with the cause."""
    return Message("assistant", content=text, interrupted=cause)


def rows_since_request(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the rows after the newest user row."""
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "user":
            return history[index + 1 :]
    return history


def answer_texts(rows: Iterable[Message]) -> list[str]:
    """Return the texts of the assistant rows."""
    return [row.content for row in rows if row.role == "assistant"]
