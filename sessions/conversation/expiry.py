"""Sans-IO: when a quiet session is too old to go on."""

import datetime as dt

import msgspec

from sessions.records import SessionReason


class ExpiryPolicy(msgspec.Struct, frozen=True):
    """The reset policy: after so many idle minutes, at an hour of the day, both, or never."""

    idle_minutes: int | None = None
    daily_at: dt.time | None = None
    zone: dt.tzinfo | None = None  # None: the machine's own

    def expiry_reason(self, last_used_at: int, now: int) -> SessionReason | None:
        """Why a session last used at `used_at` must not go on at `now` (both milliseconds)."""
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
