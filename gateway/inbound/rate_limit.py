"""Sans-IO: limits the messages per person and minute, and the notices about refused ones."""

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
