"""One turn under way: its journal, what the chat shows of it, and what it leaves behind."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from agent.attempt import AttemptResult
from agent.events import (
    AgentEvent,
    Ending,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolFinished,
    ToolStarted,
    TurnDone,
)
from agent.experience import Experience
from agent.loop import run_turn
from agent.prompt import EARLIER_NOT_IN_VIEW, interrupted_request
from agent.providers.registry import Target
from agent.tools.contract import Risk, Tool
from agent.tools.drafts import Drafts
from agent.tools.registry import ToolRegistry
from agent.tools.twins import UNKNOWN
from agent.turn import Means, TurnLimits, TurnTask
from gateway.announcer import PLAIN_COMMAND, Announcer
from gateway.answer import (
    CAPPED,
    answer_item,
    answers,
    partial_row,
    reasoning_item,
    said,
    since_request,
)
from gateway.approvals import Approvals, Asking
from gateway.attachments import Attachments
from gateway.attempts import attempt_over
from gateway.delivery.outbox import Delivery, LiveItem
from gateway.delivery.view import read_address
from gateway.feeds import Feed
from gateway.model_names import brief
from gateway.news import Told
from gateway.observe.log import about
from gateway.operators import Operators
from gateway.parcels import Parcels
from gateway.progress import StatusLine
from gateway.reasoning import ReasoningView
from platforms.core.contract import Live
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
from sessions.errors import StoreError
from sessions.events import Ended, Event, Heard, StartTask, SteersWanted
from sessions.machine import REQUEST_LENGTH
from sessions.records import Attachment, Item, Message, ToolCall, ToolRun, TurnState
from sessions.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 2.0
CHECKPOINT_SIZE = 1024  # characters that are not to be lost either, however quick they come
STEERS_WITHIN = 5.0

WORTH_TELLING = 1.0  # seconds that files may take before the chat shows that they come

PREVIEW = 200  # characters of a late result

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


class Setting(msgspec.Struct, frozen=True):
    """What a conversation's turns run with."""

    targets: tuple[Target, ...]  # asked in this order
    tools: ToolRegistry
    system: str
    workspace: Path
    drafts: Drafts
    limits: TurnLimits
    experience: Experience
    show_reasoning: bool = False

    def first_label(self, now: float) -> str:
        """Name the target that will be asked first, as far as that can be told without asking."""
        for target in self.targets:
            known = self.experience.of(
                target.provider.name, target.settings.base_url or "", target.model
            )
            if (known.breaker.open_until or 0.0) <= now:
                return target.label
        return self.targets[0].label


