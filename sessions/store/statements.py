"""The SQL statements of a turn, built once and compiled once by SQLAlchemy.

A parameter with a new value is named after the column; a parameter that selects the row has
another name.
"""

import functools
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam as given

from sessions.records import ApprovalState, InboxState, TurnState
from sessions.store.schema import (
    approvals,
    attempts,
    budgets,
    inbox,
    messages,
    outbox,
    sessions,
    shelves,
    summaries,
    timeline,
    tool_runs,
    turns,
)

_TIMELINE_LOCK = 0x686F6C64  # arbitrary, but different from other advisory locks


def _bind_columns(table: sa.Table, *exclude: str) -> dict[str, Any]:
    return {column.name: given(column.name) for column in table.c if column.name not in exclude}


def _keep_if_none(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return an expression for a column's new value; None keeps the old value."""
    return sa.func.coalesce(given(column.name, type_=column.type), column)


def state_is(column: sa.Column[Any], *states: str) -> sa.ColumnElement[bool]:
    """Compare with literal states, because a parameter would not match a partial index."""
    words: list[sa.ColumnElement[str]] = [sa.literal_column(f"'{state}'") for state in states]
    return column == words[0] if len(words) == 1 else column.in_(words)


# --- writing: sessions and their history -----------------------------------------------------

ADD_SESSION = sa.insert(sessions).values(
    {name: given(name) for name in ("id", "key", "address", "state", "created_at", "updated_at")}
)
SET_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == given("session"))
    .values(state=given("state"), reason=given("reason"), updated_at=given("updated_at"))
)
SET_TITLE = (
    sa.update(sessions).where(sessions.c.id == given("session")).values(title=given("title"))
)
GROW_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == given("session"))
    .values(
        messages=sessions.c.messages + given("more"),
        updated_at=given("updated_at"),
        title=sa.func.coalesce(sessions.c.title, given("title", type_=sessions.c.title.type)),
    )
)
ADD_MESSAGE = sa.insert(messages).values(_bind_columns(messages, "id", "taken_back"))
NEWEST_MESSAGES = (
    sa.select(messages.c.id, messages.c.body)
    .where(messages.c.session_id == given("session"), messages.c.taken_back == sa.false())
    .order_by(messages.c.id.desc())
    .limit(given("limit", type_=sa.BigInteger()))
)
REPLACE_MESSAGE = (
    sa.update(messages).where(messages.c.id == given("row")).values(body=given("body"))
)
RENAME_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == given("session"), sessions.c.title == given("before"))
    .values(title=given("title"))
)
RETRACT_MESSAGES = (
    sa.update(messages)
    .where(
        messages.c.session_id == given("session"),
        messages.c.turn_id == given("turn"),
        messages.c.taken_back == sa.false(),
    )
    .values(taken_back=sa.true())
)

_behind_summary = (
    messages.c.session_id == sessions.c.id,
    messages.c.id > sa.func.coalesce(summaries.c.upto, 0),
    messages.c.taken_back == sa.false(),
)
# The mark of the summary, the number of later rows, and the newest row to be covered.
COMPACTION_BOUNDS = (
    sa.select(
        sa.func.coalesce(summaries.c.upto, 0),
        sa.select(sa.func.count()).select_from(messages).where(*_behind_summary).scalar_subquery(),
        sa.select(messages.c.id)
        .where(*_behind_summary)
        .order_by(messages.c.id.desc())
        .limit(1)
        .offset(given("keep", type_=sa.BigInteger()))
        .scalar_subquery(),
    )
    .select_from(sessions.outerjoin(summaries))
    .where(sessions.c.id == given("session"))
)
TOUCH_SESSION = (
    sa.update(sessions)
    .where(sessions.c.id == given("session"))
    .values(updated_at=given("updated_at"))
)

# --- writing: inbox --------------------------------------------------------------------------

