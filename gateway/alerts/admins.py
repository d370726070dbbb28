"""Tells the admins what only they can mend, once when it begins and once when it is over.

The model: a key that is refused, an empty account, an outage; told with the turn that failed. Other
failures of the service: with the first turn that fails after five minutes without any answer.
Platforms: what keeps one from working, or disturbs it, for some minutes. The disk: that it is
nearly full, at once, since a full one takes no notice either. What may be spent together: that it is
nearly used up, and that it is, once a day each; the next day begins without a word. Safe mode, see
`gateway.process.safe_mode`.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from agent.events import TurnDone
from agent.verdict import CUT
from gateway.access.policy import admin_addresses
from gateway.alerts.alarms import Alarm, AlarmRaised, Alarms
from gateway.delivery.view import write_address
from gateway.inbound.routing import connection_name
from gateway.notices.catalogue import NoticeFields
from gateway.notices.compose import NoticeComposer
from gateway.observe.disk import DiskSpace
from gateway.spending.budgets import BudgetStatus
from gateway.spending.days import format_span
from platforms.core.contract import Address, Capabilities
from sessions.changes import Change, PutItem
from sessions.values.clock import Clock
from sessions.values.notices import NoticeId

_REPEAT_SECONDS = 3600.0
"""Seconds for which the same trouble is not told again."""

BUDGET_WARNING_SHARE = 0.8
"""The part of a budget after which the admins are told of it."""

_MAX_REMEMBERED = 100


class PlatformStatus(msgspec.Struct, frozen=True):
    """How a platform stands: what is wrong, and whether people can be written to there."""

    cause: str  # empty: nothing
    reachable: bool


class BudgetAlert(msgspec.Struct, frozen=True):
    """What the admins were told of a budget last, and on which day."""

    day: str
    over: bool  # that it is used up; else that it nearly is


class AlertState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the admins were told and has not ended, as it is kept."""

    models: dict[str, Alarm] = {}  # by the kind of the trouble
    platforms: dict[str, Alarm] = {}
    disk: Alarm | None = None
    safe_mode: Alarm | None = None
    budgets: dict[str, BudgetAlert] = {}


class _ModelFailure(msgspec.Struct, frozen=True):
    alarm: Alarm
    targets: str  # that were asked; empty: those of an earlier process


