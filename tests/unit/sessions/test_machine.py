"""The state machine: a table of cases, and random histories against a model of the store."""

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
    Interruption,
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
from sessions.conversation.machine import step
from sessions.conversation.transition import StepContext, Transition
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.address import Address
from sessions.values.notices import NoticeId

T = TypeVar("T")
KEY = "web:abc"
THERE = Address("web", "abc")
BY = CommandContext(address=THERE, person="web:owner", admin=True)
SETTLING = CommandContext(address=THERE, person="web:owner", admin=True, inbox="i_1")
STRANGER = CommandContext(address=THERE, person="web:other")
counter = itertools.count()


def env(limit: int = 20, now: int = 1_000_000) -> StepContext:
    return StepContext(now, lambda kind: f"{kind}_{next(counter)}", limit)


def pending(
    name: str, mode: BusyPolicy = BusyPolicy.QUEUE, person: str = "web:owner"
) -> PendingMessage:
    message = Message("user", content=f"say {name}")
    return PendingMessage(
        id=name, address=THERE, person=person, message=message, mode=mode, origin=f"o.{name}"
    )


def by() -> CommandContext:
    """A command context with its own inbox row."""
    name = f"i_{next(counter)}"
    return msgspec.structs.replace(BY, inbox=name, origin=f"o.{name}")


def named(origin: str) -> CommandContext:
    """A command context with an origin."""
    return msgspec.structs.replace(BY, origin=origin)


def after(state: ConversationState, *events: Event, limit: int = 20) -> Transition:
    """Apply events in order; return the last transition with the final state."""
    result = Transition(state)
    for event in events:
        result = step(result.state, event, env(limit))
    return result


WORK = Interruption(request="build it", minutes=2, tool="shell", preview="make")


def idle(**fields: Any) -> ConversationState:
    return ConversationState(key=KEY, **fields)


def running(**fields: Any) -> RunningTurn:
    return RunningTurn(
        **{
            "id": "t_1",
            "session": "s_1",
            "address": THERE,
            "person": "web:owner",
            "request": "go",
            "started_at": 0,
            **fields,
        }
    )


def busy(*waiting: PendingMessage, **fields: Any) -> ConversationState:
    turn = running(id="t_now", session="s_now", request="what runs")
    return ConversationState(
        key=KEY, session="s_now", turn=turn, waiting=waiting, person="web:owner", **fields
    )


def suspended(reason: SessionReason, request: str = "") -> ConversationState:
    """A conversation whose only session `s_1` is suspended."""
    earlier = ResumableSession("s_1", reason, request, person="web:owner")
    return idle(resumable=earlier, replaced_reason=reason)


def last_turn(**fields: Any) -> LastTurn:
    return LastTurn(
        **{
            "id": "t_1",
            "session": "s_1",
            "address": THERE,
            "inbox": ("a",),
            "messages": (Message("user", content="go"),),
            "person": "web:owner",
            **fields,
        }
    )


def notices(result: Transition) -> list[str]:
    return [act.notice for act in result.effects if isinstance(act, SendNotice)]


def of_kind(kind: type[T], result: Transition) -> list[T]:
    return [each for each in (*result.changes, *result.effects) if isinstance(each, kind)]


# --- origins ---------------------------------------------------------------------------------


def origins(result: Transition) -> dict[str, str]:
    """Return the origins of the started turn and of each notice."""
    turns = [start.turn.origin for start in of_kind(StartTask, result)]
    named = {say.notice: say.origin or say.item_id for say in of_kind(SendNotice, result)}
    return named | ({"turn": turns[0]} if turns else {})


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        pytest.param(
            suspended(SessionReason.STOP),
            MessageArrived(pending("a")),
            {"turn": "o.a", "N14": "o.a"},
            id="a message after a stop",
        ),
        pytest.param(
            busy(), MessageArrived(pending("b")), {"N15": "n_o.b.N15"}, id="a queued message"
        ),
        pytest.param(
            busy(pending("b")), MessageArrived(pending("c")), {"N16": "o.c"}, id="a full queue"
        ),
        pytest.param(
            busy(pending("b")),
            TurnEnded("t_now", TurnState.DONE),
            {"turn": "o.b"},
            id="the next message",
        ),
        pytest.param(
            idle(session="s_1"), RetryTurn(named("one"), last_turn()), {"turn": "one"}, id="retry"
        ),
        pytest.param(
            idle(session="s_1"),
            RetryTurn(named("two"), last_turn()),
            {"turn": "two"},
            id="another retry",
        ),
        pytest.param(
            idle(),
            ResumeSession(context=named("one"), session="s_1", resume_turn=True, last=last_turn()),
            {"turn": "one", "resumed": "one"},
            id="resume",
        ),
        pytest.param(busy(), StopTurn(named("two")), {"N10": "two"}, id="stop"),
    ],
)
def test_a_turn_and_its_notices_have_the_origin_of_the_message_or_command(
    state: ConversationState, event: Event, expected: dict[str, str]
) -> None:
    assert origins(after(state, event, limit=1)) == expected


