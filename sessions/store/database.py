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

from sessions.errors import CommitOutcomeUnknown, StoreCorrupt, StoreError, StoreUnavailable
from sessions.store.commit_probe import CommitTracker
from sessions.store.engine import (
    DatabaseLocation,
    is_disconnect,
    reader_engine,
    translate_error,
    writer_engine,
)
from sessions.store.thread_yield import ThreadYielder

log = logging.getLogger(__name__)

READER_THREADS = 3
MAX_BATCH_JOBS = 256
INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 5.0
"""Seconds between two questions what became of a commit."""

T = TypeVar("T")


class QueryCounts(msgspec.Struct):
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

    def run_in(self, connection: Connection) -> bool:
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


class _DatabaseWorker:
    """A thread with a connection of its own."""

    max_batch = 1
    """How many jobs it takes into one transaction."""

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, on_finished: Callable[[_Jobs], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._jobs = jobs
        self._on_finished = on_finished
        self._connection: Connection | None = None
        self._closing = False
        self.transactions = 0  # transactions that were begun or tried to
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until everything that was queued is done."""
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._run_batch()
        self._shut_down()

    def _run_batch(self) -> None:
        jobs = self._take_jobs(None)
        wanted = [job for job in jobs if not job.future.cancelled()]
        if wanted:
            self._execute(wanted)
        self._on_finished(jobs)

    def _shut_down(self) -> None:
        self._disconnect()

    def _take_jobs(self, timeout_seconds: float | None) -> _Jobs:
        """Wait for a job, at most for a pause; gives as many as may share a transaction."""
        jobs: _Jobs = []
        with contextlib.suppress(queue.Empty):
            while not self._closing and len(jobs) < self.max_batch:
                job = self._jobs.get(block=not jobs, timeout=timeout_seconds)
                if job is None:
                    self._closing = True
                else:
                    jobs.append(job)
        return jobs

    def _execute(self, jobs: _Jobs) -> None:
        """All in one transaction; when one of them fails, each in one of its own."""
        failure = self._execute_in_one(jobs)
        if failure and (len(jobs) > 1 or is_disconnect(failure)):
            self._execute_separately(jobs)
        for job in jobs:
            if job.error:
                job.error = translate_error(job.error, self._name)

    def _execute_separately(self, jobs: _Jobs) -> None:
        for job in jobs:
            self._execute_in_one([job])

    def _execute_in_one(self, jobs: _Jobs) -> Exception | None:
        """Run jobs in one transaction; answers with an error after which it may be run again."""
        self.transactions += 1
        try:
            connection = self._get_connection()
            transaction = connection.begin()
        except SQLAlchemyError as error:
            return self._fail_jobs(jobs, error)
        for job in jobs:
            if not job.run_in(connection):
                with contextlib.suppress(SQLAlchemyError):
                    transaction.rollback()
                if is_disconnect(job.error):
                    self._disconnect()
                return job.error
        self._end_transaction(jobs, connection, transaction)
        return None

    def _end_transaction(self, jobs: _Jobs, _: Connection, transaction: Transaction) -> None:
        """End a transaction in which all jobs went well."""
        try:
            transaction.rollback()
        except SQLAlchemyError as error:
            self._fail_jobs(jobs, error)

    def _fail_jobs(self, jobs: _Jobs, error: Exception) -> Exception | None:
        self._disconnect()
        for job in jobs:
            job.error = error
        return error if is_disconnect(error) else None

    def _get_connection(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.close()
        self._connection = None


class _WriterThread(_DatabaseWorker):
    """The only thread that writes."""

    max_batch = MAX_BATCH_JOBS

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, on_finished: Callable[[_Jobs], None]
    ) -> None:
        # SQLite answers for itself what became of a commit.
        self._commit_tracker = None if engine.dialect.name == "sqlite" else CommitTracker()
        self._in_doubt: _Jobs = []  # their commit was not answered
        self._deferred: _Jobs = []  # handed in after those, and not done yet
        self._last_commit_done = False  # what the newest connection says of the last commit
        self._doubt_error: Exception | None = None  # why it is in doubt
        self._retry_seconds: float | None = None
        super().__init__(engine, name, jobs, on_finished)

    def _run_batch(self) -> None:
        # A read that nobody waits for is pointless; a write that was handed in counts.
        jobs = [*self._in_doubt, *self._deferred, *self._take_jobs(self._retry_seconds)]
        self._deferred = []
        if to_do := self._resolve_doubtful(jobs) if self._in_doubt else jobs:
            self._execute(to_do)
        kept = {id(job) for job in (*self._in_doubt, *self._deferred)}
        self._on_finished([job for job in jobs if id(job) not in kept])

    def _resolve_doubtful(self, jobs: _Jobs) -> _Jobs:
        """Ask what became of those in doubt, which are the first; gives what is still to be done."""
        others = jobs[len(self._in_doubt) :]
        try:
            self._get_connection()
        except SQLAlchemyError as error:
            self._fail_jobs(others, translate_error(error, self._name))
            self._back_off()
            return []
        for job in self._in_doubt:
            job.error = None
        self._in_doubt = []
        return others if self._last_commit_done else jobs

    def _back_off(self) -> None:
        pause = self._retry_seconds
        self._retry_seconds = (
            0.0 if pause is None else min(max(pause * 2, INITIAL_RETRY_SECONDS), MAX_RETRY_SECONDS)
        )

    def _execute_separately(self, jobs: _Jobs) -> None:
        for number, job in enumerate(jobs, 1):
            self._execute_in_one([job])
            if self._in_doubt:  # what was handed in later must not be done earlier
                self._deferred = jobs[number:]
                break

    def _end_transaction(
        self, jobs: _Jobs, connection: Connection, transaction: Transaction
    ) -> None:
        try:
            if self._commit_tracker:
                self._commit_tracker.commit(connection, transaction)
            else:
                transaction.commit()
        except SQLAlchemyError as error:
            failure = translate_error(error, self._name, committing=True)
            self._fail_jobs(jobs, failure)
            if self._commit_tracker and isinstance(failure, CommitOutcomeUnknown):
                self._in_doubt, self._doubt_error = jobs, failure
                self._back_off()
        else:
            self._retry_seconds = None

    def _get_connection(self) -> Connection:
        fresh = self._connection is None
        connection = super()._get_connection()
        if fresh and self._commit_tracker:
            try:
                self._last_commit_done = self._commit_tracker.resume_on(connection)
            except SQLAlchemyError:
                self._disconnect()
                raise
        return connection

    def _shut_down(self) -> None:
        if self._in_doubt:
            self._run_batch()  # nothing more is taken, but the server may be there by now
        left = [*self._in_doubt, *self._deferred]
        for job in left:
            job.error = self._doubt_error
        self._on_finished(left)
        if self._commit_tracker and self._connection:
            with contextlib.suppress(SQLAlchemyError):
                self._commit_tracker.close(self._connection)
        super()._shut_down()


class Database:
    """One database, used from one event loop."""

    def __init__(self, where: DatabaseLocation, *, read_only: bool = False) -> None:
        self.name = where.name
        self.damage = ""
        """What was found to be damaged, by whoever came upon it first; empty: nothing so far."""
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread_yielder = ThreadYielder(self._loop.call_later)
        read_engine = reader_engine(where, without_writer=read_only)
        self.dialect = read_engine.dialect
        self._engines = [read_engine]
        self._reads: _Queue = queue.SimpleQueue()
        self._writes: _Queue | None = None
        self._workers = [
            _DatabaseWorker(read_engine, self.name, self._reads, self._on_jobs_finished)
            for _ in range(READER_THREADS)
        ]
        if not read_only:
            write_engine = writer_engine(where)
            self._engines.append(write_engine)
            self._writes = queue.SimpleQueue()
            self._workers.append(
                _WriterThread(write_engine, self.name, self._writes, self._on_jobs_finished)
            )

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the writer's next transaction; returns when it is committed.

        If it raises, nothing of it is stored, and whatever shared the transaction is not affected.
        """
        if self._writes is None:
            msg = f"The database {self.name} was opened for reading only"
            raise StoreError(msg)
        return await self._submit(self._writes, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one unchanging view of what is committed."""
        return await self._submit(self._reads, work)

    async def _submit(self, jobs: _Queue, work: Callable[[Connection], T]) -> T:
        if self._closed:
            msg = f"The database {self.name} was closed"
            raise StoreUnavailable(msg)
        future: asyncio.Future[T] = self._loop.create_future()
        jobs.put(_Job(work, future))
        self._thread_yielder.on_job_submitted()
        return await future

    def _on_jobs_finished(self, jobs: _Jobs) -> None:
        """Called in a thread: once for a whole transaction."""
        if not jobs:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve_jobs, jobs)
        self._thread_yielder.on_jobs_done()

    def _resolve_jobs(self, jobs: _Jobs) -> None:
        self._thread_yielder.on_results_seen(len(jobs))
        for job in jobs:
            if isinstance(job.error, StoreCorrupt) and not self.damage:
                self.damage = str(job.error)
                log.error("%s", self.damage)
            job.settle()

    @property
    def writer_transactions(self) -> int:
        """What the thread that writes has taken in hand so far."""
        return self._workers[-1].transactions

    def stop(self) -> None:
        """Take nothing more; what was taken will still be done."""
        if not self._closed:
            self._closed = True
            for _ in range(READER_THREADS):
                self._reads.put(None)
            if self._writes:
                self._writes.put(None)

    def close(self) -> None:
        """Take nothing more, and wait until everything that was taken is done."""
        self.stop()
        for worker in self._workers:
            worker.join()

    def count_queries(self) -> QueryCounts:
        """Count what is done from now on."""
        counts = QueryCounts()

        def statement(*_: object) -> None:
            counts.statements += 1

        def commit(_: object) -> None:
            counts.commits += 1

        for engine in self._engines:
            sa.event.listen(engine, "before_cursor_execute", statement)
            sa.event.listen(engine, "commit", commit)
        return counts
