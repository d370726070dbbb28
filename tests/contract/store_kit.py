"""Short constructors for records of the store, and a way to damage a database file."""

import contextlib
import re
import sqlite3
from pathlib import Path

from sessions.changes import Change, EndTurn, OpenSession, StartTurn
from sessions.records import (
    Approval,
    ApprovalState,
    InboxEntry,
    InboxState,
    ItemKind,
    ItemState,
    Message,
    OutboxItem,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.address import Address

KEY = "telegram:1001"
ADDRESS = Address("telegram", "1001")


def entry(
    id_: str,
    *,
    key: str = KEY,
    address: Address = ADDRESS,
    state: InboxState = InboxState.WAITING,
    payload: bytes | None = b"{}",
    received_at: int = 1000,
    source: str = "telegram::1001",
) -> InboxEntry:
    return InboxEntry(
        id=id_,
        source=source,
        event=f"event of {id_}",
        key=key,
        address=address,
        state=state,
        payload=payload,
        received_at=received_at,
        decision="member",
    )


def opened(session: str, *, key: str = KEY, at: int = 1000) -> OpenSession:
    return OpenSession(session, key, ADDRESS, at)


def started(
    turn: str,
    session: str,
    *inbox: str,
    key: str = KEY,
    said: str = "hello",
    at: int = 2000,
    person: str = "",
) -> StartTurn:
    messages = (Message("user", said),) if said else ()
    return StartTurn(
        id=turn,
        session_id=session,
        key=key,
        address=ADDRESS,
        inbox=inbox,
        messages=messages,
        request=said,
        at=at,
        person=person,
    )


def ended(turn: str, state: TurnState = TurnState.DONE, *, at: int = 3000) -> EndTurn:
    return EndTurn(turn, state, at)


def question(
    id_: str,
    *,
    session: str = "s1",
    turn: str = "t1",
    key: str = KEY,
    tool: str = "pay",
    arguments: str = '{"amount": 1}',
    asked_at: int = 2100,
    state: ApprovalState = ApprovalState.OPEN,
) -> Approval:
    return Approval(
        id=id_,
        key=key,
        session_id=session,
        turn_id=turn,
        call_id=f"call of {id_}",
        tool=tool,
        arguments=arguments,
        person="telegram:7",
        by_requester=True,
        address=ADDRESS,
        asked_at=asked_at,
        expires_at=asked_at + 1_800_000,
        state=state,
    )


def item(
    id_: str,
    *,
    text: str = "an answer",
    state: ItemState = ItemState.PENDING,
    final: bool = True,
    turn: str | None = None,
    address: Address = ADDRESS,
) -> OutboxItem:
    return OutboxItem(
        id=id_,
        address=address,
        kind=ItemKind.ANSWER,
        state=state,
        body=text.encode(),
        created_at=2500,
        final=final,
        turn_id=turn,
    )


async def talk(store: SessionStore, session: str, turns: int, *, key: str = KEY) -> None:
    """Open a session with this many answered turns."""
    changes: list[Change] = [opened(session, key=key)]
    for number in range(turns):
        turn = f"t_{session}_{number:05d}"
        changes += [started(turn, session, key=key, said=f"question {number}"), ended(turn)]
    await store.apply(*changes)


def damage_tables(file: Path, *names: str) -> None:
    """Overwrite the root pages of tables or indexes while the database is in use.

    The small write makes other connections drop the pages that they have read before.
    """
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        found = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        roots = [connection.execute(found, (name,)).fetchone()[0] for name in names]
        with file.open("r+b") as raw:
            for root in roots:
                raw.seek((root - 1) * size)
                raw.write(b"\xff" * size)
        connection.execute("INSERT INTO shelves VALUES ('test', 'damaged', 'yes')")
        connection.commit()


OVERFLOW, LEAF = 0, 13
"""First byte of a page: overflow pages begin with a page number, which is small here."""


def damage(file: Path, near: bytes, *, kind: int = OVERFLOW) -> None:
    """Overwrite the pages of a kind that contain this text."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    raw = bytearray(file.read_bytes())
    places = {found.start() // size * size for found in re.finditer(re.escape(near), raw)}
    for place in places:
        if raw[place] == kind:
            raw[place : place + size] = b"\xff" * size
    file.write_bytes(raw)
