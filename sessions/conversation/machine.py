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
    SteersRequested     deliver nothing             deliver messages (i)       deliver nothing
    RequestTranscribed  -                           replace the request        -
    MessageEdited       replace the queued message  the same                   the same
    MessageDeleted      unqueue the message         the same                   the same
    AccessLost          drop their messages         the same, cancel their     drop their messages
                                                    turn
    Drain               start no more turns         the same                   the same

(a) A full queue refuses the message with a notice. Without a turn, an expired session is closed
    first. While draining, the first message is answered with a notice of the restart.
(b) In mode "interrupt" a message of the turn's own requester cancels the turn and moves to the
    front of the queue, unless draining.
(c) A session for a single turn is closed with the turn.
(d) Suspends (crash or stuck) only if the turn's session is still the active one.
(e) A message waits in an active session: this message is about to start and counts as running.
(f) The active session is suspended (switched) and holds its queue; the other one is reactivated
    with the messages it held, and its last turn continues if asked for and no turn exists. The
    button of a failed turn of the active session only continues that turn; it is refused (busy)
    while a turn exists. Refused if the held messages and those that wait without an active session
    are more than the queue may hold; held messages over the limit alone are refused one by one.
(g) Reactivates the session of the turn if another one is active or none, within the same limit.
    Refused while draining.
(h) With `resume_after_restart` the session stays active and the journal keeps the turn running.
(i) The steering messages of the turn's own requester.

`NewSession`, `ResumeSession`, `RetryTurn` and `UndoTurn` are refused for anyone but the last
requester and admins. A turn is retried, continued or undone only for its author and admins.

Every turn contains the messages of one person and runs with the authority of that person: steering
and collecting join only messages of the same person, and a retried or continued turn keeps its
author even if an admin starts it. Messages of other people wait for turns of their own.
"""

import msgspec

from sessions.attached import request_text
from sessions.changes import (
    AppendMessages,
    EndTurn,
    SetInbox,
    SetRequest,
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
    Drain,
    Event,
    Interruption,
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
from sessions.conversation.transition import MAX_REQUEST_CHARS, NewTurn, StepContext, Transition
from sessions.records import InboxState, SessionReason, SessionState, TurnState
from sessions.values.item_ids import ItemType, notice_id
from sessions.values.notices import NoticeId

_EXPIRED_NOTICES = {
    SessionReason.IDLE: NoticeId.EXPIRED_IDLE,
    SessionReason.DAILY: NoticeId.EXPIRED_DAILY,
}


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
            result.start_next(env)
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
        case AccessLost():
            _on_access_lost(result, event, env)
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
    if origin := _origin_of(event):
        result.effects = [
            msgspec.structs.replace(act, origin=origin)
            if isinstance(act, SendNotice) and not (act.item_id or act.origin)
            else act
            for act in result.effects
        ]


def _origin_of(event: Event) -> str:
    """Return the origin of the message or command; empty for events without one."""
    match event:
        case MessageArrived(pending=asked):
            return asked.origin
        case (
            StopTurn(context=by)
            | NewSession(context=by)
            | ResumeSession(context=by)
            | RetryTurn(context=by)
            | UndoTurn(context=by)
            | DeleteSession(context=by)
        ):
            return by.origin
        case (
            MessageRedelivered()
            | MessageEdited()
            | MessageDeleted()
            | AccessLost()
            | RequestAbandoned()
            | RequestTranscribed()
            | SteersRequested()
            | StartWaiting()
            | TurnEnded()
            | TurnCrashed()
            | InterruptTurn()
            | Drain()
        ):
            return ""


# --- messages and turns ----------------------------------------------------------------------


def _on_message_arrived(result: Transition, event: MessageArrived, env: StepContext) -> None:
    state, pending = result.state, event.pending
    others = tuple(p for p in state.waiting if p.id != pending.id)
    known = len(others) < len(state.waiting)  # loaded from the store before the event arrived
    ahead = [p.id for p in state.waiting].index(pending.id) if known else len(others)
    if ahead >= env.queue_limit:
        result.state = msgspec.structs.replace(state, waiting=others)
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
        result.start_next(env, arrived=pending.id)
    elif _interrupts(pending, state.turn) and not state.draining:
        result.state = msgspec.structs.replace(result.state, waiting=(pending, *others))
        result.cancel_running(TurnState.INTERRUPTED, "new message", env)
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
        origin = pending.origin
        name = notice_id(origin, NoticeId.QUEUED) if origin else env.new_id(ItemType.NOTICE)
        result.state = msgspec.structs.replace(
            result.state, queue_notice=QueueNotice(name, pending.address)
        )


def _interrupts(pending: PendingMessage, turn: RunningTurn) -> bool:
    """True if a message ends the turn to take its place; only its requester's message does."""
    return pending.mode is BusyPolicy.INTERRUPT and pending.person == turn.person


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
        result.effects.append(
            SendNotice(
                notice=NoticeId.QUEUED,
                address=line.address,
                fields={
                    "n": len(state.waiting),
                    "request": turn.request,
                    "min": (env.now - turn.started_at) // 60_000,
                },
                item_id=line.id,
            )
        )


