"""Runs the agent for a conversation: history in, events to the chat, changes to the store.

`Turns` prepares turns and looks at what a dead process left of one; `Work` is one turn under way.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from agent.attempt import AttemptResult
from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    StepDone,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnDone,
)
from agent.loop import TurnLimits, TurnTask, run_turn
from agent.prompt import EARLIER_NOT_IN_VIEW, interrupted_request
from agent.providers.registry import Target
from agent.tools.contract import Risk
from agent.tools.registry import ToolRegistry
from gateway.announcer import Announcer
from gateway.answer import answer_item, answers, partial_row, said, since_request
from gateway.delivery.outbox import Delivery, LiveItem
from gateway.notices import render
from gateway.observe.log import about
from gateway.wreckage import PREVIEW, salvage
from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    EndAttempt,
    EndTool,
    PutItem,
    StartAttempt,
    StartTool,
)
from sessions.errors import StoreError
from sessions.events import (
    Ended,
    RunningTurn,
    StartTask,
    Wrecked,
)
from sessions.records import Item, Message, ToolCall, Turn, TurnState
from sessions.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 2.0
STEERS_WITHIN = 5.0

STOPPED_NOT_RUN = "Not run: the user stopped the turn before this call began."
STOPPED_RUNNING = "Stopped while it was running; it may have taken effect."

NOTE_TAKEN_UP = (
    "Your last answer was interrupted before it was finished. Go on with the request from where "
    "it stopped, without repeating what was already said or done."
)


class Setting(msgspec.Struct, frozen=True):
    """What a conversation's turns run with."""

    target: Target
    tools: ToolRegistry
    system: str
    workspace: Path
    limits: TurnLimits


