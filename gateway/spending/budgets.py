"""Daily limits: reserved before each model request, settled after it.

Days follow the machine's clock, and each day has its own rows. A clock that is wrong for a while
spends another day's budget, which counts when that day comes, and frees nothing of today's.
Reservations of a process that died count until the day is over.
"""

import datetime as dt
import logging
import math
from collections.abc import Callable, Sequence

import msgspec

from agent import errors
from agent.attempt import AttemptResult
from agent.errors import BudgetExceeded
from agent.model.usage import Usage, UsageEstimate, compute_cost
from gateway.access.api_keys import Requester
from gateway.settings import BudgetSettings, LimitSettings
from gateway.spending.days import day_of, midnight, seconds_until_midnight
from gateway.spending.payers import Payer, payers_of
from gateway.spending.prices import unpriced_message
from sessions.changes import BudgetLimit, BudgetReservation, Change, SettleBudget
from sessions.key import SessionKey, parse_key
from sessions.records import BudgetUsage
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.notices import NoticeId
from sessions.values.text import format_minutes

log = logging.getLogger(__name__)

_EVERYONE_ROW = "all"
_RETENTION_DAYS = 31
"""Days for which usage is kept."""

_CHARACTERS_PER_TOKEN = 3  # estimate for answers
_MAX_TOKENS = 10**12
_MAX_DOLLARS = 1_000_000.0

_UNCHARGED_ERRORS = (
    errors.RateLimited,
    errors.Overloaded,
    errors.BadRequest,
    errors.ContextTooLong,
    errors.OutputTooLong,
    errors.ApiKeyRejected,
    errors.OutOfCredit,
)
"""Errors of requests that the service refused without charging for them."""


class BudgetScope(msgspec.Struct, frozen=True):
    """A person, a chat or everyone, with a limit."""

    name: str  # of its row
    label: str  # completes "the limit … for"
    limit: BudgetLimit


class RequestReservation(msgspec.Struct, frozen=True):
    """The reservation of a running request."""

    hold: BudgetReservation
    need: UsageEstimate


class BudgetStatus(msgspec.Struct, frozen=True):
    """Usage of one limit on a day."""

    scope: BudgetScope
    day: str
    spent: BudgetUsage
    refused: bool = False  # the limit has refused a request

    @property
    def used_fraction(self) -> float:
        """Used part of the limit; the larger of tokens and cost."""
        want, spent = self.scope.limit, self.spent
        return max(
            _used_fraction(spent.used_tokens, want.tokens),
            _used_fraction(spent.used_cost, want.cost),
        )

    @property
    def as_dict(self) -> dict[str, object]:
        """The status as JSON data."""
        want, spent = self.scope.limit, self.spent
        return {
            "for": self.scope.label,
            "used": self.used_text,
            "limit": self.limit_text,
            "tokens": spent.used_tokens,
            "tokens_limit": want.tokens,
            "usd": round(spent.used_cost, 9),
            "usd_limit": want.cost,
        }

    @property
    def used_text(self) -> str:
        """The used amount, for people."""
        return _format_amounts(self.scope.limit, self.spent.used_tokens, self.spent.used_cost)

    @property
    def limit_text(self) -> str:
        """The limit, for people."""
        want = self.scope.limit
        return _format_amounts(want, want.tokens or 0, want.cost or 0.0)

    @property
    def left_text(self) -> str:
        """The remaining amount, for people."""
        want, spent = self.scope.limit, self.spent
        tokens = max(0, (want.tokens or 0) - spent.tokens)
        return _format_amounts(want, tokens, max(0.0, (want.cost or 0.0) - spent.cost))


