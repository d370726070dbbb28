"""The session machine: a table of cases, and random histories against a small model of the store."""

import itertools
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sessions.changes import (
    AppendMessages,
    Change,
    EndTurn,
    OpenSession,
    SetInbox,
    SetSession,
    StartTurn,
    TakeBackTurn,
)
from sessions.conversation.events import (
    BusyPolicy,
    CancelTask,
    CommandContext,
    ConversationState,
    DeleteSession,
    DeliverSteers,
    Drain,
    Event,
    InterruptTurn,
    LastTurn,
    MessageArrived,
    MessageDeleted,
    MessageEdited,
    NewSession,
    PendingMessage,
    ResumableSession,
    ResumeSession,
    RetryTurn,
    RunningTurn,
    SendNotice,
    StartTask,
    StartWaiting,
    SteersRequested,
    StopTurn,
    TurnCrashed,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.machine import (
    StepContext,
    Transition,
    step,
)
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.notices import NoticeId

T = TypeVar("T")
KEY = "web:abc"
BY = CommandContext(address="there", person="web:owner", admin=True)
counter = itertools.count()


def env(limit: int = 20, now: int = 1_000_000) -> StepContext:
    return StepContext(now, lambda kind: f"{kind}_{next(counter)}", limit)


def pending(
    name: str, mode: BusyPolicy = BusyPolicy.QUEUE, person: str = "web:owner"
) -> PendingMessage:
    message = Message("user", content=f"say {name}")
    return PendingMessage(
        id=name, address="there", person=person, message=message, mode=mode, origin=f"o.{name}"
    )


def by() -> CommandContext:
    """A command that was received, as every one is."""
    name = f"i_{next(counter)}"
    return msgspec.structs.replace(BY, inbox=name, origin=f"o.{name}")


def after(state: ConversationState, *events: Event, limit: int = 20) -> Transition:
    """Run events; the result of the last, on top of all state before it."""
    result = Transition(state)
    for event in events:
        result = step(result.state, event, env(limit))
    return result


def idle(**fields: Any) -> ConversationState:
    return ConversationState(key=KEY, **fields)


def busy(*waiting: PendingMessage, **fields: Any) -> ConversationState:
    turn = RunningTurn(
        id="t_now",
        session="s_now",
        address="there",
        person="web:owner",
        request="what runs",
        started_at=0,
    )
    return ConversationState(
        key=KEY, session="s_now", turn=turn, waiting=waiting, person="web:owner", **fields
    )


def said(result: Transition) -> list[str]:
    return [act.notice for act in result.effects if isinstance(act, SendNotice)]


def of(kind: type[T], result: Transition) -> list[T]:
    return [each for each in (*result.changes, *result.effects) if isinstance(each, kind)]


# --- what answers something is named after it ----------------------------------------------------


def origins(result: Transition) -> dict[str, str]:
    """After what the turn that begins, and each notice, is named."""
    turns = [start.turn.origin for start in of(StartTask, result)]
    named = {say.notice: say.origin or say.item_id for say in of(SendNotice, result)}
    return named | ({"turn": turns[0]} if turns else {})


def test_a_turn_and_what_is_said_with_it_are_named_after_the_message() -> None:
    stopped = idle(
        replaced_reason=SessionReason.STOP, resumable=ResumableSession("s_1", SessionReason.STOP)
    )
    assert origins(after(stopped, MessageArrived(pending("a")))) == {"turn": "o.a", "N14": "o.a"}
    assert origins(after(busy(), MessageArrived(pending("b")))) == {"N15": "n_o.b.N15"}
    full = busy(pending("b"))
    assert origins(after(full, MessageArrived(pending("c")), limit=1)) == {"N16": "o.c"}
    assert origins(after(full, TurnEnded("t_now", TurnState.DONE))) == {"turn": "o.b"}


def test_another_run_of_a_message_is_named_after_what_asked_for_it() -> None:
    last = LastTurn(
        id="t_1",
        session="s_1",
        address="there",
        inbox=("a",),
        messages=(Message("user", content="go"),),
    )
    one, two = by(), by()
    assert origins(after(idle(session="s_1"), RetryTurn(one, last))) == {"turn": one.origin}
    assert origins(after(idle(session="s_1"), RetryTurn(two, last))) == {"turn": two.origin}
    go_on = ResumeSession(context=one, session="s_1", resume_turn=True, last=last)
    assert origins(after(idle(), go_on)) == {"turn": one.origin, "resumed": one.origin}
    assert origins(after(busy(), StopTurn(two))) == {"N10": two.origin}


# --- messages ----------------------------------------------------------------------------------


def test_the_first_message_opens_a_session_and_starts_its_turn_in_one_transaction() -> None:
    result = after(idle(), MessageArrived(pending("a")))
    assert [type(change) for change in result.changes] == [OpenSession, StartTurn]
    assert of(StartTurn, result)[0].inbox == ("a",)
    assert of(StartTask, result)[0].replaced_reason is None
    assert said(result) == []


def test_a_turn_belongs_to_who_asked_for_it() -> None:
    result = after(idle(), MessageArrived(pending("a", person="web:ann")))
    assert of(StartTurn, result)[0].person == "web:ann"
    last = LastTurn(
        id="t_1",
        session="s_1",
        address="there",
        inbox=(),
        messages=(Message("user", content="go"),),
        person="web:ann",
    )
    result = after(idle(session="s_1"), RetryTurn(BY, last))
    assert of(StartTurn, result)[0].person == BY.person


def test_the_next_message_goes_on_in_the_same_session() -> None:
    result = after(idle(session="s_old"), MessageArrived(pending("a")))
    assert [type(change) for change in result.changes] == [StartTurn]
    assert of(StartTurn, result)[0].session_id == "s_old"


def test_a_message_while_a_turn_runs_waits_and_the_user_is_told_how_much_waits() -> None:
    result = after(busy(), MessageArrived(pending("a")), MessageArrived(pending("b")))
    assert [p.id for p in result.state.waiting] == ["a", "b"]
    assert result.changes == []
    (say,) = of(SendNotice, result)
    assert result.state.queue_notice
    assert (say.notice, say.item_id, say.fields["n"]) == ("N15", result.state.queue_notice.id, 2)


def test_the_line_about_what_waits_follows_the_queue_and_goes_with_it() -> None:
    result = after(busy(), MessageArrived(pending("a")), MessageArrived(pending("b")))
    line = result.state.queue_notice
    assert line
    result = after(result.state, TurnEnded("t_now", TurnState.DONE))
    (say,) = of(SendNotice, result)
    assert (say.notice, say.item_id, say.fields["n"]) == ("N15", line.id, 1)
    assert say.fields["request"] == "say a"
    (start,) = of(StartTask, result)
    result = after(result.state, TurnEnded(start.turn.id, TurnState.DONE))
    (say,) = of(SendNotice, result)
    assert (say.notice, say.item_id) == ("N15.gone", line.id)
    assert result.state.queue_notice is None


def test_the_line_about_what_waits_goes_when_all_is_stopped() -> None:
    result = after(busy(), MessageArrived(pending("a")), StopTurn(BY))
    assert said(result) == ["N10", "N15.gone"]


def test_the_turn_that_ends_makes_room_for_the_next_in_the_same_transaction() -> None:
    row = AppendMessages("s_now", "t_now", (Message("assistant", content="ok"),), 1)
    result = after(
        busy(pending("a"), pending("b")),
        TurnEnded("t_now", TurnState.DONE, changes=(row,)),
    )
    assert [type(change) for change in result.changes] == [AppendMessages, EndTurn, StartTurn]
    assert [p.id for p in result.state.waiting] == ["b"]


def test_a_full_queue_refuses_in_words_and_marks_the_row() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("b")), limit=1)
    assert said(result) == ["N16"]
    assert of(SetInbox, result) == [SetInbox(ids=("b",), state=InboxState.REFUSED, at=1_000_000)]
    assert [p.id for p in result.state.waiting] == ["a"]


