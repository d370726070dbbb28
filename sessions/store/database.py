"""Threads that talk to the database, so that the event loop never waits for the disk.

One thread writes, running all waiting jobs in one transaction (group commit), which costs a single
sync to disk. Three threads read. A job is a plain function of a SQLAlchemy connection; a write may
be run a second time after a rollback, so a write must have no other effects.

Cancelling the task that awaits a write does not withdraw the write. Writes run in the order of
their submission, each completely or not at all, and the successor of a cancelled task may rely on
that.

A write whose commit was not answered is in doubt: the write waits until the server can be asked,
then is repeated or counts as done. Until then all other writes are refused, not kept.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
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
_INITIAL_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.05, 5.0
"""Seconds between two attempts to learn the outcome of a commit."""

T = TypeVar("T")


class QueryCounts(msgspec.Struct):
    """Counters of executed statements and commits."""

    statements: int = 0
    commits: int = 0


class _Job(Generic[T]):
    """A function for one of the threads, and the future of the result."""

    __slots__ = ("error", "future", "value", "work")

    def __init__(self, work: Callable[[Connection], T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.value: T | None = None
        self.error: Exception | None = None

    def run_in(self, connection: Connection) -> bool:
        """Run the job inside an open transaction; return True if it succeeded."""
        self.error = None
        with self:
            self.value = self.work(connection)
        return self.error is None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        # An exception belongs to the task that awaits the job, and must not end the thread.
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None

    def settle(self) -> None:
        """Set the result of the future; called in the loop."""
        if self.future.done():
            return  # the task was cancelled
        if self.error:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.value))


_Jobs = list[_Job[Any]]
_Queue = queue.SimpleQueue["_Job[Any] | None"]


class _DatabaseWorker:
    """A thread with a separate connection."""

    max_batch = 1
    """Number of jobs per transaction."""

    def __init__(
        self, engine: Engine, name: str, jobs: _Queue, on_finished: Callable[[_Jobs], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._jobs = jobs
        self._on_finished = on_finished
        self._connection: Connection | None = None
        self._closing = False
        self.transactions = 0  # number of transactions begun or attempted
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def join(self, timeout_seconds: float | None) -> bool:
        """Wait until all queued jobs are done; return False after the timeout."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

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
        """Wait for a job, at most `timeout_seconds`; return as many as may share a transaction."""
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
        """Run all jobs in one transaction; if one fails, run each separately."""
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
        """Run jobs in one transaction; return an error after which they may be run again."""
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
        """End a transaction in which all jobs succeeded."""
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
        # SQLite itself reports the outcome of every commit.
        self._commit_tracker = None if engine.dialect.name == "sqlite" else CommitTracker()
        self._in_doubt: _Jobs = []  # jobs whose commit was not answered
        self._deferred: _Jobs = []  # jobs submitted after those, and not done yet
        self._last_commit_done = False  # True if the newest connection has seen the last commit
        self._doubt_error: Exception | None = None  # the error that caused the doubt
        self._retry_seconds: float | None = None
        super().__init__(engine, name, jobs, on_finished)

    def _run_batch(self) -> None:
        # Unlike a read, a write counts even after a cancellation.
        jobs = [*self._in_doubt, *self._deferred, *self._take_jobs(self._retry_seconds)]
        self._deferred = []
        if to_do := self._resolve_doubtful(jobs) if self._in_doubt else jobs:
            self._execute(to_do)
        kept = {id(job) for job in (*self._in_doubt, *self._deferred)}
        self._on_finished([job for job in jobs if id(job) not in kept])

    def _resolve_doubtful(self, jobs: _Jobs) -> _Jobs:
        """Learn the outcome of the jobs in doubt, which come first; return the jobs still to do."""
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
            0.0
            if pause is None
            else min(max(pause * 2, _INITIAL_RETRY_SECONDS), _MAX_RETRY_SECONDS)
        )

    def _execute_separately(self, jobs: _Jobs) -> None:
        for number, job in enumerate(jobs, 1):
            self._execute_in_one([job])
            if self._in_doubt:  # later writes must not overtake this one
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
            self._run_batch()  # no more jobs are accepted, but the server may be back
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
        """First damage found; empty if there is none."""
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
        """Run `work` in the writer's next transaction and return after the commit.

        If `work` raises, nothing of the job is stored, and other jobs in the transaction are not
        affected.
        """
        if self._writes is None:
            msg = f"The database {self.name} was opened read-only"
            raise StoreError(msg)
        return await self._submit(self._writes, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one consistent snapshot of the committed data."""
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
        """Report finished jobs to the loop; called in a thread, once per transaction."""
        if not jobs:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task is waiting
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
        """Number of transactions the writer thread has begun."""
        return self._workers[-1].transactions

    def stop(self) -> None:
        """Refuse new jobs; queued jobs are still done."""
        if not self._closed:
            self._closed = True
            for _ in range(READER_THREADS):
                self._reads.put(None)
            if self._writes:
                self._writes.put(None)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Refuse new jobs and wait until all queued ones are done; return False after the timeout."""
        self.stop()
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        left = [
            worker
            for worker in self._workers
            if not worker.join(None if until is None else max(0.0, until - time.monotonic()))
        ]
        return not left

    def count_queries(self) -> QueryCounts:
        """Return counters that are updated from now on."""
        counts = QueryCounts()

        def statement(*_: object) -> None:
            counts.statements += 1

        def commit(_: object) -> None:
            counts.commits += 1

        for engine in self._engines:
            sa.event.listen(engine, "before_cursor_execute", statement)
            sa.event.listen(engine, "commit", commit)
        return counts
