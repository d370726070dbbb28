"""How much there is of what, for those who watch over the daemon."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sessions.records import Census, InboxState, ItemState, SessionState
from sessions.store.schema import inbox, outbox, sessions
from sessions.store.statements import state_is


def _number(table: sa.Table, *states: str) -> sa.Select[int]:
    found = sa.select(sa.func.count()).select_from(table)
    return found.where(state_is(table.c.state, *states)) if states else found


# All but the first are counted along an index that holds only such rows.
_CENSUS = sa.select(
    _number(sessions).scalar_subquery(),
    _number(sessions, SessionState.ACTIVE).scalar_subquery(),
    _number(sessions, SessionState.SUSPENDED).scalar_subquery(),
    _number(inbox, InboxState.WAITING).scalar_subquery(),
    _number(inbox, InboxState.HELD).scalar_subquery(),
    _number(outbox, ItemState.PENDING, ItemState.ATTEMPTING, ItemState.UNKNOWN).scalar_subquery(),
)


def taken(connection: Connection) -> Census:
    """Count everything at one moment."""
    everything, active, suspended, waiting, held, to_show = connection.execute(_CENSUS).one()
    return Census(active, suspended, everything - active - suspended, waiting, held, to_show)
