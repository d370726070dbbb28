"""The state machine for API requests: single-turn sessions, leaving clients, continuation."""

from typing import Any

import msgspec
import pytest

from sessions.changes import EndTurn, OpenSession, SetInbox, SetSession, StartTurn
from sessions.conversation.events import (
    BusyPolicy,
    CancelTask,
    ConversationState,
    Interruption,
    InterruptTurn,
    MessageArrived,
    PendingMessage,
    RequestAbandoned,
    ResumableSession,
    SendNotice,
    StartTask,
    TurnEnded,
)
from sessions.conversation.machine import step
from sessions.conversation.transition import StepContext, Transition
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.address import Address

KEY = "api:mine"
THERE = Address("api", "mine")


def env(now: int = 5) -> StepContext:
    return StepContext(now, lambda kind: f"{kind}_new")


def pending(name: str = "i1", **more: Any) -> PendingMessage:
    return PendingMessage(
        id=name,
        address=THERE,
        person="api:key",
        message=Message("user", name),
        origin=f"o_{name}",
        **more,
    )


def changes(result: Transition, kind: type) -> list[Any]:
    return [change for change in result.changes if isinstance(change, kind)]


def effects(result: Transition, kind: type) -> list[Any]:
    return [act for act in result.effects if isinstance(act, kind)]


def begun(state: ConversationState | None = None, **more: Any) -> Transition:
    return step(state or ConversationState(key=KEY), MessageArrived(pending(**more)), env())


def test_prior_messages_open_the_session_and_are_added_once() -> None:
    before = (Message("user", "a"), Message("assistant", "b"))
    (start,) = changes(begun(prior_messages=before), StartTurn)
    assert start.messages == (*before, Message("user", "i1"))
    assert start.request == "i1"
    there = ConversationState(key=KEY, session="s1")
    (start,) = changes(begun(there, prior_messages=before), StartTurn)
    assert start.messages == (Message("user", "i1"),)


def test_request_options_reach_the_turn() -> None:
    (task,) = effects(begun(request_options=b"w", single_turn=True), StartTask)
    assert (task.turn.request_options, task.turn.single_turn, task.turn.origin) == (
        b"w",
        True,
        "o_i1",
    )


@pytest.mark.parametrize("how", [TurnState.DONE, TurnState.FAILED])
def test_a_single_turn_session_is_closed_with_its_turn(how: TurnState) -> None:
    result = step(begun(single_turn=True).state, TurnEnded("t_new", how), env())
    assert changes(result, SetSession) == [
        SetSession("s_new", SessionState.CLOSED, SessionReason.ANSWERED, 5)
    ]
    assert result.state.session is None
    kept = step(begun().state, TurnEnded("t_new", how), env())
    assert changes(kept, SetSession) == []
    assert kept.state.session == "s_new"


def test_a_leaving_client_ends_its_turn_without_suspending() -> None:
    result = step(begun().state, RequestAbandoned("i1", "o_i1"), env())
    assert [act.cause for act in effects(result, CancelTask)] == ["left"]
    assert changes(result, EndTurn) == [EndTurn("t_new", TurnState.STOPPED, 5, "left")]
    assert changes(result, SetSession) == []
    assert effects(result, SendNotice) == []
    assert result.state.session == "s_new"
    again = step(result.state, RequestAbandoned("i1", "o_i1"), env())
    assert (again.changes, again.effects) == ([], [])


def test_a_leaving_client_closes_its_single_turn_session() -> None:
    result = step(begun(single_turn=True).state, RequestAbandoned("i1", "o_i1"), env())
    (closed,) = changes(result, SetSession)
    assert (closed.state, closed.reason) == (SessionState.CLOSED, SessionReason.ANSWERED)


def test_a_client_leaving_the_queue_does_not_affect_the_running_turn() -> None:
    state = step(begun().state, MessageArrived(pending("i2")), env()).state
    result = step(state, RequestAbandoned("i2", "o_i2"), env())
    assert effects(result, CancelTask) == []
    assert changes(result, SetInbox) == [SetInbox(ids=("i2",), state=InboxState.DONE, at=5)]
    assert result.state.waiting == ()


def test_the_next_queued_request_starts_after_a_client_has_left() -> None:
    state = step(begun().state, MessageArrived(pending("i2")), env()).state
    state = step(state, RequestAbandoned("i1", "o_i1"), env()).state
    result = step(state, TurnEnded("t_new", TurnState.STOPPED), env())
    (start,) = changes(result, StartTurn)
    assert (start.inbox, start.session_id) == (("i2",), "s_new")


INTERRUPTED = [SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK]


def suspended(reason: SessionReason, *, auto_resume: bool) -> ConversationState:
    earlier = ResumableSession("s1", reason, "request")
    return ConversationState(
        key=KEY, resumable=earlier, replaced_reason=reason, auto_resume=auto_resume
    )


