"""The session machine, where a program asks: sessions of one turn, readers that leave, going on."""

from typing import Any

import msgspec
import pytest

from sessions.changes import EndTurn, OpenSession, SetInbox, SetSession, StartTurn
from sessions.conversation.events import (
    BusyPolicy,
    CancelTask,
    ConversationState,
    InterruptTurn,
    MessageArrived,
    PendingMessage,
    RequestAbandoned,
    ResumableSession,
    SendNotice,
    StartTask,
    TurnEnded,
)
from sessions.conversation.machine import StepContext, Transition, step
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState

KEY = "api:mine"


def env(now: int = 5) -> StepContext:
    return StepContext(now, lambda kind: f"{kind}_new")


def pending(name: str = "i1", **more: Any) -> PendingMessage:
    return PendingMessage(
        id=name,
        address="there",
        person="api:key",
        message=Message("user", name),
        origin=f"o_{name}",
        **more,
    )


def changes(result: Transition, kind: type) -> list[Any]:
    return [change for change in result.changes if isinstance(change, kind)]


def acts(result: Transition, kind: type) -> list[Any]:
    return [act for act in result.effects if isinstance(act, kind)]


def begun(state: ConversationState | None = None, **more: Any) -> Transition:
    return step(state or ConversationState(key=KEY), MessageArrived(pending(**more)), env())


def test_what_was_said_before_opens_the_session_and_is_said_once() -> None:
    before = (Message("user", "a"), Message("assistant", "b"))
    (start,) = changes(begun(prior_messages=before), StartTurn)
    assert start.messages == (*before, Message("user", "i1"))
    assert start.request == "i1"
    there = ConversationState(key=KEY, session="s1")
    (start,) = changes(begun(there, prior_messages=before), StartTurn)
    assert start.messages == (Message("user", "i1"),)


def test_wishes_reach_the_turn() -> None:
    (task,) = acts(begun(request_options=b"w", single_turn=True), StartTask)
    assert (task.turn.request_options, task.turn.single_turn, task.turn.origin) == (
        b"w",
        True,
        "o_i1",
    )


@pytest.mark.parametrize("how", [TurnState.DONE, TurnState.FAILED])
def test_a_session_of_one_turn_is_closed_with_it(how: TurnState) -> None:
    result = step(begun(single_turn=True).state, TurnEnded("t_new", how), env())
    assert changes(result, SetSession) == [
        SetSession("s_new", SessionState.CLOSED, SessionReason.ANSWERED, 5)
    ]
    assert result.state.session is None
    kept = step(begun().state, TurnEnded("t_new", how), env())
    assert changes(kept, SetSession) == []
    assert kept.state.session == "s_new"


def test_a_reader_that_leaves_ends_its_turn_and_suspends_nothing() -> None:
    result = step(begun().state, RequestAbandoned("i1", "o_i1"), env())
    assert [act.cause for act in acts(result, CancelTask)] == ["left"]
    assert changes(result, EndTurn) == [EndTurn("t_new", TurnState.STOPPED, 5, "left")]
    assert changes(result, SetSession) == []
    assert acts(result, SendNotice) == []
    assert result.state.session == "s_new"
    again = step(result.state, RequestAbandoned("i1", "o_i1"), env())
    assert (again.changes, again.effects) == ([], [])


def test_a_reader_that_leaves_closes_what_was_for_it_alone() -> None:
    result = step(begun(single_turn=True).state, RequestAbandoned("i1", "o_i1"), env())
    (closed,) = changes(result, SetSession)
    assert (closed.state, closed.reason) == (SessionState.CLOSED, SessionReason.ANSWERED)


def test_the_turn_of_another_goes_on_when_somebody_leaves_the_queue() -> None:
    state = step(begun().state, MessageArrived(pending("i2")), env()).state
    result = step(state, RequestAbandoned("i2", "o_i2"), env())
    assert acts(result, CancelTask) == []
    assert changes(result, SetInbox) == [SetInbox(ids=("i2",), state=InboxState.DONE, at=5)]
    assert result.state.waiting == ()


