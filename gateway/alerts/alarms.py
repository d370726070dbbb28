"""Sans-IO: troubles that last: when it is time to tell of one, and when to tell that it is over.

What passes by itself soon is told to nobody. Of what was told, the end is told too, even if the
process was started again meanwhile: the book is kept.
"""

from collections.abc import Mapping

import msgspec

ALERT_DELAY_SECONDS = 300.0
"""Seconds that a trouble lasts before anybody is told."""


class Alarm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trouble that goes on."""

    cause: str
    since: int  # milliseconds
    told: bool = False

    def duration_minutes(self, now: int) -> int:
        """How long it has lasted."""
        return max(1, round((now - self.since) / 60_000))


class AlarmRaised(msgspec.Struct, frozen=True):
    """It has lasted long enough to be told."""

    subject: str
    alarm: Alarm


class AlarmCleared(msgspec.Struct, frozen=True):
    """What was told is no more."""

    subject: str
    alarm: Alarm


class Alarms:
    """The troubles of several subjects, one each."""

    def __init__(self, delay_seconds: float = ALERT_DELAY_SECONDS) -> None:
        self.delay_seconds = delay_seconds
        self._open: dict[str, Alarm] = {}

    def update(self, causes: Mapping[str, str], now: int) -> list[AlarmRaised | AlarmCleared]:
        """Take in how all subjects stand; an empty cause: all is well."""
        found: list[AlarmRaised | AlarmCleared] = []
        for subject in self._open.keys() - causes.keys():
            del self._open[subject]  # nobody asks about it any more
        for subject, cause in causes.items():
            known = self._open.get(subject)
            if not cause:
                if known and known.told:
                    found.append(AlarmCleared(subject, known))
                self._open.pop(subject, None)
                continue
            if known and known.told:
                continue  # its end is told in the words in which its beginning was
            alarm = Alarm(cause, known.since if known else now)
            if now - alarm.since >= self.delay_seconds * 1000:
                alarm = msgspec.structs.replace(alarm, told=True)
                found.append(AlarmRaised(subject, alarm))
            self._open[subject] = alarm
        return found

    def seconds_until_next(self, now: int) -> float | None:
        """Until the next one is to be told; None when there is none."""
        waiting = [each.since for each in self._open.values() if not each.told]
        return max(0.0, min(waiting) / 1000 + self.delay_seconds - now / 1000) if waiting else None

    def restore(self, announced: Mapping[str, Alarm]) -> None:
        """Take up what an earlier process has told."""
        self._open.update(announced)

    @property
    def announced(self) -> dict[str, Alarm]:
        """What must be kept: the troubles that somebody was told of."""
        return {subject: alarm for subject, alarm in self._open.items() if alarm.told}