def test_collected_messages_become_one_turn_with_all_their_words() -> None:
    state = busy(pending("a", BusyPolicy.COLLECT), pending("b", BusyPolicy.COLLECT), pending("c"))
    result = after(state, TurnEnded("t_now", TurnState.DONE))
    (start,) = of(StartTurn, result)
    assert start.inbox == ("a", "b")
    assert start.messages[0].content == "say a\n\nsay b"
    assert [p.id for p in result.state.waiting] == ["c"]


def test_an_interrupting_message_cancels_the_turn_and_goes_first_in_the_same_session() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("now", BusyPolicy.INTERRUPT)))
    assert of(CancelTask, result)[0].turn.id == "t_now"
    assert of(EndTurn, result)[0].state is TurnState.INTERRUPTED
    assert of(SetSession, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.INTERRUPTED))
    assert of(StartTurn, result)[0].inbox == ("now",)
    assert of(StartTurn, result)[0].session_id == "s_now"
    assert of(EndTurn, result) == []


def test_steering_messages_reach_the_running_turn_and_the_others_wait_on() -> None:
    state = busy(pending("a"), pending("b", BusyPolicy.STEER))
    result = after(state, SteersRequested("t_now"))
    assert of(DeliverSteers, result)[0].messages == (Message("user", content="say b"),)
    assert of(SetInbox, result)[0].turn_id == "t_now"
    assert [p.id for p in result.state.waiting] == ["a"]


