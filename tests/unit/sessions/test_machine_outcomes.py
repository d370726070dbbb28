"""The state machine: the whole outcome of single steps, so that no change or effect is extra."""

from typing import Any

import msgspec
import pytest

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
    AccessLost,
    BusyPolicy,
    CancelTask,
    CommandContext,
    ConversationState,
    DeleteSession,
    DeliverSteers,
    Effect,
    Event,
    Interruption,
    InterruptTurn,
    LastTurn,
    MessageArrived,
    MessageEdited,
    NewSession,
    PendingMessage,
    QueueNotice,
    RequestAbandoned,
    ResumableSession,
    ResumeSession,
    RetryTurn,
    RunningTurn,
    SendNotice,
    StartTask,
    SteersRequested,
    StopTurn,
    TurnCrashed,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.machine import step
from sessions.conversation.transition import MAX_REQUEST_CHARS, StepContext
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.address import Address
from sessions.values.item_ids import notice_id
from sessions.values.notices import NoticeFields, NoticeId

NOW = 1_000_000
ROOM, DESK = Address("web", "room"), Address("web", "desk")
ANN, BOB = "web:ann", "web:bob"
BY_ANN = CommandContext(address=DESK, person=ANN, origin="o.command")
BY_BOB = CommandContext(address=DESK, person=BOB, origin="o.command")
LINE = QueueNotice("n_line", ROOM)
LONG = "x" * 5000
WORK = Interruption(request="build it", minutes=2, tool="shell", preview="make")


def message(name: str, person: str = ANN, **fields: Any) -> PendingMessage:
    content = fields.pop("content", f"say {name}")
    return PendingMessage(
        **{
            "id": name,
            "address": ROOM,
            "person": person,
            "message": Message("user", content),
            "mode": BusyPolicy.QUEUE,
            "origin": f"o.{name}",
            **fields,
        }
    )


def running(**fields: Any) -> RunningTurn:
    return RunningTurn(
        **{
            "id": "t_now",
            "session": "s_now",
            "address": ROOM,
            "person": ANN,
            "request": "go",
            "started_at": 400_000,
            "origin": "o.turn",
            **fields,
        }
    )


def idle(*waiting: PendingMessage, **fields: Any) -> ConversationState:
    return ConversationState(**{"key": "web:room", "waiting": waiting, "person": ANN, **fields})


def busy(*waiting: PendingMessage, **fields: Any) -> ConversationState:
    return idle(*waiting, **{"session": "s_now", "turn": running(), **fields})


def cancelling(*waiting: PendingMessage, **fields: Any) -> ConversationState:
    return busy(*waiting, **{"turn": running(cancelling=True), **fields})


def last_turn(**fields: Any) -> LastTurn:
    return LastTurn(
        **{
            "id": "t_1",
            "session": "s_now",
            "address": ROOM,
            "inbox": ("a",),
            "messages": (Message("user", "again"),),
            "person": ANN,
            **fields,
        }
    )


def changed(state: ConversationState, **fields: Any) -> ConversationState:
    return msgspec.structs.replace(state, **fields)


def notice(id_: NoticeId, address: Address = DESK, **fields: Any) -> SendNotice:
    origin = fields.pop("origin", "o.command")
    return SendNotice(notice=id_, address=address, origin=origin, **fields)


def take(state: ConversationState, event: Event, limit: int = 20) -> Any:
    """Return the changes, effects and state after one event."""
    result = step(state, event, StepContext(NOW, lambda kind: f"{kind}_new", limit))
    return result.changes, result.effects, result.state


def started(person: str = ANN, **fields: Any) -> RunningTurn:
    """Return the turn that a step starts."""
    return running(
        **{
            "id": "t_new",
            "person": person,
            "request": "again",
            "started_at": NOW,
            "origin": "o.command",
            **fields,
        }
    )


def start_of(turn: RunningTurn, inbox: tuple[str, ...], *rows: Message) -> StartTurn:
    return StartTurn(
        id=turn.id,
        session_id=turn.session,
        key="web:room",
        address=turn.address,
        inbox=inbox,
        messages=rows,
        request=turn.request,
        at=NOW,
        person=turn.person,
    )


