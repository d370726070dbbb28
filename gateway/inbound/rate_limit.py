"""Sans-IO: how many messages a person may send in a minute."""

from collections import OrderedDict

_REMEMBERED = 10_000
MINUTE = 60_000


class MessageLimit:
    """Counts each person's messages over the last minute; keeps no more than it needs."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, list[int]] = OrderedDict()

    def allows(self, person: str, limit: int, now: int) -> bool:
        """Count one message of a person; False when it is over the limit (then it is not counted)."""
        recent = [at for at in self._seen.get(person, []) if now - at < MINUTE]
        allowed = len(recent) < limit
        if allowed:
            recent.append(now)
        self._seen[person] = recent
        self._seen.move_to_end(person)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return allowed
