"""Owner of one conversation: handles events one by one and carries out the machine's decisions.

The actor knows neither platforms nor models; `ActorHost` connects the actor to both.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from sessions.attached import with_known_transcripts
from sessions.changes import Change, Checkpoint, EndTurn, PutItem, SetInbox
from sessions.conversation.events import (
    AccessLost,
    CancelTask,
    ConversationState,
    DeleteSession,
    DeliverSteers,
    Event,
    LastTurn,
    MessageArrived,
    MessageRedelivered,
    NewSession,
    PendingMessage,
    ResumableSession,
    ResumeSession,
    RetryTurn,
    RunningTurn,
    SendNotice,
    StartTask,
    StartWaiting,
    StopTurn,
    TurnCrashed,
    TurnEnded,
    UndoTurn,
)
from sessions.conversation.expiry import ExpiryPolicy
from sessions.conversation.machine import step
from sessions.conversation.transition import StepContext, Transition
from sessions.errors import Conflict, StoreCorrupt, StoreError
from sessions.records import (
    ConversationSnapshot,
    InboxEntry,
    InboxState,
    Message,
    SessionReason,
    SessionState,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

_INITIAL_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 5.0
_MAX_CONFLICTS = 3
SHUTDOWN_TIMEOUT_SECONDS = 5.0


class EventNotHandled(Exception):
    """An event could not be handled; the log has the reason."""


class TurnHandle(Protocol):
    """A running turn."""

    async def run(self) -> TurnEnded:
        """Run until the answer is complete or has failed; cancelled for `/stop`."""
        ...

    def abort(self, cause: str) -> tuple[Change, ...]:
        """Discard all later results of the turn; return the changes that keep the partial ones."""
        ...

    def end_after_crash(self, error: Exception) -> TurnEnded:
        """Return the end of a turn that raised an unexpected error, with a notice for the user."""
        ...

    def partial_text(self) -> str:
        """Return the visible text so far."""
        ...

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """Deliver the steering messages the turn asked for, and the new message to reply to."""
        ...


class PreparedTurn(msgspec.Struct, frozen=True):
    """A turn about to start."""

    changes: tuple[Change, ...]  # to commit in the same transaction as the start
    create: Callable[[Callable[[Event], None]], TurnHandle]
    """Creates the turn after the commit; `run` is called next. The argument posts events."""


class ActorHost(Protocol):
    """Services that an actor needs from outside."""

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """Decode a stored message."""
        ...

    def prepare_turn(self, key: str, start: StartTask) -> PreparedTurn:
        """Prepare a turn whose start is committed next."""
        ...

    async def recover_turn(
        self, turn: Turn, running: RunningTurn, *, repeatable: bool
    ) -> TurnCrashed:
        """Determine how to recover a turn that a dead process left running.

        A turn that is not `repeatable` must not be resumed, see `LastTurn`.
        """
        ...

    def notice_changes(self, says: Iterable[SendNotice]) -> tuple[Change, ...]:
        """Return the changes that put notices into the outbox."""
        ...

    def on_committed(self, changes: tuple[Change, ...]) -> None:
        """Handle committed changes, such as new items to deliver."""
        ...


def _never(_key: str) -> bool:
    return False


def _always(_entry: InboxEntry) -> bool:
    return True


class ActorServices(msgspec.Struct, frozen=True, kw_only=True):
    """Services shared by all actors."""

    store: SessionStore
    host: ActorHost
    clock: Clock
    ids: Ids
    expiry_policy: Callable[[], ExpiryPolicy]
    queue_limit: Callable[[], int]
    tasks: asyncio.TaskGroup
    auto_resumes: Callable[[str], bool] = _never  # by key, see `ConversationState.auto_resume`
    has_access: Callable[[InboxEntry], bool] = _always
    """Returns True if the sender of a stored message has access now."""


class Actor:
    """The single owner of one conversation."""

    def __init__(
        self,
        key: str,
        shared: ActorServices,
        *,
        draining: Callable[[], bool],
        on_idle: Callable[[], None],
    ) -> None:
        self.key = key
        self.state: ConversationState | None = None
        self._shared = shared
        self._draining = draining
        self._on_idle = on_idle
        self._mailbox: deque[tuple[Event, asyncio.Future[ConversationState] | None]] = deque()
        self._working = self._abandoned = False
        self._worker: asyncio.Task[None] | None = None
        self._turn: RunningTurn | None = None  # from the start until the end is handled
        self._handle: TurnHandle | None = None  # until the end of the turn is handled
        self._ended: TurnEnded | None = None  # of a finished turn, until it is handled
        self._task: asyncio.Task[None] | None = None
        self._crashed_turns: list[TurnCrashed] = []
        self._loaded_ids: frozenset[str] = frozenset()  # waiting rows seen while loading
        self._aborted_turn_id = ""  # id of the turn that was aborted last
        self._unsaved_changes: tuple[Change, ...] = ()  # of the aborted turn, until committed

    @property
    def is_busy(self) -> bool:
        """True while a turn runs or events are unhandled; a busy actor must not be evicted."""
        return self._working or self._task is not None

    @property
    def running_turn(self) -> RunningTurn | None:
        """The turn whose task is alive."""
        return self._turn if self._task else None

    def post(self, event: Event, handled: asyncio.Future[ConversationState] | None = None) -> None:
        """Add an event to the mailbox; one task handles the mailbox in order."""
        if self._abandoned:
            if handled:
                handled.set_exception(EventNotHandled(self.key))
            return
        self._mailbox.append((event, handled))
        if not self._working:
            self._start_worker()

    def _start_worker(self) -> None:
        work = self._process_mailbox()
        self._worker = start_task(self._shared.tasks, work, name=f"actor {self.key}")
        if self._worker:
            self._working = True
        else:
            self._refuse_events()

    def _refuse_events(self) -> None:
        """Refuse all events because the process is ending; the next start uses the journal."""
        self._abandoned = True
        for _, handled in self._mailbox:
            if handled and not handled.done():
                handled.set_exception(EventNotHandled(self.key))
        self._mailbox.clear()

    def abandon(self) -> None:
        """Cancel all work as the process is ending; the next start recovers from the journal."""
        self._abandoned = True
        for task in (self._worker, self._task):
            if task:
                task.cancel()

    async def _process_mailbox(self) -> None:
        try:
            while self._mailbox:
                event, handled = self._mailbox.popleft()
                carried_out = await self._handle_with_retry(event)
                self._release_turn(event)
                if isinstance(event, TurnEnded) and not carried_out:
                    self.post(StartWaiting())  # recovers the turn now, and starts the next one
                if handled is None or handled.done():
                    continue
                if carried_out and self.state:
                    handled.set_result(self.state)
                else:
                    handled.set_exception(EventNotHandled(self.key))
        finally:
            # There was no await since the mailbox was seen empty, so no event is missed.
            self._working, self._worker = False, None
            self._on_idle()

    async def _handle_with_retry(self, event: Event) -> bool:
        pause, conflicts = _INITIAL_RETRY_SECONDS, 0
        while True:
            try:
                await self._process_event(event)
            except Conflict:
                # Load the conversation again before deciding again.
                log.exception(
                    "%s: the stored state differs from the state in memory, loading it again",
                    self.key,
                )
                self.state = None
                conflicts += 1
                if conflicts == _MAX_CONFLICTS:
                    return False
            except StoreCorrupt as error:
                # A retry cannot read a damaged page; the next event may not need that page.
                log.error("%s: %s", self.key, error)  # noqa: TRY400 - the traceback tells nothing
                self.state = None
                await self._report_damage(event)
                return False
            except StoreError:
                log.exception(
                    "%s: cannot write to the database, trying again in %.1f s", self.key, pause
                )
            except Exception:
                log.exception(
                    "%s: unexpected error while handling %s", self.key, type(event).__name__
                )
                self.state = None
                return False
            else:
                return True
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_RETRY_SECONDS)

    async def _report_damage(self, event: Event) -> None:
        """Tell the requester that the database is damaged, because silence is no answer."""
        done: tuple[Change, ...] = ()
        if isinstance(event, MessageArrived):
            place, origin = event.pending.address, event.pending.origin
        elif isinstance(
            event, StopTurn | NewSession | ResumeSession | RetryTurn | UndoTurn | DeleteSession
        ):
            place, origin = event.context.address, event.context.origin
            if event.context.inbox:
                done = (
                    SetInbox(
                        ids=(event.context.inbox,),
                        state=InboxState.DONE,
                        at=self._shared.clock.now(),
                    ),
                )
        elif isinstance(event, TurnEnded):
            await self._end_without_history(event)
            return
        elif isinstance(event, StartWaiting) and (pending := await self._newest_waiting()):
            place, origin = pending.address, pending.origin
        else:
            return  # no requester is waiting
        notices = self._shared.host.notice_changes(
            (SendNotice(notice=NoticeId.DATABASE_DAMAGED_HERE, address=place, origin=origin),)
        )
        try:
            await self._shared.store.apply(*done, *notices)
        except StoreError as error:
            log.warning("%s: cannot store the notice about the damage: %s", self.key, error)
        else:
            self._shared.host.on_committed((*done, *notices))

    async def _newest_waiting(self) -> PendingMessage | None:
        """Return the newest waiting message although the conversation cannot be loaded."""
        try:
            entries = await self._shared.store.inbox.unanswered()
        except StoreError:
            return None
        waiting = [
            entry
            for entry in entries
            if entry.key == self.key and entry.state is InboxState.WAITING
        ]
        return self._shared.host.read_pending(waiting[-1]) if waiting else None

    async def _end_without_history(self, event: TurnEnded) -> None:
        """Show the answer of a turn whose end cannot be stored, with a notice.

        The answer and the end of the turn are stored without the history. If the turn itself cannot
        be written either, it is recovered as an interrupted one.
        """
        turn = self._turn
        if turn is None or turn.id != event.turn or turn.cancelling:
            return
        kept = (*self._unsaved_changes, *event.changes)
        items = tuple(change for change in kept if isinstance(change, PutItem))
        say = SendNotice(
            notice=NoticeId.ANSWER_NOT_STORED,
            address=turn.address,
            origin=turn.origin,
            turn=turn.id,
        )
        shown = (*items, *self._shared.host.notice_changes((say,)))
        cause = "the end could not be stored"
        ended = EndTurn(turn.id, TurnState.FAILED, self._shared.clock.now(), cause)
        for changes in ((ended, *shown), shown):
            try:
                await self._shared.store.apply(*changes)
            except StoreError as error:
                log.warning("%s: turn %s: %s", self.key, turn.id, error)
            else:
                break
        else:
            shown = ()
        # Clients that wait for the end of the turn must not wait for ever.
        self._shared.host.on_committed((ended, *shown))

    def _release_turn(self, event: Event) -> None:
        """Forget the turn once its end was handled or failed; the journal knows the state."""
        if isinstance(event, TurnEnded) and self._turn and self._turn.id == event.turn:
            self._turn = self._handle = self._ended = None
            self._unsaved_changes = ()

    async def _process_event(self, event: Event) -> None:
        if self.state is None:
            self.state = await self._load_state()
        while self._crashed_turns:
            await self._apply_event(self._crashed_turns[0], self.state)
            self._crashed_turns.pop(0)
        if not self._is_stale(event, self.state):
            await self._apply_event(await self._enrich(event, self.state), self.state)

    def _is_stale(self, event: Event, state: ConversationState) -> bool:
        """Return True for a message that was loaded from the store and started before the event."""
        if not isinstance(event, MessageArrived) or event.pending.id not in self._loaded_ids:
            return False
        self._loaded_ids -= {event.pending.id}
        return all(event.pending.id != pending.id for pending in state.waiting)

    async def _apply_event(self, event: Event, state: ConversationState) -> None:
        shared = self._shared
        env = StepContext(shared.clock.now(), shared.ids.new, shared.queue_limit())
        result = step(state, event, env)
        self._abort_cancelled_turns(result)
        changes = (*self._unsaved_changes, *result.changes)
        prepared = None
        for act in result.effects:
            if isinstance(act, StartTask):
                prepared = shared.host.prepare_turn(self.key, act)
                changes = (*changes, *prepared.changes)
        says = [act for act in result.effects if isinstance(act, SendNotice)]
        if says:
            changes = (*changes, *shared.host.notice_changes(says))
        if changes:
            await shared.store.apply(*changes)
        self._unsaved_changes = ()
        self.state = result.state
        if changes:  # before the start, so that notices stand before the answer
            shared.host.on_committed(changes)
        for act in result.effects:
            if isinstance(act, StartTask) and prepared:
                self._start_turn(act.turn, prepared)
            elif isinstance(act, DeliverSteers) and self._handle:
                self._handle.steer(act.messages, act.reply_to)

    def _abort_cancelled_turns(self, result: Transition) -> None:
        """Cancel the task before storing, so that a slow write does not delay `/stop`."""
        for act in result.effects:
            if not isinstance(act, CancelTask) or act.turn.id == self._aborted_turn_id:
                continue  # a decision repeated after a failure must not abort twice
            if self._handle:
                self._aborted_turn_id = act.turn.id
                kept = self._changes_at_cancel(self._handle, act)
                self._unsaved_changes = (*self._unsaved_changes, *kept)
                if self._task:
                    self._task.cancel()
                self._turn = act.turn

    def _changes_at_cancel(self, handle: TurnHandle, act: CancelTask) -> tuple[Change, ...]:
        """Return the changes that keep the work of a turn, also of one that has just ended."""
        if ended := self._ended:
            if not act.resume_after_restart:
                return ended.changes
            now = self._shared.clock.now()
            return (*ended.changes, EndTurn(act.turn.id, ended.state, now, ended.cause))
        if act.resume_after_restart:
            return (Checkpoint(act.turn.id, handle.partial_text()),)
        return handle.abort(act.cause)

    def _start_turn(self, turn: RunningTurn, prepared: PreparedTurn) -> None:
        handle = prepared.create(self.post)
        self._handle, self._turn, self._ended = handle, turn, None
        ended: list[TurnEnded] = []
        work = self._run_turn(handle, turn, ended)
        task = start_task(self._shared.tasks, work, name=f"turn {turn.id}")
        if task is None:  # the journal has the start, so the next process recovers the turn
            self._handle = self._turn = None
            self._refuse_events()
            return
        self._task = task
        # A callback, not `finally`: a task cancelled before its first step never enters its body.
        task.add_done_callback(lambda _: self._on_turn_task_done(turn, ended))

    async def _run_turn(
        self, handle: TurnHandle, turn: RunningTurn, ended: list[TurnEnded]
    ) -> None:
        try:
            ended.append(await handle.run())
        except Exception as error:
            log.exception("%s: turn %s raised an unexpected error", self.key, turn.id)
            ended.append(handle.end_after_crash(error))

    def _on_turn_task_done(self, turn: RunningTurn, ended: list[TurnEnded]) -> None:
        self._task = None
        if ended:
            self._ended = ended[0]
        self.post(self._ended or TurnEnded(turn.id, TurnState.INTERRUPTED, "cancelled"))

    # --- loading ------------------------------------------------------------------------------

    async def _load_state(self) -> ConversationState:
        shared = self._shared
        stored = await shared.store.conversation(self.key)
        waiting = tuple(shared.host.read_pending(entry) for entry in stored.waiting)
        earlier = await self._resumable_session(stored)
        turn = self._turn
        if turn and all(turn.id != running.id for running in stored.running):
            turn = msgspec.structs.replace(turn, cancelling=True)  # the end is already stored
            self._unsaved_changes = ()
        session = stored.active
        person = await self._last_person(stored)
        self._crashed_turns = [
            await self._recover_turn(left, person)
            for left in stored.running
            if self._turn is None or self._turn.id != left.id
        ]
        self._loaded_ids = frozenset(pending.id for pending in waiting)
        return ConversationState(
            key=self.key,
            session=session.id if session else None,
            session_used_at=session.updated_at if session else 0,
            resumable=earlier,
            turn=turn,
            waiting=waiting,
            person=person,
            draining=self._draining(),
            replaced_reason=None if session else _replaced_reason(stored),
            auto_resume=shared.auto_resumes(self.key),
        )

    async def _last_person(self, stored: ConversationSnapshot) -> str:
        """Return the last requester.

        Turns stored by older versions have no `person`; read it from their inbox rows.
        """
        turn = stored.last_turn
        if turn is None or turn.person:
            return turn.person if turn else ""
        return (await self._read_turn(turn)).person

    async def _resumable_session(self, stored: ConversationSnapshot) -> ResumableSession | None:
        """Return the suspended session that can be resumed."""
        left = stored.suspended
        if left is None or left.reason is None:
            return None
        asked = await self._shared.store.turns.last(left.id)
        if asked is None:
            return ResumableSession(left.id, left.reason, held=stored.held)
        return ResumableSession(left.id, left.reason, asked.request, stored.held, asked.person)

    async def _recover_turn(self, left: Turn, person: str) -> TurnCrashed:
        """Prepare the recovery of a turn that a dead process left running."""
        began = await self._read_turn(left)
        running = RunningTurn(
            id=left.id,
            session=left.session_id,
            address=left.address,
            person=left.person or person,
            request=left.request,
            started_at=left.started_at,
            reply_to=began.reply_to,
            request_options=began.request_options,
            single_turn=began.single_turn,
        )
        return await self._shared.host.recover_turn(left, running, repeatable=began.repeatable)

    async def _enrich(self, event: Event, state: ConversationState) -> Event:
        """Add the stored facts that the machine needs to an event."""
        shared = self._shared
        if isinstance(event, MessageRedelivered):
            return await self._enrich(await self._resolve_redelivery(event, state), state)
        if isinstance(event, MessageArrived):
            if state.session and state.turn is None:
                expired = shared.expiry_policy().expiry_reason(
                    state.session_used_at, shared.clock.now()
                )
                return msgspec.structs.replace(event, expired=expired)
        elif isinstance(event, AccessLost):
            return await self._enrich_access_lost(event)
        elif isinstance(event, ResumeSession):
            return await self._enrich_resume(event, state)
        elif isinstance(event, UndoTurn):
            stored = await shared.store.conversation(self.key)
            return msgspec.structs.replace(event, last=await self._last_turn(stored))
        elif isinstance(event, RetryTurn):
            return await self._enrich_retry(event, state)
        return event

    async def _resolve_redelivery(
        self, event: MessageRedelivered, state: ConversationState
    ) -> Event:
        """Return an arrival if the stored row still waits. Only this actor takes waiting rows."""
        if any(pending.id == event.inbox for pending in state.waiting):
            return StartWaiting()
        entry = await self._shared.store.inbox.find(event.source, event.event)
        if entry is None or entry.state is not InboxState.WAITING:
            return StartWaiting()
        return MessageArrived(self._shared.host.read_pending(entry))

    async def _enrich_retry(self, event: RetryTurn, state: ConversationState) -> RetryTurn:
        if event.turn:
            session = await self._session_of_last_turn(event.turn)
            turn = await self._shared.store.turns.get(event.turn) if session else None
            last = await self._read_turn(turn) if turn else None
        else:
            last = await self._last_turn(await self._shared.store.conversation(self.key))
        away = last is not None and last.session != state.session
        held = await self._held_messages(last.session) if last and away else ()
        return msgspec.structs.replace(event, last=last, held=held)

    async def _enrich_resume(self, event: ResumeSession, state: ConversationState) -> ResumeSession:
        store = self._shared.store
        target = event.session or (state.resumable.session if state.resumable else None)
        if event.turn:
            target = await self._session_of_last_turn(event.turn)
        session = await store.sessions.get(target) if target else None
        # A failed turn leaves the session active; the button continues in place.
        here = bool(event.turn) and event.resume_turn and session and session.id == state.session
        if session is None or not (here or session.state is SessionState.SUSPENDED):
            return msgspec.structs.replace(event, session=None)
        turn = await store.turns.last(session.id)
        return msgspec.structs.replace(
            event,
            session=session.id,
            held=await self._held_messages(session.id),
            last=await self._read_turn(turn) if turn else None,
            title=session.title or "",
        )

    async def _enrich_access_lost(self, event: AccessLost) -> AccessLost:
        entries = await self._shared.store.inbox.unanswered()
        held = (
            self._shared.host.read_pending(entry)
            for entry in entries
            if entry.key == self.key and entry.state is InboxState.HELD
        )
        return AccessLost(event.people, tuple(p for p in held if p.person in event.people))

    async def _session_of_last_turn(self, turn_id: str) -> str | None:
        """Return the session in which this is the last turn; None for an outdated button."""
        store = self._shared.store
        turn = await store.turns.get(turn_id)
        session = await store.sessions.get(turn.session_id) if turn else None
        if session is None or session.key != self.key or session.state is SessionState.CLOSED:
            return None
        last = await store.turns.last(session.id)
        return session.id if last and last.id == turn_id else None

    async def _held_messages(self, session: str) -> tuple[PendingMessage, ...]:
        entries = await self._shared.store.inbox.held(session)
        return tuple(self._shared.host.read_pending(entry) for entry in entries)

    async def _last_turn(self, stored: ConversationSnapshot) -> LastTurn | None:
        return await self._read_turn(stored.last_turn) if stored.last_turn else None

    async def _read_turn(self, turn: Turn) -> LastTurn:
        shared = self._shared
        entries = await shared.store.inbox.of_turn(turn.id)
        pendings = tuple(shared.host.read_pending(entry) for entry in entries)
        messages = tuple(p.message for p in pendings)
        authors = {turn.person, *(p.person for p in pendings)} - {
            ""
        }  # older versions joined several
        request = entries or await shared.store.inbox.of_request(turn.id)
        if any(message.files for message in messages):
            messages = with_known_transcripts(
                messages, await shared.store.sessions.history(turn.session_id)
            )
        return LastTurn(
            id=turn.id,
            session=turn.session_id,
            address=turn.address,
            inbox=tuple(p.id for p in pendings),
            messages=messages,
            person=turn.person or (pendings[-1].person if pendings else ""),
            repeatable=len(authors) == 1 and bool(request) and shared.has_access(request[-1]),
            reply_to=pendings[-1].reply_to if pendings else "",
            request_options=pendings[-1].request_options if pendings else b"",
            single_turn=bool(pendings) and pendings[-1].single_turn,
        )


def _replaced_reason(stored: ConversationSnapshot) -> SessionReason | None:
    """Return why the newest session ended, if the next message replaces it; None after a switch."""
    left, newest = stored.suspended, stored.newest
    if left is None or newest is None or newest.id != left.id:
        return None
    return None if newest.reason is SessionReason.SWITCHED else newest.reason
