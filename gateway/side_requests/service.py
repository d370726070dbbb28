"""What is asked beside the conversation: models, costs, a summary, a question on the side.

What takes a while runs in a task of its own, so that it holds up nothing that comes in. The stored
command stays open until its answer is stored with it: what a dying process leaves is begun anew.
"""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from msgspec.structs import replace

from agent.events import Ending
from gateway.commands.contract import Call, Outcome, Taken, Tell
from gateway.delivery.outbox import Delivery
from gateway.notices.catalogue import Fields
from gateway.notices.compose import Announcer
from gateway.side_requests import usage_table
from gateway.side_requests.summary import NotSummarised, as_change, shortened
from gateway.spending.budgets import Budgets
from gateway.spending.days import midnight
from gateway.turns import model_names
from gateway.turns.choices import Choices
from gateway.turns.model_names import Named, Several, Unknown
from gateway.turns.models import Models
from gateway.turns.side_turn import Asked, SideTurn
from sessions.changes import Change, PutItem, SetInbox
from sessions.conversation.events import State
from sessions.errors import Conflict, StoreError
from sessions.records import InboxState, Item, Message, Spent
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.spelling import nearest

log = logging.getLogger(__name__)

DEADLINE = 180.0
MOST_QUESTIONS = 3
"""Questions on the side that one conversation may have open."""

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh")
_DEFAULT = "default"
_TRIES = 5  # to store a summary while a turn adds rows

_ON_THE_SIDE = "[A question on the side. Answer it alone, and briefly; you have no tools for it.]"

_Work = Callable[[], Coroutine[Any, Any, None]]