def replying(name: str, mode: BusyPolicy = BusyPolicy.QUEUE) -> PendingMessage:
    """A message of a room, whose answer is to be a reply to it."""
    return msgspec.structs.replace(pending(name, mode), reply_to=f"m_{name}")


def test_a_turn_replies_to_the_last_of_the_messages_that_asked_for_it() -> None:
    result = after(idle(), MessageArrived(replying("a")))
    assert of(StartTask, result)[0].turn.reply_to == "m_a"
    waiting = (replying("b", BusyPolicy.COLLECT), replying("c", BusyPolicy.COLLECT), replying("d"))
    result = after(busy(*waiting), TurnEnded("t_now", TurnState.DONE))
    assert of(StartTask, result)[0].turn.reply_to == "m_c"
    steering = busy(replying("e", BusyPolicy.STEER), replying("f", BusyPolicy.STEER))
    assert of(DeliverSteers, after(steering, SteersRequested("t_now")))[0].reply_to == "m_f"


def test_a_turn_that_runs_again_replies_to_the_same_message_but_only_in_its_place() -> None:
    go = (Message("user", content="go"),)
    last = LastTurn(
        id="t_1", session="s_1", address="there", inbox=("a",), messages=go, reply_to="m_a"
    )
    earlier = idle(resumable=ResumableSession("s_1", SessionReason.CRASH))
    for event, reply_to in (
        (RetryTurn(BY, last), "m_a"),
        (RetryTurn(msgspec.structs.replace(BY, address="elsewhere"), last), ""),
        (ResumeSession(context=BY, session="s_1", resume_turn=True, last=last), "m_a"),
    ):
        assert of(StartTask, after(earlier, event))[0].turn.reply_to == reply_to
    turn = RunningTurn(
        id="t_1",
        session="s_1",
        address="there",
        person="web:owner",
        request="go",
        started_at=0,
        reply_to="m_a",
    )
    result = after(idle(session="s_1"), TurnCrashed(turn=turn, changes=(), fields={}, resume=True))
    assert of(StartTask, result)[0].turn.reply_to == "m_a"


def test_a_turn_that_is_over_is_given_nothing_to_steer_by() -> None:
    result = after(busy(pending("b", BusyPolicy.STEER)), SteersRequested("t_other"))
    assert of(DeliverSteers, result)[0].messages == ()
    assert result.changes == []


def test_a_message_read_back_while_loading_is_not_taken_twice() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("a")))
    assert [p.id for p in result.state.waiting] == ["a"]
    assert said(result) == ["N15"]
    result = after(
        busy(pending("a"), pending("b", BusyPolicy.INTERRUPT)),
        MessageArrived(pending("b", BusyPolicy.INTERRUPT)),
    )
    assert [p.id for p in result.state.waiting] == ["b", "a"]
    assert of(CancelTask, result)


def test_an_over_aged_session_is_closed_and_the_user_told() -> None:
    result = after(idle(session="s_old"), MessageArrived(pending("a"), expired=SessionReason.IDLE))
    assert of(SetSession, result)[0].state is SessionState.CLOSED
    assert of(OpenSession, result)
    assert said(result) == [NoticeId.EXPIRED_IDLE]


