"""Sans-IO: the reset policy, which decides when a session is too old to continue."""

import datetime as dt

import msgspec

from sessions.records import SessionReason


class ExpiryPolicy(msgspec.Struct, frozen=True):
    """The reset policy: after a number of idle minutes, at a time of day, both, or never."""

    idle_minutes: int | None = None
    daily_at: dt.time | None = None
    zone: dt.tzinfo | None = None  # None: the machine's own time zone

    def expiry_reason(self, last_used_at: int, now: int) -> SessionReason | None:
        """Return why a session last used at `last_used_at` has expired; None if it may continue."""
        if self.idle_minutes is not None and now - last_used_at >= self.idle_minutes * 60_000:
            return SessionReason.IDLE
        if self.daily_at is not None and last_used_at < self._last_reset(now, self.daily_at):
            return SessionReason.DAILY
        return None

    def _last_reset(self, now: int, daily_at: dt.time) -> int:
        moment = dt.datetime.fromtimestamp(now / 1000, dt.UTC).astimezone(self.zone)
        reset = dt.datetime.combine(moment.date(), daily_at, moment.tzinfo)
        if reset > moment:
            reset -= dt.timedelta(days=1)
        return int(reset.timestamp() * 1000)