# --- messages ----------------------------------------------------------------------------------


def test_the_first_message_opens_a_session_and_starts_its_turn_in_one_transaction() -> None:
    result = after(idle(), MessageArrived(pending("a")))
    assert [type(change) for change in result.changes] == [OpenSession, StartTurn]
    assert of_kind(StartTurn, result)[0].inbox == ("a",)
    assert of_kind(StartTask, result)[0].replaced_reason is None
    assert notices(result) == []


def test_a_turn_belongs_to_its_requester() -> None:
    result = after(idle(), MessageArrived(pending("a", person="web:ann")))
    assert of_kind(StartTurn, result)[0].person == "web:ann"
    last = last_turn(inbox=(), person="web:ann")
    result = after(idle(session="s_1"), RetryTurn(BY, last))
    assert of_kind(StartTurn, result)[0].person == "web:ann"


def test_the_next_message_continues_the_same_session() -> None:
    result = after(idle(session="s_old"), MessageArrived(pending("a")))
    assert [type(change) for change in result.changes] == [StartTurn]
    assert of_kind(StartTurn, result)[0].session_id == "s_old"


def test_a_message_during_a_turn_is_queued_and_the_user_notified() -> None:
    result = after(busy(), MessageArrived(pending("a")), MessageArrived(pending("b")))
    assert [p.id for p in result.state.waiting] == ["a", "b"]
    assert result.changes == []
    (say,) = of_kind(SendNotice, result)
    assert result.state.queue_notice
    assert (say.notice, say.item_id, say.fields["n"]) == ("N15", result.state.queue_notice.id, 2)


def test_the_queue_notice_follows_the_queue_and_disappears_with_it() -> None:
    result = after(busy(), MessageArrived(pending("a")), MessageArrived(pending("b")))
    line = result.state.queue_notice
    assert line
    result = after(result.state, TurnEnded("t_now", TurnState.DONE))
    (say,) = of_kind(SendNotice, result)
    assert (say.notice, say.item_id, say.fields["n"]) == ("N15", line.id, 1)
    assert say.fields["request"] == "say a"
    (start,) = of_kind(StartTask, result)
    result = after(result.state, TurnEnded(start.turn.id, TurnState.DONE))
    (say,) = of_kind(SendNotice, result)
    assert (say.notice, say.item_id) == ("N15.gone", line.id)
    assert result.state.queue_notice is None


def test_the_queue_notice_disappears_after_a_stop() -> None:
    result = after(busy(), MessageArrived(pending("a")), StopTurn(BY))
    assert notices(result) == ["N10", "N15.gone"]


def test_the_end_of_a_turn_and_the_next_start_share_a_transaction() -> None:
    row = AppendMessages("s_now", "t_now", (Message("assistant", content="ok"),), 1)
    result = after(
        busy(pending("a"), pending("b")),
        TurnEnded("t_now", TurnState.DONE, changes=(row,)),
    )
    assert [type(change) for change in result.changes] == [AppendMessages, EndTurn, StartTurn]
    assert [p.id for p in result.state.waiting] == ["b"]


def test_messages_loaded_with_the_conversation_count_against_the_limit() -> None:
    loaded = tuple(pending(name) for name in "abcd")
    result = after(idle(waiting=loaded), *map(MessageArrived, loaded[:3]), limit=2)
    assert [p.id for p in result.state.waiting] == ["b", "c", "d"]
    result = after(result.state, MessageArrived(loaded[3]), limit=2)
    assert [p.id for p in result.state.waiting] == ["b", "c"]
    assert SetInbox(ids=("d",), state=InboxState.REFUSED, at=1_000_000) in result.changes
    assert NoticeId.QUEUE_FULL in [
        act.notice for act in result.effects if isinstance(act, SendNotice)
    ]


