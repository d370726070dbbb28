"""Threads that talk to the database, so that the event loop never waits for it.

One thread writes. It takes whatever waits at that moment into one transaction (group commit): the
disk is asked once for all of them. Three threads read. What they run is a plain function of a
SQLAlchemy connection; a write may be run a second time after the first was rolled back, so it must
do nothing else.

Cancelling the task that awaits a write does not withdraw it: writes are done in the order in which
they were handed in, each whole or not at all, and whoever takes over from a cancelled task can
count on that.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from sessions.courtesy import Courtesy
from sessions.engine import Place, is_disconnect, reader, translated, writer
from sessions.errors import StoreError, StoreUnavailable

READERS = 3
LARGEST_BATCH = 256

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

    writes = False

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, settle: Callable[[_Jobs], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._jobs = jobs
        self._settle = settle
        self._connection: Connection | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until everything that was queued is done."""
        self._thread.join()

    def _work(self) -> None:
        while not self._ending:
            jobs = self._take()
            # A read that nobody waits for is pointless; a write that was handed in counts.
            wanted = [job for job in jobs if self.writes or not job.future.cancelled()]
            if wanted:
                self._carry_out(wanted)
            self._settle(jobs)
            del jobs, wanted  # what was handed over is not kept while waiting for more
        self._disconnect()

    def _take(self) -> _Jobs:
        """Wait for a job; whoever writes takes all that are there."""
        jobs: _Jobs = []
        with contextlib.suppress(queue.Empty):
            while not self._ending and len(jobs) < (LARGEST_BATCH if self.writes else 1):
                job = self._jobs.get(block=not jobs)
                if job is None:
                    self._ending = True
                else:
                    jobs.append(job)
        return jobs

    def _carry_out(self, jobs: _Jobs) -> None:
        """All in one transaction; when one of them fails, each in one of its own."""
        failure = self._together(jobs)
        if failure and (len(jobs) > 1 or is_disconnect(failure)):
            for job in jobs:
                self._together([job])
        for job in jobs:
            if job.error:
                job.error = translated(job.error, self._name)

    def _together(self, jobs: _Jobs) -> Exception | None:
        """Run jobs in one transaction; answers with an error after which it may be run again."""
        try:
            connection = self._connection = self._connection or self._engine.connect()
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
        try:
            (transaction.commit if self.writes else transaction.rollback)()
        except SQLAlchemyError as error:
            self._broken(jobs, translated(error, self._name, committing=self.writes))
        return None

    def _broken(self, jobs: _Jobs, error: Exception) -> Exception | None:
        self._disconnect()
        for job in jobs:
            job.error = error
        return error if is_disconnect(error) else None

    def _disconnect(self) -> None:
        if self._connection:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()
        self._connection = None


class _Writer(_Worker):
    writes = True


class Database:
    """One database, used from one event loop."""

    def __init__(self, where: Place, *, read_only: bool = False) -> None:
        self.name = where.name
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settled, jobs)
        self._courtesy.answered()

    def _settled(self, jobs: _Jobs) -> None:
        self._courtesy.ended(len(jobs))
        for job in jobs:
            job.settle()

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
