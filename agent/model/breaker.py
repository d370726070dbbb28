"""Sans-IO: leaves a model service alone that keeps hanging, and finds out when it is well again.

Two requests that had to be killed, with no success between them, open the breaker: for a minute
nobody asks the service. Then one request may look. If it fails as well, the pause doubles, up to
ten minutes; if it succeeds, everything is forgotten.
"""

_KILLS = 2
_WITHIN = 600.0
_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 600.0
_LONGEST_PROBE = 3600.0
"""A probe that nobody settled by then is taken to be lost; else one lost report closes for ever."""


class Breaker:
    """What is known of one model service; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._kills: list[float] = []
        self._pause = _FIRST_PAUSE
        self._open_until: float | None = None
        self._probe_at: float | None = None

    @property
    def open_until(self) -> float | None:
        """When the service may be asked again; None while the breaker is closed."""
        return self._open_until

    def allows(self, now: float) -> bool:
        """Tell whether a request may be sent; the first yes after a pause is for one request only.

        Ask only when the request will follow: this yes is not given again until it is settled by
        `succeeded`, `killed` or `given_up`.
        """
        if self._open_until is None:
            return True
        if now < self._open_until:
            return False
        if self._probe_at is not None and now - self._probe_at < _LONGEST_PROBE:
            return False
        self._probe_at = now
        return True

    def killed(self, now: float) -> None:
        """A request hung and was ended by us."""
        if self._open_until is None:
            self._kills = [at for at in self._kills if now - at <= _WITHIN]
            self._kills.append(now)
            if len(self._kills) >= _KILLS:
                self._open(now)
        elif now >= self._open_until:
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            self._open(now)
        # Otherwise the request was under way before the pause began: it tells nothing new.

    def succeeded(self, now: float) -> None:  # noqa: ARG002 - all outcomes are told alike
        """A request was answered."""
        self._kills.clear()
        self._pause = _FIRST_PAUSE
        self._open_until = self._probe_at = None

    def given_up(self, now: float) -> None:  # noqa: ARG002 - all outcomes are told alike
        """A request ended without telling anything of the service: somebody stopped it."""
        self._probe_at = None

    def _open(self, now: float) -> None:
        self._open_until = now + self._pause
        self._probe_at = None
        self._kills.clear()