def test_a_full_queue_refuses_with_a_notice_and_marks_the_row() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("b")), limit=1)
    assert notices(result) == ["N16"]
    assert of_kind(SetInbox, result) == [
        SetInbox(ids=("b",), state=InboxState.REFUSED, at=1_000_000)
    ]
    assert [p.id for p in result.state.waiting] == ["a"]


def test_collected_messages_are_joined_into_one_turn() -> None:
    state = busy(pending("a", BusyPolicy.COLLECT), pending("b", BusyPolicy.COLLECT), pending("c"))
    result = after(state, TurnEnded("t_now", TurnState.DONE))
    (start,) = of_kind(StartTurn, result)
    assert start.inbox == ("a", "b")
    assert start.messages[0].content == "say a\n\nsay b"
    assert [p.id for p in result.state.waiting] == ["c"]


def test_an_interrupting_message_cancels_the_turn_and_goes_first_in_the_same_session() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("now", BusyPolicy.INTERRUPT)))
    assert of_kind(CancelTask, result)[0].turn.id == "t_now"
    assert of_kind(EndTurn, result)[0].state is TurnState.INTERRUPTED
    assert of_kind(SetSession, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.INTERRUPTED))
    assert of_kind(StartTurn, result)[0].inbox == ("now",)
    assert of_kind(StartTurn, result)[0].session_id == "s_now"
    assert of_kind(EndTurn, result) == []


def test_steering_messages_reach_the_running_turn_and_others_keep_waiting() -> None:
    state = busy(pending("a"), pending("b", BusyPolicy.STEER))
    result = after(state, SteersRequested("t_now"))
    assert of_kind(DeliverSteers, result)[0].messages == (Message("user", content="say b"),)
    assert of_kind(SetInbox, result)[0].turn_id == "t_now"
    assert [p.id for p in result.state.waiting] == ["a"]


def replying(name: str, mode: BusyPolicy = BusyPolicy.QUEUE) -> PendingMessage:
    """A message whose answer should be a reply to it."""
    return msgspec.structs.replace(pending(name, mode), reply_to=f"m_{name}")


REPLIED = last_turn(reply_to="m_a")


@pytest.mark.parametrize(
    ("state", "event", "reply_to"),
    [
        pytest.param(idle(), MessageArrived(replying("a")), "m_a", id="a message"),
        pytest.param(
            busy(
                replying("b", BusyPolicy.COLLECT),
                replying("c", BusyPolicy.COLLECT),
                replying("d"),
            ),
            TurnEnded("t_now", TurnState.DONE),
            "m_c",
            id="collected messages",
        ),
        pytest.param(
            suspended(SessionReason.CRASH), RetryTurn(BY, REPLIED), "m_a", id="a repeated turn"
        ),
        pytest.param(
            suspended(SessionReason.CRASH),
            RetryTurn(msgspec.structs.replace(BY, address=Address("web", "elsewhere")), REPLIED),
            "",
            id="a turn repeated in another chat",
        ),
        pytest.param(
            suspended(SessionReason.CRASH),
            ResumeSession(context=BY, session="s_1", resume_turn=True, last=REPLIED),
            "m_a",
            id="a resumed turn",
        ),
        pytest.param(
            idle(session="s_1"),
            TurnCrashed(turn=running(reply_to="m_a"), changes=(), interruption=WORK, resume=True),
            "m_a",
            id="a turn resumed after a crash",
        ),
    ],
)
def test_a_turn_replies_to_the_last_of_its_messages_in_the_same_chat(
    state: ConversationState, event: Event, reply_to: str
) -> None:
    (start,) = of_kind(StartTask, after(state, event))
    assert start.turn.reply_to == reply_to


def in_private(name: str, mode: BusyPolicy = BusyPolicy.QUEUE) -> PendingMessage:
    """A message of a private chat."""
    return msgspec.structs.replace(replying(name, mode), direct=True)


