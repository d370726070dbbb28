"""`AccessEnforcement`: stops the work of people who lost access."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from gateway.commands.lost_access import (
    HasAccess,
    find_people_without_access,
    has_lost_access,
    retry_pauses,
)
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import AccessLost
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import Approval
from sessions.store.store import SessionStore
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0
"""Longest time for which a caller waits; the rest is done in the background."""
_CONVERSATION_SECONDS = 5.0
"""Longest wait for conversations before open questions are closed."""


class AccessEnforcement:
    """Applies the present access to running turns, queued messages and open questions.

    `gateway.commands.lost_access` decides whose work stops.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        pool: SessionPool,
        has_access: HasAccess,
        close_question: Callable[[Approval], Awaitable[None]],
        end_commands: Callable[[], Awaitable[None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._store = store
        self._pool = pool
        self._has_access = has_access
        self._close_question = close_question
        self._tasks = tasks
        self._stopping: dict[tuple[str, frozenset[str]], asyncio.Task[bool]] = {}  # by key, people
        self._retry: asyncio.Task[None] | None = None
        self._end_commands = end_commands  # slow commands of people without access

    async def run(self) -> None:
        """Stop the turns and commands, drop the messages, close the questions without access.

        Whatever fails or takes too long is retried in the background until it is done.
        """
        if not await self._enforce() and (self._retry is None or self._retry.done()):
            self._retry = start_task(self._tasks, self._retry_until_done(), name="enforcement")

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel the background work on exit; the next start repeats the check."""
        try:
            yield
        finally:
            for task in (self._retry, *self._stopping.values()):
                if task:
                    task.cancel()

    async def _retry_until_done(self) -> None:
        for pause in retry_pauses():
            await asyncio.sleep(pause)
            if await self._enforce():
                log.info("the work of people without access is stopped")
                return

    async def _enforce(self) -> bool:
        """Check all work once; return True if none is left to stop."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                lost = await self._find_lost()
                started = [self._stop_work(key, people) for key, people in lost.items()]
                stopped = [task for task in started if task]
                if stopped:  # one slow conversation must not delay the questions of the others
                    await asyncio.wait(stopped, timeout=_CONVERSATION_SECONDS)
                await self._close_questions()
                await self._end_commands()
        except TimeoutError:
            log.warning("stopping the work of people without access takes long; it continues")
            return False
        except StoreError as error:
            log.warning("cannot stop the work of people without access, retrying: %s", error)
            return False
        return all(task and task.done() and task.result() for task in started)

    async def _find_lost(self) -> dict[str, frozenset[str]]:
        """Return the people with work but without access, by conversation."""
        # Waiting messages first: one that starts now is found as a running turn.
        unanswered = await self._store.inbox.unanswered()
        running = [
            (turn, await self._store.inbox.of_request(turn.id))
            for turn in await self._store.turns.running()
        ]
        return find_people_without_access(unanswered, running, self._has_access)

    def _stop_work(self, key: str, people: frozenset[str]) -> asyncio.Task[bool] | None:
        """Start stopping the work in a conversation, unless that is under way.

        Returns None if the process is ending; the next start repeats the check.
        """
        task = self._stopping.get((key, people))
        if task is None:
            task = start_task(self._tasks, self._tell_conversation(key, people))
            if task is None:
                return None
            self._stopping[key, people] = task
            task.add_done_callback(lambda _: self._stopping.pop((key, people), None))
        return task

    async def _tell_conversation(self, key: str, people: frozenset[str]) -> bool:
        log.info("%s: no access any more: %s", key, ", ".join(sorted(people)))
        try:
            await self._pool.ask(key, AccessLost(people))
        except EventNotHandled:
            log.warning("%s: the work of people without access was not stopped, retrying", key)
            return False
        return True

    async def _close_questions(self) -> None:
        for question in await self._store.approvals.open():
            entries = await self._store.inbox.of_request(question.turn_id)
            if has_lost_access(entries, self._has_access):
                await self._close_question(question)
