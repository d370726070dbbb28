"""Sans-IO: what becomes of one conversation, event by event.

`step` takes the state and one event and answers with the next state, the changes that make it
durable (one transaction) and the acts that follow. The rules: one turn at a time, what waits is
answered in order, nothing that was received is dropped without a word, and an interrupted session
is suspended, never continued by accident.
"""

from collections.abc import Callable

import msgspec

from sessions.attached import request_of
from sessions.changes import (
    AppendMessages,
    Change,
    EndTurn,
    OpenSession,
    SetInbox,
    SetRequest,
    SetSession,
    StartTurn,
    TakeBack,
)
from sessions.conversation.events import (
    Act,
    Arrived,
    Begin,
    Busy,
    CancelTask,
    Command,
    Delete,
    Drain,
    Earlier,
    Ended,
    Event,
    GiveSteers,
    Heard,
    Interrupt,
    LastTurn,
    Left,
    Line,
    Missed,
    New,
    Pending,
    Resume,
    Retry,
    Rewritten,
    RunningTurn,
    Say,
    StartTask,
    State,
    SteersWanted,
    Stop,
    Undo,
    Withdrawn,
    Wrecked,
)
from sessions.records import InboxState, Message, Reason, SessionState, TurnState

REQUEST_LENGTH = 1000

_INTERRUPTED = {Reason.CRASH, Reason.RESTART, Reason.STUCK}


class Env(msgspec.Struct, frozen=True):
    """What a step may use besides state and event."""

    now: int
    new_id: Callable[[str], str]
    queue_limit: int = 20


class Result(msgspec.Struct):
    """The outcome of a step, built up by it."""

    state: State
    changes: list[Change] = []
    acts: list[Act] = []


def step(state: State, event: Event, env: Env) -> Result:
    """Decide what one event does to the conversation."""
    result = Result(state)
    match event:
        case Arrived():
            _arrived(result, event, env)
        case Missed():
            pass  # its owner found that it was taken
        case Ended():
            _ended(result, event, env)
        case Wrecked():
            _wrecked(result, event, env)
        case Begin():
            _start_next(result, env)
        case Stop():
            _stop(result, event, env)
        case New():
            _new(result, event, env)
        case Resume():
            _resume(result, event, env)
        case Retry():
            _retry(result, event, env)
        case Undo():
            _undo(result, event, env)
        case Withdrawn():
            _withdrawn(result, event, env)
        case Left():
            _left(result, event, env)
        case Rewritten():
            _rewritten(result, event)
        case SteersWanted():
            _steers_wanted(result, event, env)
        case Heard():
            _heard(result, event)
        case Drain():
            _set(result, draining=True)
        case Interrupt():
            _interrupt(result, event, env)
        case Delete():
            _delete(result, event, env)
    _keep_line(result, state, env)
    if isinstance(event, Stop | New | Resume | Retry | Undo | Delete) and event.by.inbox:
        result.changes.append(SetInbox((event.by.inbox,), InboxState.DONE, env.now))
    _name_answers(result, event)
    return result


def _name_answers(result: Result, event: Event) -> None:
    """Say of notices what they answer; those that know it already answer something else."""
    match event:
        case Arrived(pending=asked):
            origin = asked.origin
        case Stop(by=by) | New(by=by) | Resume(by=by) | Retry(by=by) | Undo(by=by) | Delete(by=by):
            origin = by.origin
        case _:
            return
    result.acts = [
        msgspec.structs.replace(act, origin=origin)
        if isinstance(act, Say) and not (act.item or act.origin)
        else act
        for act in result.acts
    ]


# --- messages and turns ----------------------------------------------------------------------