@pytest.mark.parametrize(
    ("state", "event", "reply_to"),
    [
        pytest.param(idle(), MessageArrived(in_private("a")), "", id="answered at once"),
        pytest.param(
            idle(waiting=(in_private("a"),)),
            MessageArrived(in_private("a")),
            "",
            id="answered at once, loaded before",
        ),
        pytest.param(busy(in_private("b")), TurnEnded("t_now", TurnState.DONE), "m_b", id="queued"),
        pytest.param(idle(waiting=(in_private("a"),)), StartWaiting(), "m_a", id="after a restart"),
        pytest.param(
            idle(waiting=(in_private("a"),)),
            MessageArrived(in_private("b")),
            "m_a",
            id="behind another one",
        ),
        pytest.param(
            suspended(SessionReason.STOP),
            ResumeSession(context=BY, session="s_1", held=(in_private("c"),)),
            "m_c",
            id="held by a stopped conversation",
        ),
    ],
)
def test_in_a_private_chat_only_the_answer_to_a_message_that_waited_is_a_reply(
    state: ConversationState, event: Event, reply_to: str
) -> None:
    (start,) = of_kind(StartTask, after(state, event))
    assert start.turn.reply_to == reply_to


def test_steering_in_a_private_chat_replies_to_nothing() -> None:
    steering = busy(in_private("e", BusyPolicy.STEER))
    assert of_kind(DeliverSteers, after(steering, SteersRequested("t_now")))[0].reply_to == ""


def test_steering_replies_to_the_last_of_its_messages() -> None:
    steering = busy(replying("e", BusyPolicy.STEER), replying("f", BusyPolicy.STEER))
    assert of_kind(DeliverSteers, after(steering, SteersRequested("t_now")))[0].reply_to == "m_f"


def test_an_ended_turn_gets_no_steering_messages() -> None:
    result = after(busy(pending("b", BusyPolicy.STEER)), SteersRequested("t_other"))
    assert of_kind(DeliverSteers, result)[0].messages == ()
    assert result.changes == []


def test_a_message_loaded_before_its_arrival_is_not_queued_twice() -> None:
    result = after(busy(pending("a")), MessageArrived(pending("a")))
    assert [p.id for p in result.state.waiting] == ["a"]
    assert notices(result) == ["N15"]
    result = after(
        busy(pending("a"), pending("b", BusyPolicy.INTERRUPT)),
        MessageArrived(pending("b", BusyPolicy.INTERRUPT)),
    )
    assert [p.id for p in result.state.waiting] == ["b", "a"]
    assert of_kind(CancelTask, result)


def test_an_expired_session_is_closed_and_the_user_notified() -> None:
    result = after(idle(session="s_old"), MessageArrived(pending("a"), expired=SessionReason.IDLE))
    assert of_kind(SetSession, result)[0].state is SessionState.CLOSED
    assert of_kind(OpenSession, result)
    assert notices(result) == [NoticeId.EXPIRED_IDLE]


def test_a_deleted_message_leaves_the_queue_and_an_edited_one_changes() -> None:
    changed = Message("user", content="better")
    state = busy(pending("a"), pending("b"))
    result = after(state, MessageEdited("b", changed), MessageDeleted("a"))
    assert [p.message for p in result.state.waiting] == [changed]
    assert of_kind(SetInbox, result)[0].state is InboxState.DONE
    assert after(state, MessageDeleted("unknown")).changes == []


# --- commands ----------------------------------------------------------------------------------


def test_stop_suspends_the_session_and_holds_the_queue() -> None:
    result = after(busy(pending("a"), pending("b")), StopTurn(BY))
    assert of_kind(CancelTask, result)[0].cause == "stop"
    assert of_kind(SetInbox, result)[0] == SetInbox(
        ids=("a", "b"), state=InboxState.HELD, at=1_000_000, session_id="s_now"
    )
    assert of_kind(SetSession, result)[0].reason is SessionReason.STOP
    (say,) = of_kind(SendNotice, result)
    assert (say.notice, say.fields["n"], say.urgent) == ("N10", 2, True)
    assert result.state.session is None