def _on_turn_ended(result: Transition, event: TurnEnded, env: StepContext) -> None:
    turn = result.state.turn
    if turn is None or turn.id != event.turn:
        return
    if not turn.cancelling:
        result.changes.extend(event.changes)
        result.changes.append(EndTurn(turn.id, event.state, env.now, event.cause))
        result.close_single_turn_session(turn, env)
    result.state = msgspec.structs.replace(result.state, turn=None, session_used_at=env.now)
    result.start_next(env)


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
        result.effects.append(StartTask(turn=turn, resumed=True))
        result.state = msgspec.structs.replace(result.state, turn=turn, person=turn.person)
        return
    result.changes.append(EndTurn(turn.id, TurnState.INTERRUPTED, env.now, "crash"))
    reason = SessionReason.STUCK if event.stuck else SessionReason.CRASH
    if result.state.session == turn.session:
        result.suspend(reason, env, request=turn.request, person=turn.person)
        result.effects.append(_interruption_notice(turn, event.interruption))


def _interruption_notice(turn: RunningTurn, interruption: Interruption) -> SendNotice:
    return SendNotice(
        notice=NoticeId.TURN_INTERRUPTED,
        address=turn.address,
        fields={
            "request": interruption.request,
            "min": interruption.minutes,
            "tool": interruption.tool,
            "preview": interruption.preview,
        },
        turn=turn.id,
    )


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
    request, person = turn.request, turn.person
    if turn.cancelling:
        request, person = request_text(state.waiting[0].message), state.waiting[0].person
    result.cancel_running(TurnState.STOPPED, "stop", env)
    held = result.hold_waiting(env)
    request = request[:MAX_REQUEST_CHARS]
    result.suspend(SessionReason.STOP, env, request=request, person=person, held=held)
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


def _check_author(result: Transition, last: LastTurn, by: CommandContext) -> bool:
    """Return True for the author of a turn and admins; send a notice to anyone else."""
    if by.admin or last.person == by.person:
        return True
    result.effects.append(SendNotice(notice=NoticeId.NOT_YOURS, address=by.address))
    return False


def _check_room(
    result: Transition, held: tuple[PendingMessage, ...], by: CommandContext, env: StepContext
) -> bool:
    """Return True if the queue can take the messages of a session; send a notice if it cannot."""
    if result.can_take(held, env):
        return True
    fields = {
        "held": len(held),
        "waiting": len(result.state.waiting),
        "limit": env.queue_limit,
    }
    result.effects.append(
        SendNotice(notice=NoticeId.RESUME_FULL, address=by.address, fields=fields)
    )
    return False


def _on_new_session(result: Transition, event: NewSession, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    result.cancel_running(TurnState.STOPPED, "new", env)
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
    result.start_next(env)


def _on_resume(result: Transition, event: ResumeSession, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    if event.session == result.state.session and event.turn and event.last:
        _continue_last_turn(result, event.last, event, env)
        return
    continued = event.last if event.resume_turn and event.session else None
    if continued and not _check_author(result, continued, event.context):
        return
    if event.session is None or event.session == result.state.session:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_RESUME, address=event.context.address)
        )
        return
    if not _check_room(result, event.held, event.context, env):
        return
    result.cancel_running(TurnState.STOPPED, "switched", env)
    result.activate_session(event.session, event.held, env)
    result.effects.append(
        SendNotice(
            notice=NoticeId.RESUMED,
            address=event.context.address,
            fields={"n": min(len(event.held), env.queue_limit), "title": event.title},
        )
    )
    result.state = msgspec.structs.replace(result.state, person=event.context.person)
    may_start = result.state.turn is None and not result.state.draining
    if may_start and continued and continued.repeatable:
        new = NewTurn(source=continued, origin=event.context.origin, resumed=True)
        result.start_turn(new, env)
    else:
        result.start_next(env)


def _continue_last_turn(
    result: Transition, last: LastTurn, event: ResumeSession, env: StepContext
) -> None:
    """Continue the last turn of the active session, which failed."""
    if not _check_author(result, last, event.context):
        return
    if not last.repeatable:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_RESUME, address=event.context.address)
        )
    elif result.state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
    elif result.state.draining:
        result.effects.append(
            SendNotice(notice=NoticeId.RESTARTING_SOON, address=event.context.address)
        )
    else:
        new = NewTurn(source=last, origin=event.context.origin, resumed=True)
        result.start_turn(new, env)


