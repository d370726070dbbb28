"""Threads that talk to the database, so that the event loop never waits for it.

One thread writes. It takes whatever waits at that moment into one transaction (group commit): the
disk is asked once for all of them. Three threads read. What they run is a plain function of a
SQLAlchemy connection; a write may be run a second time after the first was rolled back, so it must
do nothing else.

Cancelling the task that awaits a write does not withdraw it: writes are done in the order in which
they were handed in, each whole or not at all, and whoever takes over from a cancelled task can
count on that.

A write whose commit was not answered is in doubt: it waits until the server can be asked, then it
is done or counts as done. Until then no other write is done; those are refused, not kept.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.base import Transaction
from sqlalchemy.exc import SQLAlchemyError

from sessions.errors import OutcomeUnknown, StoreCorrupt, StoreError, StoreUnavailable
from sessions.store.commit_probe import Commits
from sessions.store.engine import Place, is_disconnect, reader, translated, writer
from sessions.store.thread_yield import Courtesy

log = logging.getLogger(__name__)

READERS = 3
LARGEST_BATCH = 256
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two questions what became of a commit."""

T = TypeVar("T")


class Counts(msgspec.Struct):
    """What was done since counting began."""

    statements: int = 0
    commits: int = 0


class _Job(Generic[T]):
    """A function for one of the threads, and who waits for its result."""

    __slots__ = ("error", "future", "value", "work")

    def __init__(self, work: Callable[[Connection], T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.value: T | None = None
        self.error: Exception | None = None

    def run(self, connection: Connection) -> bool:
        """Run it inside an open transaction; whether it went well."""
        self.error = None
        with self:
            self.value = self.work(connection)
        return self.error is None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        # Whatever it raises belongs to whoever waits for it, and must not end the thread.
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None

    def settle(self) -> None:
        """Hand over the outcome; called in the loop."""
        if self.future.done():
            return  # nobody waits any more
        if self.error:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.value))


_Jobs = list[_Job[Any]]
_Queue = queue.SimpleQueue["_Job[Any] | None"]


