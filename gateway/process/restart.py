"""Restarts of the gateway, requested in a chat or by the command line.

A restart is a stop after which the process replaces itself with the program currently on disk. The
new program is checked first; if the check fails, nothing is interrupted. The report to the
requesters is prepared in the store, so that a crash in between does not lose the report.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import msgspec

from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply, ReplyLater
from gateway.errors import HoldfastError
from gateway.notices.sender import NoticeSender
from gateway.process.health import LifecycleEvents
from gateway.process.restart_report import (
    CompletedRestart,
    InterruptedTurn,
    PendingRestart,
    RestartRequester,
    RestartState,
    complete_restart,
    restart_fields,
)
from gateway.process.successor import Successor
from sessions.changes import PutValue, SetInbox
from sessions.conversation.events import CommandContext
from sessions.errors import StoreError
from sessions.records import InboxState
from sessions.store.store import SessionStore
from sessions.values.address import write_address
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.item_ids import restart_report_id
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.tasks import start_task
from sessions.values.text import count_of

log = logging.getLogger(__name__)

IDLE_MINUTES = 30.0
"""Default limit of the wait for a moment without running turns."""

_SHELF, _PENDING_KEY, _COMPLETED_KEY = "restart", "asked", "last"


class RestartRefused(HoldfastError):
    """The restart cannot be carried out."""


class _IdleRestart(msgspec.Struct, kw_only=True):
    """A restart that waits until no turn runs."""

    id: str
    deadline: float
    task: asyncio.Task[None] | None = None
    state: RestartState = RestartState.WAITING
    cause: str = ""


class RestartHost(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway that a restart ends: its running turns, and the rules of its end."""

    lifecycle: LifecycleEvents
    running_tasks: Callable[[], Sequence[InterruptedTurn]]
    wait_until_idle: Callable[[], Awaitable[None]]
    drain_seconds: Callable[[], float]
    resumes_turns: Callable[[], bool]
    """Returns True if interrupted turns resume by themselves after a restart."""
    safe_mode: bool


