"""Alerts for the admins about problems that only an admin can fix.

Each problem is reported once when it starts and, except for budgets and a damaged database, once
when it ends:

model     a refused key, an empty account or an outage with the first turn that fails; other
          failures with the first turn that fails after five minutes without any answer
platform  a problem that lasts for some minutes
disk      low space, at once, because a notice cannot be stored on a full disk
budget    a shared budget that is nearly used up or used up, once a day each
tools     an MCP server that changed tools, once an hour and without an end
servers   an MCP server that needs a login, or changed its instructions, without an end
safe mode see `gateway.process.safe_mode`
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from agent.events import TurnDone, VerdictName
from agent.tools.mcp.memory import InstructionsChange, ToolChange
from gateway.access.policy import admin_addresses
from gateway.alerts.alarms import Alarm, AlarmRaised, Alarms
from gateway.inbound.routing import connection_name
from gateway.notices.compose import NoticeComposer
from gateway.observe.disk import DiskSpace
from gateway.spending.budgets import BudgetStatus
from platforms.core.contract import Address, Capabilities
from sessions.changes import Change, PutItem
from sessions.values.clock import Clock
from sessions.values.notices import NoticeFields, NoticeId
from sessions.values.text import format_minutes, shorten
from sessions.values.visible_text import escape_markdown

_REPEAT_SECONDS = 3600.0
"""Seconds during which the same model failure or server of tools is not reported again."""

_FAILURE_SHOWN_MS = 86_400_000
"""Time for which a failed model is shown; the model may no longer be configured."""

_BUDGET_WARNING_SHARE = 0.8
"""Used share of a budget from which the admins are warned."""

_MAX_REMEMBERED = 100
_MAX_TOOLS = 10  # named in one alert
_MAX_TOOL_NAME = 100  # characters


class PlatformStatus(msgspec.Struct, frozen=True):
    """Problem of a platform, and whether messages can be sent on it."""

    cause: str  # empty without a problem
    reachable: bool


class BudgetAlert(msgspec.Struct, frozen=True):
    """Last alert about a budget."""

    day: str
    over: bool  # True: used up; False: nearly used up


class AlertState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Reported problems that have not ended, as stored."""

    models: dict[str, Alarm] = {}  # by cause
    platforms: dict[str, Alarm] = {}
    disk: Alarm | None = None
    safe_mode: Alarm | None = None
    budgets: dict[str, BudgetAlert] = {}
    failing: dict[str, Alarm] = {}  # models whose last turn failed, by model labels
    logins: tuple[str, ...] = ()  # MCP servers that need a login


class ToolAlerts(msgspec.Struct, frozen=True):
    """Alerts about changed tools, and the changes that they report."""

    changes: tuple[Change, ...]
    reported: tuple[ToolChange, ...]


class _ModelFailure(msgspec.Struct, frozen=True):
    alarm: Alarm
    targets: str  # labels of the failed models; empty if an earlier process reported them