class Turns:
    """Prepares turns; one of it serves all conversations."""

    def __init__(
        self,
        store: SessionStore,
        delivery: Delivery,
        announcer: Announcer,
        clock: Clock,
        setting: Callable[[str, str], Setting],
        *,
        take_up: bool,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._announcer = announcer
        self._clock = clock
        self._setting = setting  # by key and person
        self._take_up = take_up
        self._works: WeakValueDictionary[str, Work] = WeakValueDictionary()  # kept by its owner

    def opening(self, key: str, start: StartTask) -> tuple[Change, ...]:
        """The first request of a turn goes on record with its start: one commit less."""
        if start.taken_up:
            return ()  # its requests are counted on, which takes a look into the store
        target = self._setting(key, start.turn.person).target
        return (StartAttempt(start.turn.id, 1, target.label, self._clock.now()),)

    def begin(self, key: str, start: StartTask, steers_wanted: Callable[[], None]) -> "Work":
        """See `sessions.actor.Hands`."""
        setting = self._setting(key, start.turn.person)
        work = Work(
            self._store,
            self._delivery,
            self._announcer,
            self._clock,
            setting,
            start,
            steers_wanted,
        )
        self._works[start.turn.id] = work
        return work

    def fields(self, turn: RunningTurn) -> dict[str, str | int]:
        """What the notices about an interrupted turn say: how far it came, which tool ran."""
        fields: dict[str, str | int] = {
            "request": turn.request,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "k": 0,
        }
        if work := self._works.get(turn.id):
            fields["k"] = work.steps
        return fields | self.tool_fields(turn.id)

    def tool_fields(self, turn_id: str) -> dict[str, str | int]:
        """Which tool of a turn may be taking effect at this moment."""
        work = self._works.get(turn_id)
        running = work.running_tool if work else None
        if running is None:
            return {}
        return {"tool": running.name, "preview": running.arguments[:PREVIEW]}

    async def wrecked(self, turn: Turn, running: RunningTurn) -> Wrecked:
        """See `sessions.actor.Hands`."""
        history = await self._store.history(turn.session_id)
        runs = await self._store.tool_runs(turn.id)
        return salvage(turn, running, history, runs, self._clock.now(), may_take_up=self._take_up)


class Work:
    """One turn under way; also its journal."""

    def __init__(
        self,
        store: SessionStore,
        delivery: Delivery,
        announcer: Announcer,
        clock: Clock,
        setting: Setting,
        start: StartTask,
        steers_wanted: Callable[[], None],
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._clock = clock
        self._setting = setting
        self._start = start
        self._turn = start.turn
        self._steers_wanted = steers_wanted
        self._steers: asyncio.Future[tuple[Message, ...]] | None = None
        self._unsaved: list[Change] = []  # rides on the next commit
        self._said: list[str] = []  # the visible text of steps that are over
        self._text = ""  # of the present step
        self._saved_text = ""
        self._open: dict[str, ToolCall] = {}  # calls without a result
        self._started: set[str] = set()
        self._status = ""
        self._live: LiveItem = delivery.live(self._item("", final=False))
        self._cut = False
        self._attempts_before = 0  # of a turn that is taken up again
        self.steps = 0

    @property
    def running_tool(self) -> ToolCall | None:
        """The call whose effect may be under way."""
        for call in self._open.values():
            if call.id in self._started:
                return call
        return None

    # --- for the owner of the conversation ------------------------------------------------------

    async def run(self) -> Ended:
        """See `sessions.actor.TurnHandle`."""
        with about(turn=self._turn.id, session=self._turn.session):
            ended = await self._answer(await self._task())
            seconds = (self._clock.now() - self._turn.started_at) / 1000
            log.info("turn %s after %.1f s%s", ended.state, seconds, _because(ended.cause))
            return ended

    async def _task(self) -> TurnTask:
        history = await self._store.history(self._turn.session)
        if self._start.taken_up and (before := await self._store.turn(self._turn.id)):
            self._attempts_before = before.attempts
            if before.resumed:  # the same turn: what it showed stays
                self._said = answers(since_request(history))
        return TurnTask(
            turn_id=self._turn.id,
            session_id=self._turn.session,
            system=self._setting.system,
            history=history,
            workspace=self._setting.workspace,
            notes=_notes(self._start),
        )

    async def _answer(self, task: TurnTask) -> Ended:
        try:
            async with asyncio.TaskGroup() as beside:
                keeper = beside.create_task(self._keep_checkpoints())
                done = await run_turn(
                    task,
                    target=self._setting.target,
                    tools=self._setting.tools,
                    journal=self,
                    clock=self._clock,
                    emit=self._emit,
                    steers=self._take_steers,
                    limits=self._setting.limits,
                )
                keeper.cancel()
            return self._ended(done)
        except BaseExceptionGroup as group:
            # The group holds one task of ours beside the turn; what broke is what counts.
            raise group.exceptions[0] from None

    def cut(self, cause: str) -> tuple[Change, ...]:
        """See `sessions.actor.TurnHandle`."""
        self._cut = True
        rows = [
            Message("tool", content=text, tool_call_id=call.id)
            for call in self._open.values()
            for text in [STOPPED_RUNNING if call.id in self._started else STOPPED_NOT_RUN]
        ]
        if self._text:
            rows.append(partial_row(self._text, cause))
        changes = list(self._unsaved)
        if rows:
            now = self._clock.now()
            changes.append(AppendMessages(self._turn.session, self._turn.id, tuple(rows), now))
        changes.extend(self._shown(self._visible()))
        return tuple(changes)

    def crashed(self, error: Exception) -> Ended:
        """See `sessions.actor.TurnHandle`."""
        cause = f"an error inside the gateway ({type(error).__name__})"
        return self._failed(cause, 1, ())

    def partial(self) -> str:
        """See `sessions.actor.TurnHandle`."""
        return self._text

    def steer(self, messages: tuple[Message, ...]) -> None:
        """See `sessions.actor.TurnHandle`."""
        if self._steers and not self._steers.done():
            self._steers.set_result(messages)

    # --- what the agent tells -------------------------------------------------------------------

    def _emit(self, event: AgentEvent) -> None:
        if self._cut:
            return
        match event:
            case TextDelta():
                self._text += event.text
                self._status = ""
            case StepDone():
                self._said.append(self._text)
                self._text = ""
            case ToolStarted():
                self._status = f"{event.emoji} {event.label or event.tool}".strip()
            case ToolFinished():
                self._status = ""
            case Notice():
                self._status = render(event.id, event.fields, "/{word}")
            case _:
                return
        self._live.update(self._visible(), self._status)

    async def _take_steers(self) -> tuple[Message, ...]:
        self._steers = asyncio.get_running_loop().create_future()
        self._steers_wanted()
        try:
            async with asyncio.timeout(STEERS_WITHIN):
                return await self._steers
        except TimeoutError:
            return ()

    # --- the journal ----------------------------------------------------------------------------

    async def attempt_started(self, number: int, target: str) -> None:
        """See `agent.loop.TurnJournal`."""
        if number == 1 and not self._start.taken_up:
            return  # on record since the turn began
        number += self._attempts_before
        await self._save(StartAttempt(self._turn.id, number, target, self._clock.now()))

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """See `agent.loop.TurnJournal`. Rides on the next commit."""
        self._unsaved.append(
            EndAttempt(
                self._turn.id,
                number + self._attempts_before,
                result.name,
                self._clock.now(),
                phase=result.phase,
                received=result.received,
                cause=result.cause,
                request_id=result.request_id,
                input_tokens=result.input_tokens,
                output_tokens=result.output_tokens,
            )
        )

    async def step_done(self, message: Message) -> None:
        """See `agent.loop.TurnJournal`."""
        self.steps += 1
        self._open = {call.id: call for call in message.tool_calls}
        self._started.clear()
        if self._text:  # from here on the row holds it
            self._said.append(self._text)
            self._text = ""
        now = self._clock.now()
        await self._save(
            AppendMessages(self._turn.session, self._turn.id, (message,), now),
            Checkpoint(self._turn.id, ""),
        )

    async def tool_started(self, call: ToolCall, risk: Risk) -> None:
        """See `agent.loop.TurnJournal`."""
        self._started.add(call.id)
        now = self._clock.now()
        await self._save(
            StartTool(self._turn.id, call.id, call.name, risk.value, call.arguments, now)
        )

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """See `agent.loop.TurnJournal`."""
        self._open.pop(call.id, None)
        now = self._clock.now()
        row = Message("tool", content=result, tool_call_id=call.id)
        changes: list[Change] = [AppendMessages(self._turn.session, self._turn.id, (row,), now)]
        if call.id in self._started:
            changes.append(EndTool(self._turn.id, call.id, ok, result, now))
        await self._save(*changes)

    def checkpoint(self, text: str) -> None:
        """See `agent.loop.TurnJournal`. The text was emitted already; `_keep_checkpoints` writes."""

    async def _keep_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY)
            if self._text and self._text != self._saved_text:
                self._saved_text = self._text
                try:
                    await self._save(Checkpoint(self._turn.id, self._text))
                except StoreError as error:  # the answer is more important than its copy
                    log.warning("%s: no checkpoint: %s", self._turn.id, error)

    async def _save(self, *changes: Change) -> None:
        unsaved, self._unsaved = self._unsaved, []
        await self._store.apply(*unsaved, *changes)

    # --- the end --------------------------------------------------------------------------------

    def _ended(self, done: TurnDone) -> Ended:
        if done.ending is Ending.FAILED:
            return self._failed(done.cause, done.tries, done.tools, done.message)
        changes = list(self._unsaved)
        if done.message:
            now = self._clock.now()
            changes.append(AppendMessages(self._turn.session, self._turn.id, (done.message,), now))
        changes.extend(self._shown(self._visible() or done.text))
        return Ended(self._turn.id, TurnState.DONE, changes=tuple(changes))

    def _failed(
        self, cause: str, tries: int, tools: Iterable[str], message: Message | None = None
    ) -> Ended:
        now = self._clock.now()
        if message is None and self._text:
            message = partial_row(self._text, cause)
        changes = list(self._unsaved)
        rows = [
            Message("tool", content=STOPPED_NOT_RUN, tool_call_id=call.id)
            for call in self._open.values()
        ]
        if message:
            rows.append(message)
        if rows:
            changes.append(AppendMessages(self._turn.session, self._turn.id, tuple(rows), now))
        changes.extend(self._shown(self._visible()))
        fields: dict[str, str | int] = {
            "cause": cause,
            "k": tries,
            "min": (now - self._turn.started_at) // 60_000,
            "list": ", ".join(tools),
        }
        notice = self._announcer.item("N7", self._turn.address, fields, turn=self._turn.id)
        changes.append(PutItem(notice))
        return Ended(self._turn.id, TurnState.FAILED, cause, tuple(changes))

    def _visible(self) -> str:
        return said((*self._said, self._text))

    def _shown(self, text: str) -> tuple[Change, ...]:
        """The answer as it stands in the chat from now on."""
        self._live.close()
        if not text:
            self._live.drop()
            return ()
        return (PutItem(self._item(text, final=True)),)

    def _item(self, text: str, *, final: bool) -> Item:
        item = answer_item(self._turn.id, self._turn.address, text, self._clock.now())
        return msgspec.structs.replace(item, final=final)


def _because(cause: str | None) -> str:
    return f": {cause}" if cause else ""


def _notes(start: StartTask) -> tuple[str, ...]:
    notes = []
    if start.fresh_after:
        notes.append(EARLIER_NOT_IN_VIEW)
    if start.interrupted_request:
        notes.append(interrupted_request(start.interrupted_request))
    if start.taken_up:
        notes.append(NOTE_TAKEN_UP)
    return tuple(notes)
