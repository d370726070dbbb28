"""Sans-IO: how many messages a person may send in a minute."""

from collections import OrderedDict

_MAX_PEOPLE = 10_000
MINUTE_MS = 60_000


class MessageRateLimit:
    """Counts each person's messages over the last minute; keeps no more than it needs."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, list[int]] = OrderedDict()

    def try_acquire(self, person: str, limit: int, now: int) -> bool:
        """Count one message of a person; False when it is over the limit (then it is not counted)."""
        recent = [at for at in self._recent.get(person, []) if now - at < MINUTE_MS]
        allowed = len(recent) < limit
        if allowed:
            recent.append(now)
        self._recent[person] = recent
        self._recent.move_to_end(person)
        if len(self._recent) > _MAX_PEOPLE:
            self._recent.popitem(last=False)
        return allowed