def test_stop_also_stops_a_message_that_is_about_to_replace_a_turn() -> None:
    result = after(busy(), MessageArrived(pending("now", BusyPolicy.INTERRUPT)), StopTurn(BY))
    assert notices(result) == ["N10"]
    assert of_kind(SetInbox, result)[0].state is InboxState.HELD
    assert of_kind(EndTurn, result) == []


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(StopTurn(SETTLING), id="stop"),
        pytest.param(NewSession(SETTLING), id="new"),
        pytest.param(ResumeSession(context=SETTLING, session=None), id="resume"),
        pytest.param(RetryTurn(SETTLING, None), id="retry"),
        pytest.param(UndoTurn(SETTLING, None), id="undo"),
    ],
)
def test_a_command_row_is_settled_in_the_same_transaction(event: Event) -> None:
    settled = SetInbox(ids=("i_1",), state=InboxState.DONE, at=1_000_000)
    assert settled in after(idle(), event).changes


def test_the_message_after_a_stop_opens_a_fresh_session_with_one_notice() -> None:
    stopped = after(busy(), StopTurn(BY), TurnEnded("t_now", TurnState.STOPPED))
    result = after(stopped.state, MessageArrived(pending("a")))
    assert notices(result) == ["N14"]
    (start,) = of_kind(StartTask, result)
    assert start.replaced_reason is SessionReason.STOP
    assert start.interrupted_request == ""
    result = after(
        result.state, TurnEnded(start.turn.id, TurnState.DONE), MessageArrived(pending("b"))
    )
    assert notices(result) == []


def test_the_model_is_told_the_interrupted_request_after_a_crash() -> None:
    state = suspended(SessionReason.CRASH, "build it")
    (start,) = of_kind(StartTask, after(state, MessageArrived(pending("a"))))
    assert start.interrupted_request == "build it"