def test_a_deleted_message_leaves_the_queue_and_an_edited_one_changes() -> None:
    changed = Message("user", content="better")
    state = busy(pending("a"), pending("b"))
    result = after(state, MessageEdited("b", changed), MessageDeleted("a"))
    assert [p.message for p in result.state.waiting] == [changed]
    assert of(SetInbox, result)[0].state is InboxState.DONE
    assert after(state, MessageDeleted("unknown")).changes == []


# --- commands ----------------------------------------------------------------------------------


def test_stop_suspends_the_session_keeps_what_waits_and_says_how_much() -> None:
    result = after(busy(pending("a"), pending("b")), StopTurn(BY))
    assert of(CancelTask, result)[0].cause == "stop"
    assert of(SetInbox, result)[0] == SetInbox(
        ids=("a", "b"), state=InboxState.HELD, at=1_000_000, session_id="s_now"
    )
    assert of(SetSession, result)[0].reason is SessionReason.STOP
    (say,) = of(SendNotice, result)
    assert (say.notice, say.fields["n"], say.urgent) == ("N10", 2, True)
    assert result.state.session is None


def test_stop_with_nothing_running_suspends_nothing() -> None:
    for state in (idle(), idle(session="s_old")):
        result = after(state, StopTurn(BY))
        assert said(result) == ["N10.idle"]
        assert result.changes == []


def test_a_second_stop_finds_nothing_left_to_stop() -> None:
    assert said(after(busy(), StopTurn(BY), StopTurn(BY))) == ["N10.idle"]


def test_stop_also_stops_the_message_that_was_about_to_replace_a_turn() -> None:
    result = after(busy(), MessageArrived(pending("now", BusyPolicy.INTERRUPT)), StopTurn(BY))
    assert said(result) == ["N10"]
    assert of(SetInbox, result)[0].state is InboxState.HELD
    assert of(EndTurn, result) == []


def test_a_command_row_is_done_with_the_change_it_makes() -> None:
    by = msgspec.structs.replace(BY, inbox="i_1")
    for event in (
        StopTurn(by),
        NewSession(by),
        ResumeSession(context=by, session=None),
        RetryTurn(by, None),
        UndoTurn(by, None),
    ):
        result = after(idle(), event)
        assert SetInbox(ids=("i_1",), state=InboxState.DONE, at=1_000_000) in result.changes


def test_the_message_after_a_stop_opens_a_fresh_session_and_says_so_once() -> None:
    stopped = after(busy(), StopTurn(BY), TurnEnded("t_now", TurnState.STOPPED))
    result = after(stopped.state, MessageArrived(pending("a")))
    assert said(result) == ["N14"]
    (start,) = of(StartTask, result)
    assert start.replaced_reason is SessionReason.STOP
    assert start.interrupted_request == ""
    result = after(
        result.state, TurnEnded(start.turn.id, TurnState.DONE), MessageArrived(pending("b"))
    )
    assert said(result) == []


def test_the_model_hears_of_the_interrupted_request_after_a_crash() -> None:
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.CRASH, "build it"),
        replaced_reason=SessionReason.CRASH,
    )
    (start,) = of(StartTask, after(state, MessageArrived(pending("a"))))
    assert start.interrupted_request == "build it"


def test_a_message_that_comes_while_a_stopped_turn_leaves_waits_for_it() -> None:
    result = after(busy(), StopTurn(BY), MessageArrived(pending("a")))
    assert of(StartTurn, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of(StartTurn, result)[0].inbox == ("a",)
    assert said(result) == ["N14"]


def test_resume_brings_the_session_back_with_what_waited() -> None:
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.STOP), replaced_reason=SessionReason.STOP
    )
    result = after(
        state, ResumeSession(context=BY, session="s_1", held=(pending("a"), pending("b")))
    )
    assert SetSession("s_1", SessionState.ACTIVE, None, 1_000_000) in result.changes
    assert of(StartTurn, result)[0].inbox == ("a",)
    assert [p.id for p in result.state.waiting] == ["b"]
    assert said(result) == ["resumed"]


