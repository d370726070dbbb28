"""Sans-IO: problems with a delay before they are reported, so that short ones are not.

The end of a reported problem is reported too, even after a restart: `announced` is stored.
"""

from collections.abc import Mapping

import msgspec

_ALERT_DELAY_SECONDS = 300.0
"""Seconds that a problem must last before it is reported."""


class Alarm(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problem that has not ended."""

    cause: str
    since: int  # milliseconds since 1970
    told: bool = False

    def duration_minutes(self, now: int) -> int:
        """Return the duration in minutes, at least 1."""
        return max(1, round((now - self.since) / 60_000))


class AlarmRaised(msgspec.Struct, frozen=True):
    """A problem has lasted long enough to be reported."""

    subject: str
    alarm: Alarm


class AlarmCleared(msgspec.Struct, frozen=True):
    """A reported problem has ended."""

    subject: str
    alarm: Alarm


class Alarms:
    """Problems of several subjects, at most one each."""

    def __init__(self, delay_seconds: float = _ALERT_DELAY_SECONDS) -> None:
        self.delay_seconds = delay_seconds
        self._open: dict[str, Alarm] = {}

    def update(self, causes: Mapping[str, str], now: int) -> list[AlarmRaised | AlarmCleared]:
        """Apply the present causes of all subjects (empty: no problem); return the due reports."""
        events: list[AlarmRaised | AlarmCleared] = []
        for subject in self._open.keys() - causes.keys():
            del self._open[subject]  # the subject no longer exists
        for subject, cause in causes.items():
            known = self._open.get(subject)
            if not cause:
                if known and known.told:
                    events.append(AlarmCleared(subject, known))
                self._open.pop(subject, None)
                continue
            if known and known.told:
                continue  # its end is reported with the cause that was reported
            alarm = Alarm(cause, known.since if known else now)
            if now - alarm.since >= self.delay_seconds * 1000:
                alarm = msgspec.structs.replace(alarm, told=True)
                events.append(AlarmRaised(subject, alarm))
            self._open[subject] = alarm
        return events

    def seconds_until_next(self, now: int) -> float | None:
        """Return the seconds until the next report is due, or None."""
        waiting = [alarm.since for alarm in self._open.values() if not alarm.told]
        return max(0.0, min(waiting) / 1000 + self.delay_seconds - now / 1000) if waiting else None

    def restore(self, announced: Mapping[str, Alarm]) -> None:
        """Continue from the reported problems of an earlier process."""
        self._open.update(announced)

    @property
    def announced(self) -> dict[str, Alarm]:
        """Reported problems, to be stored."""
        return {subject: alarm for subject, alarm in self._open.items() if alarm.told}
