"""Answers that lie in the store: found by their ids, told once more, forgotten.

An answer is called after the inbox row that asked for it. What is known of it lies where every
turn leaves it (row, turn, outbox); only that it was forgotten is a note of its own.
"""

import re

import msgspec

from agent.events import Ending, TurnDone
from agent.model.usage import Usage
from gateway.delivery.view import read_body
from gateway.http.api.failures import Failure, Refused
from gateway.inbound.reader import read_event
from gateway.inbound.request_options import Wishes, read_wishes
from gateway.turns.answer import CAPPED
from gateway.turns.news import End, Over
from platforms.core.contract import Address, InboundMessage
from sessions.records import InboxEntry, InboxState, Item, Reason, Turn, TurnState
from sessions.store.store import SessionStore

OPEN = {InboxState.WAITING, InboxState.RUNNING}
SHELF = "api.forgotten"
"""Answers that somebody has had deleted, by the inbox rows that asked for them."""

_ID = re.compile(r"resp_([0-9a-z]{1,40})")
_ANSWER, _NOTICE = "answer", "notice"
_OVER = {
    TurnState.DONE: Over.ANSWERED,
    TurnState.FAILED: Over.FAILED,
    TurnState.STOPPED: Over.STOPPED,
    TurnState.INTERRUPTED: Over.INTERRUPTED,
}
_NO_TURN = {InboxState.REFUSED: Over.REFUSED}


class Kept(msgspec.Struct, frozen=True):
    """What was asked, and what came of it as far as it is stored."""

    id: str
    entry: InboxEntry
    asked: InboundMessage
    wishes: Wishes
    turn: Turn | None
    text: str = ""
    end: End | None = None  # None: it is not over

    @property
    def place(self) -> Address:
        """Where it was asked."""
        return self.asked.address


class KeptAnswers:
    """Reads answers out of the store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def find(self, answer_id: str, *, running: bool = False) -> Kept | None:
        """Find an answer that was to be kept; `running`: also one that was not, while it runs."""
        known = _ID.fullmatch(answer_id)
        entry = await self._store.received(f"i_{known[1]}") if known else None
        if entry is None or not entry.payload:
            return None
        asked = read_event(entry)
        if not isinstance(asked, InboundMessage) or not asked.wishes:
            return None
        wishes = read_wishes(asked.wishes)
        listed = wishes.kept or (running and entry.state in OPEN)
        if not listed or await self.is_forgotten(entry):
            return None
        turn = await self._turn_of(entry)
        if turn and await self._is_deleted(turn):
            return None
        text, end = await self.ending(entry, turn)
        return Kept(answer_id, entry, asked, wishes, turn, text, end)

    async def get(self, answer_id: str) -> Kept:
        """Find an answer; raises `Refused` when there is none."""
        found = await self.find(answer_id)
        if found is None:
            raise unknown(answer_id)
        return found

    async def again(self, kept: Kept) -> Kept:
        """Look at it once more."""
        entry = await self._store.received(kept.entry.id) or kept.entry
        turn = await self._turn_of(entry)
        text, end = await self.ending(entry, turn)
        return msgspec.structs.replace(kept, entry=entry, turn=turn, text=text, end=end)

    async def ending(self, entry: InboxEntry, turn: Turn | None) -> tuple[str, End | None]:
        """Read what was said, and how it ended; no end: it goes on."""
        if entry.state in OPEN:
            return "", None
        if turn is None:
            return "", End(_NO_TURN.get(entry.state, Over.STOPPED))
        over = _OVER.get(turn.state)
        if over is None:
            return "", None
        items = await self._store.turn_items(turn.id)
        text = next((read_body(item).text for item in items if item.kind == _ANSWER), "")
        spent = await self._store.spent(turn_id=turn.id)
        usage = Usage(spent.input_tokens, spent.output_tokens, spent.cached_tokens)
        done = TurnDone(
            Ending.ANSWERED if over is Over.ANSWERED else Ending.FAILED,
            text,
            turn.cause or "",
            usage=usage,
            notice=_last_notice(items),
            last="capped" if over is Over.ANSWERED and turn.cause == CAPPED else "",
        )
        return text, End(over, done, turn.cause or "")

    async def is_forgotten(self, entry: InboxEntry) -> bool:
        """Whether somebody has had it deleted."""
        return await self._store.get_value(SHELF, entry.id) is not None

    async def forget(self, kept: Kept, now: int) -> None:
        """Give it to nobody any more."""
        await self._store.put_value(SHELF, kept.entry.id, str(now))

    async def are_forgotten(self, session_id: str) -> bool:
        """Whether of all that was answered in a session nothing is to be found any more."""
        for turn in await self._store.turns(session_id):
            for entry in await self._store.turn_inbox(turn.id):
                if not await self.is_forgotten(entry):
                    return False
        return True

    async def _turn_of(self, entry: InboxEntry) -> Turn | None:
        return await self._store.turn(entry.turn_id) if entry.turn_id else None

    async def _is_deleted(self, turn: Turn) -> bool:
        session = await self._store.session(turn.session_id)
        return session is None or session.reason is Reason.DELETED


def answer_id(entry: InboxEntry) -> str:
    """Name the answer to something that was received."""
    return f"resp_{entry.id.partition('_')[2]}"


def unknown(answer_id: str) -> Refused:
    """Refuse an id under which nothing is kept."""
    message = f"There is no response “{answer_id[:80]}” here, or not any more."
    return Refused(Failure(status=404, message=message, code="response_not_found"))


def _last_notice(items: tuple[Item, ...]) -> str:
    """Which notice ended a turn that failed: it is called after the origin and its own name."""
    names = [item.id.partition(".")[2] for item in items if item.kind == _NOTICE]
    return next((name for name in reversed(names) if name), "")