def ended(state: TurnState, cause: str) -> EndTurn:
    return EndTurn("t_now", state, NOW, cause)


def closed(session: str, reason: SessionReason) -> SetSession:
    return SetSession(session, SessionState.CLOSED, reason, NOW)


# --- messages ----------------------------------------------------------------------------------


def test_a_full_queue_refuses_a_message_and_tells_the_limit() -> None:
    state = busy(message("a"))
    assert take(state, MessageArrived(message("b")), limit=1) == (
        [SetInbox(ids=("b",), state=InboxState.REFUSED, at=NOW)],
        [notice(NoticeId.QUEUE_FULL, ROOM, fields={"limit": 1}, origin="o.b")],
        state,
    )


def test_a_message_that_waits_already_is_not_refused_and_keeps_its_place() -> None:
    state = busy(message("a"), message("b"), queue_notice=LINE)
    assert take(state, MessageArrived(message("a")), limit=1) == ([], [], state)


@pytest.mark.parametrize("reason", [SessionReason.IDLE, SessionReason.DAILY])
def test_an_expired_session_is_closed_before_the_next_one_is_opened(reason: SessionReason) -> None:
    changes, effects, state = take(
        idle(session="s_old"), MessageArrived(message("a"), expired=reason)
    )
    assert changes[:2] == [closed("s_old", reason), OpenSession("s_new", "web:room", ROOM, NOW)]
    names = {SessionReason.IDLE: NoticeId.EXPIRED_IDLE, SessionReason.DAILY: NoticeId.EXPIRED_DAILY}
    assert effects[0] == notice(names[reason], ROOM, origin="o.a")
    assert state.session == "s_new"


@pytest.mark.parametrize(
    ("state", "named"),
    [
        pytest.param(busy(queue_notice=LINE), "", id="a turn runs"),
        pytest.param(idle(), "", id="no session is active"),
        pytest.param(idle(session="s_now"), "s_now", id="the message names the session"),
    ],
)
def test_no_session_expires_that_is_in_use(state: ConversationState, named: str) -> None:
    arrived = message("a", **({"continued_session": named} if named else {}))
    changes, effects, _ = take(state, MessageArrived(arrived, expired=SessionReason.IDLE))
    assert not [each for each in changes if isinstance(each, SetSession)]
    assert not [each for each in effects if each.__class__ is SendNotice and not each.item_id]


@pytest.mark.parametrize("mode", [BusyPolicy.QUEUE, BusyPolicy.INTERRUPT])
def test_a_message_during_a_cancellation_waits_at_the_end_without_a_notice(
    mode: BusyPolicy,
) -> None:
    state, arrived = cancelling(message("a")), message("b", mode=mode)
    assert take(state, MessageArrived(arrived)) == (
        [],
        [],
        changed(state, waiting=(message("a"), arrived)),
    )


def test_before_a_restart_an_interrupting_message_waits_for_the_turn() -> None:
    state, arrived = busy(message("a"), draining=True), message("b", mode=BusyPolicy.INTERRUPT)
    assert take(state, MessageArrived(arrived)) == (
        [],
        [notice(NoticeId.RESTARTING_SOON, ROOM, origin="o.b")],
        changed(state, waiting=(message("a"), arrived), draining_announced=True),
    )


def test_the_notice_of_a_fresh_session_belongs_to_the_message_that_opens_it() -> None:
    state = idle(message("a"), replaced_reason=SessionReason.STOP)
    _, effects, _ = take(state, MessageArrived(message("b")))
    (fresh,) = [
        each
        for each in effects
        if isinstance(each, SendNotice) and each.notice is NoticeId.FRESH_SESSION
    ]
    assert fresh.origin == "o.a"


# --- the queue notice --------------------------------------------------------------------------


def queued(count: int, item: str) -> SendNotice:
    fields: NoticeFields = {"n": count, "request": "go", "min": 10}
    return SendNotice(notice=NoticeId.QUEUED, address=ROOM, fields=fields, item_id=item)