def test_resume_suspends_the_present_session_as_switched() -> None:
    state = idle(session="s_2", resumable=ResumableSession("s_1", SessionReason.STOP))
    result = after(state, ResumeSession(context=BY, session="s_1"))
    first, second = of(SetSession, result)
    assert (first.id, first.reason) == ("s_2", SessionReason.SWITCHED)
    assert (second.id, second.state) == ("s_1", SessionState.ACTIVE)
    assert result.state.resumable == ResumableSession("s_2", SessionReason.SWITCHED)
    assert result.state.replaced_reason is None


def test_resume_in_the_middle_of_a_turn_ends_it_first() -> None:
    result = after(busy(), ResumeSession(context=BY, session="s_1", held=(pending("a"),)))
    assert of(CancelTask, result)
    assert of(StartTurn, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of(StartTurn, result)[0].session_id == "s_1"


def test_resume_without_an_earlier_session_says_so() -> None:
    assert said(after(idle(), ResumeSession(context=BY, session=None))) == ["nothing_to_resume"]


def test_continue_takes_up_what_was_interrupted_without_a_new_user_row() -> None:
    last = LastTurn(
        id="t_1",
        session="s_1",
        address="there",
        inbox=("a",),
        messages=(Message("user", content="go"),),
    )
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.CRASH), replaced_reason=SessionReason.CRASH
    )
    result = after(state, ResumeSession(context=BY, session="s_1", resume_turn=True, last=last))
    (start,) = of(StartTurn, result)
    assert (start.inbox, start.messages) == ((), ())
    assert of(StartTask, result)[0].resumed


def test_retry_runs_the_interrupted_message_again_in_its_own_session() -> None:
    last = LastTurn(
        id="t_1",
        session="s_1",
        address="there",
        inbox=("a",),
        messages=(Message("user", content="go"),),
    )
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.CRASH), replaced_reason=SessionReason.CRASH
    )
    result = after(state, RetryTurn(BY, last))
    assert of(SetSession, result)[0].state is SessionState.ACTIVE
    assert of(TakeBackTurn, result)[0].turn_id == "t_1"
    (start,) = of(StartTurn, result)
    assert (start.session_id, start.inbox, start.messages) == ("s_1", ("a",), last.messages)
    assert said(result) == []


@pytest.mark.parametrize(
    ("event", "notice"),
    [
        pytest.param(RetryTurn(BY, None), "nothing_to_retry", id="nothing to retry"),
        pytest.param(UndoTurn(BY, None), "nothing_to_undo", id="nothing to undo"),
    ],
)
def test_commands_that_find_nothing_say_so(event: Event, notice: str) -> None:
    result = after(idle(session="s_1"), event)
    assert said(result) == [notice]
    assert result.changes == []


def test_retry_and_undo_wait_for_the_running_turn_to_be_stopped() -> None:
    last = LastTurn(
        id="t_1",
        session="s_now",
        address="there",
        inbox=("a",),
        messages=(Message("user", content="go"),),
    )
    for event in (RetryTurn(BY, last), UndoTurn(BY, last)):
        assert said(after(busy(), event)) == ["busy"]


def test_undo_takes_the_exchange_out_of_the_history() -> None:
    last = LastTurn(
        id="t_1",
        session="s_1",
        address="there",
        inbox=("a",),
        messages=(Message("user", content="go"),),
    )
    result = after(idle(session="s_1"), UndoTurn(BY, last))
    assert of(TakeBackTurn, result) == [TakeBackTurn("s_1", "t_1", 1_000_000)]
    assert said(result) == ["undone"]


def test_new_closes_the_session_and_what_waits_goes_into_the_fresh_one() -> None:
    result = after(busy(pending("a")), NewSession(BY))
    assert of(SetSession, result)[0].reason is SessionReason.NEW
    assert said(result) == ["new"]
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of(OpenSession, result)
    assert of(StartTurn, result)[0].inbox == ("a",)
    assert said(result) == []


def test_only_the_last_requester_or_an_admin_changes_the_course_but_anybody_may_stop() -> None:
    other = CommandContext(address="there", person="web:other")
    for event in (
        NewSession(other),
        RetryTurn(other, None),
        UndoTurn(other, None),
        ResumeSession(context=other, session="s_1"),
    ):
        assert said(after(busy(), event)) == ["not_yours"]
    assert said(after(busy(), StopTurn(other))) == ["N10"]


