"""One turn under way: its journal, and what it leaves behind."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from agent.attempt import AttemptResult
from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    ReasoningDelta,
    StepDone,
    TextDelta,
    TurnDone,
)
from agent.loop import run_turn
from agent.model.usage import Need
from agent.request.prompt import EARLIER_NOT_IN_VIEW, interrupted_request
from agent.tools.contract import Risk, Tool
from agent.tools.repeats import UNKNOWN
from agent.turn import Means, TurnTask
from gateway.alerts.admins import Operators
from gateway.approvals.broker import Approvals, Asking
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_address
from gateway.media.fetch import Attachments
from gateway.media.outgoing import Parcels
from gateway.notices.compose import Announcer
from gateway.observe.log import about
from gateway.spending.budgets import Budgets, Held, broken_off, settled
from gateway.turns.answer import CAPPED, answers, partial_row, since_request
from gateway.turns.attempts import attempt_over
from gateway.turns.feeds import Feed
from gateway.turns.live_answer import LiveAnswer
from gateway.turns.model_names import brief
from gateway.turns.news import Told
from gateway.turns.setting import Setting
from sessions.attached import names, request_of, unsettled, with_settled
from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    Compact,
    EndTool,
    PutItem,
    SettleFiles,
    StartAttempt,
    StartTool,
)
from sessions.conversation.events import Ended, Event, Heard, StartTask, SteersWanted
from sessions.conversation.machine import REQUEST_LENGTH
from sessions.errors import StoreCorrupt, StoreError
from sessions.records import Attachment, Item, Message, ToolCall, ToolRun, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 2.0
CHECKPOINT_SIZE = 1024  # characters that are not to be lost either, however quick they come
STEERS_WITHIN = 5.0

WORTH_TELLING = 1.0  # seconds that files may take before the chat shows that they come

LONGEST_LATE = 200  # characters that people are shown of a late result

STOPPED_NOT_RUN = "Not run: the user stopped the turn before this call began."
READ_CUT_SHORT = "Did not complete: the turn ended while it was running."
STOPPED_RUNNING = f"{UNKNOWN}: stopped while it was running; it may have taken effect."
BROKEN_NOT_RUN = "Not run: an error ended the turn before this call began."
BROKEN_RUNNING = (
    f"{UNKNOWN}: an error ended the turn while this was running; it may have taken effect. Look "
    "before you repeat it."
)

NOTE_TAKEN_UP = (
    "Your last answer was interrupted before it was finished. Go on with the request from where "
    "it stopped, without repeating what was already said or done."
)


class Workshop(msgspec.Struct, frozen=True, kw_only=True):
    """What all turns work with."""

    store: SessionStore
    delivery: Delivery
    announcer: Announcer
    approvals: Approvals
    operators: Operators
    budgets: Budgets
    clock: Clock
    attachments: Attachments
    parcels: Parcels
    asks: Callable[[], None]  # told when a turn begins to wait for somebody
    spoke: Callable[[str], None]  # told which turn has its first text


class Work:
    """One turn under way; also its journal."""

    def __init__(
        self,
        shop: Workshop,
        setting: Setting,
        key: str,
        start: StartTask,
        post: Callable[[Event], None],
        feed: Feed | None = None,
    ) -> None:
        self._purse = shop.budgets.purse(key, start.turn.person)
        self._held: Held | None = None  # for the request under way
        self._received = 0  # characters of its answer
        self._shop = shop
        self._store = shop.store
        self._announcer = shop.announcer
        self._clock = shop.clock
        self._setting = setting
        self._key = key
        self._start = start
        self._turn = start.turn
        self._post = post  # to the owner of the conversation
        self._feed = feed  # read by those who wait for the answer themselves
        self._answer = LiveAnswer(
            start.turn,
            shop.delivery,
            shop.announcer.capabilities(start.turn.address),
            shop.clock,
            models=brief(setting.targets),
            show_reasoning=setting.show_reasoning,
        )
        self._silent = True  # no text came yet
        self._steers: asyncio.Future[tuple[Message, ...]] | None = None
        self._unsaved: list[Change] = []  # rides on the next commit
        self._saved_text = ""
        self._unkept = 0  # characters since the last checkpoint
        self._much = asyncio.Event()  # they have become many
        self._open: dict[str, ToolCall] = {}  # calls without a result
        self._started: dict[str, Risk] = {}  # calls that were begun, and what they may do
        self._told = ""  # the last notice
        self._cut = False
        self._attempts_before = 0  # of a turn that is taken up again
        self.steps = 0

    @property
    def running_tool(self) -> ToolCall | None:
        """The call whose effect may be under way."""
        for call in self._open.values():
            if self._started.get(call.id, Risk.READ) is not Risk.READ:
                return call
        return None

    @property
    def waits(self) -> bool:
        """Whether it can only go on when somebody has answered a question."""
        return self._answer.waits

    # --- for the owner of the conversation ------------------------------------------------------

    async def run(self) -> Ended:
        """See `sessions.conversation.actor.TurnHandle`."""
        with about(turn=self._turn.id, session=self._turn.session):
            ended = await self._ask(await self._task())
            seconds = (self._clock.now() - self._turn.started_at) / 1000
            log.info("turn %s after %.1f s%s", ended.state, seconds, _because(ended.cause))
            return ended

    async def _task(self) -> TurnTask:
        summary, history = await self._store.context(self._turn.session)
        history = await self._with_files(history)
        self._tell_request(history)
        notes = _notes(self._start)
        if self._start.taken_up and (before := await self._store.turn(self._turn.id)):
            self._attempts_before = before.attempts
            if before.resumed:  # the same turn: what it showed stays
                said_before = answers(since_request(history))
                self._answer.go_on_from(said_before, before.partial)
                self._feed_again(said_before, before.partial)
                notes = notes if not before.partial else ()  # the text itself is carried on
        return TurnTask(
            turn_id=self._turn.id,
            session_id=self._turn.session,
            system=self._setting.system,
            history=history,
            workspace=self._setting.workspace,
            summary=summary,
            notes=notes,
            taken_up=self._start.taken_up,
            before=await self._begun(history) if self._start.taken_up else (),
            partial=self._answer.text,
            may_replace=not (self._answer.streams or self._feed),
        )

    async def _begun(self, history: tuple[Message, ...]) -> tuple[ToolRun, ...]:
        """The calls of the work that is taken up: of this turn, or of those it goes on from."""
        calls = [call.id for row in since_request(history) for call in row.tool_calls]
        earlier = await self._store.runs_of(self._turn.session, calls)
        own = await self._store.tool_runs(self._turn.id)
        return tuple({run.call_id: run for run in (*earlier, *own)}.values())

    async def _ask(self, task: TurnTask) -> Ended:
        try:
            async with asyncio.TaskGroup() as beside:
                keeper = beside.create_task(self._keep_checkpoints())
                done = await run_turn(
                    task,
                    Means(
                        targets=self._setting.targets,
                        tools=self._setting.tools,
                        journal=self,
                        clock=self._clock,
                        emit=self._emit,
                        steers=self._take_steers,
                        experience=self._setting.experience,
                        drafts=self._setting.drafts,
                        approve=self._approve,
                        send_file=self._send_file,
                        limits=self._setting.limits,
                    ),
                )
                keeper.cancel()
            return self._ended(done)
        except BaseExceptionGroup as group:
            # The group holds one task of ours beside the turn; what broke is what counts.
            raise group.exceptions[0] from None

    def cut(self, cause: str) -> tuple[Change, ...]:
        """See `sessions.conversation.actor.TurnHandle`."""
        self._cut = True
        rows = self._results(STOPPED_RUNNING, STOPPED_NOT_RUN)
        if text := self._answer.text:
            rows.append(partial_row(text, cause))
        return (
            *self._unsaved,
            *self._broken_off(),
            *self._appended(rows),
            *self._answer.close(self._answer.whole()),
        )

    def crashed(self, error: Exception) -> Ended:
        """See `sessions.conversation.actor.TurnHandle`."""
        cause = f"an error inside the gateway ({type(error).__name__})"
        if isinstance(error, StoreCorrupt):
            cause = "what is kept of this conversation is damaged; a new one works"
        return self._failed(TurnDone(Ending.FAILED, "", cause, tries=1))

    def partial(self) -> str:
        """See `sessions.conversation.actor.TurnHandle`."""
        return self._answer.text

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """See `sessions.conversation.actor.TurnHandle`."""
        self._answer.reply_to = reply_to or self._answer.reply_to
        if self._steers and not self._steers.done():
            self._steers.set_result(messages)

    # --- what the agent tells -------------------------------------------------------------------

    def _emit(self, event: AgentEvent) -> None:
        if self._cut:
            return
        if isinstance(event, Notice):
            self._tell(event)
            return
        if self._feed:
            self._feed.tell(event)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._received += len(event.text)
        if isinstance(event, TextDelta):
            self._came(event.text)
        self._answer.show(event)

    def _tell(self, notice: Notice) -> None:
        words = self._answer.notice(notice)
        if self._feed:
            self._feed.tell(Told(notice.id, words))
        again = notice.id == self._told  # the same line, edited in place
        log.log(logging.DEBUG if again else logging.INFO, "told: %s %s", notice.id, words)
        self._told = notice.id

    def _came(self, text: str) -> None:
        self._told = ""
        if self._silent:
            self._silent = False
            self._shop.spoke(self._turn.id)
        self._unkept += len(text)
        # A share of a long text, not a fixed size: each checkpoint writes all of it.
        if self._unkept >= max(CHECKPOINT_SIZE, len(self._saved_text) // 8):
            self._unkept = 0
            self._much.set()

    def _feed_again(self, steps: Iterable[str], text: str) -> None:
        """Tell those who wait now what was said before the turn was taken up."""
        if self._feed:
            for each in steps:
                self._feed.tell(TextDelta(each))
                self._feed.tell(StepDone())
            self._feed.tell(TextDelta(text))

    # --- what the agent wants from people -------------------------------------------------------

    async def _approve(self, tool: Tool, call: ToolCall) -> str | None:
        asking = Asking(
            key=self._key,
            session_id=self._turn.session,
            turn_id=self._turn.id,
            address=self._turn.address,
            person=self._turn.person,
        )
        try:
            with self._answer.asking():
                self._shop.asks()
                return await self._shop.approvals.ask(asking, tool, call)
        finally:
            if not self._cut:
                self._answer.refresh()

    async def _send_file(self, path: str, caption: str, key: str) -> str:
        turn, reply_to = self._turn, self._answer.reply_to
        return await self._shop.parcels.send(
            turn.id, turn.address, reply_to, self._setting.workspace, path, caption, key
        )

    async def _take_steers(self) -> tuple[Message, ...]:
        self._steers = asyncio.get_running_loop().create_future()
        self._post(SteersWanted(self._turn.id))
        try:
            async with asyncio.timeout(STEERS_WITHIN):
                rows = await self._steers
        except TimeoutError:
            return ()
        return await self._with_files(rows)

    # --- what people attach ---------------------------------------------------------------------

    async def _with_files(self, rows: tuple[Message, ...]) -> tuple[Message, ...]:
        """Fetch the files of the newest rows that are not there yet, and write down what came."""
        missing = unsettled(rows)
        if not missing:
            return rows
        found = await self._fetch(missing)
        settled = {file.path: file for file in found}
        oldest = next(at for at, row in enumerate(rows) if unsettled((row,)))
        changes: list[Change] = [SettleFiles(self._turn.session, len(rows) - oldest, found)]
        if lost := [f"{file.name}: {file.trouble}" for file in found if not file.fetched]:
            fields = {"list": "; ".join(lost)}
            item = self._announcer.item(
                "not_fetched", self._turn.address, fields, turn=self._turn.id
            )
            changes.append(PutItem(item))
        await self._save(*changes)
        self._shop.delivery.wake([each.item for each in changes if isinstance(each, PutItem)])
        return tuple(with_settled(row, settled) for row in rows)

    async def _fetch(self, files: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """Show that files are on their way, unless they are quick."""
        place, workspace = read_address(self._turn.address), self._setting.workspace
        with self._answer.fetching(names(files)):
            async with asyncio.TaskGroup() as beside:
                line = beside.create_task(self._tell_later())
                settled = await self._shop.attachments.settle(files, place, workspace)
                line.cancel()
        if not line.cancelled():
            self._answer.refresh()
        return settled

    async def _tell_later(self) -> None:
        await asyncio.sleep(WORTH_TELLING)
        self._answer.refresh()

    def _tell_request(self, rows: tuple[Message, ...]) -> None:
        """Let notices say what was asked for, where it was spoken."""
        asked = next((row for row in reversed(rows) if row.role == "user"), None)
        if asked is None or not any(file.heard for file in asked.files):
            return
        request = request_of(asked)[:REQUEST_LENGTH]
        if request != self._turn.request:
            self._post(Heard(self._turn.id, request))

    # --- the journal ----------------------------------------------------------------------------

    async def attempt_started(self, number: int, target: str, need: Callable[[], Need]) -> None:
        """See `agent.turn.TurnJournal`."""
        started = StartAttempt(
            self._turn.id, number + self._attempts_before, target, self._clock.now()
        )
        if self._purse:
            await self._hold(need(), started)
        elif number > 1 or self._start.taken_up:  # else on record since the turn began
            await self._save(started)

    async def _hold(self, need: Need, started: Change) -> None:
        """Set aside what the request may use, in one commit with its start."""
        unsaved, self._unsaved = self._unsaved, []
        self._received = 0
        try:
            self._held = await self._purse.hold(need, first=unsaved, then=(started,))
        except StoreError:
            self._unsaved = [*unsaved, *self._unsaved]
            raise

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """See `agent.turn.TurnJournal`. Rides on the next commit."""
        self._unsaved.append(
            attempt_over(self._turn.id, number + self._attempts_before, result, self._clock.now())
        )
        if self._held:
            self._unsaved.append(settled(self._held, result))
            self._held = None

    def _broken_off(self) -> Iterable[Change]:
        """A request is under way, and nobody waits for its end."""
        if self._held:
            yield broken_off(self._held, self._received)
            self._held = None

    async def step_done(self, message: Message) -> None:
        """See `agent.turn.TurnJournal`."""
        self.steps += 1
        self._open = {call.id: call for call in message.tool_calls}
        self._started.clear()
        self._answer.step_kept()
        now = self._clock.now()
        await self._save(
            AppendMessages(self._turn.session, self._turn.id, (message,), now),
            Checkpoint(self._turn.id, ""),
        )

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """See `agent.turn.TurnJournal`."""
        self._started[call.id] = risk
        now = self._clock.now()
        number = attempt + self._attempts_before
        await self._save(
            StartTool(self._turn.id, call.id, call.name, risk.value, call.arguments, now, number)
        )

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """See `agent.turn.TurnJournal`."""
        self._open.pop(call.id, None)
        now = self._clock.now()
        row = Message("tool", content=result, tool_call_id=call.id)
        changes: list[Change] = [AppendMessages(self._turn.session, self._turn.id, (row,), now)]
        if call.id in self._started:
            changes.append(EndTool(self._turn.id, call.id, ok, result, now))
        await self._save(*changes)

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """See `agent.tools.run.LateJournal`: people and journal are told, the conversation is not."""
        fields = {"tool": call.name, "result": " ".join(result.split())[:LONGEST_LATE]}
        item = self._announcer.item("late", self._turn.address, fields, turn=self._turn.id)
        ended = EndTool(self._turn.id, call.id, ok=True, result=result, at=self._clock.now())
        await self._shop.delivery.put(ended, PutItem(item))

    async def compacted(self, keep: int, summary: str) -> None:
        """See `agent.turn.TurnJournal`."""
        await self._save(Compact(self._turn.session, keep, summary, self._clock.now()))

    async def _keep_checkpoints(self) -> None:
        """Write down the text so far, and let the time of a running tool be seen."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_EVERY):
                    await self._much.wait()
            self._much.clear()
            self._answer.pass_time()
            text = self._answer.text
            if text and text != self._saved_text:
                self._saved_text = text
                try:
                    await self._save(Checkpoint(self._turn.id, text))
                except StoreError as error:  # the answer is more important than its copy
                    log.warning("%s: no checkpoint: %s", self._turn.id, error)

    async def _save(self, *changes: Change) -> None:
        unsaved, self._unsaved = self._unsaved, []
        try:
            await self._store.apply(*unsaved, *changes)
        except StoreError:
            self._unsaved = [*unsaved, *self._unsaved]  # what a request cost is not lost with this
            raise

    # --- the end --------------------------------------------------------------------------------

    def _ended(self, done: TurnDone) -> Ended:
        if done.ending is Ending.FAILED:
            return self._failed(done)
        if self._feed:
            self._feed.done(done)
        changes = (
            *self._unsaved,
            *self._appended([done.message] if done.message else []),
            *self._answer.close(self._answer.whole() or done.text),
            *self._shop.operators.answered(self._targets),
        )
        cause = CAPPED if done.last == "capped" else None
        return Ended(self._turn.id, TurnState.DONE, cause, changes)

    def _failed(self, done: TurnDone) -> Ended:
        if self._feed:
            self._feed.done(done)
        rows = self._results(BROKEN_RUNNING, BROKEN_NOT_RUN)
        if done.message:
            rows.append(done.message)
        elif text := self._answer.text:
            rows.append(partial_row(text, done.cause))
        shown = self._answer.close(self._answer.whole())
        told = self._shop.operators.failed(done, self._turn.person, self._targets)
        notice = PutItem(self._told_of(done, operator_told=bool(told)))
        spent = (*self._unsaved, *self._broken_off())
        changes = (*spent, *self._appended(rows), *shown, *told, notice)
        return Ended(self._turn.id, TurnState.FAILED, done.cause, changes)

    def _told_of(self, done: TurnDone, *, operator_told: bool) -> Item:
        """What people are told of a failure."""
        turn = self._turn
        fields: dict[str, str | int] = {
            "cause": done.cause,
            "text": done.cause,
            "k": done.tries,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "list": ", ".join(done.tools),
            "draft": ", ".join(done.drafts),
            "too_long": "yes" if done.too_long else "",
            "operator_told": "yes" if operator_told else "",
        }
        return self._announcer.item(
            done.notice, turn.address, fields, turn=turn.id, origin=turn.origin
        )

    def _appended(self, rows: Sequence[Message]) -> Iterable[Change]:
        if rows:
            now = self._clock.now()
            yield AppendMessages(self._turn.session, self._turn.id, tuple(rows), now)

    @property
    def _targets(self) -> str:
        """Name all that may be asked in this turn."""
        return ", ".join(target.label for target in self._setting.targets)

    def _results(self, begun: str, not_begun: str) -> list[Message]:
        """Give the calls that the end of the turn left without a result one."""
        words = {None: not_begun, Risk.READ: READ_CUT_SHORT}
        return [
            Message("tool", words.get(self._started.get(call.id), begun), tool_call_id=call.id)
            for call in self._open.values()
        ]


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