@pytest.mark.parametrize("reason", INTERRUPTED)
def test_an_interrupted_session_continues_automatically_for_api_clients(
    reason: SessionReason,
) -> None:
    result = begun(suspended(reason, auto_resume=True))
    assert changes(result, OpenSession) == []
    assert changes(result, SetSession) == [SetSession("s1", SessionState.ACTIVE, None, 5)]
    (task,) = effects(result, StartTask)
    assert (task.turn.session, task.replaced_reason, task.interrupted_request) == ("s1", None, "")
    assert effects(result, SendNotice) == []


@pytest.mark.parametrize(
    ("reason", "auto_resume"),
    [*((reason, False) for reason in INTERRUPTED), (SessionReason.STOP, True)],
)
def test_other_interrupted_sessions_are_replaced_by_a_fresh_one(
    reason: SessionReason, auto_resume: bool
) -> None:
    result = begun(suspended(reason, auto_resume=auto_resume))
    assert len(changes(result, OpenSession)) == 1
    assert [say.notice for say in effects(result, SendNotice)] == ["N14"]


def test_a_single_turn_session_interrupted_by_a_restart_is_suspended() -> None:
    result = step(
        begun(single_turn=True).state,
        InterruptTurn(SessionReason.RESTART, Interruption(request="go", minutes=0)),
        env(),
    )
    (kept,) = changes(result, SetSession)
    assert (kept.state, kept.reason) == (SessionState.SUSPENDED, SessionReason.RESTART)


def test_requests_with_options_are_never_joined() -> None:
    state = begun().state
    for name in ("i2", "i3"):
        state = step(state, MessageArrived(pending(name, mode=BusyPolicy.QUEUE)), env()).state
    result = step(state, TurnEnded("t_new", TurnState.DONE), env())
    (start,) = changes(result, StartTurn)
    assert start.inbox == ("i2",)
    assert msgspec.structs.asdict(result.state)["waiting"][0].id == "i3"


# --- continuing from an earlier answer -------------------------------------------------------


def test_a_closed_session_continues_if_a_request_names_it() -> None:
    more = (Message("user", "a"),)
    result = begun(continued_session="s1", single_turn=True, prior_messages=more)
    assert changes(result, OpenSession) == []
    assert changes(result, SetSession) == [SetSession("s1", SessionState.ACTIVE, None, 5)]
    (start,) = changes(result, StartTurn)
    assert (start.session_id, start.messages) == ("s1", (*more, Message("user", "i1")))
    result = step(result.state, TurnEnded("t_new", TurnState.DONE), env())
    assert changes(result, SetSession) == [
        SetSession("s1", SessionState.CLOSED, SessionReason.ANSWERED, 5)
    ]


@pytest.mark.parametrize("reason", [*INTERRUPTED, SessionReason.STOP])
def test_a_suspended_session_continues_if_a_request_names_it(reason: SessionReason) -> None:
    result = begun(suspended(reason, auto_resume=True), continued_session="s1")
    assert changes(result, SetSession) == [SetSession("s1", SessionState.ACTIVE, None, 5)]
    (task,) = effects(result, StartTask)
    assert (task.turn.session, task.replaced_reason, task.interrupted_request) == ("s1", None, "")
    assert (effects(result, SendNotice), result.state.resumable) == ([], None)


def test_a_request_may_name_another_than_the_suspended_session() -> None:
    (set_,) = changes(
        begun(suspended(SessionReason.CRASH, auto_resume=True), continued_session="s2"), SetSession
    )
    assert (set_.id, set_.state) == ("s2", SessionState.ACTIVE)


def test_an_active_session_continues_with_all_prior_messages() -> None:
    more = (Message("user", "a"),)
    result = begun(
        ConversationState(key=KEY, session="s1"), continued_session="s1", prior_messages=more
    )
    assert changes(result, SetSession) == changes(result, OpenSession) == []
    (start,) = changes(result, StartTurn)
    assert (start.session_id, start.messages) == ("s1", (*more, Message("user", "i1")))


@pytest.mark.parametrize(
    ("active", "named", "goes_on"),
    [("", "s1", True), ("s1", "s1", True), ("s2", "s1", False), ("s1", "", False)],
)
def test_a_turn_goes_on_only_in_its_own_session(active: str, named: str, *, goes_on: bool) -> None:
    state = ConversationState(key=KEY, session=active or None)
    result = begun(state, continued_session=named, continued_turn="t1")
    (start,) = changes(result, StartTurn)
    (task,) = effects(result, StartTask)
    assert (start.id == "t1", start.continues, task.continued) == (goes_on,) * 3
    assert (task.turn.id, task.resumed) == (start.id, False)
    assert start.inbox == ("i1",)


@pytest.mark.parametrize(("after", "auto_resume"), [("s1", True), ("", False), ("s2", False)])
def test_an_expired_session_continues_only_if_a_request_names_it(
    after: str, auto_resume: bool
) -> None:
    asked = MessageArrived(pending(continued_session=after), expired=SessionReason.IDLE)
    result = step(ConversationState(key=KEY, session="s1"), asked, env())
    (start,) = changes(result, StartTurn)
    assert (start.session_id == "s1") is auto_resume