@pytest.mark.parametrize(
    ("origin", "item"), [("o.a", notice_id("o.a", NoticeId.QUEUED)), ("", "n_new")]
)
def test_the_first_queued_message_gets_a_notice_that_later_ones_update(
    origin: str, item: str
) -> None:
    first = message("a", origin=origin)
    changes, effects, state = take(busy(), MessageArrived(first))
    assert (changes, effects) == ([], [queued(1, item)])
    assert state == busy(first, queue_notice=QueueNotice(item, ROOM))
    assert take(state, MessageArrived(message("b")))[1] == [queued(2, item)]


def test_an_event_that_leaves_the_queue_as_it_is_sends_no_queue_notice() -> None:
    state = busy(message("a"), message("b"), queue_notice=LINE)
    better = Message("user", "better")
    assert take(state, MessageEdited("a", better)) == (
        [],
        [],
        changed(state, waiting=(message("a", content="better"), message("b"))),
    )


def test_the_queue_notice_goes_when_the_last_turn_before_a_restart_ends() -> None:
    state = busy(message("a"), queue_notice=LINE, draining=True)
    assert take(state, TurnEnded("t_now", TurnState.DONE)) == (
        [EndTurn("t_now", TurnState.DONE, NOW, None)],
        [SendNotice(notice=NoticeId.QUEUE_DONE, address=ROOM, item_id="n_line")],
        changed(state, turn=None, queue_notice=None, session_used_at=NOW),
    )


def test_the_queue_notice_goes_when_the_turn_is_cancelled() -> None:
    state = busy(message("a"), queue_notice=LINE)
    _, effects, after = take(state, NewSession(BY_ANN))
    assert effects[-1] == SendNotice(
        notice=NoticeId.QUEUE_DONE, address=ROOM, item_id="n_line", origin=""
    )
    assert after.queue_notice is None


# --- the end of a turn -------------------------------------------------------------------------


@pytest.mark.parametrize("state", [busy(message("a")), idle(session="s_now")])
def test_the_end_of_another_turn_changes_nothing(state: ConversationState) -> None:
    assert take(state, TurnEnded("t_ghost", TurnState.DONE)) == ([], [], state)


def crash(**fields: Any) -> TurnCrashed:
    return TurnCrashed(
        **{"turn": running(), "changes": (), "interruption": WORK, "resume": False, **fields}
    )


INTERRUPTED = SendNotice(
    notice=NoticeId.TURN_INTERRUPTED,
    address=ROOM,
    fields={"request": "build it", "min": 2, "tool": "shell", "preview": "make"},
    turn="t_now",
)


def test_a_crashed_turn_is_resumed_as_the_turn_of_its_author() -> None:
    state = idle(session="s_now")
    turn = running(person=BOB)
    assert take(state, crash(turn=turn, resume=True)) == (
        [start_of(turn, ())],
        [StartTask(turn=turn, resumed=True)],
        changed(state, turn=turn, person=BOB),
    )


def test_a_crashed_turn_suspends_the_session_with_its_request_and_author() -> None:
    state = idle(session="s_now")
    assert take(state, crash(turn=running(person=BOB))) == (
        [
            ended(TurnState.INTERRUPTED, "crash"),
            SetSession("s_now", SessionState.SUSPENDED, SessionReason.CRASH, NOW),
        ],
        [INTERRUPTED],
        changed(
            state,
            session=None,
            resumable=ResumableSession("s_now", SessionReason.CRASH, "go", person=BOB),
            replaced_reason=SessionReason.CRASH,
        ),
    )


def test_a_crashed_turn_of_an_inactive_session_suspends_no_other_session() -> None:
    state = idle(session="s_other")
    assert take(state, crash()) == ([ended(TurnState.INTERRUPTED, "crash")], [], state)


@pytest.mark.parametrize("state", [idle(session="s_now"), cancelling(message("a"))])
def test_without_a_running_turn_there_is_nothing_to_interrupt(state: ConversationState) -> None:
    for resume in (True, False):
        event = InterruptTurn(SessionReason.RESTART, WORK, resume_after_restart=resume)
        assert take(state, event) == ([], [], state)


