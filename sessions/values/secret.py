"""A value that must not be printed by accident."""

from collections.abc import Callable


class Secret:
    """A password or key that shows as `***` when printed, logged or formatted.

    `read_source` reads the value again from the source, and returns "" without one.
    """

    __slots__ = ("_listeners", "_read_source", "_value")

    def __init__(self, value: str, read_source: Callable[[], str] | None = None) -> None:
        self._value = value
        self._read_source = read_source
        self._listeners: list[Callable[[Secret], None]] = []

    def reveal(self) -> str:
        """Return the real value; call this only where the value is sent to the service."""
        return self._value

    def reread(self) -> "Secret":
        """Read the source again.

        Return a new `Secret` if the value changed, else `self`. May block.
        """
        value = self._read_source() if self._read_source else ""
        if value in {"", self._value}:
            return self
        newer = Secret(value, self._read_source)
        newer._listeners = self._listeners
        return newer

    def on_replaced(self, listener: Callable[["Secret"], None]) -> None:
        """Call `listener` with every secret that replaces this one."""
        self._listeners.append(listener)

    def notify_listeners(self) -> None:
        """Tell the listeners that this secret is in use from now on."""
        for listener in self._listeners:
            listener(self)

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
