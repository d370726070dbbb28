"""What may be spent on a day: held back before each request to a model, settled after it.

A day is one of the machine's own clock, and each day has rows of its own: a clock that is set wrong
for a while spends from another day's budget, which counts when that day comes, and gives nothing of
today's back. What a process that died had held back stays counted until the day is over.
"""

import datetime as dt
import logging
import math
from collections.abc import Callable, Sequence

import msgspec

from agent import errors
from agent.attempt import AttemptResult
from agent.errors import OverBudget
from agent.model.usage import Need, Usage, cost_of
from gateway.access.policy import OWNERS
from gateway.settings import BudgetSettings, LimitSettings, UserLimits
from gateway.spending.days import day_of, seconds_left, spoken
from gateway.spending.prices import unpriced
from sessions.changes import Change, Hold, Settle, Want
from sessions.key import SessionKey, parse_key
from sessions.records import Budget
from sessions.store.store import SessionStore
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

ALL = "all"
TOO_LARGE, NEVER = "budget.large", "budget.never"
KEPT_DAYS = 31
"""Days after which what was spent is forgotten."""

_CHARACTERS = 3  # of an answer, for a token
_MOST_TOKENS = 10**12
_MOST_DOLLARS = 1_000_000.0

_NOT_SERVED = (
    errors.RateLimited,
    errors.Overloaded,
    errors.BadRequest,
    errors.ContextTooLong,
    errors.OutputTooLong,
    errors.Unauthorized,
    errors.OutOfCredit,
)
"""The service refused before it did anything; nobody is charged for that."""


class Scope(msgspec.Struct, frozen=True):
    """Something that has a limit: a person, a chat, everything."""

    name: str  # of its row
    whose: str  # in words, behind "the limit … for"
    want: Want


class Held(msgspec.Struct, frozen=True):
    """What is held back for a request under way."""

    hold: Hold
    need: Need


class Standing(msgspec.Struct, frozen=True):
    """How one limit stood on a day."""

    scope: Scope
    day: str
    spent: Budget
    refused: bool = False  # it left no room for a request

    @property
    def share(self) -> float:
        """Which part of it is used; of two kinds of limit the greater one."""
        want, spent = self.scope.want, self.spent
        return max(
            _share(spent.used_tokens, want.tokens),
            _share(spent.used_cost, want.cost),
        )

    @property
    def figures(self) -> dict[str, object]:
        """For programs."""
        want, spent = self.scope.want, self.spent
        return {
            "for": self.scope.whose,
            "used": self.used,
            "limit": self.limit,
            "tokens": spent.used_tokens,
            "tokens_limit": want.tokens,
            "usd": round(spent.used_cost, 9),
            "usd_limit": want.cost,
        }

    @property
    def used(self) -> str:
        """What is used, in words."""
        return _both(self.scope.want, self.spent.used_tokens, self.spent.used_cost)

    @property
    def limit(self) -> str:
        """How much may be, in words."""
        want = self.scope.want
        return _both(want, want.tokens or 0, want.cost or 0.0)

    @property
    def left(self) -> str:
        """What is left, in words."""
        want, spent = self.scope.want, self.spent
        tokens = max(0, (want.tokens or 0) - spent.tokens)
        return _both(want, tokens, max(0.0, (want.cost or 0.0) - spent.cost))


