"""Sans-IO: when a chat may take another op.

Every op of a chat draws on one budget, and all chats of an account on another one. A platform's 429
makes the chat's budget smaller, and it comes back slowly. Moments are seconds of one monotonic clock.
"""

import enum
from collections import deque

_MIN_SHARE = 1 / 16
_RECOVERY_SECONDS = 600.0  # from nothing to the documented pace
_MIN_CEILING_FOR_THREE = 3.0  # a smaller budget has no room to set some of it aside for urgent ops
_MIN_CEILING_FOR_TWO = 2.0
_ROUNDING_ERROR = 1e-9

_MINUTE_SECONDS = 61.0  # seconds; a little more, for what is delayed on its way
_MINUTE_RESERVE_SHARE = 0.1  # of a chat's minute, for what must be shown
_ACCOUNT_RESERVE_SHARE = 0.4  # of what an account takes at once, for the same
_AFTER_LIVE_SECONDS = (
    0.7  # seconds for which final ops make way for live updates that were just shown
)
_MAX_LIVE_DELAY_SECONDS = 5.0  # seconds that live updates make way at most after all has been said
_MAX_RECHECK_SECONDS = 5.0  # seconds after which at most; those before it may have no more to show


class OpPriority(enum.Enum):
    """How much an op matters: what matters less leaves room for what matters more."""

    URGENT = enum.auto()  # the answer to /stop
    FINAL = enum.auto()  # must be shown, can wait
    COSMETIC = enum.auto()  # can be left out: live updates, drafts
    TRIVIAL = enum.auto()  # says nothing of an answer: typing, signs


OPTIONAL_PRIORITIES = {OpPriority.COSMETIC, OpPriority.TRIVIAL}


class AccountBudget:
    """The budget of all chats together, which is there for live updates: they keep within it.

    What must be shown is counted, and waits for a moment at most, so that live updates and what
    ends them do not come to too much. That many people are answered at once is no reason to let
    them wait longer, as long as the platform takes it. Once it has not, everything stands in line
    for a while, first come first served.

    What can be left out goes only while nobody stands in line, and trifles only while nothing else
    is shown. What finds no room is told a moment of its own to ask again, so that chats take turns,
    and do not all ask at once.
    """

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._op_seconds = 1.0 / per_second  # seconds
        self._burst = burst
        self._free_at = now - burst * self._op_seconds  # the line moves on since then
        self._last_live_at = (
            now - _AFTER_LIVE_SECONDS
        )  # when something was shown that could have been left out
        self._strict_until = now
        # Up to when moments are given away.
        self._assigned_until = {OpPriority.COSMETIC: now, OpPriority.TRIVIAL: now}

    def allows(self, priority: OpPriority, now: float, *, is_turn: bool) -> bool:
        """Tell whether something that can be left out may go now; `called` when it is its turn."""
        kept = max(1.0, self._burst * _ACCOUNT_RESERVE_SHARE)
        first = is_turn or self._assigned_until[priority] <= now
        if priority is OpPriority.TRIVIAL:
            kept = max(kept, self._burst - 1.0)  # all of it: nothing else has been shown lately
        return first and self._free_at + (kept + 1.0) * self._op_seconds <= now + _ROUNDING_ERROR

    def assign_turn(self, priority: OpPriority, now: float) -> float:
        """Give away a moment at which something that can be left out may ask again."""
        before = max(now, min(self._assigned_until[priority], now + _MAX_RECHECK_SECONDS))
        self._assigned_until[priority] = before + self._op_seconds
        return self._assigned_until[priority]

    def take(self, priority: OpPriority, now: float) -> float:
        """Count an op, and say when it goes: at once, or when those before it have gone."""
        self._free_at = max(self._free_at, now - self._burst * self._op_seconds) + self._op_seconds
        place = max(now, self._free_at)
        if priority in OPTIONAL_PRIORITIES:
            self._last_live_at = now
        elif now >= self._strict_until:
            self._free_at = min(self._free_at, now + _MAX_LIVE_DELAY_SECONDS)
            return min(place, max(now, self._last_live_at + _AFTER_LIVE_SECONDS))
        return place

    def on_rate_limited(self, now: float) -> None:
        """Learn from a 429: the documented pace is meant."""
        self._strict_until = now + _RECOVERY_SECONDS