def test_an_interrupted_turn_leaves_its_request_and_author_with_the_session() -> None:
    state = busy(person=BOB)
    assert take(state, InterruptTurn(SessionReason.RESTART, WORK)) == (
        [
            ended(TurnState.INTERRUPTED, "restart"),
            SetSession("s_now", SessionState.SUSPENDED, SessionReason.RESTART, NOW),
        ],
        [CancelTask(running(), "restart"), INTERRUPTED],
        changed(
            state,
            session=None,
            turn=running(cancelling=True),
            resumable=ResumableSession("s_now", SessionReason.RESTART, "go", person=ANN),
            replaced_reason=SessionReason.RESTART,
        ),
    )


def test_a_turn_that_resumes_after_the_restart_is_only_cancelled() -> None:
    event = InterruptTurn(SessionReason.RESTART, WORK, resume_after_restart=True)
    assert take(busy(), event) == (
        [],
        [CancelTask(running(), "restart", resume_after_restart=True)],
        cancelling(),
    )


# --- stop --------------------------------------------------------------------------------------


STOPPED = [
    ended(TurnState.STOPPED, "stop"),
    SetSession("s_now", SessionState.SUSPENDED, SessionReason.STOP, NOW),
]


@pytest.mark.parametrize("turn", ["", "t_now"], ids=["command", "button"])
def test_stop_suspends_the_session_with_the_request_of_the_turn(turn: str) -> None:
    state = busy(person=BOB)
    assert take(state, StopTurn(BY_BOB, turn=turn)) == (
        STOPPED,
        [
            CancelTask(running(), "stop"),
            notice(NoticeId.STOPPED, fields={"n": 0}, urgent=True, turn="t_now"),
        ],
        changed(
            state,
            session=None,
            turn=running(cancelling=True),
            resumable=ResumableSession("s_now", SessionReason.STOP, "go", person=ANN),
            replaced_reason=SessionReason.STOP,
        ),
    )


def test_stop_before_the_next_message_starts_leaves_the_request_of_that_message() -> None:
    waiting = message("a", BOB, content=LONG)
    state = cancelling(waiting)
    changes, effects, after = take(state, StopTurn(BY_ANN))
    assert changes == [
        SetInbox(ids=("a",), state=InboxState.HELD, at=NOW, session_id="s_now"),
        STOPPED[1],
    ]
    assert effects == [notice(NoticeId.STOPPED, fields={"n": 1}, urgent=True, turn="t_now")]
    request = LONG[:MAX_REQUEST_CHARS]
    assert after.resumable == ResumableSession("s_now", SessionReason.STOP, request, 1, BOB)
    assert after.waiting == ()


@pytest.mark.parametrize(
    ("state", "turn"),
    [
        pytest.param(idle(session="s_now"), "", id="no turn"),
        pytest.param(idle(session="s_now"), "t_now", id="the button of a turn that ended"),
        pytest.param(busy(), "t_other", id="the button of an earlier turn"),
        pytest.param(cancelling(), "", id="a turn that is stopped already"),
        pytest.param(cancelling(message("a"), session=None), "", id="a queue without a session"),
    ],
)
def test_where_nothing_can_be_stopped_the_answer_says_so(
    state: ConversationState, turn: str
) -> None:
    said = [notice(NoticeId.NOTHING_TO_STOP, urgent=True)]
    assert take(state, StopTurn(BY_ANN, turn=turn)) == ([], said, state)


def test_a_quiet_stop_of_nothing_says_nothing() -> None:
    state = idle(session="s_now")
    assert take(state, StopTurn(BY_ANN, quiet=True)) == ([], [], state)


# --- new, resume, retry, undo, delete ----------------------------------------------------------


def test_new_ends_the_turn_and_the_session_and_keeps_the_queue() -> None:
    state = busy(message("a"), replaced_reason=SessionReason.STOP)
    assert take(state, NewSession(BY_ANN)) == (
        [ended(TurnState.STOPPED, "new"), closed("s_now", SessionReason.NEW)],
        [
            CancelTask(running(), "new"),
            notice(NoticeId.NEW_SESSION, fields={"n": 1}, urgent=True),
        ],
        changed(
            state, session=None, turn=running(cancelling=True), person="", replaced_reason=None
        ),
    )


