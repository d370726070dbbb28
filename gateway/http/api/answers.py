"""Stored answers of the API: lookup by id, replay and deletion.

The id of an answer is derived from the inbox row of its request. The content comes from the rows
that every turn leaves (inbox, turn, outbox); only a deletion is recorded separately.
"""

import re
from typing import get_args

import msgspec

from agent.client_calls import turn_of_call
from agent.events import TurnDone, TurnEnding, VerdictName
from agent.model.usage import Usage
from gateway.access.api_keys import Requester
from gateway.delivery.view import read_body
from gateway.http.api.failures import HttpFailure, RequestRefused
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.request_options import RequestOptions, decode_options
from gateway.turns.answer import CAPPED, HANDED_TO_CLIENT
from gateway.turns.feed_events import FeedEnd, FeedOutcome
from platforms.core.contract import Address, InboundMessage
from sessions.records import (
    InboxEntry,
    InboxState,
    ItemKind,
    OutboxItem,
    SessionReason,
    ToolCall,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.ids import unique_part
from sessions.values.item_ids import ItemId
from sessions.values.notices import FailureNotice, NoticeId

OPEN_STATES = {InboxState.WAITING, InboxState.RUNNING}
DELETED_ANSWERS = "api.forgotten"
"""Shelf of deleted answers, keyed by the inbox row of the request."""

_RESPONSE_ID = re.compile(r"resp_([0-9a-z]{1,40})")
_FAILURE_NOTICES: dict[NoticeId | None, FailureNotice] = {
    notice: notice for notice in get_args(FailureNotice)
}
_END_BY_TURN_STATE = {
    TurnState.DONE: FeedOutcome.ANSWERED,
    TurnState.FAILED: FeedOutcome.FAILED,
    TurnState.STOPPED: FeedOutcome.STOPPED,
    TurnState.INTERRUPTED: FeedOutcome.INTERRUPTED,
}
_END_WITHOUT_TURN = {InboxState.REFUSED: FeedOutcome.REFUSED}


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its answer, as far as they are stored."""

    id: str
    entry: InboxEntry
    message: InboundMessage
    options: RequestOptions
    turn: Turn | None
    text: str = ""
    end: FeedEnd | None = None  # None while the turn runs
    went_on: bool = False  # the turn went on with results of the client's tools

    @property
    def address(self) -> Address:
        """Address of the conversation."""
        return self.message.address

    @property
    def client_call_ids(self) -> frozenset[str]:
        """Ids of the calls of client tools with which the answer ended."""
        done = self.end.done if self.end else None
        return frozenset(call.id for call in done.client_calls) if done else frozenset()


class _TurnPart(msgspec.Struct, frozen=True):
    """The part of a turn that belongs to one request.

    A turn has several parts if it goes on with results of the client's tools; each part but the last
    ended with calls.
    """

    turn: Turn
    number: int  # from 0
    count: int
    next_request: InboxEntry | None


class StoredAnswers:
    """Reader of answers in the store."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def find(
        self, answer_id: str, requester: Requester, *, include_running: bool = False
    ) -> StoredAnswer | None:
        """Return a retrievable answer to a request with the same API key.

        With `include_running`, also return any answer still in progress.
        """
        known = _RESPONSE_ID.fullmatch(answer_id)
        entry = await self._store.inbox.get(f"i_{known[1]}") if known else None
        if entry is None or not entry.payload:
            return None
        asked = read_event(entry)
        if not isinstance(asked, InboundMessage) or not asked.wishes:
            return None
        if asked.sender.id != requester.sender_id:
            return None
        wishes = decode_options(asked.wishes)
        listed = wishes.kept or (include_running and entry.state in OPEN_STATES)
        if not listed or await self.is_deleted(entry):
            return None
        turn = await self._find_turn(entry)
        if turn and await self._is_session_deleted(turn):
            return None
        return await self._read(entry, asked, turn)

    async def get(self, answer_id: str, requester: Requester) -> StoredAnswer:
        """Return an answer like `find`; raises `RequestRefused` if there is none."""
        found = await self.find(answer_id, requester)
        if found is None:
            raise response_not_found(answer_id)
        return found

    async def refresh(self, answer: StoredAnswer) -> StoredAnswer:
        """Read an answer again."""
        entry = await self._store.inbox.get(answer.entry.id) or answer.entry
        return await self._read(entry, answer.message, await self._find_turn(entry))

    async def _read(
        self, entry: InboxEntry, asked: InboundMessage, turn: Turn | None
    ) -> StoredAnswer:
        part = await self._find_part(entry, turn) if turn else None
        text, end = await self._read_ending(entry, part)
        return StoredAnswer(
            id=response_id(entry),
            entry=entry,
            message=asked,
            options=decode_options(asked.wishes),
            turn=turn,
            text=text,
            end=end,
            went_on=part is not None and part.next_request is not None,
        )

    async def read_ending(self, entry: InboxEntry, turn: Turn | None) -> tuple[str, FeedEnd | None]:
        """Return the text and the end of an answer; the end is None while it is written."""
        return await self._read_ending(entry, await self._find_part(entry, turn) if turn else None)

    async def _find_part(self, entry: InboxEntry, turn: Turn) -> _TurnPart:
        entries = await self._store.inbox.of_turn(turn.id)
        number = next((at for at, each in enumerate(entries) if each.id == entry.id), 0)
        following = entries[number + 1 : number + 2]
        return _TurnPart(turn, number, len(entries), following[0] if following else None)

    async def _read_ending(
        self, entry: InboxEntry, part: _TurnPart | None
    ) -> tuple[str, FeedEnd | None]:
        if entry.state in OPEN_STATES:
            return "", None
        if part is None:
            return "", FeedEnd(_END_WITHOUT_TURN.get(entry.state, FeedOutcome.STOPPED))
        turn = part.turn
        over, cause = _END_BY_TURN_STATE.get(turn.state), turn.cause or ""
        if part.next_request:
            over, cause = FeedOutcome.ANSWERED, HANDED_TO_CLIENT
        if over is None:
            return "", None
        items = await self._store.outbox.of_turn(turn.id)
        if part.count > 1:
            origin = origin_of(entry)
            items = tuple(item for item in items if _origin_of_item(item) == origin)
        text = next((read_body(item).text for item in items if item.kind is ItemKind.ANSWER), "")
        capped = over is FeedOutcome.ANSWERED and cause == CAPPED
        handed = await self._client_calls(turn) if cause == HANDED_TO_CLIENT else []
        done = TurnDone(
            ending=TurnEnding.ANSWERED if over is FeedOutcome.ANSWERED else TurnEnding.FAILED,
            text=text,
            cause=cause,
            usage=await self._usage(entry, part),
            notice=_last_notice(items),
            last_verdict=VerdictName.CAPPED if capped else None,
            client_calls=handed[part.number] if part.number < len(handed) else (),
        )
        return text, FeedEnd(over, done, cause)

    async def _usage(self, entry: InboxEntry, part: _TurnPart) -> Usage:
        """Return the tokens of the model requests for one answer."""
        later = part.next_request
        spent = await self._store.spending.totals(
            turn_id=part.turn.id,
            requests_from=entry.received_at if part.number else None,
            requests_before=later.received_at if later else None,
        )
        return Usage(spent.input_tokens, spent.output_tokens, spent.cached_tokens)

    async def find_by_call(self, call_id: str, requester: Requester) -> StoredAnswer | None:
        """Return the answer that ended with this call of a client's tool.

        Only answers to requests with the same API key are found.
        """
        turn_id = turn_of_call(call_id)
        turn = await self._store.turns.get(turn_id) if turn_id else None
        if turn is None or await self._is_session_deleted(turn):
            return None
        handed = await self._client_calls(turn)
        entries = await self._store.inbox.of_turn(turn.id)
        for entry, calls in zip(entries, handed, strict=False):
            if call_id not in {call.id for call in calls}:
                continue
            asked = read_event(entry) if entry.payload else None
            if not isinstance(asked, InboundMessage) or not asked.wishes:
                return None
            own = asked.sender.id == requester.sender_id
            return await self._read(entry, asked, turn) if own else None
        return None

    async def _client_calls(self, turn: Turn) -> list[tuple[ToolCall, ...]]:
        """Return the calls of client tools in a turn, by the parts that they ended."""
        rows = await self._store.sessions.history_up_to(turn.session_id, turn.id)
        calls = (
            tuple(call for call in row.tool_calls if turn_of_call(call.id) == turn.id)
            for row in rows
        )
        return list(filter(None, calls))

    async def is_deleted(self, entry: InboxEntry) -> bool:
        """Return True if the answer to this inbox row was deleted."""
        return await self._store.get_value(DELETED_ANSWERS, entry.id) is not None

    async def mark_deleted(self, answer: StoredAnswer, now: int) -> None:
        """Record the deletion of an answer; `find` then no longer returns it."""
        await self._store.put_value(DELETED_ANSWERS, answer.entry.id, str(now))

    async def are_all_deleted(self, session_id: str) -> bool:
        """Return True if every answer of a session was deleted."""
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
    """Return the answer id of an inbox row."""
    return f"resp_{unique_part(entry.id)}"


def response_not_found(answer_id: str) -> RequestRefused:
    """Return the refusal of an id without a stored answer."""
    message = f"There is no response “{answer_id[:80]}”, or it was deleted."
    return RequestRefused(HttpFailure(status=404, message=message, code="response_not_found"))


def _origin_of_item(item: OutboxItem) -> str:
    parsed = ItemId.parse(item.id)
    return parsed.origin if parsed else ""


def _last_notice(items: tuple[OutboxItem, ...]) -> FailureNotice:
    """Return the notice that ended a failed turn."""
    ids = (ItemId.parse(item.id) for item in reversed(items) if item.kind is ItemKind.NOTICE)
    known = (_FAILURE_NOTICES.get(id_.notice) for id_ in ids if id_)
    return next(filter(None, known), NoticeId.TURN_FAILED)