class Pace:
    """The budget of one chat: `burst` ops at once, growing back by `per_second`.

    Never more than `per_minute` of them in any minute, if there is such a limit.
    """

    __slots__ = (
        "_account",
        "_assigned_turns",
        "_blocked_until",
        "_burst",
        "_pace_share",
        "_per_minute",
        "_per_second",
        "_recent_ops",
        "_refilled_at",
        "_remaining_ops",
    )

    def __init__(
        self,
        burst: int,
        per_second: float,
        now: float,
        *,
        per_minute: int = 0,
        account: AccountBudget | None = None,
    ) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._per_minute = per_minute
        self._account = account
        self._assigned_turns: dict[OpPriority, float] = {}  # our moments in the account's lines
        self._recent_ops: deque[float] | None = deque() if per_minute else None  # ops of it
        self._pace_share = 1.0  # of the documented pace, learnt from 429s
        self._remaining_ops = self._burst
        self._refilled_at = now
        self._blocked_until = now

    @property
    def blocked_until(self) -> float:
        """When the platform's own Retry-After ends."""
        return self._blocked_until

    def ready_at(self, priority: OpPriority, now: float) -> float:
        """Say when an op may go; now, or a later moment at which to ask again."""
        self._refill(now)
        if now < self._blocked_until:
            return self._blocked_until
        missing = 1.0 + self._reserve(priority) - self._remaining_ops
        if missing > _ROUNDING_ERROR:
            return now + missing / (self._per_second * self._pace_share)
        if (at := self._minute_ready_at(priority, now)) > now:
            return at
        return self._account_ready_at(priority, now)

    def is_tight(self, now: float) -> bool:
        """Tell whether the budget is so small that any op makes the next one wait."""
        self._refill(now)
        return self._ceiling() < _MIN_CEILING_FOR_TWO

    def take(self, now: float, priority: OpPriority = OpPriority.FINAL) -> float:
        """Count an op, and say when it goes: now, or when it is its turn among all chats'."""
        self._refill(now)
        self._remaining_ops -= 1.0
        if self._recent_ops is not None:
            self._recent_ops.append(now)
        self._assigned_turns = {
            weight: turn for weight, turn in self._assigned_turns.items() if turn > now
        }
        return self._account.take(priority, now) if self._account else now

    def block(self, until: float) -> None:
        """Wait out a platform's Retry-After."""
        self._blocked_until = max(self._blocked_until, until)

    def on_rate_limited(self, now: float, retry_after: float) -> None:
        """Learn from a 429: it was too fast, so the budget is cut to half."""
        self._refill(now)
        self._pace_share = max(self._pace_share / 2, _MIN_SHARE)
        # A final op may go right at the end of the wait; the rest grows back.
        self._remaining_ops = min(self._remaining_ops, 1.0 + self._reserve(OpPriority.FINAL))
        self.block(now + retry_after)
        if self._account:
            self._account.on_rate_limited(now)

    def is_rested(self, now: float) -> bool:
        """Tell whether nothing is remembered that a new budget would not know."""
        self._refill(now)
        quiet = not self._recent_ops and now >= self._blocked_until
        return self._pace_share >= 1.0 and self._remaining_ops >= self._burst and quiet

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._refilled_at)
        self._refilled_at = max(now, self._refilled_at)
        grown = passed * self._per_second * self._pace_share
        self._pace_share = min(1.0, self._pace_share + passed / _RECOVERY_SECONDS)
        self._remaining_ops = min(self._ceiling(), self._remaining_ops + grown)
        while self._recent_ops and self._recent_ops[0] <= now - _MINUTE_SECONDS:
            self._recent_ops.popleft()

    def _minute_ready_at(self, priority: OpPriority, now: float) -> float:
        """Say when the minute has room again."""
        if self._recent_ops is None:
            return now
        room = max(1, int(self._per_minute * self._pace_share))
        if priority in OPTIONAL_PRIORITIES:
            room = max(1, room - round(room * _MINUTE_RESERVE_SHARE))
        over = len(self._recent_ops) - room
        return now if over < 0 else max(now, self._recent_ops[over] + _MINUTE_SECONDS)

    def _account_ready_at(self, priority: OpPriority, now: float) -> float:
        """Say when it is our turn; what must be shown takes its place in line when it goes."""
        if self._account is None or priority not in OPTIONAL_PRIORITIES:
            return now
        turn = self._assigned_turns.get(priority)
        if turn is not None and now < turn:
            return turn
        if self._account.allows(priority, now, is_turn=turn is not None):
            return now
        self._assigned_turns[priority] = self._account.assign_turn(priority, now)
        return self._assigned_turns[priority]

    def _ceiling(self) -> float:
        return max(1.0, self._burst * self._pace_share)

    def _reserve(self, priority: OpPriority) -> float:
        """How much must be left over for what matters more."""
        ceiling = self._ceiling()
        final = 1.0 if ceiling >= _MIN_CEILING_FOR_THREE else 0.0
        match priority:
            case OpPriority.URGENT:
                return 0.0
            case OpPriority.FINAL:
                return final
            case OpPriority.COSMETIC:
                return min(ceiling - 1.0, final + max(1.0, ceiling // 4))
            case OpPriority.TRIVIAL:
                return min(ceiling - 1.0, final + 2 * max(1.0, ceiling // 4))