def test_deleting_the_active_session_stops_its_turn() -> None:
    result = after(busy(), DeleteSession(BY, "s_now"))
    assert of(CancelTask, result)
    assert of(SetSession, result)[0].reason is SessionReason.DELETED
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.STOP), replaced_reason=SessionReason.STOP
    )
    assert after(state, DeleteSession(BY, "s_1")).state.resumable is None


def test_only_a_session_that_nobody_uses_is_deleted_for_its_age() -> None:
    assert after(busy(), DeleteSession(BY, "s_now", if_idle=True)).changes == []
    assert after(idle(session="s_1"), DeleteSession(BY, "s_1", if_idle=True)).changes == []
    wanted = msgspec.structs.replace(pending("a"), continued_session="s_9")
    waits = msgspec.structs.replace(busy(), waiting=(wanted,))
    assert after(waits, DeleteSession(BY, "s_9", if_idle=True)).changes == []
    state = idle(
        resumable=ResumableSession("s_1", SessionReason.STOP), replaced_reason=SessionReason.STOP
    )
    result = after(state, DeleteSession(BY, "s_1", if_idle=True))
    assert of(SetSession, result)[0].reason is SessionReason.DELETED
    assert result.state.resumable is None


# --- shutdown and crash ------------------------------------------------------------------------


def test_while_draining_messages_are_kept_and_their_sender_is_told_once() -> None:
    result = after(idle(session="s_1"), Drain(), MessageArrived(pending("a")))
    assert said(result) == ["N17"]
    assert of(StartTurn, result) == []
    result = after(result.state, MessageArrived(pending("b")))
    assert said(result) == []
    assert [p.id for p in result.state.waiting] == ["a", "b"]


def test_a_turn_that_ends_while_draining_starts_no_other() -> None:
    result = after(busy(pending("a")), Drain(), TurnEnded("t_now", TurnState.DONE))
    assert [type(change) for change in result.changes] == [EndTurn]
    assert result.state.turn is None


def test_what_outlives_the_grace_is_suspended_and_its_user_told() -> None:
    result = after(busy(pending("a")), Drain(), InterruptTurn(SessionReason.RESTART, {"k": 1}))
    assert of(EndTurn, result)[0].state is TurnState.INTERRUPTED
    assert of(SetSession, result)[0].reason is SessionReason.RESTART
    assert said(result) == ["N11"]
    assert [p.id for p in result.state.waiting] == ["a"]  # answered after the restart


def test_a_turn_to_be_taken_up_stays_running_in_the_journal() -> None:
    result = after(busy(), Drain(), InterruptTurn(SessionReason.RESTART, resume_after_restart=True))
    assert of(CancelTask, result)[0].resume_after_restart
    assert result.changes == []
    assert said(result) == []


def wreck(*, take_up: bool = False, stuck: bool = False) -> TurnCrashed:
    turn = RunningTurn(
        id="t_dead",
        session="s_1",
        address="there",
        person="web:owner",
        request="build it",
        started_at=0,
    )
    row = AppendMessages("s_1", "t_dead", (Message("assistant", content="par"),), 1)
    return TurnCrashed(turn=turn, changes=(row,), fields={"k": 2}, resume=take_up, stuck=stuck)


def test_a_turn_found_running_after_a_crash_suspends_its_session_and_is_told() -> None:
    result = after(idle(session="s_1"), wreck())
    assert [type(change) for change in result.changes] == [AppendMessages, EndTurn, SetSession]
    assert of(SetSession, result)[0].reason is SessionReason.CRASH
    assert said(result) == ["N11"]
    assert result.state.replaced_reason is SessionReason.CRASH


def test_a_turn_taken_up_too_often_is_stuck() -> None:
    result = after(idle(session="s_1"), wreck(stuck=True))
    assert of(SetSession, result)[0].reason is SessionReason.STUCK


def test_a_turn_to_be_taken_up_runs_again_under_its_own_id() -> None:
    result = after(idle(session="s_1"), wreck(take_up=True))
    (start,) = of(StartTurn, result)
    assert (start.id, start.person) == ("t_dead", "web:owner")
    assert of(StartTask, result)[0].resumed
    assert said(result) == []


