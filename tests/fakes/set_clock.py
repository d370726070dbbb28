"""Clock that stands still until a test moves it."""


class SetClock:
    """A `Clock` whose time in milliseconds is an attribute."""

    def __init__(self, time: int = 1_000_000_000) -> None:
        self.time = time

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000
