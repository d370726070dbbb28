"""The choice of the conversation that a request continues."""

import pytest
from msgspec.structs import replace

from agent.client_calls import placeholder
from gateway.access.api_keys import Requester
from gateway.http.api.asked import ApiRequest, RequestMessage
from gateway.http.api.conversation.choice import (
    AnswerFacts,
    SessionFacts,
    continue_answer,
    continue_session,
    continued_calls,
    own_conversation,
    session_to_read,
)
from gateway.http.api.conversation.named_session import NamedSession
from gateway.http.api.failures import RequestRefused
from platforms.core.contract import Address
from sessions.records import (
    ConversationSnapshot,
    InboxEntry,
    InboxState,
    Message,
    MessageRole,
    Session,
    SessionReason,
    SessionState,
    ToolCall,
    Turn,
    TurnState,
)

USER, ASSISTANT, TOOL = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL
CALL = ToolCall("call_01abc_0123456789ab", "weather", "{}")
NAMED, HINT, UNNAMED = NamedSession("notes"), NamedSession("notes", is_hint=True), NamedSession()

HI = RequestMessage(role=USER, text="hi")
HELLO = RequestMessage(role=ASSISTANT, text="hello")
MORE = RequestMessage(role=USER, text="more")
CALLING = RequestMessage(role=ASSISTANT, tool_calls=(CALL,))
RESULT = RequestMessage(role=TOOL, text="sunny", tool_call_id=CALL.id)
STORED = (Message("user", "hi"), Message("assistant", "hello"))
STORED_CALL = (
    Message("user", "hi"),
    Message("assistant", tool_calls=(CALL,)),
    placeholder(CALL.id),
)

FRESH = Address("api", Requester().generated_conversation("new"))
THERE = Address("api", "notes")
GENERATED = Address("api", Requester().generated_conversation("old"))
TURN = Turn(
    id="t1",
    session_id="s1",
    key="api:notes",
    address=THERE,
    state=TurnState.DONE,
    request="hi",
    started_at=1,
)
ROW = InboxEntry(
    id="i_1",
    source="api@:notes",
    event="e",
    key="api:notes",
    address=THERE,
    state=InboxState.WAITING,
    received_at=1,
    payload=None,
)


def session(state: SessionState, reason: SessionReason | None = None) -> Session:
    return Session(
        id="s1",
        key="api:notes",
        address=THERE,
        state=state,
        reason=reason,
        title=None,
        messages=2,
        created_at=1,
        updated_at=1,
    )


ACTIVE = session(SessionState.ACTIVE)
CRASHED = session(SessionState.SUSPENDED, SessionReason.CRASH)
CLOSED = session(SessionState.CLOSED, SessionReason.NEW)
NOTHING = ConversationSnapshot()
IDLE = ConversationSnapshot(active=ACTIVE, newest=ACTIVE)
INTERRUPTED = ConversationSnapshot(suspended=CRASHED, newest=CRASHED)
ENDED = ConversationSnapshot(newest=CLOSED)
BUSY = replace(IDLE, running=(TURN,))
QUEUED = replace(IDLE, waiting=(ROW,))


def request(*messages: RequestMessage, previous: str = "", stored: bool = False) -> ApiRequest:
    return ApiRequest(messages=messages, previous_id=previous, retrievable=stored)


@pytest.mark.parametrize(
    ("asked", "named", "expected"),
    [
        (request(HI), UNNAMED, ()),
        (request(HI, CALLING, RESULT), UNNAMED, (CALL.id,)),
        (request(HI, CALLING, RESULT), HINT, (CALL.id,)),
        (request(HI, CALLING, RESULT), NAMED, ()),
        (request(RESULT, previous="resp_1"), UNNAMED, ()),
        (request(RESULT, previous="resp_1"), HINT, ()),
        (request(HI, CALLING, RESULT, HELLO, MORE), UNNAMED, ()),
    ],
)
def test_results_name_an_answer_only_if_the_request_names_nothing(
    asked: ApiRequest, named: NamedSession, expected: tuple[str, ...]
) -> None:
    assert continued_calls(asked, named) == expected


def test_a_request_cannot_name_two_conversations() -> None:
    with pytest.raises(RequestRefused, match="both name a conversation"):
        continued_calls(request(HI, previous="resp_1"), NAMED)


def test_without_a_name_the_messages_are_the_conversation() -> None:
    chosen = own_conversation(request(HI, HELLO, MORE), FRESH)
    assert (chosen.address, chosen.single_turn) == (FRESH, True)
    assert (tuple(chosen.messages), chosen.session_state) == ((HI, HELLO, MORE), "")


NEWEST = AnswerFacts(address=GENERATED, turn=TURN, is_newest=True)


