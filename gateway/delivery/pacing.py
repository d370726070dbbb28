"""Sans-IO: when a chat may take another op.

Every op of a chat draws on one budget, and all chats of an account on another one. A platform's 429
makes the chat's budget smaller, and it comes back slowly. Moments are seconds of one monotonic clock.
"""

import enum
from collections import deque

_SMALLEST_SHARE = 1 / 16
_RECOVERY_SECONDS = 600.0  # from nothing to the documented pace
_SHARED_BY_THREE = 3.0  # a smaller budget has no room to set some of it aside for urgent ops
_SHARED_BY_TWO = 2.0
_ROUNDING = 1e-9

_MINUTE = 61.0  # seconds; a little more, for what is delayed on its way
_KEPT_IN_A_MINUTE = 0.1  # of a chat's minute, for what must be shown
_KEPT_OF_ALL = 0.4  # of what an account takes at once, for the same
_AFTER_LIVE = 0.7  # seconds for which final ops make way for live updates that were just shown
_LONGEST_LINE = 5.0  # seconds that live updates make way at most after all has been said
_ASKS_AGAIN = 5.0  # seconds after which at most; those before it may have no more to show


class Weight(enum.Enum):
    """How much an op matters: what matters less leaves room for what matters more."""

    URGENT = enum.auto()  # the answer to /stop
    FINAL = enum.auto()  # must be shown, can wait
    COSMETIC = enum.auto()  # can be left out: live updates, drafts
    TRIFLE = enum.auto()  # says nothing of an answer: typing, signs


CAN_BE_LEFT_OUT = {Weight.COSMETIC, Weight.TRIFLE}


class Account:
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
        self._each = 1.0 / per_second  # seconds
        self._burst = burst
        self._free_at = now - burst * self._each  # the line moves on since then
        self._live_at = now - _AFTER_LIVE  # when something was shown that could have been left out
        self._strict_until = now
        # Up to when moments are given away.
        self._turns = {Weight.COSMETIC: now, Weight.TRIFLE: now}

    def allows(self, weight: Weight, now: float, *, called: bool) -> bool:
        """Tell whether something that can be left out may go now; `called` when it is its turn."""
        kept = max(1.0, self._burst * _KEPT_OF_ALL)
        first = called or self._turns[weight] <= now
        if weight is Weight.TRIFLE:
            kept = max(kept, self._burst - 1.0)  # all of it: nothing else has been shown lately
        return first and self._free_at + (kept + 1.0) * self._each <= now + _ROUNDING

    def turn(self, weight: Weight, now: float) -> float:
        """Give away a moment at which something that can be left out may ask again."""
        before = max(now, min(self._turns[weight], now + _ASKS_AGAIN))
        self._turns[weight] = before + self._each
        return self._turns[weight]

    def take(self, weight: Weight, now: float) -> float:
        """Count an op, and say when it goes: at once, or when those before it have gone."""
        self._free_at = max(self._free_at, now - self._burst * self._each) + self._each
        place = max(now, self._free_at)
        if weight in CAN_BE_LEFT_OUT:
            self._live_at = now
        elif now >= self._strict_until:
            self._free_at = min(self._free_at, now + _LONGEST_LINE)
            return min(place, max(now, self._live_at + _AFTER_LIVE))
        return place

    def limited(self, now: float) -> None:
        """Learn from a 429: the documented pace is meant."""
        self._strict_until = now + _RECOVERY_SECONDS


