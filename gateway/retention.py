"""Takes out of the store what is not to be kept: deleted sessions, and old ones where configured."""

import logging
from collections.abc import Awaitable, Callable

from gateway.http.api import answers
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import CommandContext, ConversationState, DeleteSession, Event
from sessions.errors import StoreError
from sessions.records import SessionReason
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.steady_clock import SteadyClock

log = logging.getLogger(__name__)

OPERATOR = "console:owner"
_DAY_MS = 86_400_000


class Retention:
    """Asks the owner of a conversation before a session of it goes, so that none is taken in use."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        send_event: Callable[[str, Event], Awaitable[ConversationState]],
        keep_days: Callable[[], int | None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._send_event = send_event
        self._keep_days = keep_days
        self._steady_clock = SteadyClock(clock)  # a clock that is set ahead must delete nothing

    async def erase_text(self, session_id: str) -> None:
        """Take all words out of a session that was deleted just now."""
        try:
            await self._store.data_removal.clear_sessions(session_id, now=self._clock.now())
        except StoreError as error:  # the next round does it
            log.warning("the words of %s are still there: %s", session_id, error)

    async def run_once(self) -> None:
        """Do all that there is to do; raises `StoreError`, and then the next round goes on."""
        forgetting, now = self._store.data_removal, self._clock.now()
        before: tuple[str, ...] = ()
        while (found := await forgetting.uncleared_sessions()) and found != before:
            await forgetting.clear_sessions(*found, now=now)
            before = found
        if days := self._keep_days():
            await self._delete_expired(self._steady_clock.now() - days * _DAY_MS, now)
        await forgetting.delete_orphaned_values(answers.DELETED_ANSWERS)
        await forgetting.release_free_pages()

    async def _delete_expired(self, before: int, now: int) -> None:
        forgetting = self._store.data_removal
        gone = 0
        while found := await forgetting.idle_sessions(before):
            ids = [
                each.id
                for each in found
                if await self._close_session(each.key, each.address, each.id)
            ]
            if not ids:
                break
            await forgetting.delete_sessions(*ids, now=now)
            gone += len(ids)
        rows = await forgetting.delete_older_than(before, now)
        if gone or rows:
            log.info("older than sessions.keep_days: %d sessions and %d rows deleted", gone, rows)

    async def _close_session(self, key: str, address: str, session_id: str) -> bool:
        """Have a session closed for good, unless somebody has just begun to use it again."""
        by = CommandContext(address=address, person=OPERATOR, admin=True)
        try:
            await self._send_event(key, DeleteSession(by, session_id, if_idle=True))
        except EventNotHandled as error:
            log.warning("%s could not be deleted: %s", session_id, error)
            return False
        session = await self._store.sessions.get(session_id)
        return session is not None and session.reason is SessionReason.DELETED
