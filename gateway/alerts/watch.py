"""`AlertWatch`: checks platforms, disk, database and budgets, and sends alerts to the admins."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from gateway.alerts.admins import AdminAlerts, AlertState, PlatformStatus
from gateway.delivery.outbox import Delivery
from gateway.observe.disk import DiskGauge
from gateway.spending.budgets import Budgets
from sessions.changes import Change, PutItem
from sessions.errors import StoreError
from sessions.store.store import SessionStore
from sessions.values.clock import Clock
from sessions.values.steady_clock import SteadyClock, format_jump

log = logging.getLogger(__name__)

_SHELF, _NAME = "operators", "book"
_RETRY_SECONDS = 5.0
"""Pause after an alert could not be stored."""

DISK_CHECK_SECONDS = 60.0
"""Longest pause between two checks."""


class AlertWatch:
    """Runs the checks when `wakeup` is set, when a report is due, and once a minute."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        admin_alerts: AdminAlerts,
        delivery: Delivery,
        *,
        platform_statuses: Callable[[], Mapping[str, PlatformStatus]],
        disk_gauge: DiskGauge,
        budgets: Budgets,
        wakeup: asyncio.Event,
        crash_count: int = 0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._admin_alerts = admin_alerts
        self._delivery = delivery
        self._platform_statuses = platform_statuses
        self._disk_gauge = disk_gauge
        self._budgets = budgets
        self._wakeup = wakeup
        self._steady_clock = SteadyClock(clock)
        self._crash_count = crash_count
        self._saved_state = AlertState()
        self._unsent: tuple[PutItem, ...] = ()

    async def load(self) -> None:
        """Continue from the alerts of an earlier process; an unreadable state is logged."""
        stored = await self._store.get_value(_SHELF, _NAME)
        if stored:
            try:
                self._saved_state = msgspec.json.decode(stored, type=AlertState)
            except msgspec.DecodeError as error:
                log.warning("stored admin alerts cannot be read: %s", error)
        self._admin_alerts.restore(self._saved_state)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self._wakeup.clear()
            if jump := self._steady_clock.take_jump():
                log.warning("the system clock was changed: %s", format_jump(jump))
            try:
                await self._check()
                wait = self._seconds_to_next_check()
            except StoreError as error:
                log.warning(
                    "admin alerts not stored, retrying in %.0f s: %s", _RETRY_SECONDS, error
                )
                wait = _RETRY_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    def _seconds_to_next_check(self) -> float:
        left = self._admin_alerts.alarms.seconds_until_next(self._clock.now())
        return DISK_CHECK_SECONDS if left is None else min(left, DISK_CHECK_SECONDS)

    async def _check(self) -> None:
        changes = (
            *self._admin_alerts.check_safe_mode(self._crash_count),
            *self._admin_alerts.check_platforms(self._platform_statuses()),
            *self._admin_alerts.check_store(self._store.damage),
            *await self._check_disk(),
            *self._admin_alerts.check_budgets(
                await self._budgets.statuses(), self._budgets.seconds_until_reset
            ),
        )
        self._unsent += tuple(change for change in changes if isinstance(change, PutItem))
        if self._unsent:
            await self._store.apply(*self._unsent)
            self._delivery.enqueue([change.item for change in self._unsent])
            self._unsent = ()
        await self._save_state()

    async def _check_disk(self) -> tuple[Change, ...]:
        try:
            return self._admin_alerts.check_disk(await self._disk_gauge.read())
        except OSError:
            return ()  # free space is unknown; `/readyz` reports the error

    async def _save_state(self) -> None:
        state = self._admin_alerts.state
        if state != self._saved_state:
            await self._store.put_value(_SHELF, _NAME, msgspec.json.encode(state).decode())
            self._saved_state = state
