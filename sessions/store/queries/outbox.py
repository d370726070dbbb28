"""Queries for items to be shown."""

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import ItemState, OutboxItem
from sessions.store import schema
from sessions.store.queries.rows import ITEM_COLUMNS, forward_and_newest, read_item
from sessions.store.statements import state_is
from sessions.values.address import Address
from sessions.values.item_ids import answer_id, notice_id_range, side_answer_id

_ITEMS = sa.select(*ITEM_COLUMNS).order_by(schema.outbox.c.seq)
_OPEN_ITEMS = _ITEMS.where(
    state_is(schema.outbox.c.state, ItemState.PENDING, ItemState.ATTEMPTING, ItemState.UNKNOWN)
)
_ITEMS_OF_TURN = _ITEMS.where(
    schema.outbox.c.seq > given("after"), schema.outbox.c.turn_id == given("turn")
)
_ITEM_BY_ID = sa.select(*ITEM_COLUMNS).where(schema.outbox.c.id == given("item"))
# Ids that `gateway` derives from the answered message: answer and notices.
_ITEMS_BY_ORIGIN = _ITEMS.where(
    sa.or_(
        schema.outbox.c.id.in_([given("answer"), given("side_answer")]),
        sa.and_(
            schema.outbox.c.id >= given("first_notice"), schema.outbox.c.id < given("notices_end")
        ),
    )
)
_visible_in_chat: tuple[sa.ColumnElement[bool], ...] = (
    schema.outbox.c.address == given("address"),
    sa.literal_column("final"),  # as in the index
    schema.outbox.c.state != ItemState.DEAD.value,
)
_ITEMS_OF_CHAT = forward_and_newest(ITEM_COLUMNS, _visible_in_chat, schema.outbox.c.seq)
_ITEM_SEQS = forward_and_newest((schema.outbox.c.seq,), _visible_in_chat, schema.outbox.c.seq)
_ITEM_AT = sa.select(*ITEM_COLUMNS).where(schema.outbox.c.seq == given("seq"))


def undelivered_items(connection: Connection) -> tuple[OutboxItem, ...]:
    """Return the undelivered items, in order of creation."""
    return tuple(map(read_item, connection.execute(_OPEN_ITEMS)))


def items_of_turn(connection: Connection, turn_id: str, after: int) -> tuple[OutboxItem, ...]:
    """Return the items of a turn after the number of the answered entry."""
    found = {"turn": turn_id, "after": after}
    return tuple(map(read_item, connection.execute(_ITEMS_OF_TURN, found)))


def find_item(connection: Connection, id_: str) -> OutboxItem | None:
    """Return an item by id."""
    row = connection.execute(_ITEM_BY_ID, {"item": id_}).first()
    return read_item(row) if row else None


def items_answering(connection: Connection, origin: str) -> tuple[OutboxItem, ...]:
    """Return the items whose ids are derived from an inbox entry, see `stable_id`."""
    first, end = notice_id_range(origin)
    found = {
        "answer": answer_id(origin),
        "side_answer": side_answer_id(origin),
        "first_notice": first,
        "notices_end": end,
    }
    return tuple(map(read_item, connection.execute(_ITEMS_BY_ORIGIN, found)))


def items_of_chat(
    connection: Connection, address: Address, after: int, limit: int
) -> tuple[OutboxItem, ...]:
    """Return the first items of a chat after a number; after 0, the newest."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(map(read_item, connection.execute(_ITEMS_OF_CHAT[after == 0], found)))


def item_seqs(connection: Connection, address: Address, after: int, limit: int) -> tuple[int, ...]:
    """Return the numbers that `items_of_chat` would find, without reading the content."""
    found = {"address": address, "after": after, "limit": limit}
    return tuple(connection.scalars(_ITEM_SEQS[after == 0], found))


def item_at(connection: Connection, seq: int) -> tuple[OutboxItem, ...]:
    """Return the item with this number, if there is one."""
    return tuple(map(read_item, connection.execute(_ITEM_AT, {"seq": seq})))
