"""Removal of deleted sessions, and of sessions older than `sessions.keep_days`."""

import logging
from collections.abc import Awaitable, Callable

from gateway.http.api import answers
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import CommandContext, ConversationState, DeleteSession, Event
from sessions.errors import StoreError
from sessions.records import SessionReason
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import Clock
from sessions.values.steady_clock import SteadyClock
from sessions.values.text import count_of

log = logging.getLogger(__name__)

_OPERATOR = "console:owner"
_DAY_MS = 86_400_000
_SHELF, _CHECKPOINTS_DELETED = "retention", "checkpoints_deleted"


class Retention:
    """Deletes sessions through their conversation's actor, so that a session in use is kept."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        send_event: Callable[[str, Event], Awaitable[ConversationState]],
        keep_days: Callable[[], int | None],
        forget_choice: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._send_event = send_event
        self._keep_days = keep_days
        self._forget_choice = forget_choice  # of a conversation without sessions
        self._steady_clock = SteadyClock(clock)  # a clock set ahead must not delete sessions

    async def erase_text(self, session_id: str) -> None:
        """Erase the text of a deleted session; after a failure `run_once` does it."""
        try:
            await self._store.data_removal.clear_sessions(session_id, now=self._clock.now())
        except StoreError as error:
            log.warning("session %s: text not erased yet: %s", session_id, error)

    async def run_once(self) -> None:
        """Erase and delete everything that is due; raises `StoreError`, and the next run continues."""
        removal, now = self._store.data_removal, self._clock.now()
        before: tuple[str, ...] = ()
        while (uncleared := await removal.uncleared_sessions()) and uncleared != before:
            await removal.clear_sessions(*uncleared, now=now)
            before = uncleared
        if days := self._keep_days():
            await self._delete_expired(self._steady_clock.now() - days * _DAY_MS, now)
        await self._delete_old_checkpoints()
        await removal.delete_orphaned_values(answers.DELETED_ANSWERS)
        await removal.release_free_pages()

    async def _delete_old_checkpoints(self) -> None:
        """Delete checkpoints of ended turns, once: a turn now deletes its own when it ends."""
        if await self._store.get_value(_SHELF, _CHECKPOINTS_DELETED) is None:
            if count := await self._store.data_removal.delete_checkpoints():
                log.info("checkpoints deleted of %s", count_of(count, "ended turn"))
            await self._store.put_value(_SHELF, _CHECKPOINTS_DELETED, str(self._clock.now()))

    async def _delete_expired(self, before: int, now: int) -> None:
        removal = self._store.data_removal
        deleted = 0
        while idle := await removal.idle_sessions(before):
            ids = [
                session.id
                for session in idle
                if await self._close_session(session.key, session.address, session.id)
            ]
            if not ids:
                break
            await removal.delete_sessions(*ids, now=now)
            for key in {session.key for session in idle}:
                if not await self._store.sessions.list(key=key, limit=1):
                    await self._forget_choice(key)
            deleted += len(ids)
        rows = await removal.delete_older_than(before, now)
        if deleted or rows:
            counts = count_of(deleted, "session"), count_of(rows, "row")
            log.info("sessions.keep_days: %s and %s deleted", *counts)

    async def _close_session(self, key: str, address: Address, session_id: str) -> bool:
        """Close a session permanently; False if it is in use again or cannot be closed."""
        by = CommandContext(address=address, person=_OPERATOR, admin=True)
        try:
            await self._send_event(key, DeleteSession(by, session_id, if_idle=True))
        except EventNotHandled as error:
            log.warning("session %s not deleted: %s", session_id, error)
            return False
        session = await self._store.sessions.get(session_id)
        return session is not None and session.reason is SessionReason.DELETED