@pytest.mark.parametrize(
    ("asked", "facts", "address", "single", "after", "branches"),
    [
        pytest.param(
            request(MORE, previous="resp_1", stored=True),
            NEWEST, GENERATED, True, "s1", False,
            id="the newest answer is continued in place",
        ),
        pytest.param(
            request(MORE, previous="resp_1", stored=True),
            replace(NEWEST, address=THERE), THERE, False, "s1", False,
            id="also in a session with a name",
        ),
        pytest.param(
            request(MORE, previous="resp_1", stored=True),
            replace(NEWEST, is_newest=False), FRESH, True, "", True,
            id="an older answer is branched off",
        ),
        pytest.param(
            request(MORE, previous="resp_1", stored=False),
            NEWEST, FRESH, True, "", True,
            id="a request that is not stored is branched off",
        ),
        pytest.param(
            request(HI, CALLING, RESULT),
            replace(NEWEST, waiting_calls=frozenset({CALL.id})), GENERATED, True, "s1", False,
            id="results continue in place without being stored",
        ),
        pytest.param(
            request(MORE, previous="resp_1", stored=True),
            replace(NEWEST, is_newest=False, is_repeat=True), GENERATED, True, "", False,
            id="a repeat finds its row again",
        ),
        pytest.param(
            request(MORE, previous="resp_1", stored=True),
            AnswerFacts(address=GENERATED, turn=None), FRESH, True, "", False,
            id="an answer without a turn has no history",
        ),
    ],
)  # fmt: skip
def test_an_answer_is_continued_in_place_or_branched_off(
    asked: ApiRequest,
    facts: AnswerFacts,
    address: Address,
    *,
    single: bool,
    after: str,
    branches: bool,
) -> None:
    chosen = continue_answer(asked, facts, FRESH)
    assert (chosen.address, chosen.single_turn, chosen.after) == (address, single, after)
    assert chosen.branches_off == (TURN if branches else None)


def test_only_new_messages_are_added_to_an_answer_with_calls() -> None:
    facts = replace(NEWEST, waiting_calls=frozenset({CALL.id}))
    assert tuple(continue_answer(request(HI, CALLING, RESULT), facts, FRESH).messages) == (RESULT,)


@pytest.mark.parametrize(
    ("asked", "named", "stored", "read"),
    [
        (request(MORE), NAMED, IDLE, False),
        (request(HI, HELLO, MORE), NAMED, IDLE, False),
        (request(HI, CALLING, RESULT), NAMED, IDLE, True),
        (request(HI, CALLING, RESULT), NAMED, BUSY, False),
        (request(MORE), HINT, IDLE, False),
        (request(HI, HELLO, MORE), HINT, IDLE, True),
        (request(HI, HELLO, MORE), HINT, INTERRUPTED, True),
        (request(HI, HELLO, MORE), HINT, ENDED, False),
        (request(HI, HELLO, MORE), HINT, QUEUED, False),
    ],
)
def test_a_stored_history_is_read_only_if_it_decides(
    asked: ApiRequest, named: NamedSession, stored: ConversationSnapshot, *, read: bool
) -> None:
    assert (session_to_read(asked, named, stored) is not None) is read


@pytest.mark.parametrize(
    ("asked", "named", "stored", "history", "state"),
    [
        pytest.param(request(MORE), NAMED, NOTHING, (), "new", id="new"),
        pytest.param(request(MORE), NAMED, IDLE, (), "continued", id="continued"),
        pytest.param(request(MORE), NAMED, INTERRUPTED, (), "resumed", id="resumed"),
        pytest.param(request(MORE), NAMED, ENDED, (), "new", id="closed before"),
        pytest.param(
            request(MORE), NAMED, ConversationSnapshot(waiting=(ROW,)), (), "continued", id="queued"
        ),
        pytest.param(
            request(HI, HELLO, MORE), NAMED, BUSY, (), "continued", id="our header always counts"
        ),
        pytest.param(request(MORE), HINT, NOTHING, (), "new", id="hint, nothing stored"),
        pytest.param(request(HI, HELLO, MORE), HINT, IDLE, STORED, "continued", id="hint agrees"),
        pytest.param(request(HI, HELLO, MORE), HINT, IDLE, STORED[:1], None, id="hint differs"),
        pytest.param(request(HI, HELLO, MORE), HINT, BUSY, (), None, id="hint, busy"),
        pytest.param(request(HI, HELLO, MORE), HINT, NOTHING, (), None, id="hint, not stored"),
        pytest.param(
            request(HI, CALLING, RESULT), HINT, IDLE, STORED_CALL, None, id="hint with results"
        ),
    ],
)
def test_a_named_session_is_new_continued_resumed_or_left(
    asked: ApiRequest,
    named: NamedSession,
    stored: ConversationSnapshot,
    history: tuple[Message, ...],
    state: str | None,
) -> None:
    facts = SessionFacts(address=THERE, stored=stored, history=history)
    chosen = continue_session(asked, named, facts)
    assert (chosen.session_state if chosen else None) == state
    if chosen:
        assert (chosen.address, tuple(chosen.messages)) == (THERE, asked.messages[-1:])


def test_a_repeat_stays_in_a_hinted_session_whose_history_went_on() -> None:
    facts = SessionFacts(address=THERE, stored=BUSY, is_repeat=True)
    assert continue_session(request(HI, HELLO, MORE), HINT, facts) is not None


@pytest.mark.parametrize(
    ("stored", "history", "added", "after"),
    [
        pytest.param(IDLE, STORED_CALL, (RESULT,), "s1", id="the call waits"),
        pytest.param(NOTHING, (), (HI, CALLING, RESULT), "", id="nothing stored: all messages"),
    ],
)
def test_results_in_a_named_session_continue_the_waiting_calls(
    stored: ConversationSnapshot,
    history: tuple[Message, ...],
    added: tuple[RequestMessage, ...],
    after: str,
) -> None:
    facts = SessionFacts(address=THERE, stored=stored, history=history)
    chosen = continue_session(request(HI, CALLING, RESULT), NAMED, facts)
    assert chosen
    assert (tuple(chosen.messages), chosen.after) == (added, after)


def test_a_result_for_a_session_without_its_call_is_refused() -> None:
    facts = SessionFacts(address=THERE, stored=IDLE, history=STORED)
    with pytest.raises(RequestRefused, match="No tool call waits"):
        continue_session(request(HI, CALLING, RESULT), NAMED, facts)
