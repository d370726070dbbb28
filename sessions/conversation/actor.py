"""One conversation's owner: takes its events one by one and makes the machine's decisions true.

It knows neither platforms nor models: what it needs of them it gets as `Hands`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from sessions.attached import remembering
from sessions.changes import Change, Checkpoint, SetInbox
from sessions.conversation.events import (
    Arrived,
    Begin,
    CancelTask,
    Delete,
    Earlier,
    Ended,
    Event,
    GiveSteers,
    LastTurn,
    Missed,
    New,
    Pending,
    Resume,
    Retry,
    RunningTurn,
    Say,
    StartTask,
    State,
    Stop,
    Undo,
    Wrecked,
)
from sessions.conversation.expiry import Expiry
from sessions.conversation.machine import Env, Result, step
from sessions.errors import Conflict, StoreCorrupt, StoreError
from sessions.records import (
    Conversation,
    InboxEntry,
    InboxState,
    Message,
    Reason,
    SessionState,
    Turn,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
MOST_CONFLICTS = 3
GONE_WITHIN = 5.0


class Unhandled(Exception):
    """An event could not be carried out; the log says why."""


class TurnHandle(Protocol):
    """A turn under way."""

    async def run(self) -> Ended:
        """Work until the answer is whole or cannot be had; cancelled for `/stop`."""
        ...

    def cut(self, cause: str) -> tuple[Change, ...]:
        """From now on nothing it does counts; what it has so far, as changes."""
        ...

    def crashed(self, error: Exception) -> Ended:
        """An error nobody expected ended it; the user must still be told."""
        ...

    def partial(self) -> str:
        """The visible text so far."""
        ...

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """The answer to its wish for messages that steer it, and what it is a reply to now."""
        ...


class Hands(Protocol):
    """What the owner of a conversation needs from outside."""

    def pending(self, entry: InboxEntry) -> Pending:
        """Read a stored message."""
        ...

    def opening(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """What becomes durable together with the start of a turn."""
        ...

    def begin(self, key: str, start: StartTask, post: Callable[[Event], None]) -> TurnHandle:
        """Prepare a turn; its `run` is called next. `post` takes what it has for its owner."""
        ...

    async def wrecked(self, turn: Turn, running: RunningTurn) -> Wrecked:
        """Look at what a dead process left of a turn."""
        ...

    def say(self, says: Iterable[Say]) -> tuple[Change, ...]:
        """Notices as things to be shown."""
        ...

    def committed(self, changes: tuple[Change, ...]) -> None:
        """These are durable now; show what is to be shown."""
        ...


def _never(_key: str) -> bool:
    return False


class Shared(msgspec.Struct, frozen=True):
    """What all owners have in common."""

    store: SessionStore
    hands: Hands
    clock: Clock
    ids: Ids
    expiry: Callable[[], Expiry]
    queue_limit: Callable[[], int]
    tasks: asyncio.TaskGroup
    goes_on: Callable[[str], bool] = _never  # by key, see `State.goes_on`


class Actor:
    """The one owner of one conversation."""

    def __init__(
        self,
        key: str,
        shared: Shared,
        *,
        draining: Callable[[], bool],
        rested: Callable[[], None],
    ) -> None:
        self.key = key
        self.state: State | None = None
        self._shared = shared
        self._draining = draining
        self._rested = rested
        self._mailbox: deque[tuple[Event, asyncio.Future[State] | None]] = deque()
        self._awake = self._abandoned = False
        self._worker: asyncio.Task[None] | None = None
        self._turn: RunningTurn | None = None  # from its start until its end is carried out
        self._handle: TurnHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._wrecks: list[Wrecked] = []
        self._read_back: frozenset[str] = frozenset()  # waiting rows that were seen while loading
        self._cut_turn = ""  # the id of the turn that was cut
        self._kept: tuple[Change, ...] = ()  # of it, until it is stored

    @property
    def busy(self) -> bool:
        """Whether it must be kept: something is under way, or on its way to it."""
        return self._awake or self._task is not None

    @property
    def running(self) -> RunningTurn | None:
        """The turn whose task is alive."""
        return self._turn if self._task else None

    def post(self, event: Event, handled: asyncio.Future[State] | None = None) -> None:
        """Take an event; the mailbox is worked off in order, by one task at a time."""
        if self._abandoned:
            if handled:
                handled.set_exception(Unhandled(self.key))
            return
        self._mailbox.append((event, handled))
        if not self._awake:
            self._awake = True
            self._worker = self._shared.tasks.create_task(self._work(), name=f"actor {self.key}")

    def abandon(self) -> None:
        """The process is about to end: the journal has what the next one needs."""
        self._abandoned = True
        for task in (self._worker, self._task):
            if task:
                task.cancel()

    async def _work(self) -> None:
        try:
            while self._mailbox:
                event, handled = self._mailbox.popleft()
                carried_out = await self._carry_out(event)
                self._let_go(event)
                if handled is None or handled.done():
                    continue
                if carried_out and self.state:
                    handled.set_result(self.state)
                else:
                    handled.set_exception(Unhandled(self.key))
        finally:
            # No await since the mailbox was seen empty: nothing is overlooked.
            self._awake, self._worker = False, None
            self._rested()

    async def _carry_out(self, event: Event) -> bool:
        pause, conflicts = FIRST_PAUSE, 0
        while True:
            try:
                await self._decide(event)
            except Conflict:
                # Not what was expected: look at the conversation anew, then decide again.
                log.exception("%s: the stored state is not what was expected", self.key)
                self.state = None
                conflicts += 1
                if conflicts == MOST_CONFLICTS:
                    return False
            except StoreCorrupt as error:
                # Trying again reads no damaged page; what comes next may not need it.
                log.error("%s: %s", self.key, error)  # noqa: TRY400 - where it was met tells nothing
                self.state = None
                await self._tell_of_damage(event)
                return False
            except StoreError:
                log.exception("%s: cannot write, trying again in %.1f s", self.key, pause)
            except Exception:
                log.exception("%s: could not handle %s", self.key, type(event).__name__)
                self.state = None
                return False
            else:
                return True
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _tell_of_damage(self, event: Event) -> None:
        """Silence is no answer: whoever asked for this learns why it cannot be had."""
        done: tuple[Change, ...] = ()
        if isinstance(event, Arrived):
            place, origin = event.pending.address, event.pending.origin
        elif isinstance(event, Stop | New | Resume | Retry | Undo | Delete):
            place, origin = event.by.address, event.by.origin
            if event.by.inbox:
                done = (SetInbox((event.by.inbox,), InboxState.DONE, self._shared.clock.now()),)
        else:
            return  # nobody waits for it
        told = self._shared.hands.say((Say("damaged.here", place, origin=origin),))
        try:
            await self._shared.store.apply(*done, *told)
        except StoreError as error:
            log.warning("%s: nobody can be told of that: %s", self.key, error)
        else:
            self._shared.hands.committed((*done, *told))

    def _let_go(self, event: Event) -> None:
        """A turn's end was carried out, or cannot be: then the journal has what is known of it."""
        if isinstance(event, Ended) and self._turn and self._turn.id == event.turn:
            self._turn = None
            self._kept = ()

    async def _decide(self, event: Event) -> None:
        if self.state is None:
            self.state = await self._load()
        while self._wrecks:
            await self._make_true(self._wrecks[0], self.state)
            self._wrecks.pop(0)
        if not self._is_stale(event, self.state):
            await self._make_true(await self._prepared(event, self.state), self.state)

    def _is_stale(self, event: Event, state: State) -> bool:
        """Whether a message was read from the store, and taken, before its arrival was told."""
        if not isinstance(event, Arrived) or event.pending.id not in self._read_back:
            return False
        self._read_back -= {event.pending.id}
        return all(event.pending.id != pending.id for pending in state.waiting)

    async def _make_true(self, event: Event, state: State) -> None:
        shared = self._shared
        env = Env(shared.clock.now(), shared.ids.new, shared.queue_limit())
        result = step(state, event, env)
        self._cut(result)
        changes = (*self._kept, *result.changes)
        for act in result.acts:
            if isinstance(act, StartTask):
                changes = (*changes, *shared.hands.opening(self.key, act))
        says = [act for act in result.acts if isinstance(act, Say)]
        if says:
            changes = (*changes, *shared.hands.say(says))
        if changes:
            await shared.store.apply(*changes)
        self._kept = ()
        self.state = result.state
        for act in result.acts:
            if isinstance(act, StartTask):
                self._start(act)
            elif isinstance(act, GiveSteers) and self._handle:
                self._handle.steer(act.messages, act.reply_to)
        if changes:
            shared.hands.committed(changes)

    def _cut(self, result: Result) -> None:
        """Cancel first, store second: what hangs must not hold up `/stop`."""
        for act in result.acts:
            if not isinstance(act, CancelTask) or act.turn.id == self._cut_turn:
                continue  # what is decided anew after a failure was cut before
            if self._handle and self._task:
                self._cut_turn = act.turn.id
                kept = self._handle.cut(act.cause)
                if act.take_up:
                    kept = (Checkpoint(act.turn.id, self._handle.partial()),)
                self._kept = (*self._kept, *kept)
                self._task.cancel()
                self._turn = act.turn

    def _start(self, act: StartTask) -> None:
        turn = act.turn
        handle = self._shared.hands.begin(self.key, act, self.post)
        self._handle, self._turn = handle, turn
        ended: list[Ended] = []
        task = self._shared.tasks.create_task(
            self._run(handle, turn, ended), name=f"turn {turn.id}"
        )
        self._task = task
        # A callback, not `finally`: a task cancelled before its first step never enters its body.
        task.add_done_callback(lambda _: self._gone(turn, ended))

    async def _run(self, handle: TurnHandle, turn: RunningTurn, ended: list[Ended]) -> None:
        try:
            ended.append(await handle.run())
        except Exception as error:
            log.exception("%s: turn %s broke", self.key, turn.id)
            ended.append(handle.crashed(error))

    def _gone(self, turn: RunningTurn, ended: list[Ended]) -> None:
        self._task = self._handle = None
        last = ended[0] if ended else Ended(turn.id, TurnState.INTERRUPTED, "cancelled")
        self.post(last)

    # --- reading ------------------------------------------------------------------------------

    async def _load(self) -> State:
        shared = self._shared
        stored = await shared.store.conversation(self.key)
        waiting = tuple(shared.hands.pending(entry) for entry in stored.waiting)
        earlier = await self._earlier(stored)
        turn = self._turn
        if turn and all(turn.id != running.id for running in stored.running):
            turn = msgspec.structs.replace(turn, leaving=True)  # its end is stored already
            self._kept = ()
        session = stored.active
        person = await self._person(stored)
        self._wrecks = [
            await self._wrecked(left, person)
            for left in stored.running
            if self._turn is None or self._turn.id != left.id
        ]
        self._read_back = frozenset(pending.id for pending in waiting)
        return State(
            self.key,
            session=session.id if session else None,
            session_used_at=session.updated_at if session else 0,
            earlier=earlier,
            turn=turn,
            waiting=waiting,
            person=person,
            draining=self._draining(),
            fresh_after=None if session else _fresh_after(stored),
            goes_on=shared.goes_on(self.key),
        )

    async def _person(self, stored: Conversation) -> str:
        """Who asked last. What they asked is not read: of turns of old that is the only trace."""
        turn = stored.last_turn
        if turn is None or turn.person:
            return turn.person if turn else ""
        return (await self._read_turn(turn)).person

    async def _earlier(self, stored: Conversation) -> Earlier | None:
        """The conversation that can be brought back."""
        left = stored.suspended
        if left is None or left.reason is None:
            return None
        asked = await self._shared.store.last_turn(left.id)
        return Earlier(left.id, left.reason, asked.request if asked else "", stored.held)

    async def _wrecked(self, left: Turn, person: str) -> Wrecked:
        """Look at a turn that a dead process left."""
        began = await self._read_turn(left)
        running = RunningTurn(
            left.id,
            left.session_id,
            left.address,
            left.person or person,
            left.request,
            left.started_at,
            reply_to=began.reply_to,
            wishes=began.wishes,
            once=began.once,
        )
        return await self._shared.hands.wrecked(left, running)

    async def _prepared(self, event: Event, state: State) -> Event:
        """Add to an event what the store knows about what it means."""
        shared = self._shared
        if isinstance(event, Missed):
            return await self._prepared(await self._found(event, state), state)
        if isinstance(event, Arrived):
            if state.session and state.turn is None:
                expired = shared.expiry().expired(state.session_used_at, shared.clock.now())
                return msgspec.structs.replace(event, expired=expired)
        elif isinstance(event, Resume):
            return await self._prepared_resume(event, state)
        elif isinstance(event, Undo):
            stored = await shared.store.conversation(self.key)
            return msgspec.structs.replace(event, last=await self._last_turn(stored))
        elif isinstance(event, Retry):
            return await self._prepared_retry(event, state)
        return event

    async def _found(self, event: Missed, state: State) -> Event:
        """Nobody but this owner takes what waits, so what the store says now holds."""
        if any(pending.id == event.inbox for pending in state.waiting):
            return Begin()
        entry = await self._shared.store.inbox_entry(event.source, event.event)
        if entry is None or entry.state is not InboxState.WAITING:
            return Begin()
        return Arrived(self._shared.hands.pending(entry))

    async def _prepared_retry(self, event: Retry, state: State) -> Retry:
        if event.turn:
            session = await self._session_of(event.turn)
            turn = await self._shared.store.turn(event.turn) if session else None
            last = await self._read_turn(turn) if turn else None
        else:
            last = await self._last_turn(await self._shared.store.conversation(self.key))
        away = last is not None and last.session != state.session
        held = await self._held(last.session) if last and away else ()
        return msgspec.structs.replace(event, last=last, held=held)

    async def _prepared_resume(self, event: Resume, state: State) -> Resume:
        store = self._shared.store
        target = event.session or (state.earlier.session if state.earlier else None)
        if event.turn:
            target = await self._session_of(event.turn)
        session = await store.session(target) if target else None
        # A turn that failed leaves its session active: its button goes on right there.
        here = bool(event.turn) and event.go_on and session and session.id == state.session
        if session is None or not (here or session.state is SessionState.SUSPENDED):
            return msgspec.structs.replace(event, session=None)
        turn = await store.last_turn(session.id)
        return msgspec.structs.replace(
            event,
            session=session.id,
            held=await self._held(session.id),
            last=await self._read_turn(turn) if turn else None,
            title=session.title or "",
        )

    async def _session_of(self, turn_id: str) -> str | None:
        """The session of this conversation whose last turn this is; an old button finds none."""
        store = self._shared.store
        turn = await store.turn(turn_id)
        session = await store.session(turn.session_id) if turn else None
        if session is None or session.key != self.key or session.state is SessionState.CLOSED:
            return None
        last = await store.last_turn(session.id)
        return session.id if last and last.id == turn_id else None

    async def _held(self, session: str) -> tuple[Pending, ...]:
        entries = await self._shared.store.held(session)
        return tuple(self._shared.hands.pending(entry) for entry in entries)

    async def _last_turn(self, stored: Conversation) -> LastTurn | None:
        return await self._read_turn(stored.last_turn) if stored.last_turn else None

    async def _read_turn(self, turn: Turn) -> LastTurn:
        shared = self._shared
        entries = await shared.store.turn_inbox(turn.id)
        pendings = tuple(shared.hands.pending(entry) for entry in entries)
        messages = tuple(p.message for p in pendings)
        if any(message.files for message in messages):
            messages = remembering(messages, await shared.store.history(turn.session_id))
        return LastTurn(
            turn.id,
            turn.session_id,
            turn.address,
            tuple(p.id for p in pendings),
            messages,
            turn.person or (pendings[-1].person if pendings else ""),
            pendings[-1].reply_to if pendings else "",
            pendings[-1].wishes if pendings else b"",
            once=bool(pendings) and pendings[-1].once,
        )


def _fresh_after(stored: Conversation) -> Reason | None:
    """Why the conversation begins anew: its newest session ended otherwise than by a switch."""
    left, newest = stored.suspended, stored.newest
    if left is None or newest is None or newest.id != left.id:
        return None
    return None if newest.reason is Reason.SWITCHED else newest.reason
