"""Sans-IO: an answer: the rows it leaves in the history, and what the chat shows of it."""

from collections.abc import Iterable

import msgspec

from gateway.delivery.view import ItemBody, write_body
from sessions.conversation.events import RunningTurn
from sessions.records import ItemState, Message, OutboxItem

CAPPED = "length"
"""The cause of a turn that is done, and whose text ends where it met the limit that was wanted."""

_ANSWER = "answer"


def answer_item(turn: RunningTurn, text: str, now: int, reply_to: str = "") -> OutboxItem:
    """Make a turn's answer something the chat should show."""
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
    """Make what the model thought in a turn something the chat should show."""
    item = answer_item(turn, text, now)
    return msgspec.structs.replace(item, id=f"r_{_id_suffix(turn)}", kind="notice")


def _id_suffix(turn: RunningTurn) -> str:
    """What the ids of all that a turn shows have in common."""
    return turn.origin or turn.id.partition("_")[2]


def answer_origin(items: Iterable[OutboxItem]) -> str:
    """Find out of what a turn's answer was named: taken up again, it goes on with the same one."""
    return next((item.id.partition("_")[2] for item in items if item.kind == _ANSWER), "")


def join_step_texts(texts: Iterable[str]) -> str:
    """Join what the model said in its steps into what the chat shows."""
    return "\n\n".join(text for text in texts if text.strip())


def partial_row(text: str, cause: str) -> Message:
    """Keep a text that is not whole, with why it is not."""
    return Message("assistant", content=text, interrupted=cause)


def rows_since_request(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """The rows behind the last thing a person said."""
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "user":
            return history[index + 1 :]
    return history


def answer_texts(rows: Iterable[Message]) -> list[str]:
    """Pick what the model said out of rows."""
    return [row.content for row in rows if row.role == "assistant"]
