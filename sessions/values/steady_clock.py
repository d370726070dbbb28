"""Sans-IO: time that is not affected when the machine's clock is set forward.

Wall time may jump, because an administrator sets it or because the clock was wrong until the
network was up. A message counts as old only if both clocks agree; otherwise a machine whose clock
is a day ahead would answer no message.
"""

from sessions.values.clock import Clock

NOTABLE_JUMP_MS = 30_000
"""Milliseconds from which a jump is reported."""


class SteadyClock:
    """Wall time without forward jumps: never later than the time measured since the start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_offset = self._offset()
        self._reported_offset = self._start_offset

    def age_ms(self, moment: int) -> int:
        """Return the age in ms, by whichever clock gives the smaller value."""
        return self.now() - moment

    def now(self) -> int:
        """Return the wall time, or the time without any jump, whichever is earlier."""
        now = self._clock.now()
        return min(now, now - (self._offset() - self._start_offset))

    def take_jump(self) -> int:
        """Return the size of a jump since the last call, in ms; 0 if there was none."""
        offset = self._offset()
        by = offset - self._reported_offset
        if abs(by) < NOTABLE_JUMP_MS:
            return 0
        self._reported_offset = offset
        return by

    def _offset(self) -> int:
        return self._clock.now() - round(self._clock.monotonic() * 1000)


def format_jump(jump_ms: int) -> str:
    """Format a jump for the log."""
    hours, rest = divmod(abs(jump_ms) // 1000, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} {'forwards' if jump_ms > 0 else 'back'}"
