"""Sans-IO: limits the messages per person and minute."""

from collections import OrderedDict

_MAX_PEOPLE = 10_000
_MINUTE_MS = 60_000


class MessageRateLimit:
    """Counts each person's messages of the last minute, for the most recent people only."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, list[int]] = OrderedDict()

    def try_acquire(self, person: str, limit: int, now: int) -> bool:
        """Count a message; return False, without counting, beyond the limit."""
        recent = [at for at in self._recent.get(person, []) if now - at < _MINUTE_MS]
        allowed = len(recent) < limit
        if allowed:
            recent.append(now)
        self._recent[person] = recent
        self._recent.move_to_end(person)
        if len(self._recent) > _MAX_PEOPLE:
            self._recent.popitem(last=False)
        return allowed