def test_the_end_of_a_turn_nobody_knows_changes_nothing() -> None:
    assert after(idle(), TurnEnded("t_ghost", TurnState.DONE)).changes == []


# --- random histories --------------------------------------------------------------------------


class Model:
    """What the store would hold."""

    def __init__(self) -> None:
        self.sessions: dict[str, tuple[SessionState, SessionReason | None]] = {}
        self.inbox: dict[str, InboxState] = {}
        self.holder: dict[str, str | None] = {}
        self.turns: dict[str, TurnState] = {}
        self.turn_of: dict[str, str] = {}
        self.last: dict[str, StartTurn] = {}  # the newest turn of each session
        self.taken_back: set[str] = set()

    def apply(self, changes: list[Change]) -> None:
        for change in changes:
            match change:
                case OpenSession():
                    self.sessions[change.id] = (SessionState.ACTIVE, None)
                case SetSession():
                    self.sessions[change.id] = (change.state, change.reason)
                case StartTurn():
                    assert self.sessions[change.session_id][0] is SessionState.ACTIVE
                    self.turns[change.id] = TurnState.RUNNING
                    self.last[change.session_id] = change
                    for row in change.inbox:
                        self.inbox[row] = InboxState.RUNNING
                        self.turn_of[row] = change.id
                case EndTurn():
                    assert self.turns[change.id] is TurnState.RUNNING
                    self.turns[change.id] = change.state
                    for row, turn in self.turn_of.items():
                        if turn == change.id and self.inbox[row] is InboxState.RUNNING:
                            self.inbox[row] = InboxState.DONE
                case SetInbox():
                    for row in change.ids:
                        self.inbox[row] = change.state
                        self.holder[row] = change.session_id
                        if change.turn_id:
                            self.turn_of[row] = change.turn_id
                case TakeBackTurn():
                    self.taken_back.add(change.turn_id)
                case _:
                    pass


