"""Sans-IO: the state machine of one conversation.

`step` takes the state and one event. The result is the next state, the changes that make this state
durable (one transaction) and the effects to carry out after the commit. Only one turn runs at a
time, waiting messages are answered in order, no received message is dropped silently, and an
interrupted session is suspended.

A turn and the session it belongs to have separate states. A cancelled turn keeps its place until
its task has ended, although its session may be suspended or closed by then:

    turn     none ───start───▶ running ───cancel───▶ cancelling
              ▲                   │                      │
              └──── TurnEnded ────┴────── TurnEnded ─────┘

    session  none ───open────▶ active ◀──reactivate── suspended   (`resumable`)
              ▲                 │  └─────suspend───────▶
              └──────close──────┘

A suspended session can also be closed, and a request can reactivate a closed session by naming it.

"Start next" starts a turn with the first waiting message, opening a session if none is active. It
does nothing while a turn exists, while draining, or if no message waits. `-` is "no effect".

    event               no turn                     turn running               turn cancelling
    ──────────────────  ──────────────────────────  ─────────────────────────  ───────────────────
    MessageArrived      queue, start next (a)       queue (a, b)               queue (a)
    MessageRedelivered  -                           -                          -
    StartWaiting        start next                  -                          -
    TurnEnded           -                           end turn, start next (c)   start next
    TurnCrashed         resume it, or suspend (d)   the same                   the same
    StopTurn            answer: nothing to stop     cancel, hold queue,        nothing to stop, but
                                                    suspend (stop)             as for running if (e)
    NewSession          close (new), start next     cancel, close (new)        close (new)
    ResumeSession       switch, start next (f)      cancel, switch (f)         switch (f)
    RetryTurn           take back, start again (g)  refuse: busy               refuse: busy
    UndoTurn            take back the last turn     refuse: busy               refuse: busy
    DeleteSession       close (deleted), start      cancel if its session,     close (deleted)
                        next                        close (deleted)
    InterruptTurn       -                           cancel, suspend (h)        -
    RequestAbandoned    unqueue its message         cancel if its turn (c),    unqueue its message
                                                    else unqueue its message
    SteersRequested     deliver nothing             deliver steering messages  deliver nothing
    RequestTranscribed  -                           replace the request        -
    MessageEdited       replace the queued message  the same                   the same
    MessageDeleted      unqueue the message         the same                   the same
    Drain               start no more turns         the same                   the same

(a) A full queue refuses the message with a notice. Without a turn, an expired session is closed
    first. While draining, the first message is answered with a notice of the restart.
(b) In mode "interrupt" the turn is cancelled and the message moves to the front of the queue,
    unless draining.
(c) A session for a single turn is closed with the turn.
(d) Suspends (crash or stuck) only if the turn's session is still the active one.
(e) A message waits in an active session: this message is about to start and counts as running.
(f) The active session is suspended (switched) and holds its queue; the other one is reactivated
    with the messages it held, and its last turn continues if asked for and no turn exists. The
    button of a failed turn of the active session only continues that turn; it is refused (busy)
    while a turn exists.
(g) Reactivates the session of the turn if another one is active or none. Refused while draining.
(h) With `resume_after_restart` the session stays active and the journal keeps the turn running.

`NewSession`, `ResumeSession`, `RetryTurn` and `UndoTurn` are refused for anyone but the last
requester and admins.
"""

from collections.abc import Callable

import msgspec

