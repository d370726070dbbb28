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

from gateway.commands.contract import Call, Outcome, Taken, Tell
from gateway.delivery.outbox import Delivery
from gateway.errors import HoldfastError
from gateway.notices.catalogue import Fields
from gateway.notices.compose import Announcer
from gateway.process.health import Signals
from gateway.process.restart_report import Asked, Asker, Back, Task, back, fields_of, span
from gateway.process.successor import Successor
from sessions.changes import PutItem, SetInbox
from sessions.conversation.events import Command as By
from sessions.errors import StoreError
from sessions.records import InboxState
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.ids import Ids

log = logging.getLogger(__name__)

IDLE_MINUTES = 30.0
"""How long a restart waits for the moment in which nothing runs, unless somebody says otherwise."""

_SHELF, _ASKED, _LAST = "restart", "asked", "last"


class Refused(HoldfastError):
    """It is not restarted."""


class _Wait(msgspec.Struct):
    """A restart that waits for the moment in which nothing runs."""

    id: str
    until: float
    task: asyncio.Task[None] | None = None
    state: str = "waiting"
    cause: str = ""


class Restart:
    """One restart at a time."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        ids: Ids,
        announcer: Announcer,
        delivery: Delivery,
        successor: Successor | None,
        signals: Signals,
        running: Callable[[], Sequence[Task]],
        idle: Callable[[], Awaitable[None]],
        tasks: asyncio.TaskGroup,
        drain_seconds: Callable[[], float],
        careful: bool,
        takes_up: Callable[[], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._announcer = announcer
        self._delivery = delivery
        self._successor = successor  # none where the gateway lives in a terminal
        self._signals = signals
        self._running = running
        self._idle = idle
        self._tasks = tasks
        self._drain_seconds = drain_seconds
        self._careful = careful
        self._takes_up = takes_up  # what is interrupted goes on by itself
        self._asked: Asked | None = None
        self._last: Back | None = None
        self._wait: _Wait | None = None
        self._begun: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """At the end nothing keeps the process."""
        try:
            yield
        finally:
            for task in self._begun:
                task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work, name="restart")
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    # --- asked in a chat ------------------------------------------------------------------------

    async def asked(self, call: Call) -> Outcome:
        """See `gateway.commands.contract.Desk`."""
        told = await self._not_now(call)
        if told:
            return told
        # The look at the new program takes a second; nothing that comes in has to wait for it.
        _ = self._begin(self._check_and_go(call))
        return Taken()

    async def _check_and_go(self, call: Call) -> None:
        assert self._successor  # noqa: S101 - looked at by `_not_now`
        cause = await self._successor.refusal()
        told = await self._not_now(call)
        if told is None and cause:
            log.warning("not restarted: %s", cause)
            told = Tell("restart_refused", {"cause": cause})
        try:
            if told:
                await self._tell(call.by, told.notice, told.fields)
            else:
                await self._go(call)
        except StoreError as error:
            # The command stays in the store; the next process answers it and restarts no more.
            log.warning("a restart cannot be told of: %s", error)

    async def _not_now(self, call: Call) -> Tell | None:
        """What somebody is told instead of a restart."""
        if self._successor is None:
            return Tell("restart_cannot")
        if not self._signals.ready.is_set():  # said before this process began: it has had its way
            return Tell("restart_fresh")
        if self._asked is None:
            return Tell("restart_stopping") if self._signals.stopping.is_set() else None
        if self._signals.stopping.is_set() and not self._signals.restarting.is_set():
            return Tell("restart_stopping")  # called off
        try:
            await self._keep(self._asked.joined(Asker(call.by.address, call.direct)))
        except StoreError as error:
            log.warning("who asked for a restart as well cannot be kept: %s", error)
        return Tell("restart_already", {"n": len(self._running())})

    async def _tell(self, by: By, notice: str, fields: Fields) -> None:
        item = self._announcer.item(notice, by.address, fields, urgent=True, origin=by.origin)
        done = SetInbox((by.inbox,), InboxState.DONE, self._clock.now())
        await self._delivery.put(*((done,) if by.inbox else ()), PutItem(item))

    # --- going ----------------------------------------------------------------------------------

    async def _go(self, call: Call | None = None) -> None:
        """Restart: what is to be told of it becomes durable first."""
        successor, n, wait = self._successor, len(self._running()), self._wait
        assert successor  # noqa: S101 - every way here has looked
        if self._asked:
            return  # at this very moment somebody else does
        waits = wait is not None and wait.state == "waiting"
        id_ = wait.id if wait and waits else self._ids.new("r")  # who waits is told by that id
        askers = (Asker(call.by.address, call.direct),) if call else ()
        self._asked = asked = Asked(id_, self._clock.now(), successor.version, askers)
        if wait and wait.task and wait.task is not asyncio.current_task():
            wait.task.cancel()
        try:
            await self._keep(asked)
            if call:
                fields = {"n": n, "s": round(self._drain_seconds())}
                await self._tell(call.by, "restarting", fields)
        except StoreError as error:  # a store that does not write is a reason to restart
            log.warning("of this restart nothing will be told: %s", error)
        if self._signals.stopping.is_set():
            return  # somebody was faster
        log.info("restarting; %d running", n)
        self._signals.restarting.set()
        self._signals.stopping.set()

    async def _keep(self, asked: Asked) -> None:
        self._asked = asked
        await self._store.put_value(_SHELF, _ASKED, msgspec.json.encode(asked).decode())

    async def drained(self, interrupted: Sequence[Task]) -> None:
        """Everything has come to its end; this was interrupted."""
        if self._asked is None:
            return
        ended = msgspec.structs.replace(self._asked, interrupted=tuple(interrupted), drained=True)
        try:
            await self._keep(ended)
        except StoreError as error:
            log.warning("what the restart interrupted cannot be kept: %s", error)

    # --- back -----------------------------------------------------------------------------------

    async def report(self, left: Sequence[Task]) -> None:
        """Tell who asked that it is over; `left`: what a process that died was still doing.

        A crash in the middle of this repeats the same item, which is shown once.
        """
        try:
            last = await self._store.get_value(_SHELF, _LAST)
            self._last = msgspec.json.decode(last, type=Back) if last else None
            kept = await self._store.get_value(_SHELF, _ASKED)
            if kept is None or self._successor is None:
                return
            asked = msgspec.json.decode(kept, type=Asked)
        except msgspec.DecodeError as error:
            log.warning("what a restart has left cannot be read: %s", error)
            return
        over = back(asked, left, self._clock.now(), self._successor.version, careful=self._careful)
        log.info("back after a restart of %s", span(over.took))
        resumed = int(bool(self._takes_up() and over.interrupted))
        for asker in asked.askers:
            fields = {**fields_of(over, direct=asker.direct), "resumed": resumed}
            name = f"n_{asked.id}.{asked.askers.index(asker)}.back"
            item = self._announcer.item("restarted", asker.address, fields, name=name)
            await self._delivery.put(PutItem(item))
        await self._store.put_value(_SHELF, _LAST, msgspec.json.encode(over).decode())
        await self._store.put_value(_SHELF, _ASKED, None)
        self._last = over

    # --- asked by the command line --------------------------------------------------------------

    def tasks_running(self) -> list[dict[str, object]]:
        """What a restart would interrupt."""
        return [msgspec.to_builtins(task) | {"line": task.line} for task in self._running()]

    async def ask(self, when_idle: float | None = None) -> dict[str, object]:
        """Restart now, or once nothing runs, if that comes within so many minutes.

        Raises `Refused` when the program on disk could not start.
        """
        self._check_possible()
        if self._signals.restarting.is_set() and self._asked:
            return self.state(self._asked.id)
        assert self._successor  # noqa: S101 - checked
        if cause := await self._successor.refusal():
            msg = f"Not restarted, and nothing was interrupted: {cause}"
            raise Refused(msg)
        self._check_possible()
        if when_idle is None or self._asked:
            await self._go()
            assert self._asked  # noqa: S101 - set by that
            return self.state(self._asked.id)
        until = self._clock.monotonic() + when_idle * 60
        if self._wait is None or self._wait.state != "waiting":
            self._wait = _Wait(self._ids.new("r"), until)
            self._wait.task = self._begin(self._go_when_idle(self._wait))
        self._wait.until = until
        return self.state(self._wait.id)

    def _check_possible(self) -> None:
        if self._successor is None:
            msg = "This gateway lives in a terminal (holdfast chat) and cannot be restarted."
            raise Refused(msg)
        if self._signals.stopping.is_set() and not self._signals.restarting.is_set():
            msg = "Holdfast is being stopped; start it again when it has ended."
            raise Refused(msg)

    async def _go_when_idle(self, wait: _Wait) -> None:
        assert self._successor  # noqa: S101 - checked before
        log.info("restarting as soon as nothing runs")
        while True:
            left = wait.until - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._idle()
            except TimeoutError:
                if wait.until > self._clock.monotonic():
                    continue  # somebody has asked again meanwhile
                wait.state = "gave_up"
                log.info("not restarted: %d still running", len(self._running()))
                return
            if cause := await self._successor.refusal():
                wait.state, wait.cause = "refused", cause
                log.warning("not restarted: %s", cause)
                return
            if not self._running():
                break
        await self._go()

    def cancel(self, id_: str) -> dict[str, object]:
        """Wait no more."""
        wait = self._wait
        if wait and wait.id == id_ and wait.state == "waiting" and wait.task:
            wait.task.cancel()
            wait.state = "cancelled"
        return self.state(id_)

    def state(self, id_: str) -> dict[str, object]:
        """How a restart stands; the process that comes after it knows it as well."""
        running = self.tasks_running()
        if self._asked and self._asked.id == id_:
            state = "draining" if self._signals.restarting.is_set() else "stopping"
            return {
                "id": id_,
                "state": state,
                "running": running,
                "drain_seconds": self._drain_seconds(),
            }
        if self._last and self._last.id == id_:
            told: dict[str, object] = {"state": "back", "took_text": span(self._last.took)}
            told.update(msgspec.to_builtins(self._last))
            told["lines"] = [task.line for task in self._last.interrupted]
            return told
        wait = self._wait
        if wait is None or wait.id != id_:
            msg = f"No restart has the id {id_}."
            raise Refused(msg)
        seconds = max(0, round(wait.until - self._clock.monotonic()))
        return {
            "id": id_,
            "state": wait.state,
            "cause": wait.cause,
            "running": running,
            "seconds_left": seconds,
        }
