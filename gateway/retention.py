"""Takes out of the store what is not to be kept: deleted sessions, and old ones where configured."""

import logging
from collections.abc import Awaitable, Callable

from gateway.http.api import answers
from sessions.conversation.actor import Unhandled
from sessions.conversation.events import Command, Delete, Event, State
from sessions.errors import StoreError
from sessions.records import Reason
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.steady_clock import Steady

log = logging.getLogger(__name__)

OPERATOR = "console:owner"
_DAY = 86_400_000


class Retention:
    """Asks the owner of a conversation before a session of it goes, so that none is taken in use."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        owner: Callable[[str, Event], Awaitable[State]],
        keep_days: Callable[[], int | None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._keep_days = keep_days
        self._steady = Steady(clock)  # a clock that is set ahead must delete nothing

    async def words(self, session_id: str) -> None:
        """Take all words out of a session that was deleted just now."""
        try:
            await self._store.forgetting.words(session_id, now=self._clock.now())
        except StoreError as error:  # the next round does it
            log.warning("the words of %s are still there: %s", session_id, error)

    async def round(self) -> None:
        """Do all that there is to do; raises `StoreError`, and then the next round goes on."""
        forgetting, now = self._store.forgetting, self._clock.now()
        before: tuple[str, ...] = ()
        while (found := await forgetting.with_words()) and found != before:
            await forgetting.words(*found, now=now)
            before = found
        if days := self._keep_days():
            await self._old(self._steady.now() - days * _DAY, now)
        await forgetting.notes(answers.SHELF)
        await forgetting.shrink()

    async def _old(self, before: int, now: int) -> None:
        forgetting = self._store.forgetting
        gone = 0
        while found := await forgetting.idle(before):
            ids = [
                each.id for each in found if await self._given_up(each.key, each.address, each.id)
            ]
            if not ids:
                break
            await forgetting.whole(*ids, now=now)
            gone += len(ids)
        rows = await forgetting.old(before, now)
        if gone or rows:
            log.info("older than sessions.keep_days: %d sessions and %d rows deleted", gone, rows)

    async def _given_up(self, key: str, address: str, session_id: str) -> bool:
        """Have a session closed for good, unless somebody has just begun to use it again."""
        by = Command(address, OPERATOR, admin=True)
        try:
            await self._owner(key, Delete(by, session_id, if_idle=True))
        except Unhandled as error:
            log.warning("%s could not be deleted: %s", session_id, error)
            return False
        session = await self._store.session(session_id)
        return session is not None and session.reason is Reason.DELETED