def test_new_without_a_session_closes_none() -> None:
    state = idle(replaced_reason=SessionReason.CRASH)
    assert take(state, NewSession(BY_ANN)) == (
        [],
        [notice(NoticeId.NEW_SESSION, fields={"n": 0}, urgent=True)],
        changed(state, person="", replaced_reason=None),
    )


@pytest.mark.parametrize("event", [NewSession(BY_ANN), DeleteSession(BY_ANN, "s_now")])
def test_a_waiting_message_starts_in_the_session_after_the_closed_one(event: Event) -> None:
    changes, _, state = take(idle(message("a"), session="s_now"), event)
    assert [type(each) for each in changes] == [SetSession, OpenSession, StartTurn]
    assert state.session == "s_new"
    assert state.turn
    assert state.turn.session == "s_new"


def test_before_the_first_turn_everyone_may_use_the_commands() -> None:
    state = idle(session="s_now", person="")
    changes, _, _ = take(state, NewSession(BY_BOB))
    assert changes == [closed("s_now", SessionReason.NEW)]


RESUMED = SetSession("s_1", SessionState.ACTIVE, None, NOW)


def test_resume_switches_from_a_running_turn_and_makes_its_sender_the_requester() -> None:
    state = busy(person=BOB)
    event = ResumeSession(context=BY_BOB, session="s_1", title="Trip")
    assert take(state, event) == (
        [
            ended(TurnState.STOPPED, "switched"),
            SetSession("s_now", SessionState.SUSPENDED, SessionReason.SWITCHED, NOW),
            RESUMED,
        ],
        [
            CancelTask(running(), "switched"),
            notice(NoticeId.RESUMED, fields={"n": 0, "title": "Trip"}),
        ],
        changed(
            state,
            session="s_1",
            session_used_at=NOW,
            turn=running(cancelling=True),
            resumable=ResumableSession("s_now", SessionReason.SWITCHED),
        ),
    )


def test_resume_by_an_admin_makes_the_admin_the_requester() -> None:
    by_admin = msgspec.structs.replace(BY_BOB, admin=True)
    _, _, after = take(idle(), ResumeSession(context=by_admin, session="s_1"))
    assert after.person == BOB


def test_resume_counts_the_held_messages() -> None:
    event = ResumeSession(context=BY_ANN, session="s_1", held=(message("a"), message("b")))
    _, effects, _ = take(idle(draining=True), event)
    assert effects == [notice(NoticeId.RESUMED, fields={"n": 2, "title": ""})]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        pytest.param(
            idle(session="s_now"),
            ResumeSession(context=BY_ANN, session="s_now", last=last_turn()),
            id="the active session, without a button",
        ),
        pytest.param(
            idle(session="s_now"),
            ResumeSession(context=BY_ANN, session="s_now", turn="t_1"),
            id="the active session, without a last turn",
        ),
        pytest.param(
            idle(session="s_now"),
            ResumeSession(
                context=BY_ANN, session="s_now", turn="t_1", last=last_turn(repeatable=False)
            ),
            id="a turn that cannot be repeated",
        ),
        pytest.param(
            idle(),
            ResumeSession(
                context=BY_ANN, session=None, resume_turn=True, last=last_turn(person=BOB)
            ),
            id="no session",
        ),
    ],
)
def test_where_nothing_can_be_resumed_the_answer_says_so(
    state: ConversationState, event: Event
) -> None:
    assert take(state, event) == ([], [notice(NoticeId.NOTHING_TO_RESUME)], state)


def test_the_session_of_another_author_can_be_resumed_without_the_last_turn() -> None:
    event = ResumeSession(context=BY_ANN, session="s_1", last=last_turn(person=BOB, session="s_1"))
    changes, _, state = take(idle(), event)
    assert (changes, state.turn) == ([RESUMED], None)


