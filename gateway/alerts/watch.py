"""Watches how platforms, disk and budgets stand, and has the admins told of what is wrong."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from gateway.alerts.admins import Book, Operators, Trouble
from gateway.delivery.outbox import Delivery
from gateway.observe.disk import Gauge
from gateway.spending.budgets import Budgets
from sessions.changes import Change, PutItem
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.steady_clock import Steady, in_words

log = logging.getLogger(__name__)

_SHELF, _NAME = "operators", "book"
_AGAIN_SECONDS = 5.0
"""Pause after something could not be stored."""

DISK_SECONDS = 60.0
"""Pause between two looks at the disk."""


class Vigil:
    """Looks whenever `news` is set, when a trouble has lasted long enough, and now and then."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        operators: Operators,
        delivery: Delivery,
        *,
        platforms: Callable[[], Mapping[str, Trouble]],
        gauge: Gauge,
        budgets: Budgets,
        news: asyncio.Event,
        crashes: int = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._operators = operators
        self._delivery = delivery
        self._platforms = platforms
        self._gauge = gauge
        self._budgets = budgets
        self._news = news
        self._steady = Steady(clock)
        self._crashes = crashes
        self._kept = Book()
        self._unsaid: tuple[PutItem, ...] = ()

    async def open(self) -> None:
        """Take up what an earlier process has told."""
        kept = await self._store.get_value(_SHELF, _NAME)
        if kept:
            try:
                self._kept = msgspec.json.decode(kept, type=Book)
            except msgspec.DecodeError as error:
                log.warning("what the admins were told cannot be read: %s", error)
        self._operators.restore(self._kept)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._news.clear()
            if jump := self._steady.jump():
                log.warning("the clock of this machine was set: %s", in_words(jump))
            try:
                await self._look()
                wait = self._until_next()
            except StoreError as error:
                log.warning("the admins cannot be told now: %s", error)
                wait = _AGAIN_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _until_next(self) -> float:
        left = self._operators.alarms.seconds_left(self._clock.now())
        return DISK_SECONDS if left is None else min(left, DISK_SECONDS)

    async def _look(self) -> None:
        told = (
            *self._operators.look_at_crashes(self._crashes),
            *self._operators.look(self._platforms()),
            *self._operators.look_at_store(self._store.damage),
            *await self._look_at_the_disk(),
            *self._operators.look_at_budgets(
                await self._budgets.standings(), self._budgets.free_in
            ),
        )
        self._unsaid += tuple(change for change in told if isinstance(change, PutItem))
        if self._unsaid:
            await self._store.apply(*self._unsaid)
            self._delivery.wake([change.item for change in self._unsaid])
            self._unsaid = ()
        await self._keep_book()

    async def _look_at_the_disk(self) -> tuple[Change, ...]:
        try:
            return self._operators.look_at_room(await self._gauge.read())
        except OSError:
            return ()  # `/readyz` names it; how much is left is not known

    async def _keep_book(self) -> None:
        book = self._operators.book
        if book != self._kept:
            await self._store.put_value(_SHELF, _NAME, msgspec.json.encode(book).decode())
            self._kept = book
