"""Answers that lie in the store: found by their ids, told once more, forgotten.

An answer is called after the inbox row that asked for it. What is known of it lies where every
turn leaves it (row, turn, outbox); only that it was forgotten is a note of its own.
"""

import re

import msgspec

from agent.events import TurnDone, TurnEnding
from agent.model.usage import Usage
from gateway.delivery.view import read_body
from gateway.http.api.failures import HttpFailure, RequestRefused
from gateway.inbound.reader import read_event
from gateway.inbound.request_options import RequestOptions, decode_options
from gateway.turns.answer import CAPPED
from gateway.turns.feed_events import FeedEnd, FeedOutcome
from platforms.core.contract import Address, InboundMessage
from sessions.records import InboxEntry, InboxState, OutboxItem, SessionReason, Turn, TurnState
from sessions.store.store import SessionStore
from sessions.values.notices import NoticeId

OPEN_STATES = {InboxState.WAITING, InboxState.RUNNING}
DELETED_ANSWERS = "api.forgotten"
"""Answers that somebody has had deleted, by the inbox rows that asked for them."""

_RESPONSE_ID = re.compile(r"resp_([0-9a-z]{1,40})")
_ANSWER, _NOTICE = "answer", "notice"
_NOTICES = {notice.value: notice for notice in NoticeId}
_END_BY_TURN_STATE = {
    TurnState.DONE: FeedOutcome.ANSWERED,
    TurnState.FAILED: FeedOutcome.FAILED,
    TurnState.STOPPED: FeedOutcome.STOPPED,
    TurnState.INTERRUPTED: FeedOutcome.INTERRUPTED,
}
_END_WITHOUT_TURN = {InboxState.REFUSED: FeedOutcome.REFUSED}


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and what came of it as far as it is stored."""

    id: str
    entry: InboxEntry
    message: InboundMessage
    options: RequestOptions
    turn: Turn | None
    text: str = ""
    end: FeedEnd | None = None  # None: it is not over

    @property
    def address(self) -> Address:
        """Where it was asked."""
        return self.message.address


class StoredAnswers:
    """Reads answers out of the store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def find(self, answer_id: str, *, include_running: bool = False) -> StoredAnswer | None:
        """Find an answer that was to be kept; `running`: also one that was not, while it runs."""
        known = _RESPONSE_ID.fullmatch(answer_id)
        entry = await self._store.inbox.get(f"i_{known[1]}") if known else None
        if entry is None or not entry.payload:
            return None
        asked = read_event(entry)
        if not isinstance(asked, InboundMessage) or not asked.wishes:
            return None
        wishes = decode_options(asked.wishes)
        listed = wishes.kept or (include_running and entry.state in OPEN_STATES)
        if not listed or await self.is_deleted(entry):
            return None
        turn = await self._find_turn(entry)
        if turn and await self._is_session_deleted(turn):
            return None
        text, end = await self.read_ending(entry, turn)
        return StoredAnswer(
            id=answer_id, entry=entry, message=asked, options=wishes, turn=turn, text=text, end=end
        )

    async def get(self, answer_id: str) -> StoredAnswer:
        """Find an answer; raises `Refused` when there is none."""
        found = await self.find(answer_id)
        if found is None:
            raise response_not_found(answer_id)
        return found

    async def refresh(self, answer: StoredAnswer) -> StoredAnswer:
        """Look at it once more."""
        entry = await self._store.inbox.get(answer.entry.id) or answer.entry
        turn = await self._find_turn(entry)
        text, end = await self.read_ending(entry, turn)
        return msgspec.structs.replace(answer, entry=entry, turn=turn, text=text, end=end)

    async def read_ending(self, entry: InboxEntry, turn: Turn | None) -> tuple[str, FeedEnd | None]:
        """Read what was said, and how it ended; no end: it goes on."""
        if entry.state in OPEN_STATES:
            return "", None
        if turn is None:
            return "", FeedEnd(_END_WITHOUT_TURN.get(entry.state, FeedOutcome.STOPPED))
        over = _END_BY_TURN_STATE.get(turn.state)
        if over is None:
            return "", None
        items = await self._store.outbox.of_turn(turn.id)
        text = next((read_body(item).text for item in items if item.kind == _ANSWER), "")
        spent = await self._store.spending.totals(turn_id=turn.id)
        usage = Usage(spent.input_tokens, spent.output_tokens, spent.cached_tokens)
        done = TurnDone(
            ending=TurnEnding.ANSWERED if over is FeedOutcome.ANSWERED else TurnEnding.FAILED,
            text=text,
            cause=turn.cause or "",
            usage=usage,
            notice=_last_notice(items),
            last_verdict="capped" if over is FeedOutcome.ANSWERED and turn.cause == CAPPED else "",
        )
        return text, FeedEnd(over, done, turn.cause or "")

    async def is_deleted(self, entry: InboxEntry) -> bool:
        """Whether somebody has had it deleted."""
        return await self._store.get_value(DELETED_ANSWERS, entry.id) is not None

    async def mark_deleted(self, answer: StoredAnswer, now: int) -> None:
        """Give it to nobody any more."""
        await self._store.put_value(DELETED_ANSWERS, answer.entry.id, str(now))

    async def are_all_deleted(self, session_id: str) -> bool:
        """Whether of all that was answered in a session nothing is to be found any more."""
        for turn in await self._store.turns.of_session(session_id):
            for entry in await self._store.inbox.of_turn(turn.id):
                if not await self.is_deleted(entry):
                    return False
        return True

    async def _find_turn(self, entry: InboxEntry) -> Turn | None:
        return await self._store.turns.get(entry.turn_id) if entry.turn_id else None

    async def _is_session_deleted(self, turn: Turn) -> bool:
        session = await self._store.sessions.get(turn.session_id)
        return session is None or session.reason is SessionReason.DELETED


def response_id(entry: InboxEntry) -> str:
    """Name the answer to something that was received."""
    return f"resp_{entry.id.partition('_')[2]}"


def response_not_found(answer_id: str) -> RequestRefused:
    """Refuse an id under which nothing is kept."""
    message = f"There is no response “{answer_id[:80]}” here, or not any more."
    return RequestRefused(HttpFailure(status=404, message=message, code="response_not_found"))


def _last_notice(items: tuple[OutboxItem, ...]) -> NoticeId:
    """Return the notice that ended a failed turn; it is the suffix of the item's id."""
    names = [item.id.partition(".")[2] for item in items if item.kind == _NOTICE]
    known = (_NOTICES[name] for name in reversed(names) if name in _NOTICES)
    return next(known, NoticeId.TURN_FAILED)
