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
from gateway.alerts.alarms import Alarm, Alarms, Began
from gateway.approvals.rules import places_of
from gateway.delivery.view import write_address
from gateway.inbound.routing import name_of
from gateway.notices.catalogue import Fields
from gateway.notices.compose import Announcer
from gateway.observe.disk import Room
from gateway.spending.budgets import Standing
from gateway.spending.days import spoken
from platforms.core.contract import Address, Capabilities
from sessions.changes import Change, PutItem
from sessions.values.clock import Clock

_AGAIN_AFTER = 3600.0
"""Seconds for which the same trouble is not told again."""

NEARLY = 0.8
"""The part of a budget after which the admins are told of it."""

_MOST_REMEMBERED = 100


class Trouble(msgspec.Struct, frozen=True):
    """How a platform stands: what is wrong, and whether people can be written to there."""

    cause: str  # empty: nothing
    reachable: bool


class Level(msgspec.Struct, frozen=True):
    """What the admins were told of a budget last, and on which day."""

    day: str
    over: bool  # that it is used up; else that it nearly is


class Book(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the admins were told and has not ended, as it is kept."""

    models: dict[str, Alarm] = {}  # by the kind of the trouble
    platforms: dict[str, Alarm] = {}
    disk: Alarm | None = None
    safe_mode: Alarm | None = None
    budgets: dict[str, Level] = {}


class _Failing(msgspec.Struct, frozen=True):
    alarm: Alarm
    targets: str  # that were asked; empty: those of an earlier process


class Operators:
    """Writes to the admins; whoever asks commits what is to be shown."""

    def __init__(
        self,
        admins: Callable[[], Iterable[str]],
        announcer: Announcer,
        clock: Clock,
        capabilities: Callable[[Address], Capabilities | None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._admins = admins
        self._announcer = announcer
        self._clock = clock
        self._capabilities = capabilities
        self._changed = changed  # told when the book is to be kept
        self._told: dict[str, float] = {}
        self._failing: dict[str, _Failing] = {}
        self._silent: dict[str, float] = {}  # since when models only fail, by what was asked
        self._low: Alarm | None = None  # the disk
        self._damaged = False  # it was told
        self._safe: Alarm | None = None  # safe mode
        self._levels: dict[str, Level] = {}  # of budgets
        self.alarms = Alarms()

    # --- the model ------------------------------------------------------------------------------

    def tell(self, cause: str, person: str, targets: str = "") -> tuple[Change, ...]:
        """What the admins besides this person are to be shown; empty when there are none.

        When they were told of the same a little while ago, it is not said again: then nobody may
        claim either that they were told just now. `targets`: the models that were asked.
        """
        now, kind = self._clock.monotonic(), cause.partition(" (")[0]  # a service words it anew
        if now - self._told.get(kind, -_AGAIN_AFTER) < _AGAIN_AFTER:
            return ()
        shown = self._shown("operator", {"cause": cause}, but=person)
        if shown:
            if len(self._told) >= _MOST_REMEMBERED:
                self._told.clear()
                self._failing.clear()
            self._told[kind] = now
            self._failing[kind] = _Failing(Alarm(cause, self._clock.now(), told=True), targets)
            self._changed()
        return shown

    def failed(self, done: TurnDone, person: str, targets: str) -> tuple[Change, ...]:
        """The same for a turn that failed: at once, or once nothing was answered for some minutes.

        What only an admin can mend, and an outage, is known for what it is with the first turn. Of
        other troubles with the service (it refuses every request, connections break) only time
        tells whether they pass.
        """
        if done.tell_operator:
            return self.tell(done.cause, person, targets)
        if done.last != CUT or done.over_budget:
            return ()  # it answered, in whatever way
        since = self._silent.setdefault(targets, self._clock.monotonic())
        if len(self._silent) > _MOST_REMEMBERED:
            self._silent.pop(next(iter(self._silent)))
        lasts = self._clock.monotonic() - since >= self.alarms.after
        return self.tell(done.cause, person, targets) if lasts else ()

    def answered(self, targets: str) -> tuple[Change, ...]:
        """These models have answered: if the admins were told otherwise, that is over."""
        self._silent.pop(targets, None)
        if not self._failing:
            return ()
        over = [kind for kind, each in self._failing.items() if each.targets in {targets, ""}]
        ended = [self._failing.pop(kind).alarm for kind in over]
        if not ended:
            return ()
        self._changed()
        first = min(ended, key=lambda alarm: alarm.since)
        return self._shown("operator.over", self._fields(first))

    # --- platforms ------------------------------------------------------------------------------

    def look(self, platforms: Mapping[str, Trouble]) -> tuple[Change, ...]:
        """What the admins are to be shown of how the platforms stand now."""
        causes = {name: each.cause for name, each in platforms.items()}
        shown: list[Change] = []
        for news in self.alarms.look(causes, self._clock.now()):
            fields = {"platform": news.subject, **self._fields(news.alarm)}
            if isinstance(news, Began):
                away = {name for name, each in platforms.items() if not each.reachable}
                shown += self._shown("platform", fields, away=away)
            else:
                shown += self._shown("platform.over", fields)
            self._changed()
        return tuple(shown)

    # --- the disk -------------------------------------------------------------------------------

    def look_at_room(self, room: Room) -> tuple[Change, ...]:
        """What the admins are to be shown of the room that is left now."""
        was = self._low
        if room.is_low(before=was is not None) == (was is not None):
            return ()
        self._changed()
        if was is None:
            self._low = Alarm(room.left, self._clock.now(), told=True)
            return self._shown("disk", {"left": room.left, "folder": str(room.folder)})
        self._low = None
        return self._shown("disk.over", {"left": room.left, **self._fields(was)})

    # --- the database ---------------------------------------------------------------------------

    def look_at_store(self, damage: str) -> tuple[Change, ...]:
        """What the admins are to be shown of damage to the database: once, for nothing ends it."""
        if not damage or self._damaged:
            return ()
        self._damaged = True
        return self._shown("damaged", {"cause": damage.rstrip(".")})

    # --- safe mode ------------------------------------------------------------------------------

    def look_at_crashes(self, crashes: int) -> tuple[Change, ...]:
        """What the admins are to be shown of how this process started; 0: as usual."""
        if bool(crashes) == (self._safe is not None):
            return ()
        self._changed()
        if crashes:
            self._safe = Alarm(str(crashes), self._clock.now(), told=True)
            return self._shown("safe_mode", {"n": crashes})
        self._safe = None
        return self._shown("safe_mode.over", {})

    # --- what may be spent ----------------------------------------------------------------------

    def look_at_budgets(self, standings: Iterable[Standing], free_in: int) -> tuple[Change, ...]:
        """What the admins are to be shown of the budgets of several people, as they stand."""
        shown: list[Change] = []
        for each in standings:
            over = each.refused or each.share >= 1
            if not over and each.share < NEARLY:
                continue
            known = self._levels.get(each.scope.name)
            if known and known.day == each.day and (known.over or not over):
                continue
            self._levels[each.scope.name] = Level(each.day, over)
            self._changed()
            fields: dict[str, str | int] = {
                "percent": int(each.share * 100),
                "limit": each.limit,
                "used": each.used,
                "whose": each.scope.whose,
                "left": spoken(free_in),
            }
            shown += self._shown("budget.over" if over else "budget.near", fields)
        return tuple(shown)

    # --- what is kept ---------------------------------------------------------------------------

    @property
    def book(self) -> Book:
        """What was told and has not ended."""
        models = {kind: each.alarm for kind, each in self._failing.items()}
        return Book(models, self.alarms.book, self._low, self._safe, dict(self._levels))

    def restore(self, book: Book) -> None:
        """Take up what an earlier process has told."""
        self._failing = {kind: _Failing(alarm, "") for kind, alarm in book.models.items()}
        self.alarms.restore(book.platforms)
        self._low = book.disk
        self._safe = book.safe_mode
        self._levels = dict(book.budgets)

    # --- writing --------------------------------------------------------------------------------

    def _fields(self, alarm: Alarm) -> dict[str, str | int]:
        return {"cause": alarm.cause.rstrip("."), "min": alarm.minutes(self._clock.now())}

    def _shown(
        self, notice: str, fields: Fields, *, but: str = "", away: Iterable[str] = ()
    ) -> tuple[Change, ...]:
        """A notice for each admin; none to one person, nor where nothing arrives just now."""
        return tuple(
            PutItem(self._announcer.item(notice, write_address(place), fields))
            for place in places_of(self._admins())
            if f"{place.platform}:{place.chat}" != but
            and name_of(place.platform, place.account) not in away
            and self._capabilities(place)
        )