class AdminAlerts:
    """Decides which alerts the admins get; the caller commits the returned changes."""

    def __init__(
        self,
        admins: Callable[[], Iterable[str]],
        announcer: NoticeComposer,
        clock: Clock,
        capabilities: Callable[[Address], Capabilities | None],
        on_change: Callable[[], None] = lambda: None,
        *,
        model_labels: Callable[[], frozenset[str]] | None = None,
    ) -> None:
        self._admins = admins
        self._announcer = announcer
        self._clock = clock
        self._capabilities = capabilities
        self._on_change = on_change  # called when `state` must be saved
        self._model_labels = model_labels  # of the configured models; None: not known
        self._last_alerted: dict[str, float] = {}
        self._tools_alerted: dict[str, float] = {}  # time of the last alert, by MCP server
        self._model_failures: dict[str, _ModelFailure] = {}
        self._failing_since: dict[str, float] = {}  # time of the first failure, by model labels
        self._failing_models: dict[str, Alarm] = {}  # last failure of each, by model labels
        self._disk_alarm: Alarm | None = None
        self._damage_reported = False
        self._logins_reported: set[str] = set()  # MCP servers
        self._safe_mode_alarm: Alarm | None = None
        self._budget_alerts: dict[str, BudgetAlert] = {}
        self.alarms = Alarms()

    # --- the model ------------------------------------------------------------------------------

    def report_model_failure(
        self, cause: str, person: str, targets: str = ""
    ) -> tuple[Change, ...]:
        """Return alerts for all admins except this person, who sees the failure anyway.

        Empty if there is no such admin or the same failure was reported within the last hour; then
        the person must not read that the admins were notified.
        """
        now, kind = self._clock.monotonic(), cause.partition(" (")[0]  # the rest may vary
        if now - self._last_alerted.get(kind, -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return ()
        shown = self._notice_changes(NoticeId.MODEL_FAILED, {"cause": cause}, except_person=person)
        if shown:
            if len(self._last_alerted) >= _MAX_REMEMBERED:
                self._last_alerted.clear()
                self._model_failures.clear()
            self._last_alerted[kind] = now
            self._model_failures[kind] = _ModelFailure(
                Alarm(cause, self._clock.now(), told=True), targets
            )
            self._on_change()
        return shown

    def can_reach_admin_besides(self, person: str) -> bool:
        """Return True if an admin other than this person can be sent alerts."""
        return any(
            f"{place.platform}:{place.chat}" != person and self._capabilities(place) is not None
            for place in admin_addresses(self._admins())
        )

    def on_turn_failed(self, done: TurnDone, person: str, targets: str) -> tuple[Change, ...]:
        """Return alerts about a failed turn: at once, or after some minutes without any answer.

        Problems that only an admin can fix, and outages, are certain with the first failed turn.
        Other failures, such as broken connections, may pass by themselves.
        """
        if done.tell_operator or (done.last_verdict is VerdictName.CUT and not done.over_budget):
            self._record_failing(targets, done.cause)
        if done.tell_operator:
            return self.report_model_failure(done.cause, person, targets)
        if done.last_verdict is not VerdictName.CUT or done.over_budget:
            return ()  # the model did answer
        since = self._failing_since.setdefault(targets, self._clock.monotonic())
        if len(self._failing_since) > _MAX_REMEMBERED:
            self._failing_since.pop(next(iter(self._failing_since)))
        lasts = self._clock.monotonic() - since >= self.alarms.delay_seconds
        return self.report_model_failure(done.cause, person, targets) if lasts else ()

    def _record_failing(self, targets: str, cause: str) -> None:
        """Remember a failure, also for the next process; the same cause is stored once an hour."""
        known, now = self._failing_models.get(targets), self._clock.now()
        if known and known.cause == cause and now - known.since < _REPEAT_SECONDS * 1000:
            return
        if len(self._failing_models) >= _MAX_REMEMBERED:
            self._failing_models.clear()
        self._failing_models[targets] = Alarm(cause, now)
        self._on_change()

    def on_model_answered(self, targets: str) -> tuple[Change, ...]:
        """Return the alerts about the end of a reported failure of these models."""
        self._failing_since.pop(targets, None)
        if self._failing_models.pop(targets, None):
            self._on_change()
        if not self._model_failures:
            return ()
        kinds = [
            kind
            for kind, failure in self._model_failures.items()
            if failure.targets in {targets, ""}
        ]
        ended = [self._model_failures.pop(kind).alarm for kind in kinds]
        if not ended:
            return ()
        self._on_change()
        first = min(ended, key=lambda alarm: alarm.since)
        return self._notice_changes(NoticeId.MODEL_RECOVERED, self._alarm_fields(first))

    def model_problems(self) -> dict[str, str]:
        """Return the cause of the last failed turn of each model that has not answered since.

        Models that are no longer configured are left out.
        """
        oldest = self._clock.now() - _FAILURE_SHOWN_MS
        labels = self._model_labels() if self._model_labels else None
        return {
            targets: alarm.cause
            for targets, alarm in self._failing_models.items()
            if alarm.since >= oldest
            and (labels is None or not labels.isdisjoint(targets.split(", ")))
        }

    # --- platforms ------------------------------------------------------------------------------

    def check_platforms(self, platforms: Mapping[str, PlatformStatus]) -> tuple[Change, ...]:
        """Return the alerts about platform problems that have lasted long enough or ended."""
        causes = {name: status.cause for name, status in platforms.items()}
        changes: list[Change] = []
        for event in self.alarms.update(causes, self._clock.now()):
            fields = {"platform": event.subject, **self._alarm_fields(event.alarm)}
            if isinstance(event, AlarmRaised):
                unreachable = {name for name, status in platforms.items() if not status.reachable}
                changes += self._notice_changes(
                    NoticeId.PLATFORM_FAILED, fields, unreachable=unreachable
                )
            else:
                changes += self._notice_changes(NoticeId.PLATFORM_RECOVERED, fields)
            self._on_change()
        return tuple(changes)

    # --- the disk -------------------------------------------------------------------------------

    def check_disk(self, space: DiskSpace) -> tuple[Change, ...]:
        """Return the alerts about low disk space, or its end."""
        was = self._disk_alarm
        if space.is_low(was_low=was is not None) == (was is not None):
            return ()
        self._on_change()
        if was is None:
            self._disk_alarm = Alarm(space.free_text, self._clock.now(), told=True)
            return self._notice_changes(
                NoticeId.DISK_LOW, {"left": space.free_text, "folder": str(space.folder)}
            )
        self._disk_alarm = None
        return self._notice_changes(
            NoticeId.DISK_RECOVERED, {"left": space.free_text, "min": self._minutes_of(was)}
        )

    # --- the database ---------------------------------------------------------------------------

    def check_store(self, damage: str) -> tuple[Change, ...]:
        """Return the alert about a damaged database, once per process."""
        if not damage or self._damage_reported:
            return ()
        self._damage_reported = True
        return self._notice_changes(NoticeId.DATABASE_DAMAGED, {"cause": damage.rstrip(".")})

    # --- tools ----------------------------------------------------------------------------------

    def report_tool_changes(self, tool_changes: Iterable[ToolChange]) -> ToolAlerts:
        """Return the alerts about changed tools, at most one per server and hour.

        A change that cannot be reported yet, because it is too early or there is no admin, is left
        for a later call.
        """
        changes: list[Change] = []
        reported: list[ToolChange] = []
        for change in tool_changes:
            now = self._clock.monotonic()
            last = self._tools_alerted.get(change.server, -_REPEAT_SECONDS)
            if now - last < _REPEAT_SECONDS:
                continue
            listed = ", ".join(shorten(name, _MAX_TOOL_NAME) for name in change.tools[:_MAX_TOOLS])
            fields: NoticeFields = {
                "server": change.server,
                "list": listed,
                "n": len(change.tools),
                "more": max(0, len(change.tools) - _MAX_TOOLS),
            }
            if shown := self._notice_changes(NoticeId.TOOLS_CHANGED, fields):
                self._tools_alerted[change.server] = now
                changes += shown
                reported.append(change)
        return ToolAlerts(tuple(changes), tuple(reported))

    def check_logins(self, needs: Mapping[str, bool]) -> tuple[Change, ...]:
        """Return the alerts about MCP servers that need a login, once until they are connected."""
        changes: list[Change] = []
        for server, is_needed in needs.items():
            if not is_needed and server in self._logins_reported:
                self._logins_reported.discard(server)
                self._on_change()
            elif is_needed and server not in self._logins_reported:
                shown = self._notice_changes(NoticeId.MCP_LOGIN_NEEDED, {"server": server})
                if shown:
                    self._logins_reported.add(server)
                    self._on_change()
                changes += shown
        return tuple(changes)

    def report_instructions(
        self, changed: Iterable[InstructionsChange]
    ) -> tuple[tuple[Change, ...], tuple[str, ...]]:
        """Return the alerts about changed instructions, and the servers that they are about."""
        changes: list[Change] = []
        reported: list[str] = []
        for each in changed:
            fields: NoticeFields = {
                "server": each.server.partition(" ")[0],
                "change": "\n".join(map(escape_markdown, each.change.splitlines())),
            }
            if shown := self._notice_changes(NoticeId.MCP_INSTRUCTIONS_CHANGED, fields):
                changes += shown
                reported.append(each.server)
        return tuple(changes), tuple(reported)

    # --- safe mode ------------------------------------------------------------------------------

    def check_safe_mode(self, crash_count: int) -> tuple[Change, ...]:
        """Return the alerts about the start or the end of safe mode."""
        if bool(crash_count) == (self._safe_mode_alarm is not None):
            return ()
        self._on_change()
        if crash_count:
            self._safe_mode_alarm = Alarm(str(crash_count), self._clock.now(), told=True)
            return self._notice_changes(NoticeId.SAFE_MODE, {"n": crash_count})
        self._safe_mode_alarm = None
        return self._notice_changes(NoticeId.SAFE_MODE_OVER, {})

    # --- budgets --------------------------------------------------------------------------------

    def check_budgets(
        self, standings: Iterable[BudgetStatus], seconds_until_reset: int
    ) -> tuple[Change, ...]:
        """Return the alerts about shared budgets, at most two per budget and day."""
        changes: list[Change] = []
        for status in standings:
            over = status.refused or status.used_fraction >= 1
            if not over and status.used_fraction < _BUDGET_WARNING_SHARE:
                continue
            known = self._budget_alerts.get(status.scope.name)
            if known and known.day == status.day and (known.over or not over):
                continue
            self._budget_alerts[status.scope.name] = BudgetAlert(status.day, over)
            self._on_change()
            limit = {"limit": status.limit_text, "whose": status.scope.label}
            if over:
                left = format_minutes(seconds_until_reset)
                changes += self._notice_changes(
                    NoticeId.SHARED_BUDGET_USED_UP, {**limit, "left": left}
                )
            else:
                percent = int(status.used_fraction * 100)
                changes += self._notice_changes(
                    NoticeId.SHARED_BUDGET_LOW,
                    {**limit, "percent": percent, "used": status.used_text},
                )
        return tuple(changes)

    # --- people without access ------------------------------------------------------------------

    def check_strangers(self, count: int) -> tuple[Change, ...]:
        """Return the digest about `count` people without access; nothing for 0."""
        return self._notice_changes(NoticeId.STRANGERS, {"n": count}) if count else ()

    # --- stored state ---------------------------------------------------------------------------

    @property
    def state(self) -> AlertState:
        """Reported problems that have not ended."""
        models = {kind: failure.alarm for kind, failure in self._model_failures.items()}
        return AlertState(
            models=models,
            platforms=self.alarms.announced,
            disk=self._disk_alarm,
            safe_mode=self._safe_mode_alarm,
            budgets=dict(self._budget_alerts),
            failing=dict(self._failing_models),
            logins=tuple(sorted(self._logins_reported)),
        )

    def restore(self, state: AlertState) -> None:
        """Continue from the alerts of an earlier process."""
        self._model_failures = {
            kind: _ModelFailure(alarm, "") for kind, alarm in state.models.items()
        }
        self.alarms.restore(state.platforms)
        self._disk_alarm = state.disk
        self._safe_mode_alarm = state.safe_mode
        self._budget_alerts = dict(state.budgets)
        self._failing_models = dict(state.failing)
        self._logins_reported = set(state.logins)

    # --- notices --------------------------------------------------------------------------------

    def _alarm_fields(self, alarm: Alarm) -> NoticeFields:
        return {"cause": alarm.cause.rstrip("."), "min": self._minutes_of(alarm)}

    def _minutes_of(self, alarm: Alarm) -> int:
        return alarm.duration_minutes(self._clock.now())

    def _notice_changes(
        self,
        notice: NoticeId,
        fields: NoticeFields,
        *,
        except_person: str = "",
        unreachable: Iterable[str] = (),
    ) -> tuple[Change, ...]:
        """Return a notice for each admin, except one person and unreachable connections."""
        return tuple(
            PutItem(self._announcer.notice_item(notice, place, fields, deferred=True))
            for place in admin_addresses(self._admins())
            if f"{place.platform}:{place.chat}" != except_person
            and connection_name(place.platform, place.account) not in unreachable
            and self._capabilities(place)
        )
