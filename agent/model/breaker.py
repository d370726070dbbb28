"""Sans-IO: leaves a model service alone that keeps hanging, and finds out when it is well again.

Two requests that had to be killed, with no success between them, open the breaker: for a minute
nobody asks the service. Then one request may look. If it fails as well, the pause doubles, up to
ten minutes; if it succeeds, everything is forgotten.
"""

_STALLS_UNTIL_OPEN = 2
_STALL_WINDOW_SECONDS = 600.0
_FIRST_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 600.0
_MAX_PROBE_SECONDS = 3600.0
"""A probe that nobody settled by then is taken to be lost; else one lost report closes for ever."""


class CircuitBreaker:
    """What is known of one model service; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._stalled_at: list[float] = []
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._open_until: float | None = None
        self._probe_began_at: float | None = None

    @property
    def open_until(self) -> float | None:
        """When the service may be asked again; None while the breaker is closed."""
        return self._open_until

    def allows_request(self, now: float) -> bool:
        """Tell whether a request may be sent; the first yes after a pause is for one request only.

        Ask only when the request will follow: this yes is not given again until it is settled by
        `succeeded`, `killed` or `given_up`.
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
        """A request hung and was ended by us."""
        if self._open_until is None:
            self._stalled_at = [at for at in self._stalled_at if now - at <= _STALL_WINDOW_SECONDS]
            self._stalled_at.append(now)
            if len(self._stalled_at) >= _STALLS_UNTIL_OPEN:
                self._open(now)
        elif now >= self._open_until:
            self._pause_seconds = min(self._pause_seconds * 2, _MAX_PAUSE_SECONDS)
            self._open(now)
        # Otherwise the request was under way before the pause began: it tells nothing new.

    def record_success(self, now: float) -> None:  # noqa: ARG002 - all outcomes are told alike
        """A request was answered."""
        self._stalled_at.clear()
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._open_until = self._probe_began_at = None

    def record_abandoned(self, now: float) -> None:  # noqa: ARG002 - all outcomes are told alike
        """A request ended without telling anything of the service: somebody stopped it."""
        self._probe_began_at = None

    def _open(self, now: float) -> None:
        self._open_until = now + self._pause_seconds
        self._probe_began_at = None
        self._stalled_at.clear()
