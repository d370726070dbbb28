"""`CommandJobs`: slow commands, each in its own task, so that other messages are not delayed.

The stored command is closed in the same commit as its answer; after a crash the next process runs
the command again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

from gateway.commands.contract import CommandCall, ReplyLater
from gateway.delivery.outbox import Delivery
from gateway.notices.compose import NoticeComposer
from sessions.changes import Change, PutItem, SetInbox
from sessions.errors import StoreError
from sessions.records import InboxState, OutboxItem
from sessions.values.clock import Clock
from sessions.values.ids import unique_part
from sessions.values.item_ids import side_answer_id
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

_Job = Callable[[], Coroutine[Any, Any, None]]


class CommandJobs:
    """Running slow commands, and the answers that close them."""

    def __init__(
        self,
        clock: Clock,
        announcer: NoticeComposer,
        delivery: Delivery,
        tasks: asyncio.TaskGroup,
        *,
        has_access: Callable[[CommandCall], Awaitable[bool]],
    ) -> None:
        self._clock = clock
        self._announcer = announcer
        self._delivery = delivery
        self._tasks = tasks
        self._has_access = has_access  # of the person who sent the command, as of now
        self._running: dict[asyncio.Task[None], tuple[str, str]] = {}  # command word and key
        self._deadlines: dict[asyncio.Timeout, CommandCall] = {}
        self._closed = False

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel all jobs at the end of the block; the next process runs their commands again."""
        try:
            yield
        finally:
            self._closed = True
            for task in self._running:
                task.cancel()

    def start(self, word: str, call: CommandCall, job: _Job) -> ReplyLater:
        """Run a job in its own task, unless the process is stopping; then the next one runs it."""
        if self._closed:
            return ReplyLater()
        task = start_task(self._tasks, self._run(word, call, job), name=f"{word} {call.key}")
        if task:
            self._running[task] = word, call.key
            task.add_done_callback(self._running.pop)
        return ReplyLater()

    @contextlib.asynccontextmanager
    async def deadline(self, call: CommandCall, seconds: float) -> AsyncIterator[None]:
        """Limit the time of a block; it ends at once if the person loses access.

        Raises `TimeoutError` in both cases. Then costs can be recorded, and `commit` sends no
        answer to a person without access.
        """
        async with asyncio.timeout(seconds) as limit:
            self._deadlines[limit] = call
            try:
                yield
            finally:
                del self._deadlines[limit]

    async def end_without_access(self) -> None:
        """End the work for people who no longer have access."""
        for limit, call in tuple(self._deadlines.items()):
            if not await self._has_access(call) and limit in self._deadlines:
                log.info("%s: no access any more: %s", call.key, call.principal)
                limit.reschedule(asyncio.get_running_loop().time())

    def count_running(self, word: str, key: str) -> int:
        """Return the number of running jobs of a command in a conversation."""
        return list(self._running.values()).count((word, key))

    async def _run(self, word: str, call: CommandCall, job: _Job) -> None:
        typing = self._delivery.start_live(
            self.compose(call, NoticeId.PLAIN_TEXT, {"text": ""})
        )  # typing indicator
        try:
            await job()
        except Exception:
            log.exception("%s: /%s failed", call.key, word)
            try:
                await self.answer(call, NoticeId.NOT_NOW, {})
            except StoreError as error:
                log.warning("%s: /%s will run again at the next start: %s", call.key, word, error)
        finally:
            typing.drop()

    # --- answers --------------------------------------------------------------------------------

    async def answer(
        self, call: CommandCall, notice: NoticeId, fields: NoticeFields, *changes: Change
    ) -> None:
        """Commit a notice as the answer of a command, together with other changes."""
        await self.commit(call, self.compose(call, notice, fields), *changes)

    async def commit(self, call: CommandCall, item: OutboxItem, *changes: Change) -> None:
        """Commit the answer and close its command together: it is neither lost nor sent twice.

        A person who lost access meanwhile gets no answer.
        """
        allowed = await self._has_access(call)
        state = InboxState.DONE if allowed else InboxState.IGNORED
        done = SetInbox(ids=(call.context.inbox,), state=state, at=self._clock.now())
        await self._delivery.put(*changes, done, *([PutItem(item)] if allowed else []))

    def compose(self, call: CommandCall, notice: NoticeId, fields: NoticeFields) -> OutboxItem:
        """Return the item of the answer, under the same id in every process."""
        return self._announcer.notice_item(
            notice, call.context.address, fields, name=_item_id(call)
        )


def _item_id(call: CommandCall) -> str:
    return side_answer_id(call.context.origin or unique_part(call.context.inbox))