def _arrived(result: Result, event: Arrived, env: Env) -> None:
    state, pending = result.state, event.pending
    others = tuple(each for each in state.waiting if each.id != pending.id)
    known = len(others) < len(state.waiting)  # read back from the store before it was announced
    if not known and len(others) >= env.queue_limit:
        result.changes.append(SetInbox((pending.id,), InboxState.REFUSED, env.now))
        result.acts.append(Say("N16", pending.address, {"limit": env.queue_limit}))
        return
    meant = pending.after == state.session  # whoever names a session does not mean a fresh one
    if event.expired and state.turn is None and state.session and not meant:
        result.changes.append(
            SetSession(state.session, SessionState.CLOSED, event.expired, env.now)
        )
        result.acts.append(Say("expired", pending.address, {"reason": event.expired.value}))
        _set(result, session=None)
    if not known:
        _set(result, waiting=(*others, pending))
    if state.turn is None or state.turn.leaving:
        _start_next(result, env)
    elif pending.mode is Busy.INTERRUPT and not state.draining:
        _set(result, waiting=(pending, *others))
        _end_running(result, TurnState.INTERRUPTED, "new message", env)
        return
    state = result.state
    if state.draining:
        if not state.told_draining:
            _set(result, told_draining=True)
            result.acts.append(Say("N17", pending.address))
    elif state.turn and not state.turn.leaving and pending in state.waiting and not state.line:
        name = f"n_{pending.origin}.N15" if pending.origin else env.new_id("n")
        _set(result, line=Line(name, pending.address))


def _keep_line(result: Result, before: State, env: Env) -> None:
    """Let the line about what waits say what is true after this step, or take it away."""
    state = result.state
    line, turn = state.line, state.turn
    if line is None:
        return
    if turn is None or turn.leaving or not state.waiting:
        result.acts.append(Say("N15.gone", line.address, item=line.id))
        _set(result, line=None)
    elif (before.line, before.turn, len(before.waiting)) != (line, turn, len(state.waiting)):
        fields: dict[str, str | int] = {
            "n": len(state.waiting),
            "request": turn.request,
            "min": (env.now - turn.started_at) // 60_000,
        }
        result.acts.append(Say("N15", line.address, fields, item=line.id))


def _start_next(result: Result, env: Env) -> None:
    """Begin the next turn if one may begin."""
    state = result.state
    if state.turn or state.draining or not state.waiting:
        return
    taken = _next_taken(state.waiting)
    _set(result, waiting=state.waiting[len(taken) :])
    after = taken[0].after
    if after and state.session is None:
        _bring_back(result, after, (), env)
        state = result.state
    elif state.goes_on and state.earlier and state.fresh_after in _INTERRUPTED:
        _bring_back(result, state.earlier.session, (), env)
        state = result.state
    fresh_after, request = state.fresh_after, state.earlier.request if state.earlier else ""
    before: tuple[Message, ...] = ()
    if state.session is None:
        before = taken[0].before
        session = env.new_id("s")
        result.changes.append(OpenSession(session, state.key, taken[0].address, env.now))
        _set(result, session=session, fresh_after=None)
        if fresh_after:
            result.acts.append(Say("N14", taken[-1].address, origin=taken[-1].origin))
    else:
        fresh_after = None
        if after == state.session:
            before = taken[0].before
    told = fresh_after in _INTERRUPTED
    _start_turn(
        result,
        tuple(p.id for p in taken),
        (*before, _joined(taken)),
        taken[-1],
        env,
        origin=taken[-1].origin,
        fresh_after=fresh_after,
        interrupted_request=request if told else "",
    )


def _next_taken(waiting: tuple[Pending, ...]) -> tuple[Pending, ...]:
    """The first that waits; where it may be joined with those behind it, these too."""
    taken = 1
    if waiting[0].mode is Busy.COLLECT:
        while taken < len(waiting) and waiting[taken].mode is Busy.COLLECT:
            taken += 1
    return waiting[:taken]


def _joined(taken: tuple[Pending, ...]) -> Message:
    if len(taken) == 1:
        return taken[0].message
    content = "\n\n".join(p.message.content for p in taken if p.message.content)
    files = tuple(file for p in taken for file in p.message.files)
    return msgspec.structs.replace(taken[-1].message, content=content, files=files)


