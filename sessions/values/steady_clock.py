"""Sans-IO: the hour as it would be if nobody had set the machine's clock since the start.

Wall time may jump, because somebody sets it or because it was wrong until the network was there.
What is asked here is how old a message is: it is called old only when both clocks agree, or a
machine whose clock is a day ahead would answer nobody.
"""

from sessions.values.clock import Clock

NOTABLE_JUMP_MS = 30_000
"""Milliseconds of a jump that is worth a word."""


class SteadyClock:
    """Wall time at the start, and what has passed since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_offset = self._offset()
        self._reported_offset = self._start_offset

    def age_ms(self, moment: int) -> int:
        """How many milliseconds ago something was, by the clock that makes it younger."""
        return self.now() - moment

    def now(self) -> int:
        """The earlier of what the clock says and what it would say if nobody had set it."""
        now = self._clock.now()
        return min(now, now - (self._offset() - self._start_offset))

    def take_jump(self) -> int:
        """By how much the clock was set since this was last asked; 0 when it was not."""
        offset = self._offset()
        by = offset - self._reported_offset
        if abs(by) < NOTABLE_JUMP_MS:
            return 0
        self._reported_offset = offset
        return by

    def _offset(self) -> int:
        return self._clock.now() - round(self._clock.monotonic() * 1000)


def format_jump(jump_ms: int) -> str:
    """Say a jump for the log."""
    hours, rest = divmod(abs(jump_ms) // 1000, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} {'forwards' if jump_ms > 0 else 'back'}"
