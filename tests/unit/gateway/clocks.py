"""A clock whose hour and whose passing are set apart."""


class TwoClocks:
    """Wall time that somebody sets, and time that only passes."""

    def __init__(self) -> None:
        self.off = 0
        self._passed = 1_000.0

    def pass_by(self, seconds: float) -> None:
        self._passed += seconds

    def now(self) -> int:
        return 1_790_000_000_000 + round(self._passed * 1000) + self.off

    def monotonic(self) -> float:
        return self._passed
