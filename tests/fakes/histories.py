"""What must be true of every history, whatever happened while it came to be."""

import json
from collections.abc import Sequence

from sessions.records import Message

OURS = (
    "[Your answer",
    "[Your last answer",
    "[This call was too large",
    "[These calls were too large",
    "[The connection broke",
    "[The conversation goes on",
    "network error",
    "output length limit",
    "(empty)",
    "[System",
    "reconnecting",
)
"""What is said to a model, or to people about the machinery; no row may hold it."""


def check_history(rows: Sequence[Message]) -> None:
    """Every call has one result right behind it, no answer follows another, nothing is of ours.

    A user may have two rows in a row: the first one was interrupted before anything was said.
    """
    waiting: list[str] = []
    ids: set[str] = set()
    before = ""
    for row in rows:
        for words in OURS:
            assert words not in row.content, f"{words!r} in the history: {row}"
        if row.role == "tool":
            assert row.tool_call_id in waiting, f"a result without its call: {row}"
            waiting.remove(row.tool_call_id)
        else:
            assert not waiting, f"calls without a result: {waiting}"
            assert row.role != "assistant" or before != "assistant", f"two answers: {row}"
        if row.role == "assistant":
            assert row.content.strip() or row.tool_calls, "an empty row"
            waiting = [call.id for call in row.tool_calls]
            assert len(set(waiting)) == len(waiting), f"an id used twice: {waiting}"
            assert not ids.intersection(waiting), f"an id used twice: {waiting}"
            ids.update(waiting)
            for call in row.tool_calls:
                assert isinstance(json.loads(call.arguments), dict), call
        before = row.role
    assert not waiting, f"calls without a result: {waiting}"