from sessions.attached import request_text
from sessions.changes import (
    AppendMessages,
    Change,
    EndTurn,
    OpenSession,
    SetInbox,
    SetRequest,
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
    Effect,
    Event,
    InterruptTurn,
    LastTurn,
    MessageArrived,
    MessageDeleted,
    MessageEdited,
    MessageRedelivered,
    NewSession,
    PendingMessage,
    QueueNotice,
    RequestAbandoned,
    RequestTranscribed,
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
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.notices import NoticeId

MAX_REQUEST_CHARS = 1000

_INTERRUPTION_REASONS = {SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK}

_EXPIRED_NOTICES = {
    SessionReason.IDLE: NoticeId.EXPIRED_IDLE,
    SessionReason.DAILY: NoticeId.EXPIRED_DAILY,
}


class StepContext(msgspec.Struct, frozen=True):
    """Inputs of a step besides state and event."""

    now: int
    new_id: Callable[[str], str]
    queue_limit: int = 20


class Transition(msgspec.Struct):
    """The outcome of a step, filled in while the step runs."""

    state: ConversationState
    changes: list[Change] = []
    effects: list[Effect] = []


def step(state: ConversationState, event: Event, env: StepContext) -> Transition:
    """Return the next state, changes and effects for one event."""
    result = Transition(state)
    match event:
        case MessageArrived():
            _on_message_arrived(result, event, env)
        case MessageRedelivered():
            pass  # the actor already found a turn for this message
        case TurnEnded():
            _on_turn_ended(result, event, env)
        case TurnCrashed():
            _on_crashed_turn(result, event, env)
        case StartWaiting():
            _start_next(result, env)
        case StopTurn():
            _on_stop(result, event, env)
        case NewSession():
            _on_new_session(result, event, env)
        case ResumeSession():
            _on_resume(result, event, env)
        case RetryTurn():
            _on_retry(result, event, env)
        case UndoTurn():
            _on_undo(result, event, env)
        case MessageDeleted():
            _on_message_deleted(result, event, env)
        case RequestAbandoned():
            _on_request_abandoned(result, event, env)
        case MessageEdited():
            _on_message_edited(result, event)
        case SteersRequested():
            _on_steers_requested(result, event, env)
        case RequestTranscribed():
            _on_request_transcribed(result, event)
        case Drain():
            result.state = msgspec.structs.replace(result.state, draining=True)
        case InterruptTurn():
            _on_interrupt(result, event, env)
        case DeleteSession():
            _on_delete(result, event, env)
    _update_queue_notice(result, state, env)
    if (
        isinstance(
            event, StopTurn | NewSession | ResumeSession | RetryTurn | UndoTurn | DeleteSession
        )
        and event.context.inbox
    ):
        result.changes.append(
            SetInbox(ids=(event.context.inbox,), state=InboxState.DONE, at=env.now)
        )
    _set_notice_origins(result, event)
    return result


def _set_notice_origins(result: Transition, event: Event) -> None:
    """Set the origin of notices that answer this event; keep an origin that is already set."""
    match event:
        case MessageArrived(pending=asked):
            origin = asked.origin
        case (
            StopTurn(context=by)
            | NewSession(context=by)
            | ResumeSession(context=by)
            | RetryTurn(context=by)
            | UndoTurn(context=by)
            | DeleteSession(context=by)
        ):
            origin = by.origin
        case _:
            return
    result.effects = [
        msgspec.structs.replace(act, origin=origin)
        if isinstance(act, SendNotice) and not (act.item_id or act.origin)
        else act
        for act in result.effects
    ]


# --- messages and turns ----------------------------------------------------------------------


def _on_message_arrived(result: Transition, event: MessageArrived, env: StepContext) -> None:
    state, pending = result.state, event.pending
    others = tuple(p for p in state.waiting if p.id != pending.id)
    known = len(others) < len(state.waiting)  # loaded from the store before the event arrived
    if not known and len(others) >= env.queue_limit:
        result.changes.append(SetInbox(ids=(pending.id,), state=InboxState.REFUSED, at=env.now))
        result.effects.append(
            SendNotice(
                notice=NoticeId.QUEUE_FULL,
                address=pending.address,
                fields={"limit": env.queue_limit},
            )
        )
        return
    # A message that names a session does not ask for a fresh one.
    continues = pending.continued_session == state.session
    if event.expired and state.turn is None and state.session and not continues:
        result.changes.append(
            SetSession(state.session, SessionState.CLOSED, event.expired, env.now)
        )
        result.effects.append(
            SendNotice(notice=_EXPIRED_NOTICES[event.expired], address=pending.address)
        )
        result.state = msgspec.structs.replace(result.state, session=None)
    if not known:
        result.state = msgspec.structs.replace(result.state, waiting=(*others, pending))
    if state.turn is None or state.turn.cancelling:
        _start_next(result, env)
    elif pending.mode is BusyPolicy.INTERRUPT and not state.draining:
        result.state = msgspec.structs.replace(result.state, waiting=(pending, *others))
        _cancel_running(result, TurnState.INTERRUPTED, "new message", env)
        return
    state = result.state
    if state.draining:
        if not state.draining_announced:
            result.state = msgspec.structs.replace(result.state, draining_announced=True)
            result.effects.append(
                SendNotice(notice=NoticeId.RESTARTING_SOON, address=pending.address)
            )
    elif (
        state.turn
        and not state.turn.cancelling
        and pending in state.waiting
        and not state.queue_notice
    ):
        name = f"n_{pending.origin}.N15" if pending.origin else env.new_id("n")
        result.state = msgspec.structs.replace(
            result.state, queue_notice=QueueNotice(name, pending.address)
        )


def _update_queue_notice(result: Transition, before: ConversationState, env: StepContext) -> None:
    """Update the queue notice to match the state after this step, or remove the notice."""
    state = result.state
    line, turn = state.queue_notice, state.turn
    if line is None:
        return
    if turn is None or turn.cancelling or not state.waiting:
        result.effects.append(
            SendNotice(notice=NoticeId.QUEUE_DONE, address=line.address, item_id=line.id)
        )
        result.state = msgspec.structs.replace(result.state, queue_notice=None)
    elif (before.queue_notice, before.turn, len(before.waiting)) != (
        line,
        turn,
        len(state.waiting),
    ):
        fields: dict[str, str | int] = {
            "n": len(state.waiting),
            "request": turn.request,
            "min": (env.now - turn.started_at) // 60_000,
        }
        result.effects.append(
            SendNotice(notice=NoticeId.QUEUED, address=line.address, fields=fields, item_id=line.id)
        )


def _start_next(result: Transition, env: StepContext) -> None:
    """Start the next turn if one may start."""
    state = result.state
    if state.turn or state.draining or not state.waiting:
        return
    taken = _next_batch(state.waiting)
    result.state = msgspec.structs.replace(result.state, waiting=state.waiting[len(taken) :])
    after = taken[0].continued_session
    if after and state.session is None:
        _activate_session(result, after, (), env)
        state = result.state
    elif state.auto_resume and state.resumable and state.replaced_reason in _INTERRUPTION_REASONS:
        _activate_session(result, state.resumable.session, (), env)
        state = result.state
    fresh_after, request = state.replaced_reason, state.resumable.request if state.resumable else ""
    before: tuple[Message, ...] = ()
    if state.session is None:
        before = taken[0].prior_messages
        session = env.new_id("s")
        result.changes.append(OpenSession(session, state.key, taken[0].address, env.now))
        result.state = msgspec.structs.replace(result.state, session=session, replaced_reason=None)
        if fresh_after:
            result.effects.append(
                SendNotice(
                    notice=NoticeId.FRESH_SESSION,
                    address=taken[-1].address,
                    origin=taken[-1].origin,
                )
            )
    else:
        fresh_after = None
        if after == state.session:
            before = taken[0].prior_messages
    interrupted = fresh_after in _INTERRUPTION_REASONS
    _start_turn(
        result,
        tuple(p.id for p in taken),
        (*before, _merge_messages(taken)),
        taken[-1],
        env,
        origin=taken[-1].origin,
        fresh_after=fresh_after,
        interrupted_request=request if interrupted else "",
    )


def _next_batch(waiting: tuple[PendingMessage, ...]) -> tuple[PendingMessage, ...]:
    """Return the first waiting message, with the ones behind it that may be joined to it."""
    taken = 1
    if waiting[0].mode is BusyPolicy.COLLECT:
        while taken < len(waiting) and waiting[taken].mode is BusyPolicy.COLLECT:
            taken += 1
    return waiting[:taken]


def _merge_messages(batch: tuple[PendingMessage, ...]) -> Message:
    if len(batch) == 1:
        return batch[0].message
    content = "\n\n".join(p.message.content for p in batch if p.message.content)
    files = tuple(file for p in batch for file in p.message.files)
    return msgspec.structs.replace(batch[-1].message, content=content, files=files)


def _start_turn(
    result: Transition,
    inbox: tuple[str, ...],
    messages: tuple[Message, ...],
    source: PendingMessage | LastTurn,
    env: StepContext,
    *,
    origin: str,
    fresh_after: SessionReason | None = None,
    interrupted_request: str = "",
    resumed: bool = False,
) -> None:
    state = result.state
    assert state.session is not None  # noqa: S101 - every caller has opened a session
    asked = messages or (source.messages if isinstance(source, LastTurn) else ())
    request = request_text(asked[-1])[:MAX_REQUEST_CHARS] if asked else ""
    turn = RunningTurn(
        id=env.new_id("t"),
        session=state.session,
        address=source.address,
        person=source.person,
        request=request,
        started_at=env.now,
        reply_to=source.reply_to,
        origin=origin,
        request_options=source.request_options,
        single_turn=source.single_turn,
    )
    result.changes.append(
        StartTurn(
            id=turn.id,
            session_id=state.session,
            key=state.key,
            address=source.address,
            inbox=inbox,
            messages=messages,
            request=request,
            at=env.now,
            person=source.person,
        )
    )
    result.effects.append(StartTask(turn, fresh_after, interrupted_request, resumed))
    result.state = msgspec.structs.replace(
        result.state, turn=turn, person=source.person, session_used_at=env.now
    )


def _on_turn_ended(result: Transition, event: TurnEnded, env: StepContext) -> None:
    turn = result.state.turn
    if turn is None or turn.id != event.turn:
        return
    if not turn.cancelling:
        result.changes.extend(event.changes)
        result.changes.append(EndTurn(turn.id, event.state, env.now, event.cause))
        _close_single_turn_session(result, turn, env)
    result.state = msgspec.structs.replace(result.state, turn=None, session_used_at=env.now)
    _start_next(result, env)


def _close_single_turn_session(result: Transition, turn: RunningTurn, env: StepContext) -> None:
    """Close a session that exists for a single turn."""
    if turn.single_turn and result.state.session == turn.session:
        closed = SetSession(turn.session, SessionState.CLOSED, SessionReason.ANSWERED, env.now)
        result.changes.append(closed)
        result.state = msgspec.structs.replace(result.state, session=None)


def _cancel_running(result: Transition, state: TurnState, cause: str, env: StepContext) -> None:
    """Cancel the running turn; later results do not count."""
    turn = result.state.turn
    if turn is None or turn.cancelling:
        return
    result.effects.append(CancelTask(turn, cause))
    result.changes.append(EndTurn(turn.id, state, env.now, cause))
    result.state = msgspec.structs.replace(
        result.state, turn=msgspec.structs.replace(turn, cancelling=True)
    )


def _on_crashed_turn(result: Transition, event: TurnCrashed, env: StepContext) -> None:
    turn = event.turn
    result.changes.extend(event.changes)
    if event.resume:
        result.changes.append(
            StartTurn(
                id=turn.id,
                session_id=turn.session,
                key=result.state.key,
                address=turn.address,
                inbox=(),
                messages=(),
                request=turn.request,
                at=env.now,
                person=turn.person,
            )
        )
        result.effects.append(StartTask(turn, resumed=True))
        result.state = msgspec.structs.replace(result.state, turn=turn, person=turn.person)
        return
    result.changes.append(EndTurn(turn.id, TurnState.INTERRUPTED, env.now, "crash"))
    reason = SessionReason.STUCK if event.stuck else SessionReason.CRASH
    if result.state.session == turn.session:
        _suspend(result, reason, turn.request, env)
        result.effects.append(
            SendNotice(
                notice=NoticeId.TURN_INTERRUPTED,
                address=turn.address,
                fields=event.fields,
                turn=turn.id,
            )
        )


def _suspend(
    result: Transition, reason: SessionReason, request: str, env: StepContext, held: int = 0
) -> None:
    session = result.state.session
    if session is None:
        return
    result.changes.append(SetSession(session, SessionState.SUSPENDED, reason, env.now))
    fresh = None if reason is SessionReason.SWITCHED else reason
    earlier = ResumableSession(session, reason, request, held)
    result.state = msgspec.structs.replace(
        result.state, session=None, resumable=earlier, replaced_reason=fresh
    )


def _hold_waiting(result: Transition, env: StepContext) -> int:
    """Hold the waiting messages with the session about to be suspended; return their number."""
    state = result.state
    if state.waiting and state.session:
        ids = tuple(p.id for p in state.waiting)
        result.changes.append(
            SetInbox(ids=ids, state=InboxState.HELD, at=env.now, session_id=state.session)
        )
        result.state = msgspec.structs.replace(result.state, waiting=())
    return len(state.waiting)


# --- commands --------------------------------------------------------------------------------


def _on_stop(result: Transition, event: StopTurn, env: StepContext) -> None:
    state = result.state
    turn = state.turn
    if event.turn and (turn is None or turn.id != event.turn):
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_STOP, address=event.context.address, urgent=True)
        )
        return
    # A turn cancelled to make room for the next message counts as that message's start.
    if turn is None or state.session is None or (turn.cancelling and not state.waiting):
        if not event.quiet:
            result.effects.append(
                SendNotice(
                    notice=NoticeId.NOTHING_TO_STOP, address=event.context.address, urgent=True
                )
            )
        return
    request = request_text(state.waiting[0].message) if turn.cancelling else turn.request
    _cancel_running(result, TurnState.STOPPED, "stop", env)
    held = _hold_waiting(result, env)
    _suspend(result, SessionReason.STOP, request[:MAX_REQUEST_CHARS], env, held)
    result.effects.append(
        SendNotice(
            notice=NoticeId.STOPPED,
            address=event.context.address,
            fields={"n": held},
            urgent=True,
            turn=turn.id,
        )
    )