def _start_turn(
    result: Result,
    inbox: tuple[str, ...],
    messages: tuple[Message, ...],
    source: Pending | LastTurn,
    env: Env,
    *,
    origin: str,
    fresh_after: Reason | None = None,
    interrupted_request: str = "",
    taken_up: bool = False,
) -> None:
    state = result.state
    assert state.session is not None  # noqa: S101 - every caller opened or has a session
    asked = messages or (source.messages if isinstance(source, LastTurn) else ())
    request = request_of(asked[-1])[:REQUEST_LENGTH] if asked else ""
    turn = RunningTurn(
        env.new_id("t"),
        state.session,
        source.address,
        source.person,
        request,
        env.now,
        reply_to=source.reply_to,
        origin=origin,
        wishes=source.wishes,
        once=source.once,
    )
    result.changes.append(
        StartTurn(
            turn.id,
            state.session,
            state.key,
            source.address,
            inbox,
            messages,
            request,
            env.now,
            source.person,
        )
    )
    result.acts.append(StartTask(turn, fresh_after, interrupted_request, taken_up))
    _set(result, turn=turn, person=source.person, session_used_at=env.now)


def _ended(result: Result, event: Ended, env: Env) -> None:
    turn = result.state.turn
    if turn is None or turn.id != event.turn:
        return
    if not turn.leaving:
        result.changes.extend(event.changes)
        result.changes.append(EndTurn(turn.id, event.state, env.now, event.cause))
        _close_after(result, turn, env)
    _set(result, turn=None, session_used_at=env.now)
    _start_next(result, env)


def _close_after(result: Result, turn: RunningTurn, env: Env) -> None:
    """Close a session that was for one turn alone."""
    if turn.once and result.state.session == turn.session:
        closed = SetSession(turn.session, SessionState.CLOSED, Reason.ANSWERED, env.now)
        result.changes.append(closed)
        _set(result, session=None)


def _end_running(result: Result, state: TurnState, cause: str, env: Env) -> None:
    """Tell the running turn to leave; from now on nothing it does counts."""
    turn = result.state.turn
    if turn is None or turn.leaving:
        return
    result.acts.append(CancelTask(turn, cause))
    result.changes.append(EndTurn(turn.id, state, env.now, cause))
    _set(result, turn=msgspec.structs.replace(turn, leaving=True))


def _wrecked(result: Result, event: Wrecked, env: Env) -> None:
    turn = event.turn
    result.changes.extend(event.changes)
    if event.take_up:
        result.changes.append(
            StartTurn(
                turn.id,
                turn.session,
                result.state.key,
                turn.address,
                (),
                (),
                turn.request,
                env.now,
                turn.person,
            )
        )
        result.acts.append(StartTask(turn, taken_up=True))
        _set(result, turn=turn, person=turn.person)
        return
    result.changes.append(EndTurn(turn.id, TurnState.INTERRUPTED, env.now, "crash"))
    reason = Reason.STUCK if event.stuck else Reason.CRASH
    if result.state.session == turn.session:
        _suspend(result, reason, turn.request, env)
        result.acts.append(Say("N11", turn.address, event.fields, turn=turn.id))


def _suspend(result: Result, reason: Reason, request: str, env: Env, held: int = 0) -> None:
    session = result.state.session
    if session is None:
        return
    result.changes.append(SetSession(session, SessionState.SUSPENDED, reason, env.now))
    fresh = None if reason is Reason.SWITCHED else reason
    earlier = Earlier(session, reason, request, held)
    _set(result, session=None, earlier=earlier, fresh_after=fresh)


def _hold_waiting(result: Result, env: Env) -> int:
    """Keep what waits with the session that is about to be suspended; say how much it is."""
    state = result.state
    if state.waiting and state.session:
        ids = tuple(p.id for p in state.waiting)
        result.changes.append(SetInbox(ids, InboxState.HELD, env.now, session_id=state.session))
        _set(result, waiting=())
    return len(state.waiting)


# --- commands --------------------------------------------------------------------------------