class Budgets:
    """All limits of what may be spent, and how they stand."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        limits: LimitSettings,
        *,
        zone: dt.tzinfo | None = None,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._zone = zone  # in which days are counted; None: the machine's own
        self._news = news  # told when a limit has left no room
        self._refused: dict[str, str] = {}  # the day on which it left no room, by scope
        self.adopt(limits)

    def adopt(self, limits: LimitSettings) -> None:
        """Other limits hold from the next request on."""
        self._limits = limits
        self._in_dollars = limits.in_dollars
        self._shared = tuple(self._shared_scopes())

    def purse(self, key: str, person: str) -> "Purse":
        """All that a request is paid from which somebody makes in a conversation."""
        return Purse(self, tuple(self._scopes(key, person)))

    @property
    def day(self) -> str:
        """Which day it is."""
        return day_of(self._clock.now(), self._zone)

    @property
    def free_in(self) -> int:
        """Seconds until the next day begins."""
        return seconds_left(self._clock.now(), self._zone)

    async def standings(self, scopes: Sequence[Scope] | None = None) -> tuple[Standing, ...]:
        """How these limits stand today; of nobody in particular: those that are shared."""
        return await self._standings_on(self.day, self._shared if scopes is None else scopes)

    async def _standings_on(self, day: str, asked: Sequence[Scope]) -> tuple[Standing, ...]:
        if not asked:
            return ()
        spent = await self._store.budgets(day, [scope.name for scope in asked])
        return tuple(
            Standing(scope, day, spent[scope.name], self._refused.get(scope.name) == day)
            for scope in asked
        )

    async def today(self) -> list[dict[str, object]]:
        """How the limits stand that hold for several people, for `holdfast status`."""
        return [each.figures for each in await self.standings()]

    async def forget(self) -> None:
        """Forget days that are long over."""
        if self._shared or self._in_dollars or self._personal:
            past = day_of(self._clock.now(), self._zone, days=-KEPT_DAYS)
            await self._store.forget_budgets(past)

    # --- which there are ------------------------------------------------------------------------

    @property
    def _personal(self) -> bool:
        limits = self._limits
        return limits.tokens_per_day is not None or bool(limits.users)

    def _shared_scopes(self) -> Sequence[Scope]:
        found = [_scope(ALL, "everybody here", self._limits.all)]
        for chat, limits in self._limits.chats.items():
            key = parse_key(chat)
            found.append(_scope(_chat_row(key), str(key), limits))
        return [scope for scope in found if _limits_anything(scope.want)]

    def _scopes(self, key: str, person: str) -> Sequence[Scope]:
        found = [_scope(ALL, "everybody here", self._limits.all)]
        if self._limits.chats:
            found += self._of_chat(parse_key(key))
        if person:
            found.append(self._of_person(person))
        return [scope for scope in found if _limits_anything(scope.want)]

    def _of_chat(self, key: SessionKey) -> Sequence[Scope]:
        names = {str(SessionKey(key.platform, key.chat, account)) for account in ("", key.account)}
        return [
            _scope(_chat_row(parse_key(name)), "this chat", limits)
            for name, limits in self._limits.chats.items()
            if str(parse_key(name)) in names
        ]

    def _of_person(self, person: str) -> Scope:
        own = self._limits.users.get(person) or UserLimits()
        usual = BudgetSettings() if person in OWNERS else self._limits
        tokens = usual.tokens_per_day if own.tokens_per_day is None else own.tokens_per_day
        dollars = usual.usd_per_day if own.usd_per_day is None else own.usd_per_day
        named = own.tokens_per_day is not None or own.usd_per_day is not None
        row = f"user {person}"
        whose = person if named else "each person"
        return _scope(row, whose, BudgetSettings(tokens_per_day=tokens, usd_per_day=dollars))

    # --- for purses -----------------------------------------------------------------------------

    async def hold(
        self,
        scopes: Sequence[Scope],
        need: Need,
        first: Sequence[Change],
        then: Sequence[Change],
    ) -> Held:
        """See `Purse.hold`."""
        cost = need.cost
        if cost is None:
            if any(scope.want.cost is not None for scope in scopes):
                await self._store.apply(*first)
                raise OverBudget(unpriced(need.model, self._in_dollars), notice=NEVER)
            cost = 0.0
        wants = tuple(scope.want for scope in scopes)
        hold = Hold(self.day, wants, need.tokens, min(cost, _MOST_DOLLARS))
        refused = await self._store.hold(hold, first, then)
        if refused is not None:
            scope = next(scope for scope in scopes if scope.want == refused)
            raise await self._refusal(scope, hold)
        return Held(hold, need)

    async def _refusal(self, scope: Scope, hold: Hold) -> OverBudget:
        (standing,) = await self._standings_on(hold.day, (scope,))
        want, spent = scope.want, standing.spent
        in_tokens = want.tokens is not None and spent.tokens + hold.tokens > want.tokens
        words = _tokens if in_tokens else _dollars
        limit = float((want.tokens if in_tokens else want.cost) or 0)
        left = max(0.0, limit - (spent.tokens if in_tokens else spent.cost))
        wanted = float(hold.tokens if in_tokens else hold.cost)
        whole = f"the limit for {scope.whose} is {words(limit)} a day"
        if wanted > limit:
            log.info("refused: %s, the request may take %s", whole, words(wanted))
            if not limit:
                return OverBudget(whole, notice=NEVER)
            cause = f"this request may take {words(wanted)}, and {whole}"
            return OverBudget(cause, notice=TOO_LARGE)
        seconds = self.free_in
        self._refused[scope.name] = hold.day
        self._news()
        log.info("refused: %s, %s is left, the request may take %s", whole, left, words(wanted))
        taken = "is used up" if not left else f"has only {words(left)} left"
        needs = "" if not left else f", and this request may take {words(wanted)}"
        cause = (
            f"the limit of {words(limit)} a day for {scope.whose} {taken}{needs}; "
            f"a new day begins in {spoken(seconds)}"
        )
        return OverBudget(cause, seconds=seconds)


class Purse:
    """What the requests of one turn are paid from; empty where nothing is limited."""

    def __init__(self, budgets: Budgets, scopes: tuple[Scope, ...]) -> None:
        self._budgets = budgets
        self.scopes = scopes

    def __bool__(self) -> bool:
        return bool(self.scopes)

    async def hold(
        self, need: Need, *, first: Sequence[Change] = (), then: Sequence[Change] = ()
    ) -> Held:
        """Set aside what a request may use.

        `first` becomes true in any case, if this does not raise `StoreError`; `then` only with
        this. Raises `OverBudget`.
        """
        return await self._budgets.hold(self.scopes, need, first, then)

    async def standings(self) -> tuple[Standing, ...]:
        """How all of it stands today."""
        return await self._budgets.standings(self.scopes)


def settled(held: Held, result: AttemptResult) -> Settle:
    """What a request has used, in place of what was held back for it."""
    usage, need = result.usage, held.need
    if not usage.tokens:
        if isinstance(result.error, _NOT_SERVED):
            return Settle(held.hold, 0, 0.0)
        return broken_off(held, result.received)
    return _settle(held, usage, cost_of(usage, need.price))


def broken_off(held: Held, received: int) -> Settle:
    """The same where the service did not say: an estimate, by the characters that came."""
    usage = Usage(held.need.input_tokens, math.ceil(received / _CHARACTERS))
    return _settle(held, usage, cost_of(usage, held.need.price))


def _settle(held: Held, usage: Usage, cost: float | None) -> Settle:
    """What a service says may be nonsense; then what was held back is taken for it."""
    tokens = usage.tokens if 0 <= usage.tokens <= _MOST_TOKENS else held.hold.tokens
    if cost is None:
        cost = 0.0
    elif not (math.isfinite(cost) and 0 <= cost <= _MOST_DOLLARS):
        cost = held.hold.cost
    return Settle(held.hold, tokens, cost)


def _scope(name: str, whose: str, limits: BudgetSettings) -> Scope:
    tokens = limits.tokens_per_day
    tokens = None if tokens is None else min(tokens, _MOST_TOKENS)
    return Scope(name, whose, Want(name, tokens, limits.usd_per_day))


def _chat_row(key: SessionKey) -> str:
    return f"chat {key}"


def _limits_anything(want: Want) -> bool:
    return want.tokens is not None or want.cost is not None


def _share(used: float, limit: float | None) -> float:
    if limit is None:
        return 0.0
    return used / limit if limit else 1.0


def _both(want: Want, tokens: float, cost: float) -> str:
    words = []
    if want.tokens is not None:
        words.append(_tokens(tokens))
    if want.cost is not None:
        words.append(_dollars(cost))
    return " and ".join(words)


def _tokens(number: float) -> str:
    return f"{number:,.0f} tokens"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"  # noqa: PLR2004 - a cent
