"""Sans-IO: the send budgets of a chat and of an account.

Every op counts against both. A platform's 429 shrinks the chat's budget, which recovers slowly. An
urgent op waits for the platform's Retry-After and the documented limits of its chat, but neither for
the smaller budget after a 429 nor for the ops of other chats. All times are seconds of one monotonic
clock.
"""

import enum
from collections import deque

_MIN_SHARE = 1 / 16
_RECOVERY_SECONDS = 600.0  # from zero back to the documented pace
_MIN_CEILING_FOR_THREE = 3.0  # smaller budgets reserve nothing for urgent ops
_MIN_CEILING_FOR_TWO = 2.0
_OPS_AFTER_429 = 2.0  # a final and an urgent op may go right after a Retry-After
_ROUNDING_ERROR = 1e-9

_MINUTE_SECONDS = 61.0  # one more second, because requests may be delayed on their way
_MINUTE_RESERVE_SHARE = 0.1  # of a chat's ops per minute, reserved for final ops
_ACCOUNT_RESERVE_SHARE = 0.4  # of an account's burst, reserved for final ops
_AFTER_LIVE_SECONDS = 0.7  # pause of final ops after a live update
_MAX_LIVE_DELAY_SECONDS = 5.0  # longest pause of live updates after a rush of final ops
_MAX_RECHECK_SECONDS = 5.0  # longest wait for a turn, since earlier chats may not need theirs


class OpPriority(enum.Enum):
    """Priority of an op; lower priorities leave a part of the budget to higher ones."""

    URGENT = enum.auto()  # the answer to /stop
    FINAL = enum.auto()  # required, may wait
    COSMETIC = enum.auto()  # optional: live updates, drafts
    TRIVIAL = enum.auto()  # no part of an answer: typing, reactions


OPTIONAL_PRIORITIES = {OpPriority.COSMETIC, OpPriority.TRIVIAL}


class AccountBudget:
    """Budget shared by all chats of an account; live updates never exceed the budget.

    Final ops are counted and wait only briefly, so that they and live updates do not exceed the
    limit together. Many answers at once are no reason to delay them while the platform accepts
    them. After a 429 all ops queue first come, first served for a while; urgent ops queue only among
    themselves.

    Optional ops go only while no op is queued, and trivial ops only while the budget is full. An op
    without budget gets a turn of its own to ask again, so that chats alternate and do not all ask
    at once.
    """

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._op_seconds = 1.0 / per_second
        self._burst = burst
        self._free_at = now - burst * self._op_seconds  # the queue drains from this time
        self._last_live_at = now - _AFTER_LIVE_SECONDS  # time of the last optional op
        self._strict_until = now
        self._urgent_free_at = self._free_at  # the queue of urgent ops drains from this time
        # Time of the last turn given out.
        self._assigned_until = {OpPriority.COSMETIC: now, OpPriority.TRIVIAL: now}

    def allows(self, priority: OpPriority, now: float, *, is_turn: bool) -> bool:
        """Return True if an optional op may go now; `is_turn` if its assigned turn has come."""
        kept = max(1.0, self._burst * _ACCOUNT_RESERVE_SHARE)
        first = is_turn or self._assigned_until[priority] <= now
        if priority is OpPriority.TRIVIAL:
            kept = max(kept, self._burst - 1.0)  # the whole burst: no other op went out lately
        return first and self._free_at + (kept + 1.0) * self._op_seconds <= now + _ROUNDING_ERROR

    def assign_turn(self, priority: OpPriority, now: float) -> float:
        """Assign the time at which an optional op may ask again."""
        before = max(now, min(self._assigned_until[priority], now + _MAX_RECHECK_SECONDS))
        self._assigned_until[priority] = before + self._op_seconds
        return self._assigned_until[priority]

    def take(self, priority: OpPriority, now: float) -> float:
        """Count an op; return the send time: now, or after the ops queued before it."""
        self._free_at = self._after_op(self._free_at, now)
        if priority is OpPriority.URGENT:
            self._urgent_free_at = self._after_op(self._urgent_free_at, now)
            return max(now, self._urgent_free_at) if now < self._strict_until else now
        send_at = max(now, self._free_at)
        if priority in OPTIONAL_PRIORITIES:
            self._last_live_at = now
        elif now >= self._strict_until:
            self._free_at = min(self._free_at, now + _MAX_LIVE_DELAY_SECONDS)
            return min(send_at, max(now, self._last_live_at + _AFTER_LIVE_SECONDS))
        return send_at

    def on_rate_limited(self, now: float) -> None:
        """Enforce the documented rate strictly for a while after a 429."""
        self._strict_until = now + _RECOVERY_SECONDS

    def _after_op(self, free_at: float, now: float) -> float:
        """Return the time from which a queue drains after one more op."""
        return max(free_at, now - self._burst * self._op_seconds) + self._op_seconds