def test_the_button_of_a_turn_in_another_session_switches_to_that_session() -> None:
    event = ResumeSession(context=BY_ANN, session="s_1", turn="t_1", last=last_turn(session="s_1"))
    changes, _, state = take(idle(session="s_now"), event)
    assert changes[-1] == RESUMED
    assert (state.session, state.turn) == ("s_1", None)


@pytest.mark.parametrize(
    ("state", "last"),
    [
        pytest.param(idle(draining=True), last_turn(session="s_1"), id="before a restart"),
        pytest.param(idle(), last_turn(session="s_1", repeatable=False), id="not repeatable"),
    ],
)
def test_a_session_is_resumed_without_a_turn_that_may_not_start(
    state: ConversationState, last: LastTurn
) -> None:
    event = ResumeSession(context=BY_ANN, session="s_1", resume_turn=True, last=last)
    changes, _, after = take(state, event)
    assert (changes, after.turn) == ([RESUMED], None)


GO_ON = ResumeSession(context=BY_ANN, session="s_now", turn="t_1", last=last_turn())


def test_a_failed_turn_of_the_active_session_continues_as_resumed() -> None:
    turn = started()
    state = idle(session="s_now")
    assert take(state, GO_ON) == (
        [start_of(turn, ())],
        [StartTask(turn=turn, resumed=True)],
        changed(state, turn=turn, session_used_at=NOW),
    )


AGAIN = RetryTurn(BY_ANN, last_turn())


@pytest.mark.parametrize(
    ("state", "event", "why"),
    [
        pytest.param(busy(), GO_ON, NoticeId.BUSY, id="go on during a turn"),
        pytest.param(busy(), AGAIN, NoticeId.BUSY, id="retry during a turn"),
        pytest.param(
            idle(session="s_now", draining=True),
            GO_ON,
            NoticeId.RESTARTING_SOON,
            id="go on before a restart",
        ),
        pytest.param(
            idle(session="s_now", draining=True),
            AGAIN,
            NoticeId.RESTARTING_SOON,
            id="retry before a restart",
        ),
        pytest.param(
            idle(session="s_now"),
            RetryTurn(BY_ANN, last_turn(messages=())),
            NoticeId.NOTHING_TO_RETRY,
            id="retry of a turn without messages",
        ),
        pytest.param(
            idle(session="s_other"),
            UndoTurn(BY_ANN, last_turn()),
            NoticeId.NOTHING_TO_UNDO,
            id="undo in another session",
        ),
    ],
)
def test_a_turn_that_cannot_run_again_now_changes_nothing(
    state: ConversationState, event: Event, why: NoticeId
) -> None:
    assert take(state, event) == ([], [notice(why)], state)


def test_retry_answers_where_the_command_was_sent() -> None:
    turn, last = started(address=DESK), last_turn(reply_to="m_1")
    state = idle(session="s_now")
    assert take(state, RetryTurn(BY_ANN, last)) == (
        [TakeBackTurn("s_now", "t_1", NOW), start_of(turn, ("a",), *last.messages)],
        [StartTask(turn=turn)],
        changed(state, turn=turn, session_used_at=NOW),
    )


@pytest.mark.parametrize(
    ("messages", "request_"), [((Message("user", "again"),), "again"), ((), "")]
)
def test_undo_names_the_request(messages: tuple[Message, ...], request_: str) -> None:
    state = idle(session="s_now")
    assert take(state, UndoTurn(BY_ANN, last_turn(messages=messages))) == (
        [TakeBackTurn("s_now", "t_1", NOW)],
        [notice(NoticeId.UNDONE, fields={"request": request_})],
        state,
    )


EARLIER = ResumableSession("s_1", SessionReason.STOP)


