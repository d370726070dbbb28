"""A value that must not be printed by accident."""

from collections.abc import Callable


class Secret:
    """Holds a password or key; shows `***` wherever it is printed, logged or formatted.

    `source` reads it once more from where it came, and gives "" where nothing is to be had.
    """

    __slots__ = ("_listeners", "_read_source", "_value")

    def __init__(self, value: str, read_source: Callable[[], str] | None = None) -> None:
        self._value = value
        self._read_source = read_source
        self._listeners: list[Callable[[Secret], None]] = []

    def reveal(self) -> str:
        """Give the real value; call it only where the value leaves for its service."""
        return self._value

    def reread(self) -> "Secret":
        """Give what stands at its source by now; itself where that is the same. May block."""
        value = self._read_source() if self._read_source else ""
        if value in {"", self._value}:
            return self
        newer = Secret(value, self._read_source)
        newer._listeners = self._listeners
        return newer

    def on_replaced(self, listener: Callable[["Secret"], None]) -> None:
        """Have somebody hear of those that come after it."""
        self._listeners.append(listener)

    def notify_listeners(self) -> None:
        """Tell who watches that this one is in use from now on."""
        for hear in self._listeners:
            hear(self)

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
