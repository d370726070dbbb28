"""Sans-IO: the outcome of one step, and the operations that build it."""

from collections.abc import Callable

import msgspec

from sessions.attached import own_words, request_text
from sessions.changes import Change, EndTurn, OpenSession, SetInbox, SetSession, StartTurn
from sessions.conversation.events import (
    BusyPolicy,
    CancelTask,
    ConversationState,
    Effect,
    LastTurn,
    PendingMessage,
    ResumableSession,
    RunningTurn,
    SendNotice,
    StartTask,
)
from sessions.records import InboxState, Message, SessionReason, SessionState, TurnState
from sessions.values.notices import NoticeId

MAX_REQUEST_CHARS = 1000

_INTERRUPTION_REASONS = {SessionReason.CRASH, SessionReason.RESTART, SessionReason.STUCK}


class StepContext(msgspec.Struct, frozen=True):
    """Inputs of a step besides state and event."""

    now: int
    new_id: Callable[[str], str]
    queue_limit: int = 20


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn to start in the active session; a resumed turn has no messages of its own."""

    source: PendingMessage | LastTurn  # requester, address and options
    origin: str
    inbox: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    replaced_reason: SessionReason | None = None
    interrupted_request: str = ""
    resumed: bool = False
    continued_turn: str = ""  # as in `PendingMessage`

    @property
    def request(self) -> str:
        """Request text of the turn."""
        source = self.source
        asked = self.messages or (source.messages if isinstance(source, LastTurn) else ())
        return request_text(asked[-1])[:MAX_REQUEST_CHARS] if asked else ""


class Transition(msgspec.Struct):
    """The outcome of a step, filled in while the step runs."""

    state: ConversationState
    changes: list[Change] = []
    effects: list[Effect] = []

    def start_next(self, env: StepContext, arrived: str = "") -> None:
        """Start the next turn if one may start; `arrived` is the message that came just now.

        In a private chat an answer is a reply only if its message had to wait.
        """
        state = self.state
        if state.turn or state.draining or not state.waiting:
            return
        taken = _next_batch(state.waiting)
        self.state = msgspec.structs.replace(self.state, waiting=state.waiting[len(taken) :])
        after = taken[0].continued_session
        if after and state.session is None:
            self.activate_session(after, (), env)
            state = self.state
        elif (
            state.auto_resume and state.resumable and state.replaced_reason in _INTERRUPTION_REASONS
        ):
            self.activate_session(state.resumable.session, (), env)
            state = self.state
        fresh_after = state.replaced_reason
        # A turn runs with the rights of one person, so it gets no words of another one.
        earlier = state.resumable
        request = earlier.request if earlier and earlier.person == taken[0].person else ""
        before: tuple[Message, ...] = ()
        continued = ""
        if state.session is None:
            before = taken[0].prior_messages
            session = env.new_id("s")
            self.changes.append(OpenSession(session, state.key, taken[0].address, env.now))
            self.state = msgspec.structs.replace(self.state, session=session, replaced_reason=None)
            if fresh_after:
                self.effects.append(
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
                continued = taken[0].continued_turn
        interrupted = fresh_after in _INTERRUPTION_REASONS
        source = taken[-1]
        if source.direct and source.id == arrived:
            source = msgspec.structs.replace(source, reply_to="")
        new = NewTurn(
            source=source,
            origin=taken[-1].origin,
            inbox=tuple(p.id for p in taken),
            messages=(*before, _merge_messages(taken)),
            replaced_reason=fresh_after,
            interrupted_request=request if interrupted else "",
            continued_turn=continued,
        )
        self.start_turn(new, env)

    def start_turn(self, new: NewTurn, env: StepContext) -> None:
        """Start a turn in the active session."""
        state, source = self.state, new.source
        assert state.session is not None  # noqa: S101 - every caller has opened a session
        turn = RunningTurn(
            id=new.continued_turn or env.new_id("t"),
            session=state.session,
            address=source.address,
            person=source.person,
            request=new.request,
            started_at=env.now,
            reply_to=source.reply_to,
            origin=new.origin,
            request_options=source.request_options,
            single_turn=source.single_turn,
        )
        self.changes.append(
            StartTurn(
                id=turn.id,
                session_id=turn.session,
                key=state.key,
                address=turn.address,
                inbox=new.inbox,
                messages=new.messages,
                request=turn.request,
                at=env.now,
                person=turn.person,
                continues=bool(new.continued_turn),
            )
        )
        opened = any(isinstance(change, OpenSession) for change in self.changes)
        self.effects.append(
            StartTask(
                turn=turn,
                replaced_reason=new.replaced_reason,
                interrupted_request=new.interrupted_request,
                resumed=new.resumed,
                continued=bool(new.continued_turn),
                opening_rows=new.messages if opened else (),
            )
        )
        self.state = msgspec.structs.replace(
            self.state, turn=turn, person=source.person, session_used_at=env.now
        )

    def activate_session(
        self, session: str, held: tuple[PendingMessage, ...], env: StepContext
    ) -> None:
        """Reactivate a suspended session together with the held messages.

        Held messages over the limit of the queue are refused with a notice. The caller has made
        sure with `can_take` that the messages waiting now leave room.
        """
        if self.state.session:
            count = self.hold_waiting(env)
            self.suspend(SessionReason.SWITCHED, env, held=count)
        else:
            self.state = msgspec.structs.replace(self.state, resumable=None, replaced_reason=None)
        self.changes.append(SetSession(session, SessionState.ACTIVE, None, env.now))
        held, over = held[: env.queue_limit], held[env.queue_limit :]
        if over:
            ids = tuple(p.id for p in over)
            self.changes.append(SetInbox(ids=ids, state=InboxState.REFUSED, at=env.now))
            self.effects.append(
                SendNotice(
                    notice=NoticeId.HELD_REFUSED,
                    address=over[-1].address,
                    fields={"n": len(over), "limit": env.queue_limit},
                )
            )
        if held:
            ids = tuple(p.id for p in held)
            self.changes.append(SetInbox(ids=ids, state=InboxState.WAITING, at=env.now))
        waiting = (*held, *self.state.waiting)
        self.state = msgspec.structs.replace(
            self.state, session=session, session_used_at=env.now, waiting=waiting
        )

    def can_take(self, held: tuple[PendingMessage, ...], env: StepContext) -> bool:
        """Return True if the queue has room for the held messages of another session.

        An active session keeps its queue when it is suspended. Messages that wait without one, such
        as those sent while a stopped turn ends, stay in the queue.
        """
        staying = () if self.state.session else self.state.waiting
        return not staying or len(held) + len(staying) <= env.queue_limit

    def cancel_running(self, state: TurnState, cause: str, env: StepContext) -> None:
        """Cancel the running turn; later results do not count."""
        turn = self.state.turn
        if turn is None or turn.cancelling:
            return
        self.effects.append(CancelTask(turn, cause))
        self.changes.append(EndTurn(turn.id, state, env.now, cause))
        self.state = msgspec.structs.replace(
            self.state, turn=msgspec.structs.replace(turn, cancelling=True)
        )

    def close_single_turn_session(self, turn: RunningTurn, env: StepContext) -> None:
        """Close a session that exists for a single turn."""
        if turn.single_turn and self.state.session == turn.session:
            closed = SetSession(turn.session, SessionState.CLOSED, SessionReason.ANSWERED, env.now)
            self.changes.append(closed)
            self.state = msgspec.structs.replace(self.state, session=None)

    def hold_waiting(self, env: StepContext) -> int:
        """Hold the waiting messages with the session about to be suspended; return their number."""
        state = self.state
        if state.waiting and state.session:
            ids = tuple(p.id for p in state.waiting)
            self.changes.append(
                SetInbox(ids=ids, state=InboxState.HELD, at=env.now, session_id=state.session)
            )
            self.state = msgspec.structs.replace(self.state, waiting=())
        return len(state.waiting)

    def suspend(
        self,
        reason: SessionReason,
        env: StepContext,
        *,
        request: str = "",
        person: str = "",
        held: int = 0,
    ) -> None:
        """Suspend the active session, if there is one; `person` wrote the interrupted request."""
        session = self.state.session
        if session is None:
            return
        self.changes.append(SetSession(session, SessionState.SUSPENDED, reason, env.now))
        fresh = None if reason is SessionReason.SWITCHED else reason
        earlier = ResumableSession(session, reason, request, held, person)
        self.state = msgspec.structs.replace(
            self.state, session=None, resumable=earlier, replaced_reason=fresh
        )


def _next_batch(waiting: tuple[PendingMessage, ...]) -> tuple[PendingMessage, ...]:
    """Return the first waiting message, with the ones behind it that may be joined to it.

    Only messages of the same person are joined, because a turn runs with the rights of one person.
    """
    first = waiting[0]
    taken = 1
    if first.mode is BusyPolicy.COLLECT:
        while taken < len(waiting) and _joins(waiting[taken], first):
            taken += 1
    return waiting[:taken]


def _joins(pending: PendingMessage, first: PendingMessage) -> bool:
    return pending.mode is BusyPolicy.COLLECT and pending.person == first.person


def _merge_messages(batch: tuple[PendingMessage, ...]) -> Message:
    if len(batch) == 1:
        return batch[0].message
    content = "\n\n".join(p.message.content for p in batch if p.message.content)
    words = "\n\n".join(filter(None, (own_words(p.message) for p in batch)))
    files = tuple(file for p in batch for file in p.message.files)
    return msgspec.structs.replace(
        batch[-1].message,
        content=content,
        files=files,
        words=None if words == content else words,
    )