def _check_permission(result: Transition, by: CommandContext) -> bool:
    """Return True for the last requester and admins; send a notice to anyone else."""
    if by.admin or result.state.person in {"", by.person}:
        return True
    result.effects.append(SendNotice(notice=NoticeId.NOT_YOURS, address=by.address))
    return False


def _on_new_session(result: Transition, event: NewSession, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    _cancel_running(result, TurnState.STOPPED, "new", env)
    if result.state.session:
        result.changes.append(
            SetSession(result.state.session, SessionState.CLOSED, SessionReason.NEW, env.now)
        )
    result.state = msgspec.structs.replace(
        result.state, session=None, replaced_reason=None, person=""
    )
    result.effects.append(
        SendNotice(
            notice=NoticeId.NEW_SESSION,
            address=event.context.address,
            fields={"n": len(result.state.waiting)},
            urgent=True,
        )
    )
    _start_next(result, env)


def _on_resume(result: Transition, event: ResumeSession, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    if event.session == result.state.session and event.turn and event.last:
        _continue_last_turn(result, event.last, event, env)
        return
    if event.session is None or event.session == result.state.session:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_RESUME, address=event.context.address)
        )
        return
    _cancel_running(result, TurnState.STOPPED, "switched", env)
    _activate_session(result, event.session, event.held, env)
    result.effects.append(
        SendNotice(
            notice=NoticeId.RESUMED,
            address=event.context.address,
            fields={"n": len(event.held), "title": event.title},
        )
    )
    result.state = msgspec.structs.replace(result.state, person=event.context.person)
    if event.resume_turn and event.last and result.state.turn is None and not result.state.draining:
        source = msgspec.structs.replace(event.last, person=event.context.person)
        _start_turn(result, (), (), source, env, origin=event.context.origin, resumed=True)
    else:
        _start_next(result, env)


