"""`SideRequests`: /model, /reasoning, /usage, /compact and /btw."""

import contextlib
import logging

from msgspec.structs import replace

from agent.events import TurnEnding
from agent.settings import REASONING_EFFORTS
from gateway.access.policy import Role
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply
from gateway.inbound.reader import sender_label
from gateway.side_requests import usage_table
from gateway.side_requests.jobs import CommandJobs
from gateway.side_requests.summary import SummaryFailed, compaction_change, summarize
from gateway.spending.budgets import Budgets
from gateway.turns import model_names
from gateway.turns.choices import ModelChoices
from gateway.turns.model_names import ModelAmbiguous, ModelFound, ModelUnknown
from gateway.turns.models import Models
from gateway.turns.side_turn import SideQuestion, SideTurn
from sessions.changes import Change
from sessions.conversation.events import ConversationState
from sessions.errors import Conflict
from sessions.records import ItemKind, Message, MessageRole, UsageTotals
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import unique_part
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.spelling import closest_match
from sessions.values.text import count_of, shorten

log = logging.getLogger(__name__)

_DEADLINE_SECONDS = 180.0
_MAX_OPEN_QUESTIONS = 3
"""Side questions that one conversation may have open at the same time."""

REASONING_LEVELS = tuple(REASONING_EFFORTS)
_DEFAULT = "default"
_STORE_ATTEMPTS = 5  # for a summary, because a running turn may add rows
_MAX_QUOTE_LENGTH = 80

