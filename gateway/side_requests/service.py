"""`SideRequests`: /model, /reasoning, /usage, /compact and /btw.

Slow commands run in their own tasks, so that they do not delay other messages. The stored command
is closed in the same commit as its answer; after a crash the next process runs the command again.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from msgspec.structs import replace

from agent.events import TurnEnding
from agent.settings import REASONING_EFFORTS
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply, ReplyLater
from gateway.delivery.outbox import Delivery
from gateway.notices.catalogue import NoticeFields
from gateway.notices.compose import NoticeComposer
from gateway.side_requests import usage_table
from gateway.side_requests.summary import SummaryFailed, compaction_change, summarize
from gateway.spending.budgets import Budgets
from gateway.spending.days import midnight
from gateway.turns import model_names
from gateway.turns.choices import ModelChoices
from gateway.turns.model_names import ModelAmbiguous, ModelFound, ModelUnknown
from gateway.turns.models import Models
from gateway.turns.side_turn import SideQuestion, SideTurn
from sessions.changes import Change, PutItem, SetInbox
from sessions.conversation.events import ConversationState
from sessions.errors import Conflict, StoreError
from sessions.records import InboxState, Message, OutboxItem, UsageTotals
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.notices import NoticeId
from sessions.values.spelling import closest_match

log = logging.getLogger(__name__)

_DEADLINE_SECONDS = 180.0
_MAX_OPEN_QUESTIONS = 3
"""Side questions that one conversation may have open at the same time."""

REASONING_LEVELS = tuple(REASONING_EFFORTS)
_DEFAULT = "default"
_STORE_ATTEMPTS = 5  # for a summary, because a running turn may add rows

_SIDE_QUESTION_PREFIX = (
    "[A question on the side. Answer it alone, and briefly; you have no tools for it.]"
)

_SideJob = Callable[[], Coroutine[Any, Any, None]]


class SideRequests:
    """Handles side requests of all conversations; see `SideRequestCommands` for the contract."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        models: Models,
        budgets: Budgets,
        choices: ModelChoices,
        announcer: NoticeComposer,
        delivery: Delivery,
        tasks: asyncio.TaskGroup,
        deadline_seconds: float = _DEADLINE_SECONDS,
        zone: dt.tzinfo | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._models = models
        self._budgets = budgets
        self._choices = choices
        self._announcer = announcer
        self._delivery = delivery
        self._tasks = tasks
        self._deadline_seconds = deadline_seconds
        self._zone = zone  # for the start of a day; None: the machine's time zone
        self._running: dict[asyncio.Task[None], tuple[str, str]] = {}  # command word and key
        self._closed = False

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel all jobs at the end of the block; the next process runs their commands again."""
        try:
            yield
        finally:
            self._closed = True
            for task in self._running:
                task.cancel()

    # --- models ---------------------------------------------------------------------------------

    async def model(self, call: CommandCall) -> CommandOutcome:
        """Show or switch the model."""
        if not call.args:
            return self._start_job("model", call, lambda: self._show_models(call))
        state = await call.services.read_state(call.key)
        return self._start_job("model", call, lambda: self._switch(call, state))

    async def _show_models(self, call: CommandCall) -> None:
        offered = await self._models.list_offered()
        targets = self._models.targets_of(call.key)
        chosen = self._models.has_chosen_model(call.key)
        known = self._models.configured_names()
        text = model_names.describe_models(targets, known, offered, chosen=chosen)
        await self._answer(call, NoticeId.MODEL_LIST, {"list": text})

    async def _switch(self, call: CommandCall, state: ConversationState) -> None:
        if call.args.lower() == _DEFAULT:
            await self._choices.set_model(call.key, None)
            await self._answer_model_set(call, state, unchecked=False)
            return
        known = self._models.configured_names()
        offered: tuple[str, ...] | None = ()
        if call.args not in known:
            offered = await self._models.list_offered()
        names = (*known, *(offered or ()))
        match model_names.find_model(call.args, names, allow_unlisted=offered is None):
            case ModelFound(name):
                provider = self._models.provider_of(name)
                await self._choices.set_model(call.key, name, provider)
                await self._answer_model_set(call, state, unchecked=name not in names)
            case ModelAmbiguous(names):
                fields = {"name": _excerpt(call.args), "list": model_names.quote_names(names)}
                await self._answer(call, NoticeId.MODEL_SEVERAL, fields)
            case ModelUnknown(close):
                fields = {"name": _excerpt(call.args), "nearest": model_names.quote_names(close)}
                await self._answer(call, NoticeId.MODEL_UNKNOWN, fields)

    async def _answer_model_set(
        self, call: CommandCall, state: ConversationState, *, unchecked: bool
    ) -> None:
        first = self._models.targets_of(call.key)[0]
        fields: dict[str, str | int] = {
            "model": model_names.display_name(first),
            "running": _is_running(state),
            "unchecked": int(unchecked),
        }
        await self._answer(call, NoticeId.MODEL_SET, fields)

    async def reasoning(self, call: CommandCall) -> CommandOutcome:
        """Show or set the reasoning effort."""
        levels, wanted = ", ".join(REASONING_LEVELS), call.args.lower()
        if not wanted:
            return NoticeReply(
                NoticeId.REASONING_LEVEL,
                {"level": self._reasoning_level(call.key), "levels": levels},
            )
        if wanted not in {*REASONING_LEVELS, _DEFAULT}:
            near = closest_match(wanted, (*REASONING_LEVELS, _DEFAULT)) or ""
            fields = {"name": _excerpt(call.args), "nearest": near, "levels": levels}
            return NoticeReply(NoticeId.REASONING_UNKNOWN, fields)
        state = await call.services.read_state(call.key)
        await self._choices.set_effort(call.key, None if wanted == _DEFAULT else wanted)
        return NoticeReply(
            NoticeId.REASONING_SET,
            {"level": self._reasoning_level(call.key), "running": _is_running(state)},
        )

    def _reasoning_level(self, key: str) -> str:
        level = self._models.targets_of(key)[0].settings.reasoning_effort
        return level or "the model's default"

    # --- costs ----------------------------------------------------------------------------------

    async def usage(self, call: CommandCall) -> CommandOutcome:
        """Show the usage of the last turn, this conversation, and this person today."""
        store, since = self._store, midnight(self._clock.now(), self._zone)
        sessions = await store.sessions.list(key=call.key, limit=1)
        last = here = UsageTotals()
        if sessions:
            here = await store.spending.totals(session_id=sessions[0].id)
            turn = await store.turns.last(sessions[0].id)
            last = await store.spending.totals(turn_id=turn.id) if turn else last
        today = await store.spending.totals(person=call.principal, since=since)
        budgets = await self._budgets.turn_budget(call.key, call.principal).statuses()
        left = [
            f"{budget.left_text} of {budget.limit_text} for {budget.scope.label}"
            for budget in budgets
        ]
        text = usage_table.format_usage(last, here, today) + usage_table.format_allowance(
            left, self._budgets.seconds_until_reset
        )
        return NoticeReply(NoticeId.PLAIN_TEXT, {"text": text})

    # --- a summary ------------------------------------------------------------------------------

    async def compact(self, call: CommandCall) -> CommandOutcome:
        """Replace the older part of the conversation by a summary."""
        if self._count_running("compact", call.key):
            return NoticeReply(NoticeId.COMPACT_RUNNING)
        state = await call.services.read_state(call.key)
        if state.turn:
            return NoticeReply(NoticeId.BUSY)
        session = state.session
        if session is None:
            return NoticeReply(NoticeId.COMPACT_NOTHING)
        return self._start_job("compact", call, lambda: self._summarise(call, session))

    async def _summarise(self, call: CommandCall, session: str) -> None:
        side = self._side_turn(call)
        context = await self._store.sessions.context(session)
        try:
            async with asyncio.timeout(self._deadline_seconds):
                setting = self._models.turn_setting(call.key, call.principal)
                done = await summarize(context[1], context[0], setting, side)
        except (SummaryFailed, TimeoutError) as error:
            fields = {"cause": _without_full_stop(str(error)) or self._timeout_cause()}
            await self._answer(
                call, NoticeId.COMPACT_FAILED, fields, *self._usage_changes(call, session, side)
            )
            return
        costs = self._usage_changes(call, session, side)
        if done is None:
            await self._answer(call, NoticeId.COMPACT_NOTHING, {}, *costs)
            return
        result: dict[str, str | int] = {
            "percent": round(100 * (1 - done.tokens_after / done.tokens_before)),
            "before": usage_table.format_count(done.tokens_before),
            "after": usage_table.format_count(done.tokens_after),
        }
        for _ in range(_STORE_ATTEMPTS):
            change = await compaction_change(self._store, session, context, done, self._clock.now())
            if change is None:
                break
            with contextlib.suppress(Conflict):  # a turn added a row before the commit
                await self._answer(call, NoticeId.COMPACTED, result, change, *costs)
                return
        await self._answer(call, NoticeId.COMPACT_MOVED, {}, *costs)

    # --- a question on the side -----------------------------------------------------------------

    async def btw(self, call: CommandCall) -> CommandOutcome:
        """Answer a side question, which the history of the conversation leaves out."""
        if not call.args:
            return NoticeReply(NoticeId.BTW_USAGE)
        if self._count_running("btw", call.key) >= _MAX_OPEN_QUESTIONS:
            return NoticeReply(NoticeId.BTW_MANY, {"limit": _MAX_OPEN_QUESTIONS})
        state = await call.services.read_state(call.key)
        return self._start_job(
            "btw", call, lambda: self._answer_side_question(call, state.session or "")
        )

    async def _answer_side_question(self, call: CommandCall, session: str) -> None:
        side = self._side_turn(call)
        setting = self._models.turn_setting(call.key, call.principal)
        summary, history = await self._store.sessions.context(session)
        question = Message("user", f"{_SIDE_QUESTION_PREFIX}\n\n{call.args}")
        text, cause = "", ""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                done = await side.ask(
                    setting.system, (*history, question), session=session, summary=summary
                )
            text = done.text.strip() if done.ending is TurnEnding.ANSWERED else ""
            cause = done.cause or "the model returned no text"
        except TimeoutError:
            cause = self._timeout_cause()
        costs = self._usage_changes(call, session, side)
        if not text:
            await self._answer(
                call, NoticeId.BTW_FAILED, {"cause": _without_full_stop(cause)}, *costs
            )
            return
        item = replace(self._item(call, NoticeId.SIDE_ANSWER, {"text": text}), kind="answer")
        await self._commit(call, item, *costs)

    # --- jobs and answers -----------------------------------------------------------------------

    def _start_job(self, word: str, call: CommandCall, job: _SideJob) -> ReplyLater:
        """Run a job in its own task, unless the process is stopping; then the next one runs it."""
        if not self._closed:
            task = self._tasks.create_task(
                self._run_job(word, call, job), name=f"{word} {call.key}"
            )
            self._running[task] = word, call.key
            task.add_done_callback(self._running.pop)
        return ReplyLater()

    def _count_running(self, word: str, key: str) -> int:
        return list(self._running.values()).count((word, key))

    async def _run_job(self, word: str, call: CommandCall, job: _SideJob) -> None:
        typing = self._delivery.start_live(
            self._item(call, NoticeId.PLAIN_TEXT, {})
        )  # typing indicator
        try:
            await job()
        except Exception:
            log.exception("%s: /%s failed", call.key, word)
            try:
                await self._answer(call, NoticeId.NOT_NOW, {})
            except StoreError as error:
                log.warning("%s: /%s will run again at the next start: %s", call.key, word, error)
        finally:
            typing.drop()

    def _side_turn(self, call: CommandCall) -> SideTurn:
        setting = self._models.turn_setting(call.key, call.principal)
        budget = self._budgets.turn_budget(call.key, call.principal)
        return SideTurn(f"t_{_id_suffix(call)}", setting, self._clock, budget)

    def _usage_changes(self, call: CommandCall, session: str, side: SideTurn) -> tuple[Change, ...]:
        """Return the changes that record the cost; without a session only budgets count it."""
        if not session and side.tokens:
            log.info("%s: %d tokens used outside of a session", call.key, side.tokens)
        request = f"(on the side) {call.args}".strip()
        return side.usage_changes(
            SideQuestion(
                key=call.key,
                session_id=session,
                address=call.context.address,
                person=call.principal,
                request=request,
            )
        )

    def _timeout_cause(self) -> str:
        return f"no answer within {self._deadline_seconds / 60:g} minutes"

    async def _answer(
        self, call: CommandCall, notice: NoticeId, fields: NoticeFields, *changes: Change
    ) -> None:
        await self._commit(call, self._item(call, notice, fields), *changes)

    async def _commit(self, call: CommandCall, item: OutboxItem, *changes: Change) -> None:
        """Commit the answer and close its command together: it is neither lost nor sent twice."""
        done = SetInbox(ids=(call.context.inbox,), state=InboxState.DONE, at=self._clock.now())
        await self._delivery.put(*changes, done, PutItem(item))

    def _item(self, call: CommandCall, notice: NoticeId, fields: NoticeFields) -> OutboxItem:
        return self._announcer.notice_item(
            notice, call.context.address, fields, name=_item_id(call)
        )


def _item_id(call: CommandCall) -> str:
    return f"b_{call.context.origin or _id_suffix(call)}"


def _id_suffix(call: CommandCall) -> str:
    """Return the part that the ids of all results of a stored command share."""
    return call.context.inbox.partition("_")[2]


def _is_running(state: ConversationState) -> int:
    return int(state.turn is not None and not state.turn.cancelling)


def _excerpt(text: str, max_length: int = 80) -> str:
    """Shorten a text to one line for a quote."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def _without_full_stop(cause: str) -> str:
    """Return a cause for use inside a sentence."""
    return cause.strip().rstrip(".")
