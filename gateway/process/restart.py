"""Restarts the gateway: asked for in a chat or by the command line, and told of when it is over.

A restart is a stop after which the process becomes the program that lies on disk now. Whether that
one could start is found out first; until then nothing is interrupted. What is to be told afterwards
is kept in the store, so that it is told whatever dies in between.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import msgspec

from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply, ReplyLater
from gateway.delivery.outbox import Delivery
from gateway.errors import HoldfastError
from gateway.notices.catalogue import NoticeFields
from gateway.notices.compose import NoticeComposer
from gateway.process.health import LifecycleEvents
from gateway.process.restart_report import (
    CompletedRestart,
    InterruptedTurn,
    PendingRestart,
    RestartRequester,
    complete_restart,
    format_duration,
    restart_fields,
)
from gateway.process.successor import Successor
from sessions.changes import PutItem, SetInbox
from sessions.conversation.events import CommandContext
from sessions.errors import StoreError
from sessions.records import InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId

log = logging.getLogger(__name__)

IDLE_MINUTES = 30.0
"""How long a restart waits for the moment in which nothing runs, unless somebody says otherwise."""

_SHELF, _PENDING_KEY, _COMPLETED_KEY = "restart", "asked", "last"


class RestartRefused(HoldfastError):
    """It is not restarted."""


class _IdleRestart(msgspec.Struct, kw_only=True):
    """A restart that waits for the moment in which nothing runs."""

    id: str
    deadline: float
    task: asyncio.Task[None] | None = None
    state: str = "waiting"
    cause: str = ""


class Restarter:
    """One restart at a time."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        announcer: NoticeComposer,
        delivery: Delivery,
        successor: Successor | None,
        lifecycle: LifecycleEvents,
        running_tasks: Callable[[], Sequence[InterruptedTurn]],
        wait_until_idle: Callable[[], Awaitable[None]],
        tasks: asyncio.TaskGroup,
        drain_seconds: Callable[[], float],
        safe_mode: bool,
        resumes_turns: Callable[[], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._announcer = announcer
        self._delivery = delivery
        self._successor = successor  # none where the gateway lives in a terminal
        self._lifecycle = lifecycle
        self._running_tasks = running_tasks
        self._wait_until_idle = wait_until_idle
        self._tasks = tasks
        self._drain_seconds = drain_seconds
        self._safe_mode = safe_mode
        self._resumes_turns = resumes_turns  # what is interrupted goes on by itself
        self._pending: PendingRestart | None = None
        self._completed: CompletedRestart | None = None
        self._idle_restart: _IdleRestart | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end nothing keeps the process."""
        try:
            yield
        finally:
            for task in self._background_tasks:
                task.cancel()

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(coroutine, name="restart")
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    # --- asked in a chat ------------------------------------------------------------------------

    async def request_restart(self, call: CommandCall) -> CommandOutcome:
        """See `gateway.commands.contract.CommandServices`."""
        told = await self._refusal_notice(call)
        if told:
            return told
        # The look at the new program takes a second; nothing that comes in has to wait for it.
        _ = self._start_task(self._check_and_restart(call))
        return ReplyLater()

    async def _check_and_restart(self, call: CommandCall) -> None:
        assert self._successor  # noqa: S101 - looked at by `_not_now`
        cause = await self._successor.find_start_error()
        told = await self._refusal_notice(call)
        if told is None and cause:
            log.warning("not restarted: %s", cause)
            told = NoticeReply(NoticeId.RESTART_REFUSED, {"cause": cause})
        try:
            if told:
                await self._reply(call.context, told.notice, told.fields)
            else:
                await self._restart(call)
        except StoreError as error:
            # The command stays in the store; the next process answers it and restarts no more.
            log.warning("a restart cannot be told of: %s", error)

    async def _refusal_notice(self, call: CommandCall) -> NoticeReply | None:
        """What somebody is told instead of a restart."""
        if self._successor is None:
            return NoticeReply(NoticeId.RESTART_CANNOT)
        if not self._lifecycle.ready.is_set():  # said before this process began: it has had its way
            return NoticeReply(NoticeId.RESTART_FRESH)
        if self._pending is None:
            return (
                NoticeReply(NoticeId.RESTART_STOPPING)
                if self._lifecycle.stopping.is_set()
                else None
            )
        if self._lifecycle.stopping.is_set() and not self._lifecycle.restarting.is_set():
            return NoticeReply(NoticeId.RESTART_STOPPING)  # called off
        try:
            await self._save_pending(
                self._pending.with_requester(RestartRequester(call.context.address, call.direct))
            )
        except StoreError as error:
            log.warning("who asked for a restart as well cannot be kept: %s", error)
        return NoticeReply(NoticeId.RESTART_ALREADY, {"n": len(self._running_tasks())})

    async def _reply(self, context: CommandContext, notice: NoticeId, fields: NoticeFields) -> None:
        item = self._announcer.notice_item(
            notice, context.address, fields, urgent=True, origin=context.origin
        )
        done = SetInbox(ids=(context.inbox,), state=InboxState.DONE, at=self._clock.now())
        await self._delivery.put(*((done,) if context.inbox else ()), PutItem(item))

    # --- going ----------------------------------------------------------------------------------

    async def _restart(self, call: CommandCall | None = None) -> None:
        """Restart: what is to be told of it becomes durable first."""
        successor, n, wait = self._successor, len(self._running_tasks()), self._idle_restart
        assert successor  # noqa: S101 - every way here has looked
        if self._pending:
            return  # at this very moment somebody else does
        waits = wait is not None and wait.state == "waiting"
        id_ = wait.id if wait and waits else self._ids.new("r")  # who waits is told by that id
        askers = (RestartRequester(call.context.address, call.direct),) if call else ()
        self._pending = asked = PendingRestart(
            id=id_, at=self._clock.now(), version=successor.version, askers=askers
        )
        if wait and wait.task and wait.task is not asyncio.current_task():
            wait.task.cancel()
        try:
            await self._save_pending(asked)
            if call:
                fields = {"n": n, "s": round(self._drain_seconds())}
                await self._reply(call.context, NoticeId.RESTARTING, fields)
        except StoreError as error:  # a store that does not write is a reason to restart
            log.warning("of this restart nothing will be told: %s", error)
        if self._lifecycle.stopping.is_set():
            return  # somebody was faster
        log.info("restarting; %d running", n)
        self._lifecycle.restarting.set()
        self._lifecycle.stopping.set()

    async def _save_pending(self, pending: PendingRestart) -> None:
        self._pending = pending
        await self._store.put_value(_SHELF, _PENDING_KEY, msgspec.json.encode(pending).decode())

    async def on_drained(self, interrupted: Sequence[InterruptedTurn]) -> None:
        """Everything has come to its end; this was interrupted."""
        if self._pending is None:
            return
        ended = msgspec.structs.replace(self._pending, interrupted=tuple(interrupted), drained=True)
        try:
            await self._save_pending(ended)
        except StoreError as error:
            log.warning("what the restart interrupted cannot be kept: %s", error)

    # --- back -----------------------------------------------------------------------------------

    async def report_finished(self, unfinished: Sequence[InterruptedTurn]) -> None:
        """Tell who asked that it is over; `left`: what a process that died was still doing.

        A crash in the middle of this repeats the same item, which is shown once.
        """
        try:
            last = await self._store.get_value(_SHELF, _COMPLETED_KEY)
            self._completed = msgspec.json.decode(last, type=CompletedRestart) if last else None
            kept = await self._store.get_value(_SHELF, _PENDING_KEY)
            if kept is None or self._successor is None:
                return
            asked = msgspec.json.decode(kept, type=PendingRestart)
        except msgspec.DecodeError as error:
            log.warning("what a restart has left cannot be read: %s", error)
            return
        over = complete_restart(
            asked, unfinished, self._clock.now(), self._successor.version, safe_mode=self._safe_mode
        )
        log.info("back after a restart of %s", format_duration(over.took))
        resumed = int(bool(self._resumes_turns() and over.interrupted))
        for asker in asked.askers:
            fields = {**restart_fields(over, direct=asker.direct), "resumed": resumed}
            name = f"n_{asked.id}.{asked.askers.index(asker)}.back"
            item = self._announcer.notice_item(NoticeId.RESTARTED, asker.address, fields, name=name)
            await self._delivery.put(PutItem(item))
        await self._store.put_value(_SHELF, _COMPLETED_KEY, msgspec.json.encode(over).decode())
        await self._store.put_value(_SHELF, _PENDING_KEY, None)
        self._completed = over

    # --- asked by the command line --------------------------------------------------------------

    def list_running_tasks(self) -> list[dict[str, object]]:
        """What a restart would interrupt."""
        return [
            msgspec.to_builtins(task) | {"line": task.summary_line}
            for task in self._running_tasks()
        ]

    async def restart(self, when_idle: float | None = None) -> dict[str, object]:
        """Restart now, or once nothing runs, if that comes within so many minutes.

        Raises `Refused` when the program on disk could not start.
        """
        self._check_possible()
        if self._lifecycle.restarting.is_set() and self._pending:
            return self.state(self._pending.id)
        assert self._successor  # noqa: S101 - checked
        if cause := await self._successor.find_start_error():
            msg = f"Not restarted, and nothing was interrupted: {cause}"
            raise RestartRefused(msg)
        self._check_possible()
        if when_idle is None or self._pending:
            await self._restart()
            assert self._pending  # noqa: S101 - set by that
            return self.state(self._pending.id)
        until = self._clock.monotonic() + when_idle * 60
        if self._idle_restart is None or self._idle_restart.state != "waiting":
            self._idle_restart = _IdleRestart(id=self._ids.new("r"), deadline=until)
            self._idle_restart.task = self._start_task(self._restart_when_idle(self._idle_restart))
        self._idle_restart.deadline = until
        return self.state(self._idle_restart.id)

    def _check_possible(self) -> None:
        if self._successor is None:
            msg = "This gateway lives in a terminal (holdfast chat) and cannot be restarted."
            raise RestartRefused(msg)
        if self._lifecycle.stopping.is_set() and not self._lifecycle.restarting.is_set():
            msg = "Holdfast is being stopped; start it again when it has ended."
            raise RestartRefused(msg)

    async def _restart_when_idle(self, idle_restart: _IdleRestart) -> None:
        assert self._successor  # noqa: S101 - checked before
        log.info("restarting as soon as nothing runs")
        while True:
            left = idle_restart.deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._wait_until_idle()
            except TimeoutError:
                if idle_restart.deadline > self._clock.monotonic():
                    continue  # somebody has asked again meanwhile
                idle_restart.state = "gave_up"
                log.info("not restarted: %d still running", len(self._running_tasks()))
                return
            if cause := await self._successor.find_start_error():
                idle_restart.state, idle_restart.cause = "refused", cause
                log.warning("not restarted: %s", cause)
                return
            if not self._running_tasks():
                break
        await self._restart()

    def cancel(self, restart_id: str) -> dict[str, object]:
        """Wait no more."""
        wait = self._idle_restart
        if wait and wait.id == restart_id and wait.state == "waiting" and wait.task:
            wait.task.cancel()
            wait.state = "cancelled"
        return self.state(restart_id)

    def state(self, restart_id: str) -> dict[str, object]:
        """How a restart stands; the process that comes after it knows it as well."""
        running = self.list_running_tasks()
        if self._pending and self._pending.id == restart_id:
            state = "draining" if self._lifecycle.restarting.is_set() else "stopping"
            return {
                "id": restart_id,
                "state": state,
                "running": running,
                "drain_seconds": self._drain_seconds(),
            }
        if self._completed and self._completed.id == restart_id:
            told: dict[str, object] = {
                "state": "back",
                "took_text": format_duration(self._completed.took),
            }
            told.update(msgspec.to_builtins(self._completed))
            told["lines"] = [task.summary_line for task in self._completed.interrupted]
            return told
        wait = self._idle_restart
        if wait is None or wait.id != restart_id:
            msg = f"No restart has the id {restart_id}."
            raise RestartRefused(msg)
        seconds = max(0, round(wait.deadline - self._clock.monotonic()))
        return {
            "id": restart_id,
            "state": wait.state,
            "cause": wait.cause,
            "running": running,
            "seconds_left": seconds,
        }