class Conversation(RuleBasedStateMachine):
    """Random events; nothing lost, one turn at a time, order kept, no session left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.state = ConversationState(key=KEY)
        self.rows: dict[str, PendingMessage] = {}
        self.tasks: list[str] = []  # turns whose task is alive
        self.told: set[str] = set()
        self.names: set[str] = set()  # of all that was named after what it answers
        self.now = 1_000

    def play(self, event: Event) -> Transition:
        self.now += 1
        result = step(self.state, event, env(3, self.now))
        self.model.apply(result.changes)
        self.state = result.state
        for act in result.effects:
            if isinstance(act, StartTask):
                assert not self.tasks, "two turns at a time"
                self.tasks.append(act.turn.id)
                self.name(f"answer of {act.turn.origin}", act.turn.origin)
            elif isinstance(act, SendNotice) and not act.item_id:
                self.name(f"{act.notice} of {act.origin}", act.origin or act.notice == "N11")
        return result

    def name(self, name: str, origin: object) -> None:
        """Two things under one name would be one message; without one, twins show it twice."""
        assert origin, name
        assert name.endswith(" of ") or name not in self.names
        self.names.add(name)

    @rule(mode=st.sampled_from(BusyPolicy))
    def arrive(self, mode: BusyPolicy) -> None:
        name = f"i_{next(counter)}"
        self.rows[name] = pending(name, mode)
        self.model.inbox[name] = InboxState.WAITING
        self.play(MessageArrived(self.rows[name]))

    @precondition(lambda self: self.tasks)
    @rule(state=st.sampled_from([TurnState.DONE, TurnState.FAILED]))
    def end(self, state: TurnState) -> None:
        self.play(TurnEnded(self.tasks.pop(), state))

    @precondition(lambda self: self.tasks)
    @rule()
    def steer(self) -> None:
        self.play(SteersRequested(self.tasks[0]))

    @rule()
    def stop(self) -> None:
        was_running = self.state.turn is not None and not self.state.turn.cancelling
        result = self.play(StopTurn(by()))
        if was_running:
            assert "N10" in said(result)

    @rule()
    def new(self) -> None:
        self.play(NewSession(by()))

    def held(self, session: str) -> tuple[PendingMessage, ...]:
        return tuple(
            self.rows[row]
            for row, state in self.model.inbox.items()
            if state is InboxState.HELD and self.model.holder[row] == session
        )

    @rule(go_on=st.booleans())
    def resume(self, go_on: bool) -> None:
        earlier = self.state.resumable
        session = earlier.session if earlier else None
        held = self.held(session) if session else ()
        last = self.model.last.get(session or "")
        known = last and LastTurn(
            id=last.id,
            session=last.session_id,
            address="there",
            inbox=last.inbox,
            messages=last.messages,
        )
        self.play(
            ResumeSession(
                context=by(), session=session, held=held, resume_turn=go_on, last=known or None
            )
        )

    @rule()
    def retry(self) -> None:
        session = self.state.session or (self.state.resumable and self.state.resumable.session)
        last = self.model.last.get(session or "")
        if last is None or last.id in self.model.taken_back:
            return
        known = LastTurn(
            id=last.id,
            session=last.session_id,
            address="there",
            inbox=last.inbox,
            messages=last.messages,
        )
        held = self.held(last.session_id) if last.session_id != self.state.session else ()
        self.play(RetryTurn(by(), known, held))

    @rule()
    def crash(self) -> None:
        """The process dies; a new one reads the store."""
        self.tasks.clear()
        model = self.model
        active = [s for s, (state, _) in model.sessions.items() if state is SessionState.ACTIVE]
        asleep = [
            (s, reason)
            for s, (state, reason) in model.sessions.items()
            if state is SessionState.SUSPENDED and reason
        ]
        waiting = [row for row, state in model.inbox.items() if state is InboxState.WAITING]
        running = [turn for turn, state in model.turns.items() if state is TurnState.RUNNING]
        assert len(running) <= 1
        earlier = ResumableSession(asleep[-1][0], asleep[-1][1]) if asleep else None
        newest = list(model.sessions)[-1:]
        fresh = asleep[-1][1] if asleep and newest == [asleep[-1][0]] and not active else None
        self.state = ConversationState(
            key=KEY,
            session=active[0] if active else None,
            resumable=earlier,
            replaced_reason=None if fresh is SessionReason.SWITCHED else fresh,
            waiting=tuple(self.rows[row] for row in waiting),
        )
        for turn in running:
            session = next(s for s, each in model.last.items() if each.id == turn)
            left = RunningTurn(
                id=turn,
                session=session,
                address="there",
                person="web:owner",
                request="",
                started_at=0,
            )
            result = self.play(TurnCrashed(turn=left, changes=(), fields={}, resume=False))
            assert said(result) == ["N11"]
        self.play(StartWaiting())

    @invariant()
    def one_active_session_at_most(self) -> None:
        states = [state for state, _ in self.model.sessions.values()]
        assert states.count(SessionState.ACTIVE) <= 1
        active = [s for s, (state, _) in self.model.sessions.items() if state == "active"]
        assert active == ([self.state.session] if self.state.session else [])

    @invariant()
    def nothing_that_was_received_is_lost(self) -> None:
        waiting = {p.id for p in self.state.waiting}
        for row, state in self.model.inbox.items():
            assert (state is InboxState.WAITING) == (row in waiting), (row, state)
            if state is InboxState.RUNNING:
                assert self.state.turn
                assert self.model.turn_of[row] == self.state.turn.id
            if state is InboxState.HELD:
                holder = self.model.holder[row]
                assert holder
                assert self.model.sessions[holder][0] is SessionState.SUSPENDED

    @invariant()
    def what_waits_is_under_way(self) -> None:
        if self.state.waiting:
            assert self.state.turn is not None

    @invariant()
    def the_turn_in_the_journal_is_the_one_that_runs(self) -> None:
        running = [turn for turn, state in self.model.turns.items() if state == "running"]
        turn = self.state.turn
        assert running == ([turn.id] if turn and not turn.cancelling else [])
        assert self.tasks == ([turn.id] if turn else [])

    def teardown(self) -> None:
        """When all turns have ended, nothing waits any more."""
        while self.tasks:
            self.end(TurnState.DONE)
        assert not self.state.waiting
        assert InboxState.WAITING not in self.model.inbox.values()
        assert InboxState.RUNNING not in self.model.inbox.values()


Conversation.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestRandomHistories = Conversation.TestCase