class Pace:
    """Budget of one chat: `burst` ops at once, refilled at `per_second`.

    With `per_minute`, no minute has more ops than that.
    """

    __slots__ = (
        "_account",
        "_assigned_turns",
        "_blocked_until",
        "_burst",
        "_documented_ops",
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
        self._assigned_turns: dict[OpPriority, float] = {}  # turns given by the account
        self._recent_ops: deque[float] | None = deque() if per_minute else None
        self._pace_share = 1.0  # share of the documented pace, reduced by 429s
        self._remaining_ops = self._burst
        self._documented_ops = self._burst  # remaining without the reduction by 429s
        self._refilled_at = now
        self._blocked_until = now

    @property
    def blocked_until(self) -> float:
        """End of the platform's Retry-After."""
        return self._blocked_until

    def ready_at(self, priority: OpPriority, now: float) -> float:
        """Return when an op may go: now, or the time to ask again."""
        self._refill(now)
        if now < self._blocked_until:
            return self._blocked_until
        if priority is OpPriority.URGENT:
            missing, per_second = 1.0 - self._documented_ops, self._per_second
        else:
            missing = 1.0 + self._reserve(priority) - self._remaining_ops
            per_second = self._per_second * self._pace_share
        if missing > _ROUNDING_ERROR:
            return now + missing / per_second
        if (at := self._minute_ready_at(priority, now)) > now:
            return at
        return self._account_ready_at(priority, now)

    def is_tight(self, now: float) -> bool:
        """Return True if the budget is so small that any op delays the next one."""
        self._refill(now)
        return self._ceiling() < _MIN_CEILING_FOR_TWO

    def take(self, now: float, priority: OpPriority = OpPriority.FINAL) -> float:
        """Count an op; return the send time among the ops of all chats."""
        self._refill(now)
        self._remaining_ops -= 1.0
        self._documented_ops -= 1.0
        if self._recent_ops is not None:
            self._recent_ops.append(now)
        self._assigned_turns = {
            weight: turn for weight, turn in self._assigned_turns.items() if turn > now
        }
        return self._account.take(priority, now) if self._account else now

    def block(self, until: float) -> None:
        """Send nothing before `until`, as requested by Retry-After."""
        self._blocked_until = max(self._blocked_until, until)

    def on_rate_limited(self, now: float, retry_after: float) -> None:
        """Halve the budget after a 429."""
        self._refill(now)
        self._pace_share = max(self._pace_share / 2, _MIN_SHARE)
        # One final op may go right after the wait; the rest of the budget refills.
        self._remaining_ops = min(self._remaining_ops, 1.0 + self._reserve(OpPriority.FINAL))
        self._documented_ops = min(self._documented_ops, _OPS_AFTER_429)
        self.block(now + retry_after)
        if self._account:
            self._account.on_rate_limited(now)

    def is_rested(self, now: float) -> bool:
        """Return True if a new budget would be equivalent, so that this one can be forgotten."""
        self._refill(now)
        quiet = not self._recent_ops and now >= self._blocked_until
        return self._pace_share >= 1.0 and self._remaining_ops >= self._burst and quiet

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._refilled_at)
        self._refilled_at = max(now, self._refilled_at)
        grown = passed * self._per_second * self._pace_share
        self._pace_share = min(1.0, self._pace_share + passed / _RECOVERY_SECONDS)
        self._remaining_ops = min(self._ceiling(), self._remaining_ops + grown)
        documented = self._documented_ops + passed * self._per_second
        self._documented_ops = min(self._burst, documented)
        while self._recent_ops and self._recent_ops[0] <= now - _MINUTE_SECONDS:
            self._recent_ops.popleft()

    def _minute_ready_at(self, priority: OpPriority, now: float) -> float:
        """Return when the per-minute limit allows another op."""
        if self._recent_ops is None:
            return now
        if priority is OpPriority.URGENT:
            room = self._per_minute
        else:
            room = max(1, int(self._per_minute * self._pace_share))
            room -= room >= _MIN_CEILING_FOR_THREE  # one op is reserved for urgent ones
        if priority in OPTIONAL_PRIORITIES:
            room = max(1, room - round(room * _MINUTE_RESERVE_SHARE))
        over = len(self._recent_ops) - room
        return now if over < 0 else max(now, self._recent_ops[over] + _MINUTE_SECONDS)

    def _account_ready_at(self, priority: OpPriority, now: float) -> float:
        """Return when an optional op may run; final ops queue in `take` instead."""
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
        """Return the part of the budget reserved for higher priorities."""
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