class Work:
    """One turn under way; also its journal."""

    def __init__(
        self,
        store: SessionStore,
        delivery: Delivery,
        announcer: Announcer,
        approvals: Approvals,
        operators: Operators,
        clock: Clock,
        attachments: Attachments,
        setting: Setting,
        key: str,
        start: StartTask,
        post: Callable[[Event], None],
        asks: Callable[[], None] = lambda: None,
        parcels: Parcels | None = None,
        spoke: Callable[[str], None] = lambda _: None,
        feed: Feed | None = None,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._announcer = announcer
        self._approvals = approvals
        self._operators = operators
        self._clock = clock
        self._attachments = attachments
        self._setting = setting
        self._key = key
        self._start = start
        self._turn = start.turn
        self._reply_to = start.turn.reply_to  # of what was asked last
        self._post = post  # to the owner of the conversation
        self._asks = asks  # told when it begins to wait for somebody
        self._parcels = parcels
        self._spoke = spoke  # told of the first text
        self._silent = True  # until then
        self._feed = feed  # read by those who wait for the answer themselves
        self._steers: asyncio.Future[tuple[Message, ...]] | None = None
        self._unsaved: list[Change] = []  # rides on the next commit
        self._said: list[str] = []  # the visible text of steps that are over
        self._pieces: list[str] = []  # the text of the present step
        self._saved_text = ""
        self._open: dict[str, ToolCall] = {}  # calls without a result
        self._started: dict[str, Risk] = {}  # calls that were begun, and what they may do
        can = announcer.capabilities(self._turn.address)
        self._status = StatusLine(
            can.command if can else PLAIN_COMMAND, tasks_apart=can is not None and can.tasks
        )
        self._streams = can is not None and can.live is Live.STREAM
        self._clears = can is not None and can.status  # a status can be taken away
        self._names = brief(setting.targets)
        self._thoughts = ReasoningView()
        self._thinking: LiveItem | None = None
        if setting.show_reasoning:  # it stands before the answer, so it is entered first
            self._thinking = delivery.live(self._reasoning(final=False))
        self._live: LiveItem = delivery.live(self._item("", final=False))
        self._told = ""  # the last notice
        self._unkept = 0  # characters since the last checkpoint
        self._much = asyncio.Event()  # they have become many
        self._cut = False
        self._attempts_before = 0  # of a turn that is taken up again
        self.steps = 0

    @property
    def _text(self) -> str:
        """Of the present step; put together only when somebody wants to see it."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @_text.setter
    def _text(self, text: str) -> None:
        self._pieces = [text] if text else []

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
        return self._status.waits

    # --- for the owner of the conversation ------------------------------------------------------

    async def run(self) -> Ended:
        """See `sessions.actor.TurnHandle`."""
        with about(turn=self._turn.id, session=self._turn.session):
            ended = await self._answer(await self._task())
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
                self._said = answers(since_request(history))
                self._text = before.partial
                self._feed_again()
                notes = notes if not self._text else ()  # the text itself is carried on
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
            partial=self._text,
            may_replace=not (self._streams or self._feed),
        )

    async def _begun(self, history: tuple[Message, ...]) -> tuple[ToolRun, ...]:
        """The calls of the work that is taken up: of this turn, or of those it goes on from."""
        calls = [call.id for row in since_request(history) for call in row.tool_calls]
        earlier = await self._store.runs_of(self._turn.session, calls)
        own = await self._store.tool_runs(self._turn.id)
        return tuple({run.call_id: run for run in (*earlier, *own)}.values())

    async def _answer(self, task: TurnTask) -> Ended:
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
                        send_file=self._send_file if self._parcels else None,
                        limits=self._setting.limits,
                    ),
                )
                keeper.cancel()
            return self._ended(done)
        except BaseExceptionGroup as group:
            # The group holds one task of ours beside the turn; what broke is what counts.
            raise group.exceptions[0] from None

    def cut(self, cause: str) -> tuple[Change, ...]:
        """See `sessions.actor.TurnHandle`."""
        self._cut = True
        rows = self._results(STOPPED_RUNNING, STOPPED_NOT_RUN)
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
        return self._failed(TurnDone(Ending.FAILED, "", cause, tries=1))

    def partial(self) -> str:
        """See `sessions.actor.TurnHandle`."""
        return self._text

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """See `sessions.actor.TurnHandle`."""
        self._reply_to = reply_to or self._reply_to
        if self._steers and not self._steers.done():
            self._steers.set_result(messages)

    # --- what the agent tells -------------------------------------------------------------------

    def _emit(self, event: AgentEvent) -> None:
        if self._cut:
            return
        if self._feed and not isinstance(event, Notice | TurnDone):
            self._feed.tell(event)
        match event:
            case TextDelta():
                if self._silent:
                    self._silent = False
                    self._spoke(self._turn.id)
                if self._streams:
                    self._show_thoughts()
                self._pieces.append(event.text)
                self._unkept += len(event.text)
                # A share of a long text, not a fixed size: each checkpoint writes all of it.
                if self._unkept >= max(CHECKPOINT_SIZE, len(self._saved_text) // 8):
                    self._unkept = 0
                    self._much.set()
                self._told = ""
                self._status.alive()
            case TextReplaced():
                self._text = event.text
            case ReasoningDelta():
                self._status.alive()
                self._think(event.text)
            case ReasoningReplaced():
                if self._may_think:
                    self._thoughts.replaced(event.text)
            case StepDone():
                self._said.append(self._text)
                self._text = ""
                self._status.step_done()
                self._thoughts.step_done()
            case ToolStarted():
                label = event.label or event.tool
                now = self._clock.monotonic()
                self._status.tool_started(event.call_id, event.emoji, label, now)
            case ToolFinished():
                self._status.tool_finished(event.call_id, ok=event.ok)
            case Notice():
                words = self._status.notice(event.id, self._named(event))
                if self._feed:
                    self._feed.tell(Told(event.id, words))
                again = event.id == self._told  # the same line, edited in place
                log.log(logging.DEBUG if again else logging.INFO, "told: %s %s", event.id, words)
                self._told = event.id
            case TurnDone():
                return
        self._refresh()

    def _feed_again(self) -> None:
        """Tell those who wait now what was said before the turn was taken up."""
        if self._feed:
            for said_before in self._said:
                self._feed.tell(TextDelta(said_before))
                self._feed.tell(StepDone())
            self._feed.tell(TextDelta(self._text))

    def _refresh(self) -> None:
        status, tasks = self._status.words(self._clock.monotonic()), self._status.tasks
        # A line that is over stays until something else is to be shown.
        if status or tasks or self._clears or self._has_said:
            self._live.follow(self._visible, status, tasks)

    @property
    def _has_said(self) -> bool:
        return bool(self._pieces) or any(self._said)

    def _named(self, news: Notice) -> dict[str, str | int]:
        """Name models as everywhere else in a chat."""
        if news.id != "N5":
            return news.fields
        return {key: self._names.get(str(value), value) for key, value in news.fields.items()}

    @property
    def _may_think(self) -> bool:
        """Whether thoughts do not come to stand behind what they led to."""
        return not (self._streams and self._has_said)

    def _think(self, text: str) -> None:
        if self._may_think:
            self._thoughts.said(text)
        if self._thinking and not self._streams:
            self._thinking.follow(self._thoughts.newest)

    def _show_thoughts(self) -> None:
        """Where nothing can be changed later, they are shown once: before the first words."""
        if self._thinking and not self._has_said:
            self._thinking.follow(self._thoughts.text)

    def _reasoning(self, *, final: bool) -> Item:
        item = reasoning_item(self._turn, self._thoughts.text(), self._clock.now())
        return msgspec.structs.replace(item, final=final)

    async def _approve(self, tool: Tool, call: ToolCall) -> str | None:
        asking = Asking(
            key=self._key,
            session_id=self._turn.session,
            turn_id=self._turn.id,
            address=self._turn.address,
            person=self._turn.person,
        )
        try:
            with self._status.asking():
                self._refresh()
                self._asks()
                return await self._approvals.ask(asking, tool, call)
        finally:
            if not self._cut:
                self._refresh()

    async def _send_file(self, path: str, caption: str, key: str) -> str:
        assert self._parcels is not None  # noqa: S101 - else it is not offered
        turn = self._turn
        return await self._parcels.send(
            turn.id, turn.address, self._reply_to, self._setting.workspace, path, caption, key
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
        self._delivery.wake([each.item for each in changes if isinstance(each, PutItem)])
        return tuple(with_settled(row, settled) for row in rows)

    async def _fetch(self, files: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """Show that files are on their way, unless they are quick."""
        place, workspace = read_address(self._turn.address), self._setting.workspace
        with self._status.fetching(names(files)):
            async with asyncio.TaskGroup() as beside:
                line = beside.create_task(self._tell_later())
                settled = await self._attachments.settle(files, place, workspace)
                line.cancel()
        if not line.cancelled():
            self._refresh()
        return settled

    async def _tell_later(self) -> None:
        await asyncio.sleep(WORTH_TELLING)
        self._refresh()

    def _tell_request(self, rows: tuple[Message, ...]) -> None:
        """Let notices say what was asked for, where it was spoken."""
        asked = next((row for row in reversed(rows) if row.role == "user"), None)
        if asked is None or not any(file.heard for file in asked.files):
            return
        request = request_of(asked)[:REQUEST_LENGTH]
        if request != self._turn.request:
            self._post(Heard(self._turn.id, request))

    # --- the journal ----------------------------------------------------------------------------

    async def attempt_started(self, number: int, target: str) -> None:
        """See `agent.turn.TurnJournal`."""
        if number == 1 and not self._start.taken_up:
            return  # on record since the turn began
        number += self._attempts_before
        await self._save(StartAttempt(self._turn.id, number, target, self._clock.now()))

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """See `agent.turn.TurnJournal`. Rides on the next commit."""
        self._unsaved.append(
            attempt_over(self._turn.id, number + self._attempts_before, result, self._clock.now())
        )

    async def step_done(self, message: Message) -> None:
        """See `agent.turn.TurnJournal`."""
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
        fields = {"tool": call.name, "result": " ".join(result.split())[:PREVIEW]}
        item = self._announcer.item("late", self._turn.address, fields, turn=self._turn.id)
        ended = EndTool(self._turn.id, call.id, ok=True, result=result, at=self._clock.now())
        await self._store.apply(ended, PutItem(item))
        self._delivery.wake([item])

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
            if self._status.tools_running:
                self._refresh()
            if self._text and self._text != self._saved_text:
                self._saved_text = self._text
                try:
                    await self._save(Checkpoint(self._turn.id, self._text))
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
        changes = list(self._unsaved)
        if done.message:
            now = self._clock.now()
            changes.append(AppendMessages(self._turn.session, self._turn.id, (done.message,), now))
        changes.extend(self._shown(self._visible() or done.text))
        changes.extend(self._operators.answered(self._targets))
        cause = CAPPED if done.last == "capped" else None
        return Ended(self._turn.id, TurnState.DONE, cause, tuple(changes))

    def _failed(self, done: TurnDone) -> Ended:
        if self._feed:
            self._feed.done(done)
        now = self._clock.now()
        message = done.message
        if message is None and self._text:
            message = partial_row(self._text, done.cause)
        changes = list(self._unsaved)
        rows = self._results(BROKEN_RUNNING, BROKEN_NOT_RUN)
        if message:
            rows.append(message)
        if rows:
            changes.append(AppendMessages(self._turn.session, self._turn.id, tuple(rows), now))
        changes.extend(self._shown(self._visible()))
        told: tuple[Change, ...] = ()
        if done.tell_operator:
            told = self._operators.tell(done.cause, self._turn.person, self._targets)
        changes.extend(told)
        fields: dict[str, str | int] = {
            "cause": done.cause,
            "text": done.cause,
            "k": done.tries,
            "min": (now - self._turn.started_at) // 60_000,
            "list": ", ".join(done.tools),
            "draft": ", ".join(done.drafts),
            "operator_told": "yes" if told else "",
        }
        turn = self._turn
        notice = self._announcer.item(
            done.notice, turn.address, fields, turn=turn.id, origin=turn.origin
        )
        changes.append(PutItem(notice))
        return Ended(self._turn.id, TurnState.FAILED, done.cause, tuple(changes))

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

    def _visible(self) -> str:
        if not self._said:
            return self._text
        return said((*self._said, self._text))

    def _shown(self, text: str) -> tuple[Change, ...]:
        """The answer as it stands in the chat from now on."""
        self._live.close()
        shown: list[Change] = list(self._thoughts_shown())
        if text:
            shown.append(PutItem(self._item(text, final=True)))
        else:
            self._live.drop()
        return tuple(shown)

    def _thoughts_shown(self) -> Iterable[Change]:
        if self._thinking is None:
            return
        self._thinking.close()
        if self._thoughts.text():
            yield PutItem(self._reasoning(final=True))
        else:
            self._thinking.drop()

    def _item(self, text: str, *, final: bool) -> Item:
        item = answer_item(self._turn, text, self._clock.now(), self._reply_to)
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
