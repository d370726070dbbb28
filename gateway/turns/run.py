"""One turn under way: runs the agent, shows its events, and asks people on its behalf."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

import msgspec

from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    StepDone,
    TextDelta,
    TextReplaced,
    ToolProgress,
    TurnDone,
    TurnEnding,
    VerdictName,
)
from agent.loop import run_turn
from agent.model.usage import Usage
from agent.request.prompt import EARLIER_NOT_IN_VIEW, describe_interrupted_request
from agent.tools.contract import Tool
from agent.tools.questions import PersonAnswer, PersonQuestion
from agent.turn import TurnResources, TurnTask
from gateway.approvals.broker import RequestingTurn
from gateway.approvals.rules import is_unattended
from gateway.observe.log import log_context
from gateway.turns.answer import (
    CAPPED,
    HANDED_TO_CLIENT,
    answer_texts,
    rows_since_request,
)
from gateway.turns.feed_events import FeedNotice
from gateway.turns.feeds import Feed
from gateway.turns.journal import StoredTurnJournal
from gateway.turns.live_answer import LiveAnswer
from gateway.turns.model_names import short_names
from gateway.turns.services import TurnServices
from gateway.turns.setting import TurnSetting
from sessions.attached import name_files, request_text, unfetched_files, with_fetch_results
from sessions.changes import Change, PutItem, SetFileResults
from sessions.conversation.events import (
    Event,
    RequestTranscribed,
    StartTask,
    SteersRequested,
    TurnEnded,
)
from sessions.conversation.transition import MAX_REQUEST_CHARS
from sessions.errors import StoreCorrupt
from sessions.records import (
    Attachment,
    Message,
    MessageRole,
    OutboxItem,
    ToolCall,
    ToolRun,
    TurnState,
)
from sessions.values.notices import NoticeFields, NoticeId

log = logging.getLogger(__name__)

_STEER_TIMEOUT_SECONDS = 5.0

_ELAPSED_TIME_SECONDS = 2.0
"""Seconds between two updates of the time that a running tool has taken."""

FETCH_NOTICE_SECONDS = 1.0
"""Seconds that attached files may take before the chat shows that they are being fetched."""

_REPEATED_CHARS = 200
"""Characters that a model repeats at most when a person asks for the rest of an answer."""

_MODEL_UNREACHABLE = "I can't reach the model right now"

_RESUMED_NOTE = (
    "Your last answer was interrupted before it was finished. Go on with the request from where "
    "it stopped, without repeating what was already said or done."
)


class TurnRun:
    """Runs the agent for one turn; see `sessions.conversation.actor.TurnHandle`."""

    def __init__(
        self,
        services: TurnServices,
        setting: TurnSetting,
        key: str,
        start: StartTask,
        post_event: Callable[[Event], None],
        feed: Feed | None = None,
    ) -> None:
        turn = start.turn
        self._services = services
        self._store = services.store
        self._announcer = services.announcer
        self._clock = services.clock
        self._mask = services.mask
        self._setting = setting
        self._key = key
        self._start = start
        self._turn = turn
        self._post_event = post_event  # to the conversation's actor
        self._feed = feed  # for clients that follow the turn over HTTP
        self._answer = LiveAnswer(
            turn,
            services.delivery,
            services.announcer.capabilities(turn.address),
            services.clock,
            model_names=short_names(setting.targets),
            show_reasoning=setting.show_reasoning,
        )
        self.journal = StoredTurnJournal(
            services,
            turn,
            self._answer,
            services.budgets.turn_budget(key, turn.person, setting.requester),
            resumed=start.resumed,
            sent_requests=setting.sent_requests if start.continued else 0,
        )
        self._has_text = False
        self._steer_future: asyncio.Future[tuple[Message, ...]] | None = None
        self._last_notice = ""  # its id
        self._aborted = False

    @property
    def is_waiting(self) -> bool:
        """True if the turn can only go on once a person has answered an approval request."""
        return self._answer.is_waiting

    # --- for the actor: see `sessions.conversation.actor.TurnHandle` ------------------------------

    async def run(self) -> TurnEnded:
        """Run the agent to its end and return the changes to commit with it."""
        with self._log_context():
            ended = await self._run_agent(await self._build_task())
            self._log_end(ended.state, ended.cause)
            return ended

    def _log_context(self) -> contextlib.AbstractContextManager[None]:
        turn = self._turn
        place = {"platform": turn.address.platform, "chat": self._key}
        return log_context(**place, turn=turn.id, session=turn.session)

    def _log_end(self, state: str, cause: str | None) -> None:
        seconds = (self._clock.now() - self._turn.started_at) / 1000
        fields = _usage_fields(self.journal.last_target, self.journal.usage)
        if received := self.journal.received_chars:  # of a request whose tokens are not known
            fields["received"] = f"{received}"
        log.info("turn %s after %.1f s%s", state, seconds, _cause_suffix(cause), extra=fields)

    async def _build_task(self) -> TurnTask:
        summary, history = "", self._start.opening_rows
        if not history:
            summary, history = await self._store.sessions.context(self._turn.session)
        history = await self._fetch_missing_files(history)
        self._update_request(history)
        notes = _notes(self._start)
        continued = _continued_text(history)
        if self._start.resumed and (stored := await self._store.turns.get(self._turn.id)):
            self.journal.resume(stored)
            if stored.resumed:  # the same turn, so its output is still in the chat
                earlier_steps = answer_texts(rows_since_request(history))
                self._answer.restore(earlier_steps, stored.partial)
                self._replay_to_feed(earlier_steps, stored.partial)
                notes = notes if not stored.partial else ()  # the model continues the text itself
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
            continued_text=continued,
            may_replace=not (self._answer.is_append_only or self._feed),
            options=self._setting.options,
        )

    async def _earlier_tool_runs(self, history: tuple[Message, ...]) -> tuple[ToolRun, ...]:
        """Return the tool runs of this turn and of earlier turns that worked on the same request."""
        calls = [call.id for row in rows_since_request(history) for call in row.tool_calls]
        earlier = await self._store.turns.tool_runs_of_calls(self._turn.session, calls)
        own = await self._store.turns.tool_runs(self._turn.id)
        return tuple({run.call_id: run for run in (*earlier, *own)}.values())

    async def _run_agent(self, task: TurnTask) -> TurnEnded:
        try:
            async with asyncio.TaskGroup() as tasks:
                clock = tasks.create_task(self._update_elapsed_time())
                done = await run_turn(
                    task,
                    TurnResources(
                        targets=self._setting.targets,
                        tools=self._setting.tools,
                        journal=self.journal,
                        clock=self._clock,
                        emit=self._emit,
                        fetch_steers=self._take_steers,
                        learned_targets=self._setting.experience,
                        drafts=self._setting.drafts,
                        approve=self._approve,
                        ask_person=None if is_unattended(self._key) else self._ask_person,
                        send_file=self._send_file,
                        mask=self._mask,
                        limits=self._setting.limits,
                    ),
                )
                clock.cancel()
            return self._finish(done)
        except BaseExceptionGroup as group:
            # The only other member does not fail, so the first error is the cause.
            raise group.exceptions[0] from None
        finally:
            self.journal.close()

    async def _update_elapsed_time(self) -> None:
        """Refresh the elapsed time of a running tool until cancelled."""
        while True:
            await asyncio.sleep(_ELAPSED_TIME_SECONDS)
            self._answer.tick()

    def abort(self, cause: str) -> tuple[Change, ...]:
        """Ignore all further output and return the changes that keep the work done so far."""
        self._aborted = True
        with self._log_context():
            self._log_end(TurnState.STOPPED, cause)
        return (
            *self.journal.stopped_changes(cause),
            *self._answer.close(self._answer.full_text()),
        )

    def end_after_crash(self, error: Exception) -> TurnEnded:
        """End the turn as failed after an unexpected error, with a notice for the chat."""
        cause = f"an internal error ({type(error).__name__})"
        if isinstance(error, StoreCorrupt):
            cause = "the stored data of this conversation is damaged; a new conversation works"
        return self._fail(TurnDone(ending=TurnEnding.FAILED, text="", cause=cause, attempts=1))

    def partial_text(self) -> str:
        """Return the visible text of the present step."""
        return self._answer.text

    def steer(self, messages: tuple[Message, ...], reply_to: str) -> None:
        """Hand over the messages that the turn asked for; the answer replies to the newest one."""
        self._answer.set_reply_to(reply_to)
        if self._steer_future and not self._steer_future.done():
            self._steer_future.set_result(messages)

    # --- events of the agent ----------------------------------------------------------------------

    def _emit(self, event: AgentEvent) -> None:
        if self._aborted:
            return
        if isinstance(event, Notice):
            self._show_notice(event)
            return
        if isinstance(event, ToolProgress):
            self._answer.show_progress(event)
            return
        if self._feed:
            self._feed.publish(event)
        if isinstance(event, TextDelta):
            self._on_text(event.text)
        elif isinstance(event, ReasoningDelta):
            self.journal.on_reasoning(event.text)
        self._answer.on_event(event)
        if isinstance(event, TextReplaced):
            self.journal.mark_text_changed()

    def _show_notice(self, notice: Notice) -> None:
        text = self._answer.show_notice(notice)
        if self._feed:
            self._feed.publish(FeedNotice(notice.id, text))
        again = notice.id == self._last_notice  # the same line, edited in place
        log.log(logging.DEBUG if again else logging.INFO, "notice %s: %s", notice.id, text)
        self._last_notice = notice.id

    def _on_text(self, text: str) -> None:
        self._last_notice = ""
        if not self._has_text:
            self._has_text = True
            self._services.on_first_text(self._turn.id)
        self.journal.on_text(text)

    def _replay_to_feed(self, steps: Iterable[str], text: str) -> None:
        """Publish the output of the earlier process, because feeds live in memory only."""
        if self._feed:
            for step in steps:
                self._feed.publish(TextDelta(step))
                self._feed.publish(StepDone())
            self._feed.publish(TextDelta(text))

    # --- requests to people -----------------------------------------------------------------------

    async def _approve(self, tool: Tool, call: ToolCall) -> str | None:
        with self._waiting_for_person():
            return await self._services.approvals.request_approval(self._requesting, tool, call)

    async def _ask_person(self, call: ToolCall, question: PersonQuestion) -> PersonAnswer | None:
        with self._waiting_for_person():
            return await self._services.approvals.ask(self._requesting, call, question)

    @property
    def _requesting(self) -> RequestingTurn:
        return RequestingTurn(
            key=self._key,
            session_id=self._turn.session,
            turn_id=self._turn.id,
            address=self._turn.address,
            person=self._turn.person,
        )

    @contextlib.contextmanager
    def _waiting_for_person(self) -> Iterator[None]:
        try:
            with self._answer.waiting_for_answer():
                self._services.on_waiting()
                yield
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
            async with asyncio.timeout(_STEER_TIMEOUT_SECONDS):
                rows = await self._steer_future
        except TimeoutError:
            return ()
        return await self._fetch_missing_files(rows)

    # --- attached files ---------------------------------------------------------------------------

    async def _fetch_missing_files(self, rows: tuple[Message, ...]) -> tuple[Message, ...]:
        """Fetch the requester's files that are not on disk yet, and commit the results.

        Files of other people belong into their workspaces; they are fetched in their turns.
        """
        person = self._turn.person
        missing = unfetched_files(rows, person)
        if not missing:
            return rows
        settled = await self._fetch_files(missing)
        oldest = next(at for at, row in enumerate(rows) if unfetched_files((row,), person))
        changes: list[Change] = [SetFileResults(self._turn.session, len(rows) - oldest, settled)]
        if failures := [f"{file.name}: {file.trouble}" for file in settled if not file.fetched]:
            fields = {"list": "; ".join(failures)}
            item = self._announcer.notice_item(
                NoticeId.FILES_NOT_FETCHED, self._turn.address, fields, turn=self._turn.id
            )
            changes.append(PutItem(item))
        await self.journal.save(*changes)
        self._services.delivery.enqueue(
            [change.item for change in changes if isinstance(change, PutItem)]
        )
        by_path = {file.path: file for file in settled}
        return tuple(with_fetch_results(row, by_path) for row in rows)

    async def _fetch_files(self, files: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """Fetch files; the status line shows that unless they arrive quickly."""
        place, workspace = self._turn.address, self._setting.workspace
        with self._answer.fetching(name_files(files)):
            async with asyncio.TaskGroup() as tasks:
                line = tasks.create_task(self._show_fetching_later())
                settled = await self._services.attachments.fetch_all(files, place, workspace)
                line.cancel()
        if not line.cancelled():
            self._answer.refresh()
        return settled

    async def _show_fetching_later(self) -> None:
        await asyncio.sleep(FETCH_NOTICE_SECONDS)
        self._answer.refresh()

    def _update_request(self, rows: tuple[Message, ...]) -> None:
        """Post the text of a voice message, so that notices can quote the request."""
        newest = next((row for row in reversed(rows) if row.role == MessageRole.USER), None)
        if newest is None or not any(file.heard for file in newest.files):
            return
        request = request_text(newest)[:MAX_REQUEST_CHARS]
        if request != self._turn.request:
            self._post_event(RequestTranscribed(self._turn.id, request))

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self, done: TurnDone) -> TurnEnded:
        if done.ending is TurnEnding.FAILED:
            return self._fail(done)
        if self._feed:
            self._feed.set_result(done)
        changes = (
            *self.journal.answered_changes(done),
            *self._answer.close(self._answer.full_text() or done.text),
            *self._services.admin_alerts.on_model_answered(self._target_labels),
        )
        cause = CAPPED if done.last_verdict is VerdictName.CAPPED else None
        if done.client_calls:
            cause = HANDED_TO_CLIENT
        return TurnEnded(self._turn.id, TurnState.DONE, cause, changes)

    def _fail(self, done: TurnDone) -> TurnEnded:
        if self._feed:
            self._feed.set_result(done)
        alerts = self._services.admin_alerts.on_turn_failed(
            done, self._turn.person, self._target_labels
        )
        changes = (
            *self.journal.failed_changes(done),
            *self._answer.close(self._answer.full_text()),
            *alerts,
            PutItem(self._failure_notice(done, operator_told=bool(alerts))),
        )
        return TurnEnded(self._turn.id, TurnState.FAILED, done.cause, changes)

    def _failure_notice(self, done: TurnDone, *, operator_told: bool) -> OutboxItem:
        turn, cause = self._turn, done.cause
        # The cause of such a failure names settings, which only help an admin.
        if done.tell_operator and self._services.admin_alerts.can_reach_admin_besides(turn.person):
            cause = _MODEL_UNREACHABLE
        fields: NoticeFields
        match done.notice:
            case NoticeId.TURN_FAILED:
                fields = {
                    "cause": cause,
                    "list": ", ".join(done.tools_run),
                    "draft": ", ".join(done.unfinished_drafts),
                    "too_long": "yes" if done.too_long else "",
                    "operator_told": "yes" if operator_told else "",
                }
            case NoticeId.DECLINED:
                shown = done.cause in self._answer.full_text()
                # On one line, so that no line of the model looks like another notice.
                text = " ".join(done.cause.split())
                fields = {"shown": "yes"} if shown else {"text": text}
            case NoticeId.REASONING_USED_UP:
                fields = {}
            case (
                NoticeId.BUDGET_USED_UP
                | NoticeId.BUDGET_TOO_SMALL_FOR_REQUEST
                | NoticeId.BUDGET_ZERO
            ):
                fields = {"cause": cause}
        item = self._announcer.notice_item(
            done.notice, turn.address, fields, turn=turn.id, origin=turn.origin
        )
        return msgspec.structs.replace(item, reply_to=self._answer.reply_to or None)

    @property
    def _target_labels(self) -> str:
        """Labels of all models that this turn may use."""
        return ", ".join(target.label for target in self._setting.targets)


def _continued_text(history: tuple[Message, ...]) -> str:
    """Return the words of an interrupted answer that its continuation must not show again.

    A person who wrote a message may want the answer once more from the start. Then these are only
    the last words, which a model repeats when it continues.
    """
    asked = history[-1:] if history and history[-1].role == MessageRole.USER else ()
    rows = history[: len(history) - len(asked)]
    last = rows[-1] if rows else None
    if last is None or last.role != MessageRole.ASSISTANT or not last.interrupted:
        return ""
    text = last.content
    return text[-min(_REPEATED_CHARS, len(text) // 2) :] if asked else text


def _usage_fields(target: str, usage: Usage) -> dict[str, str]:
    """Return the log fields about the model's work; a service may not report all of them."""
    fields = {"model": target} if target else {}
    if usage.total_tokens:
        fields["tokens"] = f"{usage.input_tokens}+{usage.output_tokens}"
    if usage.cost is not None:
        fields["cost"] = f"${usage.cost:.4f}"
    return fields


def _cause_suffix(cause: str | None) -> str:
    return f": {cause}" if cause else ""


def _notes(start: StartTask) -> tuple[str, ...]:
    """Return the remarks that the model receives with the request."""
    notes = []
    if start.replaced_reason:
        notes.append(EARLIER_NOT_IN_VIEW)
    if start.interrupted_request:
        notes.append(describe_interrupted_request(start.interrupted_request))
    if start.resumed:
        notes.append(_RESUMED_NOTE)
    return tuple(notes)
