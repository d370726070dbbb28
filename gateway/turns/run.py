"""One turn under way: its journal, and what it leaves behind."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from agent.attempt import AttemptResult
from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    StepDone,
    TextDelta,
    TurnDone,
    TurnEnding,
)
from agent.loop import run_turn
from agent.model.usage import UsageEstimate
from agent.request.prompt import EARLIER_NOT_IN_VIEW, describe_interrupted_request
from agent.tools.contract import Risk, Tool
from agent.tools.repeats import UNKNOWN_PREFIX
from agent.turn import TurnResources, TurnTask
from gateway.alerts.admins import AdminAlerts
from gateway.approvals.broker import ApprovalBroker, RequestingTurn
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_address
from gateway.media.fetch import AttachmentFetcher
from gateway.media.outgoing import OutgoingFiles
from gateway.notices.compose import NoticeComposer
from gateway.observe.log import log_context
from gateway.spending.budgets import (
    Budgets,
    RequestReservation,
    settle_by_estimate,
    settle_reservation,
)
from gateway.turns.answer import CAPPED, answer_texts, partial_row, rows_since_request
from gateway.turns.attempts import end_attempt
from gateway.turns.feed_events import FeedNotice
from gateway.turns.feeds import Feed
from gateway.turns.live_answer import LiveAnswer
from gateway.turns.model_names import short_names
from gateway.turns.setting import TurnSetting
from sessions.attached import name_files, request_text, unfetched_files, with_fetch_results
from sessions.changes import (
    AppendMessages,
    Change,
    Checkpoint,
    EndTool,
    PutItem,
    PutSummary,
    SetFileResults,
    StartAttempt,
    StartTool,
)
from sessions.conversation.events import (
    Event,
    RequestTranscribed,
    StartTask,
    SteersRequested,
    TurnEnded,
)
from sessions.conversation.machine import MAX_REQUEST_CHARS
from sessions.errors import StoreCorrupt, StoreError
from sessions.records import Attachment, Message, OutboxItem, ToolCall, ToolRun, TurnState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.notices import NoticeId

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 2.0
CHECKPOINT_CHARS = 1024  # characters that are not to be lost either, however quick they come
STEER_TIMEOUT_SECONDS = 5.0

FETCH_NOTICE_SECONDS = 1.0  # seconds that files may take before the chat shows that they come

MAX_LATE_RESULT_CHARS = 200  # characters that people are shown of a late result

STOPPED_NOT_RUN = "Not run: the user stopped the turn before this call began."
READ_CUT_SHORT = "Did not complete: the turn ended while it was running."
STOPPED_RUNNING = f"{UNKNOWN_PREFIX}: stopped while it was running; it may have taken effect."
FAILED_NOT_RUN = "Not run: an error ended the turn before this call began."
FAILED_RUNNING = (
    f"{UNKNOWN_PREFIX}: an error ended the turn while this was running; it may have taken effect. Look "
    "before you repeat it."
)

RESUMED_NOTE = (
    "Your last answer was interrupted before it was finished. Go on with the request from where "
    "it stopped, without repeating what was already said or done."
)


class TurnServices(msgspec.Struct, frozen=True, kw_only=True):
    """What all turns work with."""

    store: SessionStore
    delivery: Delivery
    announcer: NoticeComposer
    approvals: ApprovalBroker
    admin_alerts: AdminAlerts
    budgets: Budgets
    clock: Clock
    attachments: AttachmentFetcher
    outgoing_files: OutgoingFiles
    on_waiting: Callable[[], None]  # told when a turn begins to wait for somebody
    on_first_text: Callable[[str], None]  # told which turn has its first text


class TurnRun:
    """One turn under way; also its journal."""

    def __init__(
        self,
        services: TurnServices,
        setting: TurnSetting,
        key: str,
        start: StartTask,
        post_event: Callable[[Event], None],
        feed: Feed | None = None,
    ) -> None:
        self._turn_budget = services.budgets.turn_budget(key, start.turn.person)
        self._reservation: RequestReservation | None = None  # for the request under way
        self._received_chars = 0  # characters of its answer
        self._services = services
        self._store = services.store
        self._announcer = services.announcer
        self._clock = services.clock
        self._setting = setting
        self._key = key
        self._start = start
        self._turn = start.turn
        self._post_event = post_event  # to the owner of the conversation
        self._feed = feed  # read by those who wait for the answer themselves
        self._answer = LiveAnswer(
            start.turn,
            services.delivery,
            services.announcer.capabilities(start.turn.address),
            services.clock,
            model_names=short_names(setting.targets),
            show_reasoning=setting.show_reasoning,
        )
        self._awaiting_text = True  # no text came yet
        self._steer_future: asyncio.Future[tuple[Message, ...]] | None = None
        self._unsaved_changes: list[Change] = []  # rides on the next commit
        self._checkpoint_text = ""
        self._chars_since_checkpoint = 0  # characters since the last checkpoint
        self._checkpoint_due = asyncio.Event()  # they have become many
        self._open_calls: dict[str, ToolCall] = {}  # calls without a result
        self._started_calls: dict[str, Risk] = {}  # calls that were begun, and what they may do
        self._last_notice = ""  # the last notice
        self._aborted = False
        self._attempts_before = 0  # of a turn that is taken up again
        self.steps = 0

    @property
    def running_tool(self) -> ToolCall | None:
        """The call whose effect may be under way."""
        for call in self._open_calls.values():
            if self._started_calls.get(call.id, Risk.READ) is not Risk.READ:
                return call
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether it can only go on when somebody has answered a question."""
        return self._answer.is_waiting

    # --- for the owner of the conversation ------------------------------------------------------

    async def run(self) -> TurnEnded:
        """See `sessions.conversation.actor.TurnHandle`."""
        with log_context(turn=self._turn.id, session=self._turn.session):
            ended = await self._run_agent(await self._build_task())
            seconds = (self._clock.now() - self._turn.started_at) / 1000
            log.info("turn %s after %.1f s%s", ended.state, seconds, _cause_suffix(ended.cause))
            return ended

    async def _build_task(self) -> TurnTask:
        summary, history = await self._store.sessions.context(self._turn.session)
        history = await self._fetch_missing_files(history)
        self._update_request(history)
        notes = _notes(self._start)
        if self._start.resumed and (before := await self._store.turns.get(self._turn.id)):
            self._attempts_before = before.attempts
            if before.resumed:  # the same turn: what it showed stays
                said_before = answer_texts(rows_since_request(history))
                self._answer.restore(said_before, before.partial)
                self._replay_to_feed(said_before, before.partial)
                notes = notes if not before.partial else ()  # the text itself is carried on
        return TurnTask(
            turn_id=self._turn.id,
            session_id=self._turn.session,
            system=self._setting.system,
            history=history,
            workspace=self._setting.workspace,
            summary=summary,
            notes=notes,
            resumed=self._start.resumed,
            earlier_runs=await self._earlier_tool_runs(history) if self._start.resumed else (),
            partial_text=self._answer.text,
            may_replace=not (self._answer.is_append_only or self._feed),
        )

    async def _earlier_tool_runs(self, history: tuple[Message, ...]) -> tuple[ToolRun, ...]:
        """The calls of the work that is taken up: of this turn, or of those it goes on from."""
        calls = [call.id for row in rows_since_request(history) for call in row.tool_calls]
        earlier = await self._store.turns.tool_runs_of_calls(self._turn.session, calls)
        own = await self._store.turns.tool_runs(self._turn.id)
        return tuple({run.call_id: run for run in (*earlier, *own)}.values())

    async def _run_agent(self, task: TurnTask) -> TurnEnded:
        try:
            async with asyncio.TaskGroup() as beside:
                keeper = beside.create_task(self._write_checkpoints())
                done = await run_turn(
                    task,
                    TurnResources(
                        targets=self._setting.targets,
                        tools=self._setting.tools,
                        journal=self,
                        clock=self._clock,
                        emit=self._emit,
                        fetch_steers=self._take_steers,
                        learned_targets=self._setting.experience,
                        drafts=self._setting.drafts,
                        approve=self._approve,
                        send_file=self._send_file,
                        limits=self._setting.limits,
                    ),
                )
                keeper.cancel()
            return self._finish(done)
        except BaseExceptionGroup as group:
            # The group holds one task of ours beside the turn; what broke is what counts.
            raise group.exceptions[0] from None

    def abort(self, cause: str) -> tuple[Change, ...]:
        """See `sessions.conversation.actor.TurnHandle`."""
        self._aborted = True
        rows = self._missing_results(STOPPED_RUNNING, STOPPED_NOT_RUN)
        if text := self._answer.text:
            rows.append(partial_row(text, cause))
        return (
            *self._unsaved_changes,
            *self._settle_by_estimate(),
            *self._append_messages(rows),
            *self._answer.close(self._answer.full_text()),
        )

    def end_after_crash(self, error: Exception) -> TurnEnded:
        """See `sessions.conversation.actor.TurnHandle`."""
        cause = f"an error inside the gateway ({type(error).__name__})"
        if isinstance(error, StoreCorrupt):
            cause = "what is kept of this conversation is damaged; a new one works"
        return self._fail(TurnDone(ending=TurnEnding.FAILED, text="", cause=cause, attempts=1))

    def partial_text(self) -> str:
        """See `sessions.conversation.actor.TurnHandle`."""
        return self._answer.text

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """See `sessions.conversation.actor.TurnHandle`."""
        self._answer.reply_to = reply_to or self._answer.reply_to
        if self._steer_future and not self._steer_future.done():
            self._steer_future.set_result(messages)

    # --- what the agent tells -------------------------------------------------------------------

    def _emit(self, event: AgentEvent) -> None:
        if self._aborted:
            return
        if isinstance(event, Notice):
            self._show_notice(event)
            return
        if self._feed:
            self._feed.publish(event)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._received_chars += len(event.text)
        if isinstance(event, TextDelta):
            self._on_text(event.text)
        self._answer.on_event(event)

    def _show_notice(self, notice: Notice) -> None:
        words = self._answer.show_notice(notice)
        if self._feed:
            self._feed.publish(FeedNotice(notice.id, words))
        again = notice.id == self._last_notice  # the same line, edited in place
        log.log(logging.DEBUG if again else logging.INFO, "told: %s %s", notice.id, words)
        self._last_notice = notice.id

    def _on_text(self, text: str) -> None:
        self._last_notice = ""
        if self._awaiting_text:
            self._awaiting_text = False
            self._services.on_first_text(self._turn.id)
        self._chars_since_checkpoint += len(text)
        # A share of a long text, not a fixed size: each checkpoint writes all of it.
        if self._chars_since_checkpoint >= max(CHECKPOINT_CHARS, len(self._checkpoint_text) // 8):
            self._chars_since_checkpoint = 0
            self._checkpoint_due.set()

    def _replay_to_feed(self, steps: Iterable[str], text: str) -> None:
        """Tell those who wait now what was said before the turn was taken up."""
        if self._feed:
            for each in steps:
                self._feed.publish(TextDelta(each))
                self._feed.publish(StepDone())
            self._feed.publish(TextDelta(text))

    # --- what the agent wants from people -------------------------------------------------------

    async def _approve(self, tool: Tool, call: ToolCall) -> str | None:
        asking = RequestingTurn(
            key=self._key,
            session_id=self._turn.session,
            turn_id=self._turn.id,
            address=self._turn.address,
            person=self._turn.person,
        )
        try:
            with self._answer.waiting_for_answer():
                self._services.on_waiting()
                return await self._services.approvals.request_approval(asking, tool, call)
        finally:
            if not self._aborted:
                self._answer.refresh()

    async def _send_file(self, path: str, caption: str, key: str) -> str:
        turn, reply_to = self._turn, self._answer.reply_to
        return await self._services.outgoing_files.send(
            turn.id, turn.address, reply_to, self._setting.workspace, path, caption, key
        )

    async def _take_steers(self) -> tuple[Message, ...]:
        self._steer_future = asyncio.get_running_loop().create_future()
        self._post_event(SteersRequested(self._turn.id))
        try:
            async with asyncio.timeout(STEER_TIMEOUT_SECONDS):
                rows = await self._steer_future
        except TimeoutError:
            return ()
        return await self._fetch_missing_files(rows)

    # --- what people attach ---------------------------------------------------------------------

    async def _fetch_missing_files(self, rows: tuple[Message, ...]) -> tuple[Message, ...]:
        """Fetch the files of the newest rows that are not there yet, and write down what came."""
        missing = unfetched_files(rows)
        if not missing:
            return rows
        found = await self._fetch_files(missing)
        settled = {file.path: file for file in found}
        oldest = next(at for at, row in enumerate(rows) if unfetched_files((row,)))
        changes: list[Change] = [SetFileResults(self._turn.session, len(rows) - oldest, found)]
        if lost := [f"{file.name}: {file.trouble}" for file in found if not file.fetched]:
            fields = {"list": "; ".join(lost)}
            item = self._announcer.notice_item(
                NoticeId.FILES_NOT_FETCHED, self._turn.address, fields, turn=self._turn.id
            )
            changes.append(PutItem(item))
        await self._save(*changes)
        self._services.delivery.enqueue(
            [each.item for each in changes if isinstance(each, PutItem)]
        )
        return tuple(with_fetch_results(row, settled) for row in rows)

    async def _fetch_files(self, files: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """Show that files are on their way, unless they are quick."""
        place, workspace = read_address(self._turn.address), self._setting.workspace
        with self._answer.fetching(name_files(files)):
            async with asyncio.TaskGroup() as beside:
                line = beside.create_task(self._show_fetching_later())
                settled = await self._services.attachments.fetch_all(files, place, workspace)
                line.cancel()
        if not line.cancelled():
            self._answer.refresh()
        return settled

    async def _show_fetching_later(self) -> None:
        await asyncio.sleep(FETCH_NOTICE_SECONDS)
        self._answer.refresh()

    def _update_request(self, rows: tuple[Message, ...]) -> None:
        """Let notices say what was asked for, where it was spoken."""
        asked = next((row for row in reversed(rows) if row.role == "user"), None)
        if asked is None or not any(file.heard for file in asked.files):
            return
        request = request_text(asked)[:MAX_REQUEST_CHARS]
        if request != self._turn.request:
            self._post_event(RequestTranscribed(self._turn.id, request))

    # --- the journal ----------------------------------------------------------------------------

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        """See `agent.turn.TurnJournal`."""
        started = StartAttempt(
            self._turn.id, number + self._attempts_before, target, self._clock.now()
        )
        if self._turn_budget:
            await self._reserve_budget(need(), started)
        elif number > 1 or self._start.resumed:  # else on record since the turn began
            await self._save(started)

    async def _reserve_budget(self, need: UsageEstimate, started: Change) -> None:
        """Set aside what the request may use, in one commit with its start."""
        unsaved, self._unsaved_changes = self._unsaved_changes, []
        self._received_chars = 0
        try:
            self._reservation = await self._turn_budget.reserve(
                need, always=unsaved, if_reserved=(started,)
            )
        except StoreError:
            self._unsaved_changes = [*unsaved, *self._unsaved_changes]
            raise

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        """See `agent.turn.TurnJournal`. Rides on the next commit."""
        self._unsaved_changes.append(
            end_attempt(self._turn.id, number + self._attempts_before, result, self._clock.now())
        )
        if self._reservation:
            self._unsaved_changes.append(settle_reservation(self._reservation, result))
            self._reservation = None

    def _settle_by_estimate(self) -> Iterable[Change]:
        """A request is under way, and nobody waits for its end."""
        if self._reservation:
            yield settle_by_estimate(self._reservation, self._received_chars)
            self._reservation = None

    async def step_done(self, message: Message) -> None:
        """See `agent.turn.TurnJournal`."""
        self.steps += 1
        self._open_calls = {call.id: call for call in message.tool_calls}
        self._started_calls.clear()
        self._answer.on_step_stored()
        now = self._clock.now()
        await self._save(
            AppendMessages(self._turn.session, self._turn.id, (message,), now),
            Checkpoint(self._turn.id, ""),
        )

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        """See `agent.turn.TurnJournal`."""
        self._started_calls[call.id] = risk
        now = self._clock.now()
        number = attempt + self._attempts_before
        await self._save(
            StartTool(
                turn_id=self._turn.id,
                call_id=call.id,
                tool=call.name,
                risk=risk.value,
                arguments=call.arguments,
                at=now,
                attempt=number,
            )
        )

    async def tool_finished(self, call: ToolCall, ok: bool, result: str) -> None:
        """See `agent.turn.TurnJournal`."""
        self._open_calls.pop(call.id, None)
        now = self._clock.now()
        row = Message("tool", content=result, tool_call_id=call.id)
        changes: list[Change] = [AppendMessages(self._turn.session, self._turn.id, (row,), now)]
        if call.id in self._started_calls:
            changes.append(
                EndTool(turn_id=self._turn.id, call_id=call.id, ok=ok, result=result, at=now)
            )
        await self._save(*changes)

    async def tool_late(self, call: ToolCall, result: str) -> None:
        """See `agent.tools.run.LateResultJournal`: people and journal are told, the conversation is not."""
        fields = {"tool": call.name, "result": " ".join(result.split())[:MAX_LATE_RESULT_CHARS]}
        item = self._announcer.notice_item(
            NoticeId.LATE_RESULT, self._turn.address, fields, turn=self._turn.id
        )
        ended = EndTool(
            turn_id=self._turn.id, call_id=call.id, ok=True, result=result, at=self._clock.now()
        )
        await self._services.delivery.put(ended, PutItem(item))

    async def compacted(self, keep: int, summary: str) -> None:
        """See `agent.turn.TurnJournal`."""
        await self._save(
            PutSummary(
                session_id=self._turn.session, keep=keep, summary=summary, at=self._clock.now()
            )
        )

    async def _write_checkpoints(self) -> None:
        """Write down the text so far, and let the time of a running tool be seen."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await self._checkpoint_due.wait()
            self._checkpoint_due.clear()
            self._answer.tick()
            text = self._answer.text
            if text and text != self._checkpoint_text:
                self._checkpoint_text = text
                try:
                    await self._save(Checkpoint(self._turn.id, text))
                except StoreError as error:  # the answer is more important than its copy
                    log.warning("%s: no checkpoint: %s", self._turn.id, error)

    async def _save(self, *changes: Change) -> None:
        unsaved, self._unsaved_changes = self._unsaved_changes, []
        try:
            await self._store.apply(*unsaved, *changes)
        except StoreError:
            self._unsaved_changes = [
                *unsaved,
                *self._unsaved_changes,
            ]  # what a request cost is not lost with this
            raise

    # --- the end --------------------------------------------------------------------------------

    def _finish(self, done: TurnDone) -> TurnEnded:
        if done.ending is TurnEnding.FAILED:
            return self._fail(done)
        if self._feed:
            self._feed.set_result(done)
        changes = (
            *self._unsaved_changes,
            *self._append_messages([done.message] if done.message else []),
            *self._answer.close(self._answer.full_text() or done.text),
            *self._services.admin_alerts.on_model_answered(self._target_labels),
        )
        cause = CAPPED if done.last_verdict == "capped" else None
        return TurnEnded(self._turn.id, TurnState.DONE, cause, changes)

    def _fail(self, done: TurnDone) -> TurnEnded:
        if self._feed:
            self._feed.set_result(done)
        rows = self._missing_results(FAILED_RUNNING, FAILED_NOT_RUN)
        if done.message:
            rows.append(done.message)
        elif text := self._answer.text:
            rows.append(partial_row(text, done.cause))
        shown = self._answer.close(self._answer.full_text())
        told = self._services.admin_alerts.on_turn_failed(
            done, self._turn.person, self._target_labels
        )
        notice = PutItem(self._failure_notice(done, operator_told=bool(told)))
        spent = (*self._unsaved_changes, *self._settle_by_estimate())
        changes = (*spent, *self._append_messages(rows), *shown, *told, notice)
        return TurnEnded(self._turn.id, TurnState.FAILED, done.cause, changes)

    def _failure_notice(self, done: TurnDone, *, operator_told: bool) -> OutboxItem:
        """What people are told of a failure."""
        turn = self._turn
        fields: dict[str, str | int] = {
            "cause": done.cause,
            "text": done.cause,
            "k": done.attempts,
            "min": (self._clock.now() - turn.started_at) // 60_000,
            "list": ", ".join(done.tools_run),
            "draft": ", ".join(done.unfinished_drafts),
            "too_long": "yes" if done.too_long else "",
            "operator_told": "yes" if operator_told else "",
        }
        return self._announcer.notice_item(
            done.notice, turn.address, fields, turn=turn.id, origin=turn.origin
        )

    def _append_messages(self, rows: Sequence[Message]) -> Iterable[Change]:
        if rows:
            now = self._clock.now()
            yield AppendMessages(self._turn.session, self._turn.id, tuple(rows), now)

    @property
    def _target_labels(self) -> str:
        """Name all that may be asked in this turn."""
        return ", ".join(target.label for target in self._setting.targets)

    def _missing_results(self, if_started: str, if_not_started: str) -> list[Message]:
        """Give the calls that the end of the turn left without a result one."""
        words = {None: if_not_started, Risk.READ: READ_CUT_SHORT}
        return [
            Message(
                "tool",
                words.get(self._started_calls.get(call.id), if_started),
                tool_call_id=call.id,
            )
            for call in self._open_calls.values()
        ]


def _cause_suffix(cause: str | None) -> str:
    return f": {cause}" if cause else ""


def _notes(start: StartTask) -> tuple[str, ...]:
    notes = []
    if start.replaced_reason:
        notes.append(EARLIER_NOT_IN_VIEW)
    if start.interrupted_request:
        notes.append(describe_interrupted_request(start.interrupted_request))
    if start.resumed:
        notes.append(RESUMED_NOTE)
    return tuple(notes)