class Pace:
    """The budget of one chat: `burst` ops at once, growing back by `per_second`.

    Never more than `per_minute` of them in any minute, if there is such a limit.
    """

    __slots__ = (
        "_account",
        "_at",
        "_blocked_until",
        "_burst",
        "_lately",
        "_left",
        "_per_minute",
        "_per_second",
        "_share",
        "_turns",
    )

    def __init__(
        self,
        burst: int,
        per_second: float,
        now: float,
        *,
        per_minute: int = 0,
        account: Account | None = None,
    ) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._per_minute = per_minute
        self._account = account
        self._turns: dict[Weight, float] = {}  # our moments in the account's lines
        self._lately: deque[float] | None = deque() if per_minute else None  # ops of it
        self._share = 1.0  # of the documented pace, learnt from 429s
        self._left = self._burst
        self._at = now
        self._blocked_until = now

    @property
    def blocked_until(self) -> float:
        """When the platform's own Retry-After ends."""
        return self._blocked_until

    def ready_at(self, weight: Weight, now: float) -> float:
        """Say when an op may go; now, or a later moment at which to ask again."""
        self._refill(now)
        if now < self._blocked_until:
            return self._blocked_until
        missing = 1.0 + self._reserve(weight) - self._left
        if missing > _ROUNDING:
            return now + missing / (self._per_second * self._share)
        if (at := self._minute_ready_at(weight, now)) > now:
            return at
        return self._account_ready_at(weight, now)

    def tight(self, now: float) -> bool:
        """Tell whether the budget is so small that any op makes the next one wait."""
        self._refill(now)
        return self._ceiling() < _SHARED_BY_TWO

    def take(self, now: float, weight: Weight = Weight.FINAL) -> float:
        """Count an op, and say when it goes: now, or when it is its turn among all chats'."""
        self._refill(now)
        self._left -= 1.0
        if self._lately is not None:
            self._lately.append(now)
        self._turns = {weight: turn for weight, turn in self._turns.items() if turn > now}
        return self._account.take(weight, now) if self._account else now

    def block(self, until: float) -> None:
        """Wait out a platform's Retry-After."""
        self._blocked_until = max(self._blocked_until, until)

    def limited(self, now: float, retry_after: float) -> None:
        """Learn from a 429: it was too fast, so the budget is cut to half."""
        self._refill(now)
        self._share = max(self._share / 2, _SMALLEST_SHARE)
        # A final op may go right at the end of the wait; the rest grows back.
        self._left = min(self._left, 1.0 + self._reserve(Weight.FINAL))
        self.block(now + retry_after)
        if self._account:
            self._account.limited(now)

    def rested(self, now: float) -> bool:
        """Tell whether nothing is remembered that a new budget would not know."""
        self._refill(now)
        quiet = not self._lately and now >= self._blocked_until
        return self._share >= 1.0 and self._left >= self._burst and quiet

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = max(now, self._at)
        grown = passed * self._per_second * self._share
        self._share = min(1.0, self._share + passed / _RECOVERY_SECONDS)
        self._left = min(self._ceiling(), self._left + grown)
        while self._lately and self._lately[0] <= now - _MINUTE:
            self._lately.popleft()

    def _minute_ready_at(self, weight: Weight, now: float) -> float:
        """Say when the minute has room again."""
        if self._lately is None:
            return now
        room = max(1, int(self._per_minute * self._share))
        if weight in CAN_BE_LEFT_OUT:
            room = max(1, room - round(room * _KEPT_IN_A_MINUTE))
        over = len(self._lately) - room
        return now if over < 0 else max(now, self._lately[over] + _MINUTE)

    def _account_ready_at(self, weight: Weight, now: float) -> float:
        """Say when it is our turn; what must be shown takes its place in line when it goes."""
        if self._account is None or weight not in CAN_BE_LEFT_OUT:
            return now
        turn = self._turns.get(weight)
        if turn is not None and now < turn:
            return turn
        if self._account.allows(weight, now, called=turn is not None):
            return now
        self._turns[weight] = self._account.turn(weight, now)
        return self._turns[weight]

    def _ceiling(self) -> float:
        return max(1.0, self._burst * self._share)

    def _reserve(self, weight: Weight) -> float:
        """How much must be left over for what matters more."""
        ceiling = self._ceiling()
        final = 1.0 if ceiling >= _SHARED_BY_THREE else 0.0
        match weight:
            case Weight.URGENT:
                return 0.0
            case Weight.FINAL:
                return final
            case Weight.COSMETIC:
                return min(ceiling - 1.0, final + max(1.0, ceiling // 4))
            case Weight.TRIFLE:
                return min(ceiling - 1.0, final + 2 * max(1.0, ceiling // 4))