SET_INBOX = (
    sa.update(inbox)
    .where(inbox.c.id == given("row"))
    .values(
        state=given("state"),
        session_id=_keep_if_none(inbox.c.session_id),
        turn_id=_keep_if_none(inbox.c.turn_id),
        settled_at=given("settled_at"),
    )
)
SET_PAYLOAD = sa.update(inbox).where(inbox.c.id == given("row")).values(payload=given("payload"))
MARK_INBOX_RUNNING = (
    sa.update(inbox)
    .where(inbox.c.id == given("row"))
    .values(
        state=InboxState.RUNNING.value,
        turn_id=given("turn_id"),
        session_id=given("session_id"),
        settled_at=sa.null(),
    )
)
MARK_INBOX_DONE = (
    sa.update(inbox)
    .where(inbox.c.turn_id == given("turn"), state_is(inbox.c.state, InboxState.RUNNING))
    .values(state=InboxState.DONE.value, settled_at=given("settled_at"))
)
REPLACE_PAYLOAD = (
    sa.update(inbox)
    .where(inbox.c.id == given("row"), state_is(inbox.c.state, InboxState.WAITING, InboxState.HELD))
    .values(payload=given("payload"))
)
FORGET_IGNORED = sa.delete(inbox).where(
    inbox.c.seq.in_(
        sa.select(inbox.c.seq)
        .where(state_is(inbox.c.state, InboxState.IGNORED), inbox.c.received_at < given("before"))
        .limit(given("limit"))
    )
)

# --- writing: turns --------------------------------------------------------------------------

END_TURN = (
    sa.update(turns)
    .where(turns.c.id == given("turn"))
    # The changes of the end hold the text, so the checkpoint is not needed any more.
    .values(
        state=given("state"), finished_at=given("finished_at"), cause=given("cause"), partial=""
    )
)
SET_REQUEST = sa.update(turns).where(turns.c.id == given("turn")).values(request=given("request"))
RETRACT_TURN = sa.update(turns).where(turns.c.id == given("turn")).values(taken_back=sa.true())
CHECKPOINT = (
    sa.update(turns)
    .where(turns.c.id == given("turn"), state_is(turns.c.state, TurnState.RUNNING))
    .values(partial=given("partial"))
)
ADD_ATTEMPT = sa.insert(attempts).values(
    {name: given(name) for name in ("turn_id", "number", "target", "started_at")}
)
COUNT_ATTEMPT = (
    sa.update(turns).where(turns.c.id == given("turn")).values(attempts=given("attempts"))
)
END_ATTEMPT = (
    sa.update(attempts)
    .where(attempts.c.turn_id == given("turn"), attempts.c.number == given("attempt"))
    .values(_bind_columns(attempts, "turn_id", "number", "target", "started_at"))
)
END_TOOL = (
    sa.update(tool_runs)
    .where(tool_runs.c.turn_id == given("turn"), tool_runs.c.call_id == given("call"))
    .values(finished_at=given("finished_at"), ok=given("ok"), result=given("result"))
)

# --- writing: approvals ----------------------------------------------------------------------

ADD_APPROVAL = sa.insert(approvals).values(_bind_columns(approvals))
ANSWER_APPROVAL = (
    sa.update(approvals)
    .where(approvals.c.id == given("approval"), state_is(approvals.c.state, ApprovalState.OPEN))
    .values({name: given(name) for name in ("state", "answered_by", "answered_at", "reason")})
)
USE_APPROVAL = (
    sa.update(approvals)
    .where(approvals.c.id == given("approval"), state_is(approvals.c.state, ApprovalState.ALLOWED))
    .values(state=ApprovalState.USED.value)
)
APPROVAL_STATE = sa.select(approvals.c.state).where(approvals.c.id == given("approval"))

# --- writing: outbox -------------------------------------------------------------------------

SET_ITEM = (
    sa.update(outbox)
    .where(outbox.c.id == given("item"))
    .values(
        state=given("state"),
        settled_at=given("settled_at"),
        **{
            name: _keep_if_none(outbox.c[name])
            for name in ("shown", "tries", "not_before", "error")
        },
    )
)

# --- writing: budgets ------------------------------------------------------------------------

