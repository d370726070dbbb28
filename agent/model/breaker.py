"""Sans-IO: circuit breaker for a model service that keeps stalling.

Two stalled requests within ten minutes, without a success in between, open the breaker: no requests
are sent for one minute. Then a single probe request is allowed. If the probe stalls, the pause
doubles, up to ten minutes; if it succeeds, the breaker closes and its history is cleared.
"""

_STALLS_UNTIL_OPEN = 2
_STALL_WINDOW_SECONDS = 600.0
_FIRST_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 600.0
_MAX_PROBE_SECONDS = 3600.0
"""Age at which a probe without a recorded result counts as lost; a new probe is then allowed."""


class CircuitBreaker:
    """State of one model service; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._stalled_at: list[float] = []
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._open_until: float | None = None
        self._probe_began_at: float | None = None

    @property
    def open_until(self) -> float | None:
        """Time of the next allowed probe; None while the breaker is closed."""
        return self._open_until

    def allows_request(self, now: float) -> bool:
        """Return True if a request may be sent; after a pause, only one probe is allowed.

        Call this only if the request will follow: the probe stays reserved until its result is
        recorded by `record_success`, `record_stall` or `record_abandoned`.
        """
        if self._open_until is None:
            return True
        if now < self._open_until:
            return False
        if self._probe_began_at is not None and now - self._probe_began_at < _MAX_PROBE_SECONDS:
            return False
        self._probe_began_at = now
        return True

    def record_stall(self, now: float) -> None:
        """Record a request that was ended by our watchdog."""
        if self._open_until is None:
            self._stalled_at = [at for at in self._stalled_at if now - at <= _STALL_WINDOW_SECONDS]
            self._stalled_at.append(now)
            if len(self._stalled_at) >= _STALLS_UNTIL_OPEN:
                self._open(now)
        elif now >= self._open_until:
            self._pause_seconds = min(self._pause_seconds * 2, _MAX_PAUSE_SECONDS)
            self._open(now)
        # Otherwise the request started before the breaker opened and adds no information.

    def record_success(self, now: float) -> None:  # noqa: ARG002 - same signature for all results
        """Record a request that was answered; close the breaker."""
        self._stalled_at.clear()
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._open_until = self._probe_began_at = None

    def record_abandoned(self, now: float) -> None:  # noqa: ARG002 - same signature for all results
        """Record a request whose end shows nothing about the service, such as a cancelled one."""
        self._probe_began_at = None

    def _open(self, now: float) -> None:
        self._open_until = now + self._pause_seconds
        self._probe_began_at = None
        self._stalled_at.clear()