@pytest.mark.parametrize(
    ("session", "changes", "effects", "fields"),
    [
        pytest.param(
            "s_now",
            [ended(TurnState.STOPPED, "deleted")],
            [CancelTask(running(), "deleted")],
            {"session": None, "turn": running(cancelling=True)},
            id="the active one",
        ),
        pytest.param(
            "s_1", [], [], {"resumable": None, "replaced_reason": None}, id="the suspended one"
        ),
        pytest.param("s_9", [], [], {}, id="another one"),
    ],
)
def test_only_the_named_session_is_deleted(
    session: str, changes: list[Change], effects: list[Effect], fields: dict[str, Any]
) -> None:
    state = busy(resumable=EARLIER, replaced_reason=SessionReason.STOP)
    assert take(state, DeleteSession(BY_ANN, session)) == (
        [*changes, closed(session, SessionReason.DELETED)],
        effects,
        changed(state, **fields),
    )


# --- people without access ---------------------------------------------------------------------


def lost(request: str, count: int, turn: str | None) -> SendNotice:
    return SendNotice(
        notice=NoticeId.ACCESS_LOST,
        address=ROOM,
        fields={"request": request, "n": count},
        urgent=True,
        turn=turn,
    )


def test_lost_access_stops_a_turn_and_closes_a_session_for_a_single_turn() -> None:
    turn = running(single_turn=True)
    state = busy(turn=turn)
    assert take(state, AccessLost(frozenset({ANN}))) == (
        [ended(TurnState.STOPPED, "access lost"), closed("s_now", SessionReason.ANSWERED)],
        [CancelTask(turn, "access lost"), lost("go", 0, "t_now")],
        changed(state, session=None, turn=msgspec.structs.replace(turn, cancelling=True)),
    )


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(idle(message("a")), id="no turn"),
        pytest.param(cancelling(message("a")), id="a turn that is cancelled already"),
        pytest.param(busy(message("a"), turn=running(person=BOB)), id="a turn of another person"),
    ],
)
def test_lost_access_drops_waiting_messages_beside_other_turns(state: ConversationState) -> None:
    assert take(state, AccessLost(frozenset({ANN}))) == (
        [SetInbox(ids=("a",), state=InboxState.IGNORED, at=NOW)],
        [lost("", 1, None)],
        changed(state, waiting=()),
    )


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(idle(message("a")), id="no turn"),
        pytest.param(cancelling(message("a")), id="a turn that is cancelled already"),
        pytest.param(busy(message("a"), turn=running(origin="o.other")), id="another turn"),
    ],
)
def test_a_client_that_leaves_takes_back_its_waiting_message(state: ConversationState) -> None:
    assert take(state, RequestAbandoned("a", "o.turn")) == (
        [SetInbox(ids=("a",), state=InboxState.DONE, at=NOW)],
        [],
        changed(state, waiting=()),
    )


# --- steering ----------------------------------------------------------------------------------


def test_steering_messages_are_recorded_with_the_turn() -> None:
    steer = message("a", mode=BusyPolicy.STEER, reply_to="m_a")
    state = busy(steer, message("b"))
    assert take(state, SteersRequested("t_now")) == (
        [
            SetInbox(
                ids=("a",),
                state=InboxState.RUNNING,
                at=NOW,
                session_id="s_now",
                turn_id="t_now",
            ),
            AppendMessages("s_now", "t_now", (steer.message,), NOW),
        ],
        [DeliverSteers("t_now", (steer.message,), "m_a")],
        changed(state, waiting=(message("b"),)),
    )


@pytest.mark.parametrize("make", [idle, cancelling])
def test_without_a_running_turn_no_steering_message_is_delivered(make: Any) -> None:
    state = make(message("a", mode=BusyPolicy.STEER))
    assert take(state, SteersRequested("t_now")) == ([], [DeliverSteers("t_now", ())], state)


# --- the start of a turn -----------------------------------------------------------------------


def test_the_message_after_a_stop_opens_a_session_with_the_earlier_messages() -> None:
    before = Message("user", "before")
    asked = message("a", prior_messages=(before,))
    state = idle(person=BOB, resumable=EARLIER, replaced_reason=SessionReason.STOP)
    turn = started(session="s_new", request="say a", origin="o.a")
    rows = (before, asked.message)
    assert take(state, MessageArrived(asked)) == (
        [OpenSession("s_new", "web:room", ROOM, NOW), start_of(turn, ("a",), *rows)],
        [
            notice(NoticeId.FRESH_SESSION, ROOM, origin="o.a"),
            StartTask(turn=turn, replaced_reason=SessionReason.STOP, opening_rows=rows),
        ],
        changed(
            state,
            session="s_new",
            turn=turn,
            person=ANN,
            replaced_reason=None,
            session_used_at=NOW,
        ),
    )


