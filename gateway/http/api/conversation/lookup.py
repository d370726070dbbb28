"""Reader of the stored facts from which `choice` chooses the conversation of a request."""

from msgspec.structs import replace

from gateway.access.api_keys import Requester
from gateway.http.api.answers import StoredAnswer, StoredAnswers
from gateway.http.api.asked import ApiRequest
from gateway.http.api.conversation.choice import (
    PREVIOUS_PARAM,
    AnswerFacts,
    Destination,
    SessionFacts,
    continue_answer,
    continue_session,
    continued_calls,
    key_of,
    session_to_read,
    source_at,
)
from gateway.http.api.conversation.client_results import reopen_calls, result_ids, rows_up_to
from gateway.http.api.conversation.named_session import NamedSession
from gateway.http.api.failures import invalid_request
from platforms.core.contract import Address
from sessions.store.store import SessionStore


class ConversationLookup:
    """Finds the conversation of a request in the store."""

    def __init__(self, store: SessionStore, stored_answers: StoredAnswers) -> None:
        self._store = store
        self._answers = stored_answers

    async def find_previous(
        self, request: ApiRequest, requester: Requester, session: NamedSession
    ) -> StoredAnswer | None:
        """Return the answer that a request continues, if any; raises `RequestRefused`.

        Results of client tools continue the answer that contains their calls, even if the request
        brings its whole history.
        """
        calls = continued_calls(request, session)
        if request.previous_id:
            return await self._find_ended(request.previous_id, requester)
        for call_id in calls:
            if found := await self._answers.find_by_call(call_id, requester):
                return found
        return None

    async def after_answer(
        self, request: ApiRequest, previous: StoredAnswer, fresh: Address, repeated_event: str
    ) -> Destination:
        """Return the conversation that continues an answer.

        `repeated_event` is the event id of a request with an Idempotency-Key.
        """
        facts = AnswerFacts(
            address=previous.address,
            turn=previous.turn,
            waiting_calls=previous.client_call_ids,
            is_newest=await self._is_newest(previous),
            is_repeat=await self._is_stored(previous.address, repeated_event),
        )
        chosen = continue_answer(request, facts, fresh)
        if (turn := chosen.branches_off) is None:
            return chosen
        rows = await self._store.sessions.history_up_to(turn.session_id, turn.id)
        return replace(
            chosen,
            rows=reopen_calls(
                rows_up_to(rows, previous.client_call_ids), result_ids(chosen.messages)
            ),
        )

    async def in_session(
        self, request: ApiRequest, session: NamedSession, address: Address, repeated_event: str
    ) -> Destination | None:
        """Return the named session, or None if it was a hint and the histories differ."""
        stored = await self._store.conversation(key_of(address))
        is_repeat = await self._is_stored(address, repeated_event)
        read = None if is_repeat else session_to_read(request, session, stored)
        facts = SessionFacts(
            address=address,
            stored=stored,
            history=await self._store.sessions.history(read.id) if read else (),
            is_repeat=is_repeat,
        )
        return continue_session(request, session, facts)

    async def _find_ended(self, answer_id: str, requester: Requester) -> StoredAnswer:
        found = await self._answers.find(answer_id, requester)
        if found is None:
            msg = f"Previous response with id '{answer_id[:80]}' not found."
            raise invalid_request(msg, PREVIOUS_PARAM, "previous_response_not_found")
        if found.end is None:
            msg = "The previous response is still in progress; try again when it has ended."
            raise invalid_request(msg, PREVIOUS_PARAM, "previous_response_in_progress")
        return found

    async def _is_stored(self, address: Address, event: str) -> bool:
        if not event:
            return False
        return await self._store.inbox.find(source_at(address), event) is not None

    async def _is_newest(self, previous: StoredAnswer) -> bool:
        """Return True if nothing was added to the conversation since the answer."""
        stored, turn = await self._store.conversation(key_of(previous.address)), previous.turn
        if stored.waiting or stored.running or stored.newest is None or turn is None:
            return False
        if previous.went_on or stored.newest.id != turn.session_id:
            return False
        last = await self._store.turns.last(turn.session_id)
        return last == turn  # also not continued since the answer was read