def _continue_last_turn(
    result: Transition, last: LastTurn, event: ResumeSession, env: StepContext
) -> None:
    """Continue the last turn of the active session, which failed."""
    if result.state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
    elif result.state.draining:
        result.effects.append(
            SendNotice(notice=NoticeId.RESTARTING_SOON, address=event.context.address)
        )
    else:
        source = msgspec.structs.replace(last, person=event.context.person)
        _start_turn(result, (), (), source, env, origin=event.context.origin, resumed=True)


def _activate_session(
    result: Transition, session: str, held: tuple[PendingMessage, ...], env: StepContext
) -> None:
    """Reactivate a suspended session together with the held messages."""
    if result.state.session:
        count = _hold_waiting(result, env)
        _suspend(result, SessionReason.SWITCHED, "", env, count)
    else:
        result.state = msgspec.structs.replace(result.state, resumable=None, replaced_reason=None)
    result.changes.append(SetSession(session, SessionState.ACTIVE, None, env.now))
    if held:
        ids = tuple(p.id for p in held)
        result.changes.append(SetInbox(ids=ids, state=InboxState.WAITING, at=env.now))
    waiting = (*held, *result.state.waiting)
    result.state = msgspec.structs.replace(
        result.state, session=session, session_used_at=env.now, waiting=waiting
    )