class Asides:
    """See `gateway.commands.contract.Asides`."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        models: Models,
        budgets: Budgets,
        choices: Choices,
        announcer: Announcer,
        delivery: Delivery,
        tasks: asyncio.TaskGroup,
        deadline: float = DEADLINE,
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
        self._deadline = deadline
        self._zone = zone  # in which days are counted; None: the machine's own
        self._running: dict[asyncio.Task[None], tuple[str, str]] = {}  # what, for whom
        self._closed = False

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end nothing keeps the process: what is under way is begun anew by the next."""
        try:
            yield
        finally:
            self._closed = True
            for task in self._running:
                task.cancel()

    # --- models ---------------------------------------------------------------------------------

    async def model(self, call: Call) -> Outcome:
        """Show or switch the model."""
        if not call.args:
            return self._begin("model", call, lambda: self._show_models(call))
        state = await call.desk.look(call.key)
        return self._begin("model", call, lambda: self._switch(call, state))

    async def _show_models(self, call: Call) -> None:
        offered = await self._models.offered()
        targets = self._models.targets_of(call.key)
        chosen = self._models.follows(call.key)
        known = self._models.known()
        text = model_names.overview(targets, known, offered, chosen=chosen)
        await self._answer(call, "model", {"list": text})

    async def _switch(self, call: Call, state: State) -> None:
        if call.args.lower() == _DEFAULT:
            await self._choices.choose_model(call.key, None)
            await self._told_model(call, state, unchecked=False)
            return
        known = self._models.known()
        offered: tuple[str, ...] | None = ()
        if call.args not in known:
            offered = await self._models.offered()
        names = (*known, *(offered or ()))
        match model_names.meant(call.args, names, others=offered is None):
            case Named(name):
                provider = self._models.provider_of(name)
                await self._choices.choose_model(call.key, name, provider)
                await self._told_model(call, state, unchecked=name not in names)
            case Several(found):
                fields = {"name": _short(call.args), "list": model_names.quoted(found)}
                await self._answer(call, "model_several", fields)
            case Unknown(close):
                fields = {"name": _short(call.args), "nearest": model_names.quoted(close)}
                await self._answer(call, "model_unknown", fields)

    async def _told_model(self, call: Call, state: State, *, unchecked: bool) -> None:
        first = self._models.targets_of(call.key)[0]
        fields: dict[str, str | int] = {
            "model": model_names.shown(first),
            "running": _is_running(state),
            "unchecked": int(unchecked),
        }
        await self._answer(call, "model_set", fields)

    async def reasoning(self, call: Call) -> Outcome:
        """Show or set how long the model may think."""
        levels, wanted = ", ".join(LEVELS), call.args.lower()
        if not wanted:
            return Tell("reasoning", {"level": self._level(call.key), "levels": levels})
        if wanted not in {*LEVELS, _DEFAULT}:
            near = nearest(wanted, (*LEVELS, _DEFAULT)) or ""
            fields = {"name": _short(call.args), "nearest": near, "levels": levels}
            return Tell("reasoning_unknown", fields)
        state = await call.desk.look(call.key)
        await self._choices.choose_effort(call.key, None if wanted == _DEFAULT else wanted)
        return Tell(
            "reasoning_set", {"level": self._level(call.key), "running": _is_running(state)}
        )

    def _level(self, key: str) -> str:
        level = self._models.targets_of(key)[0].settings.reasoning_effort
        return level or "the service's own default"

    # --- costs ----------------------------------------------------------------------------------

    async def usage(self, call: Call) -> Outcome:
        """Show what was used: by the last turn, this conversation, this person today."""
        store, since = self._store, midnight(self._clock.now(), self._zone)
        sessions = await store.sessions(key=call.key, limit=1)
        last = here = Spent()
        if sessions:
            here = await store.spent(session_id=sessions[0].id)
            turn = await store.last_turn(sessions[0].id)
            last = await store.spent(turn_id=turn.id) if turn else last
        today = await store.spent(person=call.principal, since=since)
        standings = await self._budgets.purse(call.key, call.principal).standings()
        left = [f"{each.left} of {each.limit} for {each.scope.whose}" for each in standings]
        text = usage_table.table(last, here, today) + usage_table.allowance(
            left, self._budgets.free_in
        )
        return Tell("text", {"text": text})

    # --- a summary ------------------------------------------------------------------------------

    async def compact(self, call: Call) -> Outcome:
        """Put a summary in place of what was said."""
        if self._count("compact", call.key):
            return Tell("compact_running")
        state = await call.desk.look(call.key)
        if state.turn:
            return Tell("busy")
        session = state.session
        if session is None:
            return Tell("compact_nothing")
        return self._begin("compact", call, lambda: self._shorten(call, session))

    async def _shorten(self, call: Call, session: str) -> None:
        side = self._side_turn(call)
        seen = await self._store.context(session)
        try:
            async with asyncio.timeout(self._deadline):
                setting = self._models.setting(call.key, call.principal)
                done = await shortened(seen[1], seen[0], setting, side)
        except (NotSummarised, TimeoutError) as error:
            fields = {"cause": _sentence(str(error)) or self._too_long()}
            await self._answer(call, "compact_failed", fields, *self._costs(call, session, side))
            return
        costs = self._costs(call, session, side)
        if done is None:
            await self._answer(call, "compact_nothing", {}, *costs)
            return
        told: dict[str, str | int] = {
            "percent": round(100 * (1 - done.after / done.before)),
            "before": usage_table.count(done.before),
            "after": usage_table.count(done.after),
        }
        for _ in range(_TRIES):
            change = await as_change(self._store, session, seen, done, self._clock.now())
            if change is None:
                break
            with contextlib.suppress(Conflict):  # a turn added a row at this very moment
                await self._answer(call, "compacted", told, change, *costs)
                return
        await self._answer(call, "compact_moved", {}, *costs)

    # --- a question on the side -----------------------------------------------------------------

    async def btw(self, call: Call) -> Outcome:
        """Answer a question that the conversation does not learn of."""
        if not call.args:
            return Tell("btw_usage")
        if self._count("btw", call.key) >= MOST_QUESTIONS:
            return Tell("btw_many", {"limit": MOST_QUESTIONS})
        state = await call.desk.look(call.key)
        return self._begin("btw", call, lambda: self._answer_beside(call, state.session or ""))

    async def _answer_beside(self, call: Call, session: str) -> None:
        side = self._side_turn(call)
        setting = self._models.setting(call.key, call.principal)
        summary, history = await self._store.context(session)
        question = Message("user", f"{_ON_THE_SIDE}\n\n{call.args}")
        text, cause = "", ""
        try:
            async with asyncio.timeout(self._deadline):
                done = await side.ask(
                    setting.system, (*history, question), session=session, summary=summary
                )
            text = done.text.strip() if done.ending is Ending.ANSWERED else ""
            cause = done.cause or "the model said nothing"
        except TimeoutError:
            cause = self._too_long()
        costs = self._costs(call, session, side)
        if not text:
            await self._answer(call, "btw_failed", {"cause": _sentence(cause)}, *costs)
            return
        item = replace(self._item(call, "btw", {"text": text}), kind="answer")
        await self._commit(call, item, *costs)

    # --- what they share ------------------------------------------------------------------------

    def _begin(self, what: str, call: Call, work: _Work) -> Taken:
        """Work on it beside all else; while the gateway goes down it is left to the next one."""
        if not self._closed:
            task = self._tasks.create_task(self._run(what, call, work), name=f"{what} {call.key}")
            self._running[task] = what, call.key
            task.add_done_callback(self._running.pop)
        return Taken()

    def _count(self, what: str, key: str) -> int:
        return list(self._running.values()).count((what, key))

    async def _run(self, what: str, call: Call, work: _Work) -> None:
        typing = self._delivery.live(self._item(call, "text", {}))  # shows that somebody is at it
        try:
            await work()
        except Exception:
            log.exception("%s: /%s broke", call.key, what)
            try:
                await self._answer(call, "not_now", {})
            except StoreError as error:
                log.warning("%s: /%s is left to the next start: %s", call.key, what, error)
        finally:
            typing.drop()

    def _side_turn(self, call: Call) -> SideTurn:
        setting = self._models.setting(call.key, call.principal)
        purse = self._budgets.purse(call.key, call.principal)
        return SideTurn(f"t_{_number(call)}", setting, self._clock, purse)

    def _costs(self, call: Call, session: str, side: SideTurn) -> tuple[Change, ...]:
        """What was used, as changes; without a conversation there is nobody to put it down to."""
        if not session and side.tokens:
            log.info("%s: %d tokens were used outside of a conversation", call.key, side.tokens)
        request = f"(on the side) {call.args}".strip()
        return side.record(Asked(call.key, session, call.by.address, call.principal, request))

    def _too_long(self) -> str:
        return f"it took longer than {self._deadline / 60:g} minutes"

    async def _answer(self, call: Call, notice: str, fields: Fields, *changes: Change) -> None:
        await self._commit(call, self._item(call, notice, fields), *changes)

    async def _commit(self, call: Call, item: Item, *changes: Change) -> None:
        """The answer and the end of the command are one: it is neither lost nor given twice."""
        done = SetInbox((call.by.inbox,), InboxState.DONE, self._clock.now())
        await self._delivery.put(*changes, done, PutItem(item))

    def _item(self, call: Call, notice: str, fields: Fields) -> Item:
        return self._announcer.item(notice, call.by.address, fields, name=_name(call))


def _name(call: Call) -> str:
    return f"b_{call.by.origin or _number(call)}"


def _number(call: Call) -> str:
    """What the ids of all that comes of a stored command have in common."""
    return call.by.inbox.partition("_")[2]


def _is_running(state: State) -> int:
    return int(state.turn is not None and not state.turn.leaving)


def _short(text: str, most: int = 80) -> str:
    """Quote what somebody wrote on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _sentence(cause: str) -> str:
    """A cause as it stands inside a sentence of ours."""
    return cause.strip().rstrip(".")
