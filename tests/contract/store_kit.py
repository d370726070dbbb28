"""Short ways to write what the store keeps."""

from sessions.changes import Change, EndTurn, OpenSession, StartTurn
from sessions.records import InboxEntry, InboxState, Item, ItemState, Message, TurnState
from sessions.store import SessionStore

KEY = "telegram:1001"
ADDRESS = "telegram/1001"


def entry(
    id_: str,
    *,
    key: str = KEY,
    address: str = ADDRESS,
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
) -> StartTurn:
    messages = (Message("user", said),) if said else ()
    return StartTurn(turn, session, key, ADDRESS, inbox, messages, said, at)


def ended(turn: str, state: TurnState = TurnState.DONE, *, at: int = 3000) -> EndTurn:
    return EndTurn(turn, state, at)


def item(
    id_: str,
    *,
    text: str = "an answer",
    state: ItemState = ItemState.PENDING,
    final: bool = True,
    turn: str | None = None,
    address: str = ADDRESS,
) -> Item:
    return Item(
        id=id_,
        address=address,
        kind="answer",
        state=state,
        body=text.encode(),
        created_at=2500,
        final=final,
        turn_id=turn,
    )


async def talk(store: SessionStore, session: str, turns: int, *, key: str = KEY) -> None:
    """Open a session in which so many turns were answered."""
    changes: list[Change] = [opened(session, key=key)]
    for number in range(turns):
        turn = f"t_{session}_{number:05d}"
        changes += [started(turn, session, key=key, said=f"question {number}"), ended(turn)]
    await store.apply(*changes)