def _on_retry(result: Transition, event: RetryTurn, env: StepContext) -> None:
    state, last = result.state, event.last
    if not _check_permission(result, event.context):
        return
    if state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
        return
    if last is None or not (last.messages and last.repeatable):
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_RETRY, address=event.context.address)
        )
        return
    if not _check_author(result, last, event.context):
        return
    if state.draining:
        result.effects.append(
            SendNotice(notice=NoticeId.RESTARTING_SOON, address=event.context.address)
        )
        return
    if state.session != last.session:
        if not _check_room(result, event.held, event.context, env):
            return
        result.activate_session(last.session, event.held, env)
    result.changes.append(TakeBackTurn(last.session, last.id, env.now))
    here = event.context.address == last.address  # a message in another chat cannot be replied to
    source = msgspec.structs.replace(
        last,
        address=event.context.address,
        reply_to=last.reply_to if here else "",
    )
    new = NewTurn(
        source=source, origin=event.context.origin, inbox=last.inbox, messages=last.messages
    )
    result.start_turn(new, env)


def _on_undo(result: Transition, event: UndoTurn, env: StepContext) -> None:
    if not _check_permission(result, event.context):
        return
    if result.state.turn:
        result.effects.append(SendNotice(notice=NoticeId.BUSY, address=event.context.address))
    elif event.last is None or event.last.session != result.state.session:
        result.effects.append(
            SendNotice(notice=NoticeId.NOTHING_TO_UNDO, address=event.context.address)
        )
    elif _check_author(result, event.last, event.context):
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
        result.cancel_running(TurnState.STOPPED, "deleted", env)
        result.state = msgspec.structs.replace(result.state, session=None)
    earlier = result.state.resumable
    if earlier and earlier.session == event.session:
        result.state = msgspec.structs.replace(result.state, resumable=None, replaced_reason=None)
    result.changes.append(
        SetSession(event.session, SessionState.CLOSED, SessionReason.DELETED, env.now)
    )
    result.start_next(env)


def _is_in_use(state: ConversationState, session: str) -> bool:
    return state.session == session or any(p.continued_session == session for p in state.waiting)


# --- edits, steering, shutdown ---------------------------------------------------------------


def _on_message_deleted(result: Transition, event: MessageDeleted, env: StepContext) -> None:
    state = result.state
    left = tuple(p for p in state.waiting if p.id != event.inbox)
    if len(left) < len(state.waiting):
        result.changes.append(SetInbox(ids=(event.inbox,), state=InboxState.DONE, at=env.now))
        result.state = msgspec.structs.replace(result.state, waiting=left)


def _on_access_lost(result: Transition, event: AccessLost, env: StepContext) -> None:
    """Stop the turn and drop the messages of people without access; others are not affected.

    The session stays active for the other people in the conversation.
    """
    state = result.state
    turn = state.turn
    if turn and (turn.cancelling or turn.person not in event.people):
        turn = None
    waiting = tuple(p for p in state.waiting if p.person in event.people)
    dropped = (*waiting, *event.held)
    if dropped:
        ids = tuple(p.id for p in dropped)
        result.changes.append(SetInbox(ids=ids, state=InboxState.IGNORED, at=env.now))
        left = tuple(p for p in state.waiting if p not in waiting)
        result.state = msgspec.structs.replace(state, waiting=left)
    if turn:
        result.cancel_running(TurnState.STOPPED, "access lost", env)
        result.close_single_turn_session(turn, env)
    if turn or dropped:
        result.effects.append(
            SendNotice(
                notice=NoticeId.ACCESS_LOST,
                address=turn.address if turn else dropped[0].address,
                fields={"request": turn.request if turn else "", "n": len(dropped)},
                urgent=True,
                turn=turn.id if turn else None,
            )
        )


def _on_request_abandoned(result: Transition, event: RequestAbandoned, env: StepContext) -> None:
    """End the turn without suspending its session, because no client is left to resume it."""
    turn = result.state.turn
    if turn and not turn.cancelling and turn.origin == event.origin:
        result.cancel_running(TurnState.STOPPED, "left", env)
        result.close_single_turn_session(turn, env)
    else:
        _on_message_deleted(result, MessageDeleted(event.inbox), env)


def _on_message_edited(result: Transition, event: MessageEdited) -> None:
    waiting = tuple(
        msgspec.structs.replace(p, message=event.message) if p.id == event.inbox else p
        for p in result.state.waiting
    )
    result.state = msgspec.structs.replace(result.state, waiting=waiting)


def _on_steers_requested(result: Transition, event: SteersRequested, env: StepContext) -> None:
    state, turn = result.state, result.state.turn
    steers: tuple[PendingMessage, ...] = ()
    if turn and turn.id == event.turn and not turn.cancelling:
        steers = tuple(
            p for p in state.waiting if p.mode is BusyPolicy.STEER and p.person == turn.person
        )
    if turn and steers:
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
    reply_to = steers[-1].reply_to if steers and not steers[-1].direct else ""
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
    result.cancel_running(TurnState.INTERRUPTED, event.reason.value, env)
    result.suspend(event.reason, env, request=turn.request, person=turn.person)
    result.effects.append(_interruption_notice(turn, event.interruption))