_BUDGET_COLUMNS = ("tokens", "cost", "held_tokens", "held_cost")
_budget = (budgets.c.day == given("of_day"), budgets.c.scope == given("of_scope"))
SETTLE_BUDGET = (
    sa.update(budgets)
    .where(*_budget)
    .values(
        {
            name: budgets.c[name] + given(f"more_{name}", type_=budgets.c[name].type)
            for name in _BUDGET_COLUMNS
        }
    )
)
FORGET_BUDGETS = sa.delete(budgets).where(budgets.c.day < given("before"))

# --- writing: values and numbers -------------------------------------------------------------

DELETE_VALUE = sa.delete(shelves).where(
    shelves.c.shelf == given("of"), shelves.c.name == given("called")
)
NEXT_SEQ_POSTGRESQL = sa.select(
    # The lock is held until the commit: numbers become visible in the order in which they were
    # given.
    sa.func.pg_advisory_xact_lock(_TIMELINE_LOCK),
    timeline.next_value(),
)
LAST_INBOX_SEQ = sa.select(sa.func.max(inbox.c.seq))
LAST_OUTBOX_SEQ = sa.select(sa.func.max(outbox.c.seq))


class Upserts:
    """INSERT ... ON CONFLICT statements, which need the dialect's own INSERT."""

    def __init__(self, insert: Callable[[sa.Table], Any]) -> None:
        self.add_inbox = (
            insert(inbox)
            .values(_bind_columns(inbox))
            .on_conflict_do_nothing(index_elements=["source", "event"])
            .execution_options(preserve_rowcount=True)
        )
        put = insert(turns).values(
            _bind_columns(
                turns, "finished_at", "attempts", "cause", "partial", "resumed", "taken_back"
            )
        )
        running = {
            "state": TurnState.RUNNING.value,
            "finished_at": sa.null(),
            "cause": sa.null(),
        }
        self.start_turn = put.on_conflict_do_update(
            index_elements=["id"], set_={**running, "resumed": turns.c.resumed + 1}
        )
        self.continue_turn = put.on_conflict_do_update(
            index_elements=["id"], set_={**running, "resumed": 0}
        )
        self.start_tool = (
            insert(tool_runs)
            .values(_bind_columns(tool_runs, "finished_at", "ok", "result"))
            .on_conflict_do_nothing(index_elements=["turn_id", "call_id"])
            .execution_options(preserve_rowcount=True)
        )
        put = insert(summaries).values(_bind_columns(summaries))
        new_values = {name: put.excluded[name] for name in ("upto", "text")}
        self.put_summary = put.on_conflict_do_update(index_elements=["session_id"], set_=new_values)
        put = insert(outbox).values(_bind_columns(outbox))
        # Not the fields of a delivery that may be in progress: shown, tries, not_before.
        names = ("body", "final", "state", "reply_to", "error", "settled_at")
        new_values = {name: put.excluded[name] for name in names}
        # A late live update must not replace the final content.
        self.put_item = put.on_conflict_do_update(
            index_elements=["id"], set_=new_values, where=outbox.c.final.is_(sa.false())
        )
        became_final = sa.case((outbox.c.final, outbox.c.seq), else_=put.excluded.seq)
        self.put_final_item = put.on_conflict_do_update(
            index_elements=["id"], set_={**new_values, "seq": became_final}
        )
        put = insert(budgets).values(_bind_columns(budgets))
        self.reserve_budget = put.on_conflict_do_update(
            index_elements=["day", "scope"],
            set_={name: budgets.c[name] + put.excluded[name] for name in _BUDGET_COLUMNS},
            # The row is locked before this check, so that two requests cannot both take the rest.
            where=sa.and_(
                *(
                    budgets.c[name] + put.excluded[name]
                    <= given(f"most_{name}", type_=budgets.c[name].type)
                    for name in ("tokens", "cost")
                )
            ),
        ).execution_options(preserve_rowcount=True)
        put = insert(shelves).values(_bind_columns(shelves))
        self.put_value = put.on_conflict_do_update(
            index_elements=["shelf", "name"], set_={"value": put.excluded.value}
        )


@functools.cache
def upserts_for(insert: Callable[[sa.Table], Any]) -> Upserts:
    """Return the statements of a dialect; building them takes 5 ms, so all stores share them."""
    return Upserts(insert)
