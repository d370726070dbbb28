"""Tells the admins what only they can mend: a key that is refused, an empty account, an outage."""

from collections.abc import Callable, Iterable

from gateway.announcer import Announcer
from gateway.delivery.view import write_address
from platforms.core.contract import Address, Capabilities
from sessions.changes import Change, PutItem
from sessions.values.clock import Clock

_AGAIN_AFTER = 3600.0
"""Seconds for which the same trouble is not told again."""

_MOST_REMEMBERED = 100


class Operators:
    """Writes to the admins; whoever asks commits what is to be shown."""

    def __init__(
        self,
        admins: Callable[[], Iterable[str]],
        announcer: Announcer,
        clock: Clock,
        capabilities: Callable[[Address], Capabilities | None],
    ) -> None:
        self._admins = admins
        self._announcer = announcer
        self._clock = clock
        self._capabilities = capabilities
        self._told: dict[str, float] = {}

    def tell(self, cause: str, person: str) -> tuple[Change, ...]:
        """What the admins besides this person are to be shown; empty when there are none.

        When they were told of the same a little while ago, it is not said again: then nobody may
        claim either that they were told just now.
        """
        now, kind = self._clock.monotonic(), cause.partition(" (")[0]  # a service words it anew
        if now - self._told.get(kind, -_AGAIN_AFTER) < _AGAIN_AFTER:
            return ()
        shown = tuple(
            PutItem(self._announcer.item("operator", write_address(address), {"cause": cause}))
            for address in self._addresses(person)
        )
        if shown:
            if len(self._told) >= _MOST_REMEMBERED:
                self._told.clear()
            self._told[kind] = now
        return shown

    def _addresses(self, person: str) -> Iterable[Address]:
        for admin in self._admins():
            platform, _, chat = admin.partition(":")
            address = Address(platform=platform, chat=chat)
            if admin != person and self._capabilities(address):
                yield address