def _stop(result: Result, event: Stop, env: Env) -> None:
    state = result.state
    turn = state.turn
    if event.turn and (turn is None or turn.id != event.turn):
        result.acts.append(Say("N10.idle", event.by.address, urgent=True))
        return
    # A turn that is leaving to make room for the next message counts as that message's start.
    if turn is None or state.session is None or (turn.leaving and not state.waiting):
        if not event.quiet:
            result.acts.append(Say("N10.idle", event.by.address, urgent=True))
        return
    request = request_of(state.waiting[0].message) if turn.leaving else turn.request
    _end_running(result, TurnState.STOPPED, "stop", env)
    held = _hold_waiting(result, env)
    _suspend(result, Reason.STOP, request[:REQUEST_LENGTH], env, held)
    result.acts.append(Say("N10", event.by.address, {"n": held}, urgent=True, turn=turn.id))


def _may_rule(result: Result, by: Command) -> bool:
    """Whether somebody may change the course of the conversation: its last requester, an admin."""
    if by.admin or result.state.person in {"", by.person}:
        return True
    result.acts.append(Say("not_yours", by.address))
    return False


def _new(result: Result, event: New, env: Env) -> None:
    if not _may_rule(result, event.by):
        return
    _end_running(result, TurnState.STOPPED, "new", env)
    if result.state.session:
        result.changes.append(
            SetSession(result.state.session, SessionState.CLOSED, Reason.NEW, env.now)
        )
    _set(result, session=None, fresh_after=None, person="")
    result.acts.append(Say("new", event.by.address, {"n": len(result.state.waiting)}, urgent=True))
    _start_next(result, env)


def _resume(result: Result, event: Resume, env: Env) -> None:
    if not _may_rule(result, event.by):
        return
    if event.session == result.state.session and event.turn and event.last:
        _go_on(result, event.last, event, env)
        return
    if event.session is None or event.session == result.state.session:
        result.acts.append(Say("nothing_to_resume", event.by.address))
        return
    _end_running(result, TurnState.STOPPED, "switched", env)
    _bring_back(result, event.session, event.held, env)
    result.acts.append(
        Say("resumed", event.by.address, {"n": len(event.held), "title": event.title})
    )
    _set(result, person=event.by.person)
    if event.go_on and event.last and result.state.turn is None and not result.state.draining:
        source = msgspec.structs.replace(event.last, person=event.by.person)
        _start_turn(result, (), (), source, env, origin=event.by.origin, taken_up=True)
    else:
        _start_next(result, env)


def _go_on(result: Result, last: LastTurn, event: Resume, env: Env) -> None:
    """Take up the last turn of the active session, which failed."""
    if result.state.turn:
        result.acts.append(Say("busy", event.by.address))
    elif result.state.draining:
        result.acts.append(Say("N17", event.by.address))
    else:
        source = msgspec.structs.replace(last, person=event.by.person)
        _start_turn(result, (), (), source, env, origin=event.by.origin, taken_up=True)


def _bring_back(result: Result, session: str, held: tuple[Pending, ...], env: Env) -> None:
    """Make a suspended session the active one, with what waited in it."""
    if result.state.session:
        count = _hold_waiting(result, env)
        _suspend(result, Reason.SWITCHED, "", env, count)
    else:
        _set(result, earlier=None, fresh_after=None)
    result.changes.append(SetSession(session, SessionState.ACTIVE, None, env.now))
    if held:
        ids = tuple(p.id for p in held)
        result.changes.append(SetInbox(ids, InboxState.WAITING, env.now))
    waiting = (*held, *result.state.waiting)
    _set(result, session=session, session_used_at=env.now, waiting=waiting)


def _retry(result: Result, event: Retry, env: Env) -> None:
    state, last = result.state, event.last
    if not _may_rule(result, event.by):
        return
    if state.turn:
        result.acts.append(Say("busy", event.by.address))
        return
    if last is None or not last.messages:
        result.acts.append(Say("nothing_to_retry", event.by.address))
        return
    if state.draining:
        result.acts.append(Say("N17", event.by.address))
        return
    if state.session != last.session:
        _bring_back(result, last.session, event.held, env)
    result.changes.append(TakeBack(last.session, last.id, env.now))
    here = event.by.address == last.address  # elsewhere there is no message to reply to
    source = msgspec.structs.replace(
        last,
        person=event.by.person,
        address=event.by.address,
        reply_to=last.reply_to if here else "",
    )
    _start_turn(result, last.inbox, last.messages, source, env, origin=event.by.origin)