def _on_retry(result: Transition, event: RetryTurn, env: StepContext) -> None:
    state, last = result.state, event.last
    if not _check_permission(result, event.context):
        return
    if state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
        return
    if last is None or not last.messages:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_RETRY, address=event.context.address)
        )
        return
    if state.draining:
        result.effects.append(
            SendNotice(notice=NoticeId.RESTARTING_SOON, address=event.context.address)
        )
        return
    if state.session != last.session:
        _activate_session(result, last.session, event.held, env)
    result.changes.append(TakeBackTurn(last.session, last.id, env.now))
    here = event.context.address == last.address  # a message in another chat cannot be replied to
    source = msgspec.structs.replace(
        last,
        person=event.context.person,
        address=event.context.address,
        reply_to=last.reply_to if here else "",
    )
    _start_turn(result, last.inbox, last.messages, source, env, origin=event.context.origin)


def _on_undo(result: Transition, event: UndoTurn, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    if result.state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
    elif event.last is None or event.last.session != result.state.session:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_UNDO, address=event.context.address)
        )
    else:
        result.changes.append(TakeBackTurn(event.last.session, event.last.id, env.now))
        request = request_text(event.last.messages[-1]) if event.last.messages else ""
        result.effects.append(
            SendNotice(
                notice=NoticeId.UNDONE,
                address=event.context.address,
                fields={"request": request[:MAX_REQUEST_CHARS]},
            )
        )