class Budgets:
    """All limits and their usage."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        limits: LimitSettings,
        *,
        zone: dt.tzinfo | None = None,
        on_exhausted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._zone = zone  # None: the machine's time zone
        self._on_exhausted = on_exhausted  # called when a limit refuses a request
        self._exhausted_days: dict[str, str] = {}  # last day with a refusal, by scope
        self.update_limits(limits)

    def update_limits(self, limits: LimitSettings) -> None:
        """Apply changed limits from the next request on."""
        self._limits = limits
        self._in_dollars = limits.dollar_limit_key
        self._shared = tuple(self._shared_scopes())

    def turn_budget(
        self, key: str, person: str, requester: Requester | None = None
    ) -> "TurnBudget":
        """Return the limits for the requests of a person in a conversation.

        `requester` is the sender of an API request.
        """
        return TurnBudget(self, tuple(self._scopes(key, person, requester)))

    @property
    def day(self) -> str:
        """The current day."""
        return day_of(self._clock.now(), self._zone)

    @property
    def day_start(self) -> int:
        """Start of the current day, in milliseconds since 1970."""
        return midnight(self._clock.now(), self._zone)

    @property
    def seconds_until_reset(self) -> int:
        """Seconds until the next day."""
        return seconds_until_midnight(self._clock.now(), self._zone)

    async def statuses(
        self, scopes: Sequence[BudgetScope] | None = None
    ) -> tuple[BudgetStatus, ...]:
        """Return today's usage of these limits; by default, of the shared ones."""
        return await self._statuses_on(self.day, self._shared if scopes is None else scopes)

    async def _statuses_on(
        self, day: str, scopes: Sequence[BudgetScope]
    ) -> tuple[BudgetStatus, ...]:
        if not scopes:
            return ()
        spent = await self._store.spending.on_day(day, [scope.name for scope in scopes])
        return tuple(
            BudgetStatus(scope, day, spent[scope.name], self._exhausted_days.get(scope.name) == day)
            for scope in scopes
        )

    async def shared_statuses(self) -> list[dict[str, object]]:
        """Return the usage of the limits for several people, for `holdfast status`."""
        return [status.as_dict for status in await self.statuses()]

    async def forget_old_days(self) -> None:
        """Delete the usage of days beyond the retention time."""
        past = day_of(self._clock.now(), self._zone, days=-_RETENTION_DAYS)
        await self._store.delete_budgets(past)

    # --- scopes ---------------------------------------------------------------------------------

    def _shared_scopes(self) -> Sequence[BudgetScope]:
        found = [_make_scope(_EVERYONE_ROW, "everyone", self._limits.all)]
        for chat, limits in self._limits.chats.items():
            key = parse_key(chat)
            found.append(_make_scope(_chat_row(key), str(key), limits))
        return [scope for scope in found if _has_limit(scope.limit)]

    def _scopes(self, key: str, person: str, requester: Requester | None) -> Sequence[BudgetScope]:
        found = [_make_scope(_EVERYONE_ROW, "everyone", self._limits.all)]
        if self._limits.chats:
            found += self._chat_scopes(parse_key(key))
        found += map(_payer_scope, payers_of(self._limits, person, requester))
        return [scope for scope in found if _has_limit(scope.limit)]

    def _chat_scopes(self, key: SessionKey) -> Sequence[BudgetScope]:
        names = {
            str(SessionKey(platform=key.platform, chat=key.chat, account=account))
            for account in ("", key.account)
        }
        return [
            _make_scope(_chat_row(parse_key(name)), "this chat", limits)
            for name, limits in self._limits.chats.items()
            if str(parse_key(name)) in names
        ]

    # --- reservations ---------------------------------------------------------------------------

    async def reserve(
        self,
        scopes: Sequence[BudgetScope],
        need: UsageEstimate,
        always: Sequence[Change],
        if_reserved: Sequence[Change],
    ) -> RequestReservation:
        """See `TurnBudget.reserve`."""
        cost = need.cost
        if cost is None:
            if any(scope.limit.cost is not None for scope in scopes):
                await self._store.apply(*always)
                limit = self._in_dollars or "the limit of the API key"
                raise BudgetExceeded(
                    unpriced_message(need.model, limit), notice=NoticeId.BUDGET_ZERO
                )
            cost = 0.0
        wants = tuple(scope.limit for scope in scopes)
        hold = BudgetReservation(self.day, wants, need.total_tokens, min(cost, _MAX_DOLLARS))
        refused = await self._store.reserve_budget(hold, always, if_reserved)
        if refused is not None:
            scope = next(scope for scope in scopes if scope.limit == refused)
            raise await self._refusal(scope, hold)
        return RequestReservation(hold, need)

    async def _refusal(self, scope: BudgetScope, hold: BudgetReservation) -> BudgetExceeded:
        (status,) = await self._statuses_on(hold.day, (scope,))
        want, spent = scope.limit, status.spent
        in_tokens = want.tokens is not None and spent.tokens + hold.tokens > want.tokens
        words = _format_tokens if in_tokens else _format_dollars
        limit = float((want.tokens if in_tokens else want.cost) or 0)
        left = max(0.0, limit - (spent.tokens if in_tokens else spent.cost))
        wanted = float(hold.tokens if in_tokens else hold.cost)
        whole = f"the limit for {scope.label} is {words(limit)} a day"
        if wanted > limit:
            log.info("request refused: %s, the request may use %s", whole, words(wanted))
            if not limit:
                return BudgetExceeded(whole, notice=NoticeId.BUDGET_ZERO)
            cause = f"this request may use {words(wanted)}, and {whole}"
            return BudgetExceeded(cause, notice=NoticeId.BUDGET_TOO_SMALL_FOR_REQUEST)
        seconds = self.seconds_until_reset
        self._exhausted_days[scope.name] = hold.day
        self._on_exhausted()
        log.info(
            "request refused: %s, %s left, the request may use %s",
            whole,
            words(left),
            words(wanted),
        )
        taken = "is used up" if not left else f"has only {words(left)} left"
        needs = "" if not left else f", and this request may use {words(wanted)}"
        cause = (
            f"the limit of {words(limit)} a day for {scope.label} {taken}{needs}; "
            f"it resets in {format_minutes(seconds)}"
        )
        return BudgetExceeded(cause, retry_in_seconds=seconds)


