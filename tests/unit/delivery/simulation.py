"""A world for delivery: real store, in-memory platform, and a clock that jumps when all wait.

The loop's time moves only when nothing is to be done and no thread works for us, and then at once
to the next timer: hours pass in milliseconds, and every run is the same.
"""

import asyncio
import contextlib
import selectors
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import msgspec
import sqlalchemy as sa

from gateway.delivery.outbox import Delivery
from gateway.delivery.view import ItemBody, write_body
from platforms.core.contract import Address, Button, Op, Receipt
from sessions.changes import Change, PutItem
from sessions.errors import StoreError
from sessions.records import ItemKind, ItemState, OutboxItem
from sessions.store.database import Database
from sessions.store.readers import OutboxReader
from sessions.store.schema import outbox
from sessions.store.store import SessionStore, StoreObserver
from tests.fakes.memory import MemoryAdapter

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BEGINNING = 1_800_000_000_000
CHAT = "1001"


class _Selector(selectors.DefaultSelector):
    """Selector that advances the clock instead of waiting for a timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.busy = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.busy:
            return super().select(5)
        if timeout is None:
            msg = "everybody waits, and nothing will ever happen"
            raise RuntimeError(msg)
        self.now += timeout
        return []


class World(asyncio.SelectorEventLoop):
    """The event loop and its clock."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder
        self.timers = _Selector()
        super().__init__(self.timers)

    def time(self) -> float:
        return self.timers.now

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Stop the clock while a thread works."""
        self.timers.busy += 1
        try:
            yield
        finally:
            self.timers.busy -= 1

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        working = contextlib.ExitStack()
        working.enter_context(self.busy())
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: working.close())
        return future

    def now(self) -> int:
        """See `Clock`."""
        return BEGINNING + round(self.timers.now * 1000)

    def monotonic(self) -> float:
        """See `Clock`."""
        return self.timers.now


class Crash:
    """Counts the points at which the process may die, and dies at the chosen one."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.passed = 0
        self.happened = asyncio.Event()

    async def point(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.happened.set()
        if self.happened.is_set():
            await asyncio.Event().wait()  # a dead process does nothing


class BusyOutbox(OutboxReader):
    """Stops the clock of the world while the store is read."""

    def __init__(self, database: Database, world: World) -> None:
        super().__init__(database)
        self.world = world

    async def undelivered(self) -> tuple[OutboxItem, ...]:
        with self.world.busy():
            return await super().undelivered()


class Store(SessionStore):
    """The real store; dies before or after a commit."""

    def __init__(
        self, database: Database, clock: World, observer: StoreObserver | None = None
    ) -> None:
        super().__init__(database, clock, observer)
        self.world = clock
        self.outbox = BusyOutbox(database, clock)
        self.crash = Crash()
        self.commits = 0
        self.forgot = False  # died before a Retry-After was stored
        self.slow = 0.0  # seconds per commit
        self.errors: list[StoreError] = []  # errors of the next commits

    async def apply(self, *changes: Change) -> None:
        await self.crash.point()
        await asyncio.sleep(self.slow)
        if self.errors:
            raise self.errors.pop(0)
        with self.world.busy():
            await super().apply(*changes)
        self.commits += 1
        await self.crash.point()

    async def put_value(self, shelf: str, name: str, value: str | None) -> None:
        before, self.forgot = self.forgot, True
        await self.crash.point()
        self.forgot = before
        if self.errors:
            raise self.errors.pop(0)
        with self.world.busy():
            await super().put_value(shelf, name, value)
        await self.crash.point()

    async def get_value(self, shelf: str, name: str) -> str | None:
        with self.world.busy():
            return await super().get_value(shelf, name)


class Platform(MemoryAdapter):
    """The in-memory platform; the process dies before or after an op is carried out."""

    crash: Crash | None = None

    async def deliver(self, op: Op) -> Receipt:
        if self.crash:
            await self.crash.point()
        receipt = await super().deliver(op)
        if self.crash:
            await self.crash.point()
        return receipt


def simulate(scene: Callable[["World", Store], Coroutine[Any, Any, T]]) -> T:
    """Run a scene in a new world."""
    memory = Path("/dev/shm")  # noqa: S108 - only for speed
    parent = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        world = World(Path(folder))
        with asyncio.Runner(loop_factory=lambda: world) as runner:
            return runner.run(_play(scene, world, f"sqlite:///{folder}/store.db"))


def simulated(scene: Callable[["World", Store], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Turn a scene into a test."""

    def test() -> None:
        simulate(scene)

    test.__name__ = scene.__name__
    return test


async def _play(
    scene: Callable[["World", Store], Coroutine[Any, Any, T]], world: World, url: str
) -> T:
    with world.busy():
        store = await Store.open(url, clock=world)
    try:
        async with asyncio.timeout(1_000_000):
            return await scene(world, store)
    finally:
        world.timers.busy += 1  # threads end now, which the clock cannot see
        await store.close()


@contextlib.asynccontextmanager
async def running(
    store: Store, *adapters: MemoryAdapter, **options: Any
) -> AsyncIterator[Delivery]:
    """Run delivery with all platforms connected."""
    delivery = Delivery(store, store.world, store.world.folder / "sent", **options)
    for adapter in adapters:
        delivery.attach(adapter)
        delivery.on_connected(adapter.name, adapter.account)
    await delivery.recover()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(delivery.run())
        try:
            yield delivery
        finally:
            task.cancel()


def item(
    item_id: str,
    text: str = "",
    *,
    kind: str = "answer",
    chat: str = CHAT,
    platform: str = "memory",
    final: bool = True,
    buttons: tuple[Button, ...] = (),
    urgent: bool = False,
) -> OutboxItem:
    """Return an item; an upload always has the same file."""
    body = ItemBody(text=text, buttons=buttons, urgent=urgent)
    if kind == "upload":
        body = msgspec.structs.replace(body, path="/x.png", name="x.png", media_type="image/png")
    return OutboxItem(
        id=item_id,
        address=Address(platform, chat),
        kind=ItemKind(kind),
        state=ItemState.PENDING,
        body=write_body(body),
        created_at=BEGINNING,
        final=final,
    )


async def put(store: Store, delivery: Delivery, *items: OutboxItem) -> None:
    """Commit items and enqueue them, as the gateway does."""
    await store.apply(*map(PutItem, items))
    delivery.enqueue(items)


async def until(condition: Callable[[], bool]) -> None:
    """Advance the clock until a condition holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    msg = "it never came true"
    raise AssertionError(msg)


class Row(msgspec.Struct, frozen=True):
    """Return an item's delivery state from the store."""

    state: str
    error: str
    not_before: int


async def row_of(store: Store, item_id: str) -> Row:
    """Return the stored row of an item."""
    query = sa.select(outbox.c.state, outbox.c.error, outbox.c.not_before)
    with store.world.busy():
        found = await store.database.read(
            lambda connection: connection.execute(query.where(outbox.c.id == item_id)).one()
        )
    return Row(found.state, found.error or "", found.not_before)


def kinds(platform: Platform) -> list[str]:
    """Return the ops carried out, in order."""
    return [type(op).__name__ for op in platform.ops]


async def write(delivery: Delivery, text: str, pause: float = 0.05) -> None:
    """Grow an answer by ten characters at a time."""
    answer = delivery.start_live(item("a_1", final=False))
    for end in range(0, len(text), 10):
        answer.update(text[:end])
        await asyncio.sleep(pause)
    answer.close()