def test_a_message_during_cancellation_waits_for_its_end() -> None:
    result = after(busy(), StopTurn(BY), MessageArrived(pending("a")))
    assert of_kind(StartTurn, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of_kind(StartTurn, result)[0].inbox == ("a",)
    assert notices(result) == ["N14"]


def test_resume_reactivates_the_session_with_its_held_messages() -> None:
    state = suspended(SessionReason.STOP)
    result = after(
        state, ResumeSession(context=BY, session="s_1", held=(pending("a"), pending("b")))
    )
    assert SetSession("s_1", SessionState.ACTIVE, None, 1_000_000) in result.changes
    assert of_kind(StartTurn, result)[0].inbox == ("a",)
    assert [p.id for p in result.state.waiting] == ["b"]
    assert notices(result) == ["resumed"]


def test_resume_suspends_the_active_session_as_switched() -> None:
    state = idle(session="s_2", resumable=ResumableSession("s_1", SessionReason.STOP))
    result = after(state, ResumeSession(context=BY, session="s_1"))
    first, second = of_kind(SetSession, result)
    assert (first.id, first.reason) == ("s_2", SessionReason.SWITCHED)
    assert (second.id, second.state) == ("s_1", SessionState.ACTIVE)
    assert result.state.resumable == ResumableSession("s_2", SessionReason.SWITCHED)
    assert result.state.replaced_reason is None


def test_resume_during_a_turn_cancels_it_first() -> None:
    result = after(busy(), ResumeSession(context=BY, session="s_1", held=(pending("a"),)))
    assert of_kind(CancelTask, result)
    assert of_kind(StartTurn, result) == []
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of_kind(StartTurn, result)[0].session_id == "s_1"


def test_continue_resumes_the_interrupted_turn_without_a_new_user_row() -> None:
    last = last_turn()
    state = suspended(SessionReason.CRASH)
    result = after(state, ResumeSession(context=BY, session="s_1", resume_turn=True, last=last))
    (start,) = of_kind(StartTurn, result)
    assert (start.inbox, start.messages) == ((), ())
    assert of_kind(StartTask, result)[0].resumed


def test_resume_is_refused_while_both_queues_exceed_the_limit() -> None:
    held = (pending("a"), pending("b"))
    # The message arrives while the stopped turn still ends, so no session can hold it.
    state = after(busy(), StopTurn(BY), MessageArrived(pending("c")), limit=2).state
    result = after(state, ResumeSession(context=BY, session="s_now", held=held), limit=2)
    assert result.state == state
    assert result.changes == []
    (say,) = of_kind(SendNotice, result)
    assert say.notice is NoticeId.RESUME_FULL
    assert say.fields == {"held": 2, "waiting": 1, "limit": 2}
    result = after(state, ResumeSession(context=BY, session="s_now", held=held[:1]), limit=2)
    assert [p.id for p in result.state.waiting] == ["a", "c"]


def test_an_active_session_keeps_its_queue_so_that_a_full_one_can_be_resumed() -> None:
    state = busy(pending("c"), pending("d"))
    held = (pending("a"), pending("b"))
    result = after(state, ResumeSession(context=BY, session="s_1", held=held), limit=2)
    assert [p.id for p in result.state.waiting] == ["a", "b"]
    assert notices(result) == ["resumed"]


def test_held_messages_over_the_limit_are_refused_with_a_notice() -> None:
    held = tuple(pending(name) for name in "abcd")
    event = ResumeSession(context=BY, session="s_1", held=held)
    result = after(suspended(SessionReason.STOP), event, limit=3)
    assert [p.id for p in result.state.waiting] == ["b", "c"]  # the first one starts
    assert SetInbox(ids=("d",), state=InboxState.REFUSED, at=1_000_000) in result.changes
    refused, resumed = of_kind(SendNotice, result)
    assert (refused.notice, refused.fields) == (NoticeId.HELD_REFUSED, {"n": 1, "limit": 3})
    assert (resumed.notice, resumed.fields["n"]) == (NoticeId.RESUMED, 3)


def test_retry_refuses_held_messages_over_the_limit() -> None:
    held = tuple(pending(name) for name in "bcd")
    result = after(suspended(SessionReason.CRASH), RetryTurn(BY, last_turn(), held), limit=2)
    assert [p.id for p in result.state.waiting] == ["b", "c"]
    assert notices(result) == ["held_refused"]


def test_retry_repeats_the_interrupted_message_in_its_session() -> None:
    last = last_turn()
    state = suspended(SessionReason.CRASH)
    result = after(state, RetryTurn(BY, last))
    assert of_kind(SetSession, result)[0].state is SessionState.ACTIVE
    assert of_kind(TakeBackTurn, result)[0].turn_id == "t_1"
    (start,) = of_kind(StartTurn, result)
    assert (start.session_id, start.inbox, start.messages) == ("s_1", ("a",), last.messages)
    assert notices(result) == []


@pytest.mark.parametrize(
    ("state", "event", "notice"),
    [
        pytest.param(idle(), StopTurn(BY), "N10.idle", id="stop without a session"),
        pytest.param(idle(session="s_old"), StopTurn(BY), "N10.idle", id="stop without a turn"),
        pytest.param(
            after(busy(), StopTurn(BY)).state, StopTurn(BY), "N10.idle", id="a second stop"
        ),
        pytest.param(
            idle(),
            ResumeSession(context=BY, session=None),
            "nothing_to_resume",
            id="nothing to resume",
        ),
        pytest.param(
            idle(session="s_1"), RetryTurn(BY, None), "nothing_to_retry", id="nothing to retry"
        ),
        pytest.param(
            idle(session="s_1"), UndoTurn(BY, None), "nothing_to_undo", id="nothing to undo"
        ),
        pytest.param(
            busy(), RetryTurn(BY, last_turn(session="s_now")), "busy", id="retry during a turn"
        ),
        pytest.param(
            busy(), UndoTurn(BY, last_turn(session="s_now")), "busy", id="undo during a turn"
        ),
        pytest.param(busy(), NewSession(STRANGER), "not_yours", id="another person's new"),
        pytest.param(busy(), RetryTurn(STRANGER, None), "not_yours", id="another person's retry"),
        pytest.param(busy(), UndoTurn(STRANGER, None), "not_yours", id="another person's undo"),
        pytest.param(
            busy(),
            ResumeSession(context=STRANGER, session="s_1"),
            "not_yours",
            id="another person's resume",
        ),
    ],
)
def test_a_command_that_cannot_be_carried_out_only_sends_a_notice(
    state: ConversationState, event: Event, notice: str
) -> None:
    result = after(state, event)
    assert notices(result) == [notice]
    assert result.changes == []
    assert result.state == state


def test_everyone_may_stop_a_turn() -> None:
    assert notices(after(busy(), StopTurn(STRANGER))) == ["N10"]


def test_undo_retracts_the_last_turn() -> None:
    result = after(idle(session="s_1"), UndoTurn(BY, last_turn()))
    assert of_kind(TakeBackTurn, result) == [TakeBackTurn("s_1", "t_1", 1_000_000)]
    assert notices(result) == ["undone"]


def test_new_closes_the_session_and_the_queue_moves_to_the_next_one() -> None:
    result = after(busy(pending("a")), NewSession(BY))
    assert of_kind(SetSession, result)[0].reason is SessionReason.NEW
    assert notices(result) == ["new"]
    result = after(result.state, TurnEnded("t_now", TurnState.STOPPED))
    assert of_kind(OpenSession, result)
    assert of_kind(StartTurn, result)[0].inbox == ("a",)
    assert notices(result) == []


def test_deleting_the_active_session_cancels_its_turn() -> None:
    result = after(busy(), DeleteSession(BY, "s_now"))
    assert of_kind(CancelTask, result)
    assert of_kind(SetSession, result)[0].reason is SessionReason.DELETED


@pytest.mark.parametrize("if_idle", [False, True], ids=["by a command", "by retention"])
def test_a_suspended_session_can_be_deleted(if_idle: bool) -> None:
    result = after(suspended(SessionReason.STOP), DeleteSession(BY, "s_1", if_idle=if_idle))
    assert of_kind(SetSession, result)[0].reason is SessionReason.DELETED
    assert result.state.resumable is None


@pytest.mark.parametrize(
    ("state", "session"),
    [
        pytest.param(busy(), "s_now", id="a turn runs in it"),
        pytest.param(idle(session="s_1"), "s_1", id="it is active"),
        pytest.param(
            busy(msgspec.structs.replace(pending("a"), continued_session="s_9")),
            "s_9",
            id="a message will continue it",
        ),
    ],
)
def test_retention_does_not_delete_a_session_in_use(state: ConversationState, session: str) -> None:
    assert after(state, DeleteSession(BY, session, if_idle=True)).changes == []


# --- shutdown and crash ------------------------------------------------------------------------


def test_while_draining_messages_wait_and_their_sender_is_notified_once() -> None:
    result = after(idle(session="s_1"), Drain(), MessageArrived(pending("a")))
    assert notices(result) == ["N17"]
    assert of_kind(StartTurn, result) == []
    result = after(result.state, MessageArrived(pending("b")))
    assert notices(result) == []
    assert [p.id for p in result.state.waiting] == ["a", "b"]


def test_a_turn_ending_while_draining_starts_no_other() -> None:
    result = after(busy(pending("a")), Drain(), TurnEnded("t_now", TurnState.DONE))
    assert [type(change) for change in result.changes] == [EndTurn]
    assert result.state.turn is None


def test_a_turn_outlasting_the_grace_period_is_suspended_with_a_notice() -> None:
    result = after(busy(pending("a")), Drain(), InterruptTurn(SessionReason.RESTART, WORK))
    assert of_kind(EndTurn, result)[0].state is TurnState.INTERRUPTED
    assert of_kind(SetSession, result)[0].reason is SessionReason.RESTART
    assert notices(result) == ["N11"]
    (say,) = [act for act in result.effects if isinstance(act, SendNotice)]
    assert say.fields == {"request": "build it", "min": 2, "tool": "shell", "preview": "make"}
    assert [p.id for p in result.state.waiting] == ["a"]  # answered after the restart


def test_a_turn_to_be_resumed_stays_running_in_the_journal() -> None:
    result = after(
        busy(), Drain(), InterruptTurn(SessionReason.RESTART, WORK, resume_after_restart=True)
    )
    assert of_kind(CancelTask, result)[0].resume_after_restart
    assert result.changes == []
    assert notices(result) == []


def crashed(*, resume: bool = False, stuck: bool = False) -> TurnCrashed:
    turn = running(id="t_dead", request="build it")
    row = AppendMessages("s_1", "t_dead", (Message("assistant", content="par"),), 1)
    return TurnCrashed(turn=turn, changes=(row,), interruption=WORK, resume=resume, stuck=stuck)


@pytest.mark.parametrize(
    ("stuck", "reason"),
    [
        pytest.param(False, SessionReason.CRASH, id="crashed"),
        pytest.param(True, SessionReason.STUCK, id="resumed too often"),
    ],
)
def test_a_crashed_turn_suspends_its_session_with_a_notice(
    stuck: bool, reason: SessionReason
) -> None:
    result = after(idle(session="s_1"), crashed(stuck=stuck))
    assert [type(change) for change in result.changes] == [AppendMessages, EndTurn, SetSession]
    assert of_kind(SetSession, result)[0].reason is reason
    assert notices(result) == ["N11"]
    assert result.state.replaced_reason is reason


def test_a_resumed_turn_keeps_its_id() -> None:
    result = after(idle(session="s_1"), crashed(resume=True))
    (start,) = of_kind(StartTurn, result)
    assert (start.id, start.person) == ("t_dead", "web:owner")
    assert of_kind(StartTask, result)[0].resumed
    assert notices(result) == []


def test_the_end_of_an_unknown_turn_changes_nothing() -> None:
    assert after(idle(), TurnEnded("t_ghost", TurnState.DONE)).changes == []


# --- random histories --------------------------------------------------------------------------


class Model:
    """The content of the store, as the changes imply it."""

    def __init__(self) -> None:
        self.sessions: dict[str, tuple[SessionState, SessionReason | None]] = {}
        self.inbox: dict[str, InboxState] = {}
        self.holder: dict[str, str | None] = {}
        self.turns: dict[str, TurnState] = {}
        self.turn_of: dict[str, str] = {}
        self.last: dict[str, StartTurn] = {}  # newest turn of each session
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
    """Random events: nothing is lost, one turn at a time, in order, no session left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.state = ConversationState(key=KEY)
        self.rows: dict[str, PendingMessage] = {}
        self.tasks: list[str] = []  # turns whose task is alive
        self.told: set[str] = set()
        self.names: set[str] = set()  # ids derived from origins
        self.now = 1_000

    def play(self, event: Event) -> Transition:
        self.now += 1
        result = step(self.state, event, env(3, self.now))
        self.model.apply(result.changes)
        self.state = result.state
        for act in result.effects:
            if isinstance(act, StartTask):
                assert not self.tasks, "two turns at the same time"
                self.tasks.append(act.turn.id)
                self.name(f"answer of {act.turn.origin}", act.turn.origin)
            elif isinstance(act, SendNotice) and not act.item_id:
                self.name(f"{act.notice} of {act.origin}", act.origin or act.notice == "N11")
        return result

    def name(self, name: str, origin: object) -> None:
        """Check that derived ids are unique, and that no origin is missing."""
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
            assert "N10" in notices(result)

    @rule()
    def new(self) -> None:
        self.play(NewSession(by()))

    def held(self, session: str) -> tuple[PendingMessage, ...]:
        return tuple(
            self.rows[row]
            for row, state in self.model.inbox.items()
            if state is InboxState.HELD and self.model.holder[row] == session
        )

    def known(self, last: StartTurn) -> LastTurn:
        return last_turn(
            id=last.id, session=last.session_id, inbox=last.inbox, messages=last.messages
        )

    @rule(go_on=st.booleans())
    def resume(self, go_on: bool) -> None:
        earlier = self.state.resumable
        session = earlier.session if earlier else None
        held = self.held(session) if session else ()
        last = self.model.last.get(session or "")
        known = last and self.known(last)
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
        known = self.known(last)
        held = self.held(last.session_id) if last.session_id != self.state.session else ()
        self.play(RetryTurn(by(), known, held))

    @rule()
    def crash(self) -> None:
        """Let the process die and a new one load the store."""
        self.tasks.clear()
        model = self.model
        active = [s for s, (state, _) in model.sessions.items() if state is SessionState.ACTIVE]
        asleep = [
            (s, reason)
            for s, (state, reason) in model.sessions.items()
            if state is SessionState.SUSPENDED and reason
        ]
        waiting = [row for row, state in model.inbox.items() if state is InboxState.WAITING]
        open_turns = [turn for turn, state in model.turns.items() if state is TurnState.RUNNING]
        assert len(open_turns) <= 1
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
        for turn in open_turns:
            session = next(s for s, each in model.last.items() if each.id == turn)
            left = running(id=turn, session=session, request="")
            result = self.play(TurnCrashed(turn=left, changes=(), interruption=WORK, resume=False))
            assert notices(result) == ["N11"]
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
        """Check that nothing waits when all turns have ended."""
        while self.tasks:
            self.end(TurnState.DONE)
        assert not self.state.waiting
        assert InboxState.WAITING not in self.model.inbox.values()
        assert InboxState.RUNNING not in self.model.inbox.values()


Conversation.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestRandomHistories = Conversation.TestCase