class _Worker:
    """A thread with a connection of its own."""

    most = 1
    """How many jobs it takes into one transaction."""

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, settle: Callable[[_Jobs], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._jobs = jobs
        self._settle = settle
        self._connection: Connection | None = None
        self._ending = False
        self.steps = 0  # transactions that were begun or tried to
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until everything that was queued is done."""
        self._thread.join()

    def _work(self) -> None:
        while not self._ending:
            self._round()
        self._end()

    def _round(self) -> None:
        jobs = self._take(None)
        wanted = [job for job in jobs if not job.future.cancelled()]
        if wanted:
            self._carry_out(wanted)
        self._settle(jobs)

    def _end(self) -> None:
        self._disconnect()

    def _take(self, pause: float | None) -> _Jobs:
        """Wait for a job, at most for a pause; gives as many as may share a transaction."""
        jobs: _Jobs = []
        with contextlib.suppress(queue.Empty):
            while not self._ending and len(jobs) < self.most:
                job = self._jobs.get(block=not jobs, timeout=pause)
                if job is None:
                    self._ending = True
                else:
                    jobs.append(job)
        return jobs

    def _carry_out(self, jobs: _Jobs) -> None:
        """All in one transaction; when one of them fails, each in one of its own."""
        failure = self._together(jobs)
        if failure and (len(jobs) > 1 or is_disconnect(failure)):
            self._one_by_one(jobs)
        for job in jobs:
            if job.error:
                job.error = translated(job.error, self._name)

    def _one_by_one(self, jobs: _Jobs) -> None:
        for job in jobs:
            self._together([job])

    def _together(self, jobs: _Jobs) -> Exception | None:
        """Run jobs in one transaction; answers with an error after which it may be run again."""
        self.steps += 1
        try:
            connection = self._connected()
            transaction = connection.begin()
        except SQLAlchemyError as error:
            return self._broken(jobs, error)
        for job in jobs:
            if not job.run(connection):
                with contextlib.suppress(SQLAlchemyError):
                    transaction.rollback()
                if is_disconnect(job.error):
                    self._disconnect()
                return job.error
        self._finish(jobs, connection, transaction)
        return None

    def _finish(self, jobs: _Jobs, _: Connection, transaction: Transaction) -> None:
        """End a transaction in which all jobs went well."""
        try:
            transaction.rollback()
        except SQLAlchemyError as error:
            self._broken(jobs, error)

    def _broken(self, jobs: _Jobs, error: Exception) -> Exception | None:
        self._disconnect()
        for job in jobs:
            job.error = error
        return error if is_disconnect(error) else None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()
        self._connection = None


class _Writer(_Worker):
    """The only thread that writes."""

    most = LARGEST_BATCH

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, settle: Callable[[_Jobs], None]
    ) -> None:
        # SQLite answers for itself what became of a commit.
        self._commits = None if engine.dialect.name == "sqlite" else Commits()
        self._doubtful: _Jobs = []  # their commit was not answered
        self._behind: _Jobs = []  # handed in after those, and not done yet
        self._carried_out = False  # what the newest connection says of the last commit
        self._unknown: Exception | None = None  # why it is in doubt
        self._pause: float | None = None
        super().__init__(engine, name, jobs, settle)

    def _round(self) -> None:
        # A read that nobody waits for is pointless; a write that was handed in counts.
        jobs = [*self._doubtful, *self._behind, *self._take(self._pause)]
        self._behind = []
        if to_do := self._looked_up(jobs) if self._doubtful else jobs:
            self._carry_out(to_do)
        kept = {id(job) for job in (*self._doubtful, *self._behind)}
        self._settle([job for job in jobs if id(job) not in kept])

    def _looked_up(self, jobs: _Jobs) -> _Jobs:
        """Ask what became of those in doubt, which are the first; gives what is still to be done."""
        others = jobs[len(self._doubtful) :]
        try:
            self._connected()
        except SQLAlchemyError as error:
            self._broken(others, translated(error, self._name))
            self._wait_longer()
            return []
        for job in self._doubtful:
            job.error = None
        self._doubtful = []
        return others if self._carried_out else jobs

    def _wait_longer(self) -> None:
        pause = self._pause
        self._pause = 0.0 if pause is None else min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)

    def _one_by_one(self, jobs: _Jobs) -> None:
        for number, job in enumerate(jobs, 1):
            self._together([job])
            if self._doubtful:  # what was handed in later must not be done earlier
                self._behind = jobs[number:]
                break

    def _finish(self, jobs: _Jobs, connection: Connection, transaction: Transaction) -> None:
        try:
            if self._commits:
                self._commits.commit(connection, transaction)
            else:
                transaction.commit()
        except SQLAlchemyError as error:
            failure = translated(error, self._name, committing=True)
            self._broken(jobs, failure)
            if self._commits and isinstance(failure, OutcomeUnknown):
                self._doubtful, self._unknown = jobs, failure
                self._wait_longer()
        else:
            self._pause = None

    def _connected(self) -> Connection:
        fresh = self._connection is None
        connection = super()._connected()
        if fresh and self._commits:
            try:
                self._carried_out = self._commits.begin_with(connection)
            except SQLAlchemyError:
                self._disconnect()
                raise
        return connection

    def _end(self) -> None:
        if self._doubtful:
            self._round()  # nothing more is taken, but the server may be there by now
        left = [*self._doubtful, *self._behind]
        for job in left:
            job.error = self._unknown
        self._settle(left)
        if self._commits and self._connection:
            with contextlib.suppress(SQLAlchemyError):
                self._commits.end_with(self._connection)
        super()._end()


class Database:
    """One database, used from one event loop."""

    def __init__(self, where: Place, *, read_only: bool = False) -> None:
        self.name = where.name
        self.damage = ""
        """What was found to be damaged, by whoever came upon it first; empty: nothing so far."""
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._courtesy = Courtesy(self._loop.call_later)
        read_engine = reader(where, alone=read_only)
        self.dialect = read_engine.dialect
        self._engines = [read_engine]
        self._reads: _Queue = queue.SimpleQueue()
        self._writes: _Queue | None = None
        self._workers = [
            _Worker(read_engine, self.name, self._reads, self._settle) for _ in range(READERS)
        ]
        if not read_only:
            write_engine = writer(where)
            self._engines.append(write_engine)
            self._writes = queue.SimpleQueue()
            self._workers.append(_Writer(write_engine, self.name, self._writes, self._settle))

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the writer's next transaction; returns when it is committed.

        If it raises, nothing of it is stored, and whatever shared the transaction is not affected.
        """
        if self._writes is None:
            msg = f"The database {self.name} was opened for reading only"
            raise StoreError(msg)
        return await self._done(self._writes, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one unchanging view of what is committed."""
        return await self._done(self._reads, work)

    async def _done(self, jobs: _Queue, work: Callable[[Connection], T]) -> T:
        if self._closed:
            msg = f"The database {self.name} was closed"
            raise StoreUnavailable(msg)
        future: asyncio.Future[T] = self._loop.create_future()
        jobs.put(_Job(work, future))
        self._courtesy.begun()
        return await future

    def _settle(self, jobs: _Jobs) -> None:
        """Called in a thread: once for a whole transaction."""
        if not jobs:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settled, jobs)
        self._courtesy.answered()

    def _settled(self, jobs: _Jobs) -> None:
        self._courtesy.ended(len(jobs))
        for job in jobs:
            if isinstance(job.error, StoreCorrupt) and not self.damage:
                self.damage = str(job.error)
                log.error("%s", self.damage)
            job.settle()

    @property
    def writer_steps(self) -> int:
        """What the thread that writes has taken in hand so far."""
        return self._workers[-1].steps

    def stop(self) -> None:
        """Take nothing more; what was taken will still be done."""
        if not self._closed:
            self._closed = True
            for _ in range(READERS):
                self._reads.put(None)
            if self._writes:
                self._writes.put(None)

    def close(self) -> None:
        """Take nothing more, and wait until everything that was taken is done."""
        self.stop()
        for worker in self._workers:
            worker.join()

    def count(self) -> Counts:
        """Count what is done from now on."""
        counts = Counts()

        def statement(*_: object) -> None:
            counts.statements += 1

        def commit(_: object) -> None:
            counts.commits += 1

        for engine in self._engines:
            sa.event.listen(engine, "before_cursor_execute", statement)
            sa.event.listen(engine, "commit", commit)
        return counts
