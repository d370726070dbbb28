"""`AlertWatch`: checks platforms, disk, database and budgets, and sends alerts to the admins."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from agent.tools.mcp.memory import ToolChange, ToolMemory
from gateway.alerts.admins import AdminAlerts, AlertState, PlatformStatus
from gateway.delivery.outbox import Delivery
from gateway.observe.disk import DiskGauge
from gateway.spending.budgets import Budgets
from sessions.changes import Change, PutItem, PutValue
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


class WatchedParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the gateway that the watch checks, besides the store."""

    platform_statuses: Callable[[], Mapping[str, PlatformStatus]]
    disk_gauge: DiskGauge
    budgets: Budgets
    take_stranger_digest: Callable[[], int]
    tool_memory: ToolMemory | None = None
    login_needs: Callable[[], Mapping[str, bool]] = dict  # see `McpServers.login_needs`
    crash_count: int = 0


class AlertWatch:
    """Runs the checks when `wakeup` is set, when a report is due, and once a minute."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        admin_alerts: AdminAlerts,
        delivery: Delivery,
        *,
        watched: WatchedParts,
        wakeup: asyncio.Event,
    ) -> None:
        self._store = store
        self._clock = clock
        self._admin_alerts = admin_alerts
        self._delivery = delivery
        self._watched = watched
        self._wakeup = wakeup
        self._steady_clock = SteadyClock(clock)
        self._saved_state = AlertState()
        self._unsent: tuple[PutItem, ...] = ()
        self._reported: tuple[ToolChange, ...] = ()  # in alerts that are sent or unsent
        self._reported_instructions: tuple[str, ...] = ()  # the same for servers

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
        budgets, tools = self._watched.budgets, self._watched.tool_memory
        tool_alerts = self._admin_alerts.report_tool_changes(
            tools.unreported_changes() if tools else ()
        )
        instruction_alerts, servers = self._admin_alerts.report_instructions(
            tools.unreported_instructions() if tools else ()
        )
        changes = (
            *instruction_alerts,
            *self._admin_alerts.check_logins(self._watched.login_needs()),
            *self._admin_alerts.check_safe_mode(self._watched.crash_count),
            *self._admin_alerts.check_platforms(self._watched.platform_statuses()),
            *self._admin_alerts.check_store(self._store.damage),
            *tool_alerts.changes,
            *await self._check_disk(),
            *self._admin_alerts.check_budgets(
                await budgets.statuses(), budgets.seconds_until_reset
            ),
            *self._admin_alerts.check_strangers(self._watched.take_stranger_digest()),
        )
        self._reported += tool_alerts.reported
        self._reported_instructions += servers
        self._unsent += tuple(change for change in changes if isinstance(change, PutItem))
        state = self._admin_alerts.state
        if self._unsent or state != self._saved_state:
            kept = PutValue(_SHELF, _NAME, msgspec.json.encode(state).decode())
            await self._delivery.put(*self._unsent, kept)
            self._unsent, self._saved_state = (), state
        if tools and self._reported:
            await tools.mark_reported(self._reported)
            self._reported = ()
        if tools and self._reported_instructions:
            await tools.mark_instructions_reported(self._reported_instructions)
            self._reported_instructions = ()

    async def _check_disk(self) -> tuple[Change, ...]:
        try:
            return self._admin_alerts.check_disk(await self._watched.disk_gauge.read())
        except OSError:
            return ()  # free space is unknown; `/readyz` reports the error