def _on_delete(result: Transition, event: DeleteSession, env: StepContext) -> None:
    if event.if_idle and _is_in_use(result.state, event.session):
        return
    if result.state.session == event.session:
        _cancel_running(result, TurnState.STOPPED, "deleted", env)
        result.state = msgspec.structs.replace(result.state, session=None)
    earlier = result.state.resumable
    if earlier and earlier.session == event.session:
        result.state = msgspec.structs.replace(result.state, resumable=None, replaced_reason=None)
    result.changes.append(
        SetSession(event.session, SessionState.CLOSED, SessionReason.DELETED, env.now)
    )
    _start_next(result, env)


def _is_in_use(state: ConversationState, session: str) -> bool:
    return state.session == session or any(p.continued_session == session for p in state.waiting)


# --- edits, steering, shutdown ---------------------------------------------------------------


def _on_message_deleted(result: Transition, event: MessageDeleted, env: StepContext) -> None:
    state = result.state
    left = tuple(p for p in state.waiting if p.id != event.inbox)
    if len(left) < len(state.waiting):
        result.changes.append(SetInbox(ids=(event.inbox,), state=InboxState.DONE, at=env.now))
        result.state = msgspec.structs.replace(result.state, waiting=left)


def _on_request_abandoned(result: Transition, event: RequestAbandoned, env: StepContext) -> None:
    """End the turn without suspending its session, because no client is left to resume it."""
    turn = result.state.turn
    if turn and not turn.cancelling and turn.origin == event.origin:
        _cancel_running(result, TurnState.STOPPED, "left", env)
        _close_single_turn_session(result, turn, env)
    else:
        _on_message_deleted(result, MessageDeleted(event.inbox), env)


def _on_message_edited(result: Transition, event: MessageEdited) -> None:
    waiting = tuple(
        msgspec.structs.replace(p, message=event.message) if p.id == event.inbox else p
        for p in result.state.waiting
    )
    result.state = msgspec.structs.replace(result.state, waiting=waiting)


def _on_steers_requested(result: Transition, event: SteersRequested, env: StepContext) -> None:
    state = result.state
    steers = tuple(p for p in state.waiting if p.mode is BusyPolicy.STEER)
    if not state.turn or state.turn.id != event.turn or state.turn.cancelling:
        steers = ()
    if steers and state.turn:
        turn = state.turn
        ids, messages = tuple(p.id for p in steers), tuple(p.message for p in steers)
        result.changes.append(
            SetInbox(
                ids=ids,
                state=InboxState.RUNNING,
                at=env.now,
                session_id=turn.session,
                turn_id=turn.id,
            )
        )
        result.changes.append(AppendMessages(turn.session, turn.id, messages, env.now))
        result.state = msgspec.structs.replace(
            result.state, waiting=tuple(p for p in state.waiting if p not in steers)
        )
    reply_to = steers[-1].reply_to if steers else ""
    result.effects.append(DeliverSteers(event.turn, tuple(p.message for p in steers), reply_to))


def _on_request_transcribed(result: Transition, event: RequestTranscribed) -> None:
    turn = result.state.turn
    if turn is None or turn.id != event.turn or turn.cancelling:
        return
    request = event.request[:MAX_REQUEST_CHARS]
    result.changes.append(SetRequest(turn.id, turn.session, turn.request, request))
    result.state = msgspec.structs.replace(
        result.state, turn=msgspec.structs.replace(turn, request=request)
    )


def _on_interrupt(result: Transition, event: InterruptTurn, env: StepContext) -> None:
    turn = result.state.turn
    if turn is None or turn.cancelling:
        return
    if event.resume_after_restart:
        result.effects.append(CancelTask(turn, event.reason.value, resume_after_restart=True))
        result.state = msgspec.structs.replace(
            result.state, turn=msgspec.structs.replace(turn, cancelling=True)
        )
        return
    _cancel_running(result, TurnState.INTERRUPTED, event.reason.value, env)
    _suspend(result, event.reason, turn.request, env)
    result.effects.append(
        SendNotice(
            notice=NoticeId.TURN_INTERRUPTED,
            address=turn.address,
            fields=event.fields,
            turn=turn.id,
        )
    )
