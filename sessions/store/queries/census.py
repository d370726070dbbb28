"""Counts of records, for monitoring."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.records import InboxState, ItemState, SessionState, StoreCounts
from sessions.store.schema import inbox, outbox, sessions
from sessions.store.statements import state_is


def _count_rows(table: sa.Table, *states: str) -> sa.Select[int]:
    found = sa.select(sa.func.count()).select_from(table)
    return found.where(state_is(table.c.state, *states)) if states else found


# All but the first are counted along a partial index.
_COUNTS = sa.select(
    _count_rows(sessions).scalar_subquery(),
    _count_rows(sessions, SessionState.ACTIVE).scalar_subquery(),
    _count_rows(sessions, SessionState.SUSPENDED).scalar_subquery(),
    _count_rows(inbox, InboxState.WAITING).scalar_subquery(),
    _count_rows(inbox, InboxState.HELD).scalar_subquery(),
    _count_rows(
        outbox, ItemState.PENDING, ItemState.ATTEMPTING, ItemState.UNKNOWN
    ).scalar_subquery(),
)


def count_records(connection: Connection) -> StoreCounts:
    """Count all records in one snapshot."""
    everything, active, suspended, waiting, held, to_show = connection.execute(_COUNTS).one()
    return StoreCounts(
        active=active,
        suspended=suspended,
        closed=everything - active - suspended,
        waiting=waiting,
        held=held,
        to_show=to_show,
    )