_SIDE_QUESTION_PREFIX = (
    "[A question on the side. Answer it alone, and briefly; you have no tools for it.]"
)


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
        jobs: CommandJobs,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._models = models
        self._budgets = budgets
        self._choices = choices
        self._jobs = jobs
        self._deadline_seconds = deadline_seconds

    # --- models ---------------------------------------------------------------------------------

    async def model(self, call: CommandCall) -> CommandOutcome:
        """Show or switch the model."""
        if not call.args:
            return self._jobs.start("model", call, lambda: self._show_models(call))
        state = await call.services.read_state(call.key)
        return self._jobs.start("model", call, lambda: self._switch(call, state))

    async def _show_models(self, call: CommandCall) -> None:
        offered = await self._models.list_offered()
        targets = self._models.targets_of(call.key)
        chosen = self._models.has_chosen_model(call.key)
        known = self._models.configured_names()
        text = model_names.describe_models(targets, known, offered, chosen=chosen)
        await self._jobs.answer(call, NoticeId.MODEL_LIST, {"list": text})

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
                possible = {"name": _quoted(call.args), "list": model_names.quote_names(names)}
                await self._jobs.answer(call, NoticeId.MODEL_SEVERAL, possible)
            case ModelUnknown(close):
                unknown = {"name": _quoted(call.args), "nearest": model_names.quote_names(close)}
                await self._jobs.answer(call, NoticeId.MODEL_UNKNOWN, unknown)

    async def _answer_model_set(
        self, call: CommandCall, state: ConversationState, *, unchecked: bool
    ) -> None:
        first = self._models.targets_of(call.key)[0]
        fields: NoticeFields = {
            "model": model_names.display_name(first),
            "running": _is_running(state),
            "unchecked": int(unchecked),
        }
        await self._jobs.answer(call, NoticeId.MODEL_SET, fields)

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
            fields = {"name": _quoted(call.args), "nearest": near, "levels": levels}
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
        store, since = self._store, self._budgets.day_start
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
        if self._jobs.count_running("compact", call.key):
            return NoticeReply(NoticeId.COMPACT_RUNNING)
        state = await call.services.read_state(call.key)
        # The summary replaces what the model sees of everyone's messages, as /undo and /new do.
        if call.role is not Role.ADMIN and state.person not in {"", call.principal}:
            return NoticeReply(NoticeId.NOT_YOURS)
        if state.turn:
            return NoticeReply(NoticeId.BUSY)
        session = state.session
        if session is None:
            return NoticeReply(NoticeId.COMPACT_NOTHING)
        return self._jobs.start("compact", call, lambda: self._summarise(call, session))

    async def _summarise(self, call: CommandCall, session: str) -> None:
        side = self._side_turn(call)
        context = await self._store.sessions.context(session)
        try:
            async with self._jobs.deadline(call, self._deadline_seconds):
                setting = self._models.turn_setting(call.key, call.principal)
                done = await summarize(context[1], context[0], setting, side)
        except (SummaryFailed, TimeoutError) as error:
            fields = {"cause": _without_full_stop(str(error)) or self._timeout_cause()}
            await self._jobs.answer(
                call, NoticeId.COMPACT_FAILED, fields, *self._usage_changes(call, session, side)
            )
            return
        costs = self._usage_changes(call, session, side)
        if done is None:
            await self._jobs.answer(call, NoticeId.COMPACT_NOTHING, {}, *costs)
            return
        result: NoticeFields = {
            "percent": round(100 * (1 - done.tokens_after / done.tokens_before)),
            "before": usage_table.format_count(done.tokens_before),
            "after": usage_table.format_count(done.tokens_after),
        }
        for _ in range(_STORE_ATTEMPTS):
            change = await compaction_change(self._store, session, context, done, self._clock.now())
            if change is None:
                break
            with contextlib.suppress(Conflict):  # a turn added a row before the commit
                await self._jobs.answer(call, NoticeId.COMPACTED, result, change, *costs)
                return
        await self._jobs.answer(call, NoticeId.COMPACT_MOVED, {}, *costs)

    # --- a question on the side -----------------------------------------------------------------

    async def btw(self, call: CommandCall) -> CommandOutcome:
        """Answer a side question, which the history of the conversation leaves out."""
        if not call.args:
            return NoticeReply(NoticeId.BTW_USAGE)
        if self._jobs.count_running("btw", call.key) >= _MAX_OPEN_QUESTIONS:
            return NoticeReply(NoticeId.BTW_MANY, {"limit": _MAX_OPEN_QUESTIONS})
        state = await call.services.read_state(call.key)
        return self._jobs.start(
            "btw", call, lambda: self._answer_side_question(call, state.session or "")
        )

    async def _answer_side_question(self, call: CommandCall, session: str) -> None:
        side = self._side_turn(call)
        setting = self._models.turn_setting(call.key, call.principal)
        summary, history = await self._store.sessions.context(session)
        sender_id = call.principal.partition(":")[2]
        question = Message(
            MessageRole.USER,
            f"{_SIDE_QUESTION_PREFIX}\n\n{call.args}",
            sender=sender_label(call.key, call.name, sender_id, direct=call.direct),
        )
        text, cause = "", ""
        try:
            async with self._jobs.deadline(call, self._deadline_seconds):
                done = await side.ask(
                    setting.system, (*history, question), session=session, summary=summary
                )
            text = done.text.strip() if done.ending is TurnEnding.ANSWERED else ""
            cause = done.cause or "the model returned no text"
        except TimeoutError:
            cause = self._timeout_cause()
        costs = self._usage_changes(call, session, side)
        if not text:
            await self._jobs.answer(
                call, NoticeId.BTW_FAILED, {"cause": _without_full_stop(cause)}, *costs
            )
            return
        answer = self._jobs.compose(call, NoticeId.SIDE_ANSWER, {"text": text})
        await self._jobs.commit(call, replace(answer, kind=ItemKind.ANSWER), *costs)

    # --- costs of side turns --------------------------------------------------------------------

    def _side_turn(self, call: CommandCall) -> SideTurn:
        setting = self._models.turn_setting(call.key, call.principal)
        budget = self._budgets.turn_budget(call.key, call.principal)
        return SideTurn(f"t_{unique_part(call.context.inbox)}", setting, self._clock, budget)

    def _usage_changes(self, call: CommandCall, session: str, side: SideTurn) -> tuple[Change, ...]:
        """Return the changes that record the cost; without a session only budgets count it."""
        if not session and side.tokens:
            log.info("%s: %s used outside of a session", call.key, count_of(side.tokens, "token"))
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


def _is_running(state: ConversationState) -> int:
    return int(state.turn is not None and not state.turn.cancelling)


def _quoted(text: str) -> str:
    """Shorten a text to one line for a quote."""
    return shorten(" ".join(text.split()), _MAX_QUOTE_LENGTH)


def _without_full_stop(cause: str) -> str:
    """Return a cause for use inside a sentence."""
    return cause.strip().rstrip(".")
