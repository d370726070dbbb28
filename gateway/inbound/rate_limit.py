"""Sans-IO: limits the messages per person and minute, and the notices about refused ones."""

from collections import OrderedDict
from collections.abc import Mapping

_MAX_PEOPLE = 10_000
_MINUTE_MS = 60_000


class MessageRateLimit:
    """Counts each person's messages of the last minute, for the most recent people only."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, list[int]] = OrderedDict()

    def try_acquire(self, person: str, limit: int, now: int) -> bool:
        """Count a message; return False, without counting, beyond the limit."""
        return self.try_acquire_all({person: limit}, now) is None

    def try_acquire_all(self, limits: Mapping[str, int], now: int) -> str | None:
        """Count a message for several people or keys at once.

        If one is at the limit, return its name and count the message for none.
        """
        recent = {
            name: [at for at in self._recent.get(name, []) if now - at < _MINUTE_MS]
            for name in limits
        }
        full = next((name for name, limit in limits.items() if len(recent[name]) >= limit), None)
        for name, moments in recent.items():
            if full is None:
                moments.append(now)
            self._recent[name] = moments
            self._recent.move_to_end(name)
        while len(self._recent) > _MAX_PEOPLE:
            self._recent.popitem(last=False)
        return full


class RefusalNotices:
    """Remembers who was told of a refused message, so that each is told once a minute."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, ...], int] = OrderedDict()  # by chat, person and reason

    def try_notify(self, chat: str, person: str, reason: str, now: int) -> bool:
        """Return True if this person is to be told in this chat; the minute then starts again."""
        key = (chat, person, reason)
        told = self._told.get(key)
        if told is not None and 0 <= now - told < _MINUTE_MS:
            return False
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > _MAX_PEOPLE:
            self._told.popitem(last=False)
        return True