class Restarter:
    """Service that restarts the gateway; at most one restart is pending at a time."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        notices: NoticeSender,
        successor: Successor | None,
        host: RestartHost,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._notices = notices
        self._successor = successor  # None if the gateway runs inside a terminal
        self._host = host
        self._lifecycle = host.lifecycle
        self._tasks = tasks
        self._pending: PendingRestart | None = None
        self._reported: CompletedRestart | None = None  # not recorded as finished yet
        self._completed: CompletedRestart | None = None
        self._idle_restart: _IdleRestart | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Cancel background tasks at the end of this block, so that the process can exit."""
        try:
            yield
        finally:
            for task in self._background_tasks:
                task.cancel()

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        task = start_task(self._tasks, coroutine, name="restart")
        if task:
            self._background_tasks.add(task)
            task.add_done_callback(self._background_tasks.discard)
        return task

    # --- requested in a chat --------------------------------------------------------------------

    async def request_restart(self, call: CommandCall) -> CommandOutcome:
        """See `gateway.commands.contract.CommandServices`."""
        refusal = await self._refusal_notice(call)
        if refusal:
            return refusal
        # Checking the new program takes a second; incoming messages must not wait for that.
        _ = self._start_task(self._check_and_restart(call))
        return ReplyLater()

    async def _check_and_restart(self, call: CommandCall) -> None:
        assert self._successor  # noqa: S101 - checked by `_refusal_notice`
        cause = await self._successor.find_start_error()
        refusal = await self._refusal_notice(call)
        if refusal is None and cause:
            log.warning("not restarted: %s", cause)
            refusal = NoticeReply(NoticeId.RESTART_REFUSED, {"cause": cause})
        try:
            if refusal:
                await self._reply(call.context, refusal.notice, refusal.fields)
            else:
                await self._restart(call)
        except StoreError as error:
            # The command stays in the store; the next process answers without restarting again.
            log.warning("the answer to /restart was not stored: %s", error)

    async def _refusal_notice(self, call: CommandCall) -> NoticeReply | None:
        """Return the notice to answer with if no new restart is to begin; else None."""
        if self._successor is None:
            return NoticeReply(NoticeId.RESTART_CANNOT)
        if not self._lifecycle.ready.is_set():  # a command to the previous process, already done
            return NoticeReply(NoticeId.RESTART_FRESH)
        if self._pending is None:
            return (
                NoticeReply(NoticeId.RESTART_STOPPING)
                if self._lifecycle.stopping.is_set()
                else None
            )
        if self._lifecycle.stopping.is_set() and not self._lifecycle.restarting.is_set():
            return NoticeReply(NoticeId.RESTART_STOPPING)  # a stop replaced the restart
        try:
            await self._save_pending(
                self._pending.with_requester(
                    RestartRequester.at(call.context.address, direct=call.direct)
                )
            )
        except StoreError as error:
            log.warning(
                "%s will get no report of the restart, because the request was not stored: %s",
                write_address(call.context.address),
                error,
            )
        return NoticeReply(NoticeId.RESTART_ALREADY, {"n": len(self._host.running_tasks())})

    async def _reply(self, context: CommandContext, notice: NoticeId, fields: NoticeFields) -> None:
        done = SetInbox(ids=(context.inbox,), state=InboxState.DONE, at=self._clock.now())
        changes = (done,) if context.inbox else ()
        await self._notices.send(
            notice, context.address, fields, *changes, urgent=True, origin=context.origin
        )

    # --- restarting -----------------------------------------------------------------------------

    async def _restart(self, call: CommandCall | None = None) -> None:
        """Begin the restart, after storing the requesters who get a report."""
        successor, n, wait = self._successor, len(self._host.running_tasks()), self._idle_restart
        assert successor  # noqa: S101 - checked by all callers
        if self._pending:
            return  # another request has begun the restart
        waits = wait is not None and wait.state is RestartState.WAITING
        id_ = wait.id if wait and waits else self._ids.new("r")  # the command line polls this id
        askers = (RestartRequester.at(call.context.address, direct=call.direct),) if call else ()
        self._pending = asked = PendingRestart(
            id=id_, at=self._clock.now(), version=successor.version, askers=askers
        )
        if wait and wait.task and wait.task is not asyncio.current_task():
            wait.task.cancel()
        try:
            await self._save_pending(asked)
            if call:
                fields = {"n": n, "s": round(self._host.drain_seconds())}
                await self._reply(call.context, NoticeId.RESTARTING, fields)
        except StoreError as error:  # restart anyway: it may repair the store
            log.warning("no report of this restart will be sent, it was not stored: %s", error)
        if self._lifecycle.stopping.is_set():
            return  # a stop began meanwhile
        log.info("restarting; %s running", count_of(n, "turn"))
        self._lifecycle.restarting.set()
        self._lifecycle.stopping.set()

    async def _save_pending(self, pending: PendingRestart) -> None:
        self._pending = pending
        await self._store.put_value(_SHELF, _PENDING_KEY, msgspec.json.encode(pending).decode())

    async def on_drained(self, interrupted: Sequence[InterruptedTurn]) -> None:
        """Store which turns the drain has interrupted, for the report after the restart."""
        if self._pending is None:
            return
        ended = msgspec.structs.replace(self._pending, interrupted=tuple(interrupted), drained=True)
        try:
            await self._save_pending(ended)
        except StoreError as error:
            log.warning("the list of interrupted turns was not stored: %s", error)

    # --- after the restart ----------------------------------------------------------------------

    async def report_finished(self, unfinished: Sequence[InterruptedTurn]) -> None:
        """Report a finished restart to its requesters, before the messages that waited for it.

        `unfinished` are turns that a crashed process left running. Until `record_finished` the
        same items are stored again under the same ids after a crash, so each report is shown once.
        """
        try:
            last = await self._store.get_value(_SHELF, _COMPLETED_KEY)
            self._completed = msgspec.json.decode(last, type=CompletedRestart) if last else None
            stored = await self._store.get_value(_SHELF, _PENDING_KEY)
            if stored is None or self._successor is None:
                return
            asked = msgspec.json.decode(stored, type=PendingRestart)
        except msgspec.DecodeError as error:
            log.warning("the stored state of a restart cannot be read: %s", error)
            return
        over = complete_restart(
            asked,
            unfinished,
            self._clock.now(),
            self._successor.version,
            safe_mode=self._host.safe_mode,
        )
        log.info("restart finished after %s", over.took_text)
        resumed = self._host.resumes_turns()
        for asker in asked.askers:
            fields = restart_fields(over, direct=asker.direct, resumed=resumed)
            name = restart_report_id(asked.id, asked.askers.index(asker))
            await self._notices.send(NoticeId.RESTARTED, asker.address, fields, name=name)
        self._reported = over

    async def record_finished(self) -> None:
        """Record the restart as finished, once the platforms are connected."""
        if self._reported:
            over = msgspec.json.encode(self._reported).decode()
            completed = PutValue(_SHELF, _COMPLETED_KEY, over)
            await self._store.apply(completed, PutValue(_SHELF, _PENDING_KEY, None))
            self._completed, self._reported = self._reported, None

    # --- requested by the command line ----------------------------------------------------------

    def list_running_tasks(self) -> list[dict[str, object]]:
        """Return the turns that a restart would interrupt."""
        return [
            msgspec.to_builtins(task) | {"line": task.summary_line}
            for task in self._host.running_tasks()
        ]

    async def restart(self, when_idle: float | None = None) -> dict[str, object]:
        """Restart now, or as soon as no turn runs within `when_idle` minutes.

        Raises `RestartRefused` if the program on disk could not start.
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
        if self._idle_restart is None or self._idle_restart.state is not RestartState.WAITING:
            self._idle_restart = _IdleRestart(id=self._ids.new("r"), deadline=until)
            self._idle_restart.task = self._start_task(self._restart_when_idle(self._idle_restart))
        self._idle_restart.deadline = until
        return self.state(self._idle_restart.id)

    def _check_possible(self) -> None:
        if self._successor is None:
            msg = "This gateway runs inside a terminal (holdfast chat) and cannot be restarted."
            raise RestartRefused(msg)
        if self._lifecycle.stopping.is_set() and not self._lifecycle.restarting.is_set():
            msg = "Holdfast is stopping; start it again when it has stopped."
            raise RestartRefused(msg)

    async def _restart_when_idle(self, idle_restart: _IdleRestart) -> None:
        assert self._successor  # noqa: S101 - checked before
        log.info("restarting as soon as no turn runs")
        while True:
            left = idle_restart.deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._host.wait_until_idle()
            except TimeoutError:
                if idle_restart.deadline > self._clock.monotonic():
                    continue  # another request moved the deadline
                idle_restart.state = RestartState.GAVE_UP
                running = count_of(len(self._host.running_tasks()), "turn")
                log.info("not restarted: %s still running", running)
                return
            if cause := await self._successor.find_start_error():
                idle_restart.state, idle_restart.cause = RestartState.REFUSED, cause
                log.warning("not restarted: %s", cause)
                return
            if not self._host.running_tasks():
                break
        await self._restart()

    def cancel(self, restart_id: str) -> dict[str, object]:
        """Cancel a restart that waits for an idle moment; return its state."""
        wait = self._idle_restart
        if wait and wait.id == restart_id and wait.state is RestartState.WAITING and wait.task:
            wait.task.cancel()
            wait.state = RestartState.CANCELLED
        return self.state(restart_id)

    def state(self, restart_id: str) -> dict[str, object]:
        """Return the state of a restart; also known to the process after the restart."""
        running = self.list_running_tasks()
        if self._pending and self._pending.id == restart_id:
            stopping = self._lifecycle.stopping.is_set() and not self._lifecycle.restarting.is_set()
            state = RestartState.STOPPING if stopping else RestartState.DRAINING
            return {
                "id": restart_id,
                "state": state.value,
                "running": running,
                "drain_seconds": self._host.drain_seconds(),
            }
        if self._completed and self._completed.id == restart_id:
            report: dict[str, object] = {
                "state": RestartState.BACK.value,
                "took_text": self._completed.took_text,
            }
            report.update(msgspec.to_builtins(self._completed))
            report["lines"] = [task.summary_line for task in self._completed.interrupted]
            return report
        wait = self._idle_restart
        if wait is None or wait.id != restart_id:
            msg = f"No restart has the id {restart_id}."
            raise RestartRefused(msg)
        seconds = max(0, round(wait.deadline - self._clock.monotonic()))
        return {
            "id": restart_id,
            "state": wait.state.value,
            "cause": wait.cause,
            "running": running,
            "seconds_left": seconds,
        }