def _undo(result: Result, event: Undo, env: Env) -> None:
    if not _may_rule(result, event.by):
        return
    if result.state.turn:
        result.acts.append(Say("busy", event.by.address))
    elif event.last is None or event.last.session != result.state.session:
        result.acts.append(Say("nothing_to_undo", event.by.address))
    else:
        result.changes.append(TakeBack(event.last.session, event.last.id, env.now))
        request = request_of(event.last.messages[-1]) if event.last.messages else ""
        result.acts.append(Say("undone", event.by.address, {"request": request[:REQUEST_LENGTH]}))


def _delete(result: Result, event: Delete, env: Env) -> None:
    if event.if_idle and _in_use(result.state, event.session):
        return
    if result.state.session == event.session:
        _end_running(result, TurnState.STOPPED, "deleted", env)
        _set(result, session=None)
    earlier = result.state.earlier
    if earlier and earlier.session == event.session:
        _set(result, earlier=None, fresh_after=None)
    result.changes.append(SetSession(event.session, SessionState.CLOSED, Reason.DELETED, env.now))
    _start_next(result, env)


def _in_use(state: State, session: str) -> bool:
    return state.session == session or any(each.after == session for each in state.waiting)


# --- edits, steering, shutdown ---------------------------------------------------------------


def _withdrawn(result: Result, event: Withdrawn, env: Env) -> None:
    state = result.state
    left = tuple(p for p in state.waiting if p.id != event.inbox)
    if len(left) < len(state.waiting):
        result.changes.append(SetInbox((event.inbox,), InboxState.DONE, env.now))
        _set(result, waiting=left)


def _left(result: Result, event: Left, env: Env) -> None:
    """End the turn without suspending its session: nobody is there to bring it back."""
    turn = result.state.turn
    if turn and not turn.leaving and turn.origin == event.origin:
        _end_running(result, TurnState.STOPPED, "left", env)
        _close_after(result, turn, env)
    else:
        _withdrawn(result, Withdrawn(event.inbox), env)


def _rewritten(result: Result, event: Rewritten) -> None:
    waiting = tuple(
        msgspec.structs.replace(p, message=event.message) if p.id == event.inbox else p
        for p in result.state.waiting
    )
    _set(result, waiting=waiting)


def _steers_wanted(result: Result, event: SteersWanted, env: Env) -> None:
    state = result.state
    steers = tuple(p for p in state.waiting if p.mode is Busy.STEER)
    if not state.turn or state.turn.id != event.turn or state.turn.leaving:
        steers = ()
    if steers and state.turn:
        turn = state.turn
        ids, messages = tuple(p.id for p in steers), tuple(p.message for p in steers)
        result.changes.append(
            SetInbox(ids, InboxState.RUNNING, env.now, session_id=turn.session, turn_id=turn.id)
        )
        result.changes.append(AppendMessages(turn.session, turn.id, messages, env.now))
        _set(result, waiting=tuple(p for p in state.waiting if p not in steers))
    reply_to = steers[-1].reply_to if steers else ""
    result.acts.append(GiveSteers(event.turn, tuple(p.message for p in steers), reply_to))


def _heard(result: Result, event: Heard) -> None:
    turn = result.state.turn
    if turn is None or turn.id != event.turn or turn.leaving:
        return
    request = event.request[:REQUEST_LENGTH]
    result.changes.append(SetRequest(turn.id, turn.session, turn.request, request))
    _set(result, turn=msgspec.structs.replace(turn, request=request))


def _interrupt(result: Result, event: Interrupt, env: Env) -> None:
    turn = result.state.turn
    if turn is None or turn.leaving:
        return
    if event.take_up:
        result.acts.append(CancelTask(turn, event.reason.value, take_up=True))
        _set(result, turn=msgspec.structs.replace(turn, leaving=True))
        return
    _end_running(result, TurnState.INTERRUPTED, event.reason.value, env)
    _suspend(result, event.reason, turn.request, env)
    result.acts.append(Say("N11", turn.address, event.fields, turn=turn.id))


def _set(result: Result, **fields: object) -> None:
    result.state = msgspec.structs.replace(result.state, **fields)