class TurnBudget:
    """The limits for the requests of one turn; empty if there are none."""

    def __init__(self, budgets: Budgets, scopes: tuple[BudgetScope, ...]) -> None:
        self._budgets = budgets
        self.scopes = scopes

    def __bool__(self) -> bool:
        return bool(self.scopes)

    async def reserve(
        self,
        need: UsageEstimate,
        *,
        always: Sequence[Change] = (),
        if_reserved: Sequence[Change] = (),
    ) -> RequestReservation:
        """Reserve the usage of a request.

        `always` is committed in any case unless this raises `StoreError`; `if_reserved` only
        together with the reservation. Raises `BudgetExceeded`.
        """
        return await self._budgets.reserve(self.scopes, need, always, if_reserved)

    async def statuses(self) -> tuple[BudgetStatus, ...]:
        """Return today's usage of these limits."""
        return await self._budgets.statuses(self.scopes)


def settle_reservation(reservation: RequestReservation, result: AttemptResult) -> SettleBudget:
    """Return the change that replaces a reservation by the actual usage."""
    usage, need = result.usage, reservation.need
    if not usage.total_tokens:
        if isinstance(result.error, _UNCHARGED_ERRORS):
            return SettleBudget(reservation.hold, 0, 0.0)
        return settle_by_estimate(reservation, result.received_characters)
    return _settle_usage(reservation, usage, compute_cost(usage, need.price))


def settle_by_estimate(reservation: RequestReservation, received_characters: int) -> SettleBudget:
    """Return the same for a request without usage data, estimated from the received characters."""
    usage = Usage(
        reservation.need.input_tokens, math.ceil(received_characters / _CHARACTERS_PER_TOKEN)
    )
    return _settle_usage(reservation, usage, compute_cost(usage, reservation.need.price))


def _settle_usage(
    reservation: RequestReservation, usage: Usage, cost: float | None
) -> SettleBudget:
    """Settle by the reported usage, or by the reservation if the report is implausible."""
    tokens = (
        usage.total_tokens if 0 <= usage.total_tokens <= _MAX_TOKENS else reservation.hold.tokens
    )
    if cost is None:
        cost = 0.0
    elif not (math.isfinite(cost) and 0 <= cost <= _MAX_DOLLARS):
        cost = reservation.hold.cost
    return SettleBudget(reservation.hold, tokens, cost)


def _make_scope(name: str, label: str, limits: BudgetSettings) -> BudgetScope:
    tokens = limits.tokens_per_day
    tokens = None if tokens is None else min(tokens, _MAX_TOKENS)
    return BudgetScope(name, label, BudgetLimit(name, tokens, limits.usd_per_day))


def _payer_scope(payer: Payer) -> BudgetScope:
    limits = BudgetSettings(
        tokens_per_day=payer.limits.tokens_per_day, usd_per_day=payer.limits.usd_per_day
    )
    return _make_scope(payer.name, payer.label, limits)


def _chat_row(key: SessionKey) -> str:
    return f"chat {key}"


def _has_limit(want: BudgetLimit) -> bool:
    return want.tokens is not None or want.cost is not None


def _used_fraction(used: float, limit: float | None) -> float:
    if limit is None:
        return 0.0
    return used / limit if limit else 1.0


def _format_amounts(want: BudgetLimit, tokens: float, cost: float) -> str:
    words = []
    if want.tokens is not None:
        words.append(_format_tokens(tokens))
    if want.cost is not None:
        words.append(_format_dollars(cost))
    return " and ".join(words)


def _format_tokens(number: float) -> str:
    return f"{number:,.0f} tokens"


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"  # noqa: PLR2004 - a cent
