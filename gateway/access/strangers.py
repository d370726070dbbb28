"""Sans-IO: bounds on the notices that people without access cause.

Anybody can write to a bot, from any number of accounts. Therefore each person counts at most once a
day for the admins, all of them together cause one notice an hour, and replies to them are limited.
"""

from collections import OrderedDict, deque

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MINUTE_MS = 60_000

MAX_REPLIES_PER_PERSON = 5
"""Replies to one person within an hour."""

MAX_REPLIES_PER_CODE = 3
"""Replies to one person about codes after each wrong code; each wrong code delays the next try."""

MAX_REPLIES_TOGETHER = 30
"""Replies to all people without access within a minute."""

_MAX_PEOPLE = 10_000
"""People who are remembered; the earliest are forgotten first."""


class StrangerBounds:
    """Remembers what recent strangers caused; a restart forgets it."""

    def __init__(self) -> None:
        self._counted: OrderedDict[str, int] = OrderedDict()  # time of each person's last count
        self._notified_at = -_HOUR_MS  # time of the last notice to the admins
        self._uncounted = 0  # people of whom the admins do not know yet
        self._replies: OrderedDict[str, deque[int]] = OrderedDict()
        self._code_replies: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Number of each person's wrong codes, and of the replies since the last one."""
        self._all_replies: deque[int] = deque()

    def try_notify(self, principal: str, now: int) -> bool:
        """Return True if the admins get a notice about this person now.

        A person who comes within an hour of the last notice is counted for the digest instead, and
        not again on the same day.
        """
        if now - self._counted.get(principal, now - _DAY_MS) < _DAY_MS:
            return False
        self._counted[principal] = now
        self._counted.move_to_end(principal)
        if len(self._counted) > _MAX_PEOPLE:
            self._counted.popitem(last=False)
        if self._uncounted or now - self._notified_at < _HOUR_MS:
            self._uncounted += 1
            return False
        self._notified_at = now
        return True

    def take_digest(self, now: int) -> int:
        """Return the number of people for a digest that is due, or 0; the count starts again."""
        if not self._uncounted or now - self._notified_at < _HOUR_MS:
            return 0
        count, self._uncounted, self._notified_at = self._uncounted, 0, now
        return count

    def try_reply(self, principal: str, now: int) -> bool:
        """Count a reply to a person; return False, without counting, beyond a limit."""
        own = self._replies.setdefault(principal, deque())
        self._replies.move_to_end(principal)
        if len(self._replies) > _MAX_PEOPLE:
            self._replies.popitem(last=False)
        _drop_before(own, now - _HOUR_MS)
        if len(own) >= MAX_REPLIES_PER_PERSON or not self._try_reply_to_anyone(now):
            return False
        own.append(now)
        return True

    def try_reply_to_code(self, principal: str, wrong_codes: int, now: int) -> bool:
        """Count a reply to a person who has sent a code, which is wrong or comes too early.

        Apart from the other replies, because the delays already limit the number of wrong codes,
        and a person with the right code must learn how long to wait.
        """
        known, replies = self._code_replies.get(principal, (wrong_codes, 0))
        replies = replies if known == wrong_codes else 0
        if replies >= MAX_REPLIES_PER_CODE or not self._try_reply_to_anyone(now):
            return False
        self._code_replies[principal] = wrong_codes, replies + 1
        self._code_replies.move_to_end(principal)
        if len(self._code_replies) > _MAX_PEOPLE:
            self._code_replies.popitem(last=False)
        return True

    def _try_reply_to_anyone(self, now: int) -> bool:
        _drop_before(self._all_replies, now - _MINUTE_MS)
        if len(self._all_replies) >= MAX_REPLIES_TOGETHER:
            return False
        self._all_replies.append(now)
        return True


def _drop_before(moments: deque[int], oldest: int) -> None:
    """Remove the moments up to `oldest`."""
    while moments and moments[0] <= oldest:
        moments.popleft()
