"""What is to be shown."""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import Item, ItemState
from sessions.store import schema
from sessions.store.queries.rows import ITEM, both_ways, read_item
from sessions.store.statements import state_is

_ITEMS = sa.select(*ITEM).order_by(schema.outbox.c.seq)
_OPEN_ITEMS = _ITEMS.where(
    state_is(schema.outbox.c.state, ItemState.PENDING, ItemState.ATTEMPTING, ItemState.UNKNOWN)
)
_ITEMS_OF_TURN = _ITEMS.where(
    schema.outbox.c.seq > given("after"), schema.outbox.c.turn_id == given("turn")
)
_ITEM_BY_ID = sa.select(*ITEM).where(schema.outbox.c.id == given("item"))
# Names that `gateway` makes of what something answers: the answer itself, its notices.
_NAMED = _ITEMS.where(
    sa.or_(
        schema.outbox.c.id.in_([given("answer"), given("aside")]),
        sa.and_(schema.outbox.c.id >= given("notices"), schema.outbox.c.id < given("behind")),
    )
)
_shown: tuple[sa.ColumnElement[bool], ...] = (
    schema.outbox.c.address == given("address"),
    sa.literal_column("final"),  # as in the index
    schema.outbox.c.state != ItemState.DEAD.value,
)
_SHOWN = both_ways(ITEM, _shown, schema.outbox.c.seq)
_SHOWN_PLACES = both_ways((schema.outbox.c.seq,), _shown, schema.outbox.c.seq)
_ITEM_AT = sa.select(*ITEM).where(schema.outbox.c.seq == given("seq"))


def undelivered(connection: Connection) -> tuple[Item, ...]:
    """List what is not delivered yet, in the order in which it was put."""
    return tuple(map(read_item, connection.execute(_OPEN_ITEMS)))


def of_turn(connection: Connection, turn_id: str, after: int) -> tuple[Item, ...]:
    """List what a turn wants to be shown; `after`: the number of what it answers."""
    found = {"turn": turn_id, "after": after}
    return tuple(map(read_item, connection.execute(_ITEMS_OF_TURN, found)))


def item(connection: Connection, id_: str) -> Item | None:
    """Find an item."""
    row = connection.execute(_ITEM_BY_ID, {"item": id_}).first()
    return read_item(row) if row else None


def answering(connection: Connection, origin: str) -> tuple[Item, ...]:
    """List what is named after something received, see `sessions.values.ids.made_of`."""
    found = {
        "answer": f"a_{origin}",
        "aside": f"b_{origin}",
        "notices": f"n_{origin}.",
        "behind": f"n_{origin}/",
    }
    return tuple(map(read_item, connection.execute(_NAMED, found)))


def shown(connection: Connection, address: str, after: int, limit: int) -> tuple[Item, ...]:
    """List what a chat shows after a number, the first of it; after 0, the newest."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(map(read_item, connection.execute(_SHOWN[after == 0], found)))


def places_shown(connection: Connection, address: str, after: int, limit: int) -> tuple[int, ...]:
    """List the numbers of what `shown` gives, without a look at the texts."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(connection.scalars(_SHOWN_PLACES[after == 0], found))


def at(connection: Connection, seq: int) -> tuple[Item, ...]:
    """Read what has this number."""
    return tuple(map(read_item, connection.execute(_ITEM_AT, {"seq": seq})))
