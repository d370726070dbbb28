"""Conversations that have gone on for long, written straight into a store."""

from collections.abc import Iterable
from pathlib import Path

from sessions.changes import AppendMessages, Change, EndTurn, OpenSession, StartTurn
from sessions.records import Message, TurnState
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock

_ASKED = "What about number {number}, which we said we would come back to some day?"
_SAID = "Number {number} is as it was before: nothing has changed, and nothing needs to be done."


async def seed(home: Path, chats: Iterable[int], messages: int) -> None:
    """Have private chats of Telegram with so many messages each."""
    clock = SystemClock()
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=clock)
    try:
        for chat in chats:
            await store.apply(*_conversation(chat, messages // 2, clock.now()))
    finally:
        await store.close()


def _conversation(chat: int, turns: int, now: int) -> list[Change]:
    key, session = f"telegram:{chat}", f"s_{chat}"
    address = Address("telegram", str(chat))
    changes: list[Change] = [OpenSession(session, key, address, now)]
    for number in range(turns):
        turn = f"t_{chat}_{number:05d}"
        asked = _ASKED.format(number=number)
        answer = Message("assistant", _SAID.format(number=number))
        changes += [
            StartTurn(
                id=turn,
                session_id=session,
                key=key,
                address=address,
                inbox=(),
                messages=(Message("user", asked),),
                request=asked,
                at=now,
            ),
            AppendMessages(session, turn, (answer,), now),
            EndTurn(turn, TurnState.DONE, now),
        ]
    return changes