def test_the_first_turn_after_an_expired_session_has_the_rows_of_the_new_one() -> None:
    arrived = MessageArrived(message("a"), expired=SessionReason.IDLE)
    _, effects, _ = take(idle(session="s_old"), arrived)
    (start,) = [each for each in effects if isinstance(each, StartTask)]
    assert start.opening_rows == (Message("user", "say a"),)


def test_a_long_request_is_kept_in_part_and_a_turn_without_messages_has_none() -> None:
    _, _, state = take(idle(session="s_now"), MessageArrived(message("a", content=LONG)))
    assert state.turn.request == "x" * 1000
    event = msgspec.structs.replace(GO_ON, last=last_turn(messages=()))
    _, _, state = take(idle(session="s_now"), event)
    assert state.turn.request == ""


def test_a_queue_holds_20_messages_unless_configured() -> None:
    assert StepContext(NOW, str).queue_limit == 20


def test_without_a_suspended_session_none_continues_by_itself() -> None:
    state = idle(auto_resume=True, replaced_reason=SessionReason.CRASH)
    changes, _, _ = take(state, MessageArrived(message("a")))
    assert [type(each) for each in changes] == [OpenSession, StartTurn]


def test_a_switched_session_counts_the_messages_it_holds() -> None:
    state = idle(message("a"), session="s_now")
    changes, _, after = take(state, ResumeSession(context=BY_ANN, session="s_1"))
    assert changes[0] == SetInbox(ids=("a",), state=InboxState.HELD, at=NOW, session_id="s_now")
    assert after.resumable == ResumableSession("s_now", SessionReason.SWITCHED, held=1)


def test_a_resumed_session_replaces_no_interrupted_one() -> None:
    state = idle(resumable=EARLIER, replaced_reason=SessionReason.STOP)
    _, _, after = take(state, ResumeSession(context=BY_ANN, session="s_1"))
    assert (after.resumable, after.replaced_reason) == (None, None)


@pytest.mark.parametrize("single", [True, False])
def test_a_crashed_turn_with_a_whole_answer_closes_a_session_for_a_single_turn(
    single: bool,
) -> None:
    turn = running(single_turn=single)
    state = idle(session="s_now")
    end = [ended(TurnState.DONE, "tool_calls")]
    assert take(state, crash(turn=turn, finished_cause="tool_calls")) == (
        [*end, closed("s_now", SessionReason.ANSWERED)] if single else end,
        [],
        changed(state, session=None) if single else state,
    )


def test_the_end_of_a_single_turn_closes_no_other_session() -> None:
    state = busy(session="s_other", turn=running(single_turn=True))
    changes, _, after = take(state, TurnEnded("t_now", TurnState.DONE))
    assert [type(each) for each in changes] == [EndTurn]
    assert after.session == "s_other"


def test_only_messages_that_ask_for_it_are_joined() -> None:
    state = busy(message("a"), message("b", mode=BusyPolicy.COLLECT))
    changes, _, after = take(state, TurnEnded("t_now", TurnState.DONE))
    assert changes[-1].inbox == ("a",)
    assert [each.id for each in after.waiting] == ["b"]


def test_a_single_message_is_stored_as_it_is() -> None:
    whole = Message("user", "say a", words="say a")
    changes, _, _ = take(idle(session="s_now"), MessageArrived(message("a", message=whole)))
    assert changes[-1].messages == (whole,)


def test_joined_messages_keep_the_details_of_the_last_one() -> None:
    waiting = [
        message(name, mode=BusyPolicy.COLLECT, message=Message("user", name, sender=name))
        for name in "abc"
    ]
    changes, _, _ = take(busy(*waiting), TurnEnded("t_now", TurnState.DONE))
    assert changes[-1].messages == (Message("user", "a\n\nb\n\nc", sender="c"),)
