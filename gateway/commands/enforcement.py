"""`AccessEnforcement`: stops the work of people who lost access."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from gateway.inbound.reader import read_event
from sessions.conversation.actor import EventNotHandled
from sessions.conversation.events import AccessLost
from sessions.conversation.pool import SessionPool
from sessions.errors import StoreError
from sessions.records import Approval, InboxEntry
from sessions.store.store import SessionStore
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0
"""Longest time for which a caller waits; the rest is done in the background."""
_CONVERSATION_SECONDS = 5.0
"""Longest wait for conversations before open questions are closed."""
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0


class AccessEnforcement:
    """Applies the present access to running turns, queued messages and open questions.

    Access is decided again for stored messages, because only the sender of a message has the
    memberships that groups and roles need.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        pool: SessionPool,
        has_access: Callable[[InboxEntry], bool],
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
        pause = _FIRST_RETRY_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_RETRY_SECONDS)
            if await self._enforce():
                log.info("the work of people without access is stopped")
                return

    async def _enforce(self) -> bool:
        """Check all work once; return True if none is left to stop."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                lost = await self._find_lost()
                started = [self._stop_work(key, frozenset(who)) for key, who in lost.items()]
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

    async def _find_lost(self) -> dict[str, set[str]]:
        """Return the people with work but without access, by conversation."""
        # Waiting messages first: one that starts now is found as a running turn.
        newest: dict[tuple[str, str], InboxEntry | None] = {}
        for entry in await self._store.inbox.unanswered():
            if sender := _sender(entry):
                newest[entry.key, sender] = entry
        for turn in await self._store.turns.running():
            if (turn.key, turn.person) not in newest:
                newest[turn.key, turn.person] = await self._newest_message(turn.id)
        lost: dict[str, set[str]] = {}
        for (key, person), message in newest.items():
            if message is None or not self._has_access(message):
                lost.setdefault(key, set()).add(person)
        return lost

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
            entry = await self._newest_message(question.turn_id)
            if entry is None or not self._has_access(entry):
                await self._close_question(question)

    async def _newest_message(self, turn_id: str) -> InboxEntry | None:
        entries = await self._store.inbox.of_request(turn_id)
        return entries[-1] if entries else None


def _sender(entry: InboxEntry) -> str:
    """Return the sender; empty for a damaged message, which its conversation reports."""
    try:
        event = read_event(entry)
    except msgspec.DecodeError:
        return ""
    return f"{event.address.platform}:{event.sender.id}"