class AdminAlerts:
    """Writes to the admins; whoever asks commits what is to be shown."""

    def __init__(
        self,
        admins: Callable[[], Iterable[str]],
        announcer: NoticeComposer,
        clock: Clock,
        capabilities: Callable[[Address], Capabilities | None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._admins = admins
        self._announcer = announcer
        self._clock = clock
        self._capabilities = capabilities
        self._on_change = on_change  # told when the book is to be kept
        self._last_alerted: dict[str, float] = {}
        self._model_failures: dict[str, _ModelFailure] = {}
        self._failing_since: dict[str, float] = {}  # since when models only fail, by what was asked
        self._disk_alarm: Alarm | None = None  # the disk
        self._damage_reported = False  # it was told
        self._safe_mode_alarm: Alarm | None = None  # safe mode
        self._budget_alerts: dict[str, BudgetAlert] = {}  # of budgets
        self.alarms = Alarms()

    # --- the model ------------------------------------------------------------------------------

    def report_model_failure(
        self, cause: str, person: str, targets: str = ""
    ) -> tuple[Change, ...]:
        """What the admins besides this person are to be shown; empty when there are none.

        When they were told of the same a little while ago, it is not said again: then nobody may
        claim either that they were told just now. `targets`: the models that were asked.
        """
        now, kind = self._clock.monotonic(), cause.partition(" (")[0]  # a service words it anew
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

    def on_turn_failed(self, done: TurnDone, person: str, targets: str) -> tuple[Change, ...]:
        """The same for a turn that failed: at once, or once nothing was answered for some minutes.

        What only an admin can mend, and an outage, is known for what it is with the first turn. Of
        other troubles with the service (it refuses every request, connections break) only time
        tells whether they pass.
        """
        if done.tell_operator:
            return self.report_model_failure(done.cause, person, targets)
        if done.last_verdict != CUT or done.over_budget:
            return ()  # it answered, in whatever way
        since = self._failing_since.setdefault(targets, self._clock.monotonic())
        if len(self._failing_since) > _MAX_REMEMBERED:
            self._failing_since.pop(next(iter(self._failing_since)))
        lasts = self._clock.monotonic() - since >= self.alarms.delay_seconds
        return self.report_model_failure(done.cause, person, targets) if lasts else ()

    def on_model_answered(self, targets: str) -> tuple[Change, ...]:
        """These models have answered: if the admins were told otherwise, that is over."""
        self._failing_since.pop(targets, None)
        if not self._model_failures:
            return ()
        over = [
            kind for kind, each in self._model_failures.items() if each.targets in {targets, ""}
        ]
        ended = [self._model_failures.pop(kind).alarm for kind in over]
        if not ended:
            return ()
        self._on_change()
        first = min(ended, key=lambda alarm: alarm.since)
        return self._notice_changes(NoticeId.MODEL_RECOVERED, self._alarm_fields(first))

    # --- platforms ------------------------------------------------------------------------------

    def check_platforms(self, platforms: Mapping[str, PlatformStatus]) -> tuple[Change, ...]:
        """What the admins are to be shown of how the platforms stand now."""
        causes = {name: each.cause for name, each in platforms.items()}
        shown: list[Change] = []
        for news in self.alarms.update(causes, self._clock.now()):
            fields = {"platform": news.subject, **self._alarm_fields(news.alarm)}
            if isinstance(news, AlarmRaised):
                away = {name for name, each in platforms.items() if not each.reachable}
                shown += self._notice_changes(NoticeId.PLATFORM_FAILED, fields, unreachable=away)
            else:
                shown += self._notice_changes(NoticeId.PLATFORM_RECOVERED, fields)
            self._on_change()
        return tuple(shown)

    # --- the disk -------------------------------------------------------------------------------

    def check_disk(self, space: DiskSpace) -> tuple[Change, ...]:
        """What the admins are to be shown of the room that is left now."""
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
            NoticeId.DISK_RECOVERED, {"left": space.free_text, **self._alarm_fields(was)}
        )

    # --- the database ---------------------------------------------------------------------------

    def check_store(self, damage: str) -> tuple[Change, ...]:
        """What the admins are to be shown of damage to the database: once, for nothing ends it."""
        if not damage or self._damage_reported:
            return ()
        self._damage_reported = True
        return self._notice_changes(NoticeId.DATABASE_DAMAGED, {"cause": damage.rstrip(".")})

    # --- safe mode ------------------------------------------------------------------------------

    def check_safe_mode(self, crash_count: int) -> tuple[Change, ...]:
        """What the admins are to be shown of how this process started; 0: as usual."""
        if bool(crash_count) == (self._safe_mode_alarm is not None):
            return ()
        self._on_change()
        if crash_count:
            self._safe_mode_alarm = Alarm(str(crash_count), self._clock.now(), told=True)
            return self._notice_changes(NoticeId.SAFE_MODE, {"n": crash_count})
        self._safe_mode_alarm = None
        return self._notice_changes(NoticeId.SAFE_MODE_OVER, {})

    # --- what may be spent ----------------------------------------------------------------------

    def check_budgets(
        self, standings: Iterable[BudgetStatus], seconds_until_reset: int
    ) -> tuple[Change, ...]:
        """What the admins are to be shown of the budgets of several people, as they stand."""
        shown: list[Change] = []
        for each in standings:
            over = each.refused or each.used_fraction >= 1
            if not over and each.used_fraction < BUDGET_WARNING_SHARE:
                continue
            known = self._budget_alerts.get(each.scope.name)
            if known and known.day == each.day and (known.over or not over):
                continue
            self._budget_alerts[each.scope.name] = BudgetAlert(each.day, over)
            self._on_change()
            fields: dict[str, str | int] = {
                "percent": int(each.used_fraction * 100),
                "limit": each.limit_text,
                "used": each.used_text,
                "whose": each.scope.label,
                "left": format_span(seconds_until_reset),
            }
            shown += self._notice_changes(
                NoticeId.SHARED_BUDGET_USED_UP if over else NoticeId.SHARED_BUDGET_LOW, fields
            )
        return tuple(shown)

    # --- what is kept ---------------------------------------------------------------------------

    @property
    def state(self) -> AlertState:
        """What was told and has not ended."""
        models = {kind: each.alarm for kind, each in self._model_failures.items()}
        return AlertState(
            models=models,
            platforms=self.alarms.announced,
            disk=self._disk_alarm,
            safe_mode=self._safe_mode_alarm,
            budgets=dict(self._budget_alerts),
        )

    def restore(self, state: AlertState) -> None:
        """Take up what an earlier process has told."""
        self._model_failures = {
            kind: _ModelFailure(alarm, "") for kind, alarm in state.models.items()
        }
        self.alarms.restore(state.platforms)
        self._disk_alarm = state.disk
        self._safe_mode_alarm = state.safe_mode
        self._budget_alerts = dict(state.budgets)

    # --- writing --------------------------------------------------------------------------------

    def _alarm_fields(self, alarm: Alarm) -> dict[str, str | int]:
        return {"cause": alarm.cause.rstrip("."), "min": alarm.duration_minutes(self._clock.now())}

    def _notice_changes(
        self,
        notice: NoticeId,
        fields: NoticeFields,
        *,
        except_person: str = "",
        unreachable: Iterable[str] = (),
    ) -> tuple[Change, ...]:
        """A notice for each admin; none to one person, nor where nothing arrives just now."""
        return tuple(
            PutItem(self._announcer.notice_item(notice, write_address(place), fields))
            for place in admin_addresses(self._admins())
            if f"{place.platform}:{place.chat}" != except_person
            and connection_name(place.platform, place.account) not in unreachable
            and self._capabilities(place)
        )