def test_the_next_in_the_queue_begins_after_a_reader_has_left() -> None:
    state = step(begun().state, MessageArrived(pending("i2")), env()).state
    state = step(state, RequestAbandoned("i1", "o_i1"), env()).state
    result = step(state, TurnEnded("t_new", TurnState.STOPPED), env())
    (start,) = changes(result, StartTurn)
    assert (start.inbox, start.session_id) == (("i2",), "s_new")


INTERRUPTED = [SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK]


def suspended(reason: SessionReason, *, goes_on: bool) -> ConversationState:
    earlier = ResumableSession("s1", reason, "request")
    return ConversationState(
        key=KEY, resumable=earlier, replaced_reason=reason, auto_resume=goes_on
    )


@pytest.mark.parametrize("reason", INTERRUPTED)
def test_an_interrupted_session_goes_on_where_nobody_reads_that_it_was(
    reason: SessionReason,
) -> None:
    result = begun(suspended(reason, goes_on=True))
    assert changes(result, OpenSession) == []
    assert changes(result, SetSession) == [SetSession("s1", SessionState.ACTIVE, None, 5)]
    (task,) = acts(result, StartTask)
    assert (task.turn.session, task.replaced_reason, task.interrupted_request) == ("s1", None, "")
    assert acts(result, SendNotice) == []


@pytest.mark.parametrize(
    ("reason", "goes_on"),
    [*((reason, False) for reason in INTERRUPTED), (SessionReason.STOP, True)],
)
def test_elsewhere_and_after_a_stop_a_fresh_one_opens(reason: SessionReason, goes_on: bool) -> None:
    result = begun(suspended(reason, goes_on=goes_on))
    assert len(changes(result, OpenSession)) == 1
    assert [say.notice for say in acts(result, SendNotice)] == ["N14"]


def test_a_session_of_one_turn_that_a_restart_interrupts_is_kept() -> None:
    result = step(begun(single_turn=True).state, InterruptTurn(SessionReason.RESTART), env())
    (kept,) = changes(result, SetSession)
    assert (kept.state, kept.reason) == (SessionState.SUSPENDED, SessionReason.RESTART)


def test_wishes_are_never_joined_into_one_turn() -> None:
    state = begun().state
    for name in ("i2", "i3"):
        state = step(state, MessageArrived(pending(name, mode=BusyPolicy.QUEUE)), env()).state
    result = step(state, TurnEnded("t_new", TurnState.DONE), env())
    (start,) = changes(result, StartTurn)
    assert start.inbox == ("i2",)
    assert msgspec.structs.asdict(result.state)["waiting"][0].id == "i3"


# --- going on from an answer -----------------------------------------------------------------


def test_a_closed_session_goes_on_for_whoever_names_it() -> None:
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
def test_a_suspended_session_goes_on_for_whoever_names_it(reason: SessionReason) -> None:
    result = begun(suspended(reason, goes_on=True), continued_session="s1")
    assert changes(result, SetSession) == [SetSession("s1", SessionState.ACTIVE, None, 5)]
    (task,) = acts(result, StartTask)
    assert (task.turn.session, task.replaced_reason, task.interrupted_request) == ("s1", None, "")
    assert (acts(result, SendNotice), result.state.resumable) == ([], None)


def test_another_than_the_suspended_session_may_be_named() -> None:
    (set_,) = changes(
        begun(suspended(SessionReason.CRASH, goes_on=True), continued_session="s2"), SetSession
    )
    assert (set_.id, set_.state) == ("s2", SessionState.ACTIVE)


def test_an_active_session_goes_on_with_all_that_is_said() -> None:
    more = (Message("user", "a"),)
    result = begun(
        ConversationState(key=KEY, session="s1"), continued_session="s1", prior_messages=more
    )
    assert changes(result, SetSession) == changes(result, OpenSession) == []
    (start,) = changes(result, StartTurn)
    assert (start.session_id, start.messages) == ("s1", (*more, Message("user", "i1")))


@pytest.mark.parametrize(("after", "goes_on"), [("s1", True), ("", False), ("s2", False)])
def test_an_old_session_goes_on_only_for_whoever_names_it(after: str, goes_on: bool) -> None:
    asked = MessageArrived(pending(continued_session=after), expired=SessionReason.IDLE)
    result = step(ConversationState(key=KEY, session="s1"), asked, env())
    (start,) = changes(result, StartTurn)
    assert (start.session_id == "s1") is goes_on
