"""Sans-IO: choice of the conversation that a request continues, and of the history that goes along.

`lookup` reads the stored facts. A request can name an answer, a session, or nothing; results of
client tools name the answer that contains their calls.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from agent.client_calls import turn_of_call
from gateway.access.api_keys import is_generated
from gateway.http.api.asked import ApiRequest, RequestMessage
from gateway.http.api.conversation.client_results import complete_messages, new_messages, result_ids
from gateway.http.api.conversation.named_session import SESSION_HEADER, NamedSession, agrees
from gateway.http.api.failures import invalid_request
from gateway.turns.answer import client_calls_in
from platforms.core.contract import Address
from sessions.key import SessionKey
from sessions.records import ConversationSnapshot, Message, Session, SessionReason, Turn

PREVIOUS_PARAM = "previous_response_id"
_RESUMABLE_REASONS = {SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK}


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a request, and the history that goes along."""

    address: Address
    messages: Sequence[RequestMessage]  # to add; the last one is to be answered
    single_turn: bool = False  # as in `gateway.inbound.request_options.RequestOptions`
    session_state: str = ""  # "new", "continued" or "resumed"; empty without a session
    rows: tuple[Message, ...] = ()  # history of the conversation from which this one branches
    after: str = ""  # id of the session to continue
    turn: str = ""  # id of its turn to continue, whose calls the messages bring results of
    branches_off: Turn | None = None  # turn up to which `rows` are still to be read

    @property
    def source(self) -> str:
        """See `gateway.inbound.reception.source_of`."""
        return source_at(self.address)

    @property
    def key(self) -> str:
        """Session key of the conversation."""
        return key_of(self.address)


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Stored facts about the answer that a request continues."""

    address: Address
    turn: Turn | None
    waiting_calls: frozenset[str] = frozenset()  # calls with which the answer ended
    is_newest: bool = False  # nothing was added to its conversation since
    is_repeat: bool = False  # this request, with its Idempotency-Key, is stored there


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Stored facts about the session that a request names."""

    address: Address
    stored: ConversationSnapshot = ConversationSnapshot()
    history: tuple[Message, ...] = ()  # of `session_to_read`
    is_repeat: bool = False  # as in `AnswerFacts`


def key_of(address: Address) -> str:
    """Return the session key of an API conversation."""
    return str(SessionKey(platform=address.platform, chat=address.chat))


def source_at(address: Address) -> str:
    """Return the source of messages at an address; see `gateway.inbound.reception.source_of`."""
    return f"{address.platform}@{address.account}:{address.chat}"


def continued_calls(request: ApiRequest, session: NamedSession) -> tuple[str, ...]:
    """Return calls of client tools, one of which may belong to the answer that a request continues.

    Empty if the request names its conversation; raises `RequestRefused` if it names two.
    """
    is_named = bool(session.name) and not session.is_hint
    if request.previous_id and is_named:
        msg = f"{SESSION_HEADER} and {PREVIOUS_PARAM} both name a conversation; send only one."
        raise invalid_request(msg, PREVIOUS_PARAM)
    if request.previous_id or is_named:
        return ()
    return result_ids(new_messages(request.messages))


def own_conversation(request: ApiRequest, fresh: Address) -> Destination:
    """Return the destination of a request whose messages are the whole conversation."""
    whole = complete_messages(request.messages)
    return Destination(address=fresh, single_turn=True, messages=whole)


def continue_answer(request: ApiRequest, facts: AnswerFacts, fresh: Address) -> Destination:
    """Return the conversation that continues an answer.

    A request branches off into the new conversation `fresh` if the answer is no longer the newest
    one or if nothing is to be stored. A repeat of a request that continued in place finds its row
    there again.
    """
    by_calls = not request.previous_id
    new = new_messages(request.messages) if by_calls else request.messages
    messages = complete_messages(new, facts.waiting_calls)
    there = Destination(
        address=facts.address,
        single_turn=is_generated(facts.address.chat),
        messages=messages,
    )
    if facts.is_repeat:
        return there
    in_place = (request.retrievable or by_calls) and facts.is_newest
    if in_place and facts.turn:
        brings_results = not facts.waiting_calls.isdisjoint(result_ids(messages))
        turn = facts.turn.id if brings_results else ""
        return replace(there, after=facts.turn.session_id, turn=turn)
    return replace(there, address=fresh, single_turn=True, branches_off=facts.turn)


def session_to_read(
    request: ApiRequest, session: NamedSession, stored: ConversationSnapshot
) -> Session | None:
    """Return the session whose history `continue_session` needs, if any."""
    if stored.waiting or stored.running:
        return None
    if session.is_hint:
        return _continued_session(stored) if request.messages[:-1] else None
    return stored.newest if _brings_results(request) else None


def continue_session(
    request: ApiRequest, session: NamedSession, facts: SessionFacts
) -> Destination | None:
    """Return the named session, whose stored history replaces the client's.

    Returns None if the session was only a hint and the histories differ.
    """
    there = Destination(
        address=facts.address,
        session_state=_session_state(facts.stored),
        messages=request.messages[-1:],
    )
    if facts.is_repeat:
        return there
    if session.is_hint:  # results of calls that are waiting were found before
        agreed = _agrees(request.messages[:-1], facts) and not _brings_results(request)
        return there if agreed else None
    if not _brings_results(request):
        return there
    return _match_results(request, facts, there)


def _match_results(request: ApiRequest, facts: SessionFacts, there: Destination) -> Destination:
    """Add results of calls that wait for one to a named session; others are left out.

    A session without history begins with all messages of the request.
    """
    newest = facts.stored.newest
    if newest is None:
        return replace(there, messages=complete_messages(request.messages))
    waiting = {call.id for call in client_calls_in(facts.history)}
    messages = complete_messages(new_messages(request.messages), waiting)
    brought = result_ids(messages)
    turn = next((turn_of_call(call_id) for call_id in brought if call_id in waiting), "")
    return replace(there, messages=messages, after=newest.id if brought else "", turn=turn)


def _agrees(history: tuple[RequestMessage, ...], facts: SessionFacts) -> bool:
    """Return True if the next turn of a conversation continues this history."""
    if not history:
        return True
    stored = facts.stored
    if stored.waiting or stored.running or _continued_session(stored) is None:
        return False
    return agrees(history, facts.history)


def _brings_results(request: ApiRequest) -> bool:
    return bool(result_ids(new_messages(request.messages)))


def _continued_session(stored: ConversationSnapshot) -> Session | None:
    """Return the session that the next message continues."""
    return stored.active or (stored.newest if _is_resumable(stored) else None)


def _session_state(stored: ConversationSnapshot) -> str:
    if stored.active:
        return "continued"
    if _is_resumable(stored):
        return "resumed"
    return "continued" if stored.waiting else "new"


def _is_resumable(stored: ConversationSnapshot) -> bool:
    """Return True if the next request resumes the newest session, which was interrupted."""
    last = stored.newest
    return last is not None and last == stored.suspended and last.reason in _RESUMABLE_REASONS
