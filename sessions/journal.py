"""Makes changes true: what each of them writes.

Every statement is built once and compiled once; a change takes a fixed number of them, whatever
lies in the database. All of this runs in the writer's thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import msgspec
import sqlalchemy as sa
from sqlalchemy import bindparam as value
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    EndTurn,
    OpenSession,
    PutItem,
    SetInbox,
    SetItem,
    SetSession,
    SetTitle,
    StartAttempt,
    StartTool,
    StartTurn,
    TakeBack,
)
from sessions.engine import insert_for
from sessions.errors import AlreadyStarted, Conflict, Missing
from sessions.records import InboxEntry, InboxState, Item, ItemState, Message, TurnState
from sessions.schema import (
    attempts,
    inbox,
    messages,
    outbox,
    sessions,
    storable,
    timeline,
    tool_runs,
    turns,
)

TITLE_LENGTH = 60
_TIMELINE_LOCK = 0x686F6C64  # any number of ours

_SETTLED_INBOX = {InboxState.DONE, InboxState.REFUSED, InboxState.IGNORED}
_SETTLED_ITEMS = {ItemState.SENT, ItemState.DEAD}

Row = dict[str, Any]


def _values(table: sa.Table, *but: str) -> dict[str, Any]:
    return {c.name: value(c.name, type_=c.type) for c in table.c if c.name not in but}


def _kept(column: sa.Column[Any]) -> Any:
    """The column's new value; None leaves it as it is."""
    return sa.func.coalesce(value(column.name, type_=column.type), column)


_OPEN_SESSION = sa.insert(sessions).values(_values(sessions, "reason", "title"))
_SET_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == value("session"))
    .values(state=value("state"), reason=value("reason"), updated_at=value("at"))
)
_SET_TITLE = (
    sa.update(sessions).where(sessions.c.id == value("session")).values(title=value("title"))
)
_GROW_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == value("session"))
    .values(
        messages=sessions.c.messages + value("count"),
        updated_at=value("at"),
        title=sa.func.coalesce(sessions.c.title, value("title", type_=sessions.c.title.type)),
    )
)
_ADD_MESSAGE = sa.insert(messages).values(_values(messages, "id", "taken_back"))
_HIDE_MESSAGES = (
    sa.update(messages)
    .where(
        messages.c.session_id == value("session"),
        messages.c.turn_id == value("turn"),
        messages.c.taken_back == sa.false(),
    )
    .values(taken_back=True)
)
_HIDE_TURN = sa.update(turns).where(turns.c.id == value("turn")).values(taken_back=True)
_END_TURN = (
    sa.update(turns)
    .where(turns.c.id == value("turn"))
    .values(state=value("state"), finished_at=value("at"), cause=value("cause"))
)
_END_TURN_INBOX = (
    sa.update(inbox)
    .where(inbox.c.turn_id == value("turn"), inbox.c.state == InboxState.RUNNING.value)
    .values(state=InboxState.DONE.value, settled_at=value("at"))
)
_START_INBOX = (
    sa.update(inbox)
    .where(inbox.c.id == value("row"))
    .values(
        state=InboxState.RUNNING.value,
        turn_id=value("turn"),
        session_id=value("session"),
        settled_at=None,
    )
)
_SET_INBOX = (
    sa.update(inbox)
    .where(inbox.c.id == value("row"))
    .values(
        state=value("state"),
        session_id=_kept(inbox.c.session_id),
        settled_at=value("settled_at"),
    )
)
_CHECKPOINT = sa.update(turns).where(turns.c.id == value("turn")).values(partial=value("text"))
_START_ATTEMPT = sa.insert(attempts).values(
    {name: value(name) for name in ("turn_id", "number", "target", "started_at")}
    | {"phase": "", "received": 0, "cause": "", "request_id": "", "input_tokens": 0}
    | {"output_tokens": 0}
)
_COUNT_ATTEMPT = (
    sa.update(turns).where(turns.c.id == value("turn")).values(attempts=value("number"))
)
