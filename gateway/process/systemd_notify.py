"""Tells systemd how the daemon is, if it was started by systemd."""

import socket
from collections.abc import Mapping


class SystemdNotifier:
    """The service manager's socket; without one, everything said is said to nobody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is not a file: in the kernel it begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        microseconds = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(microseconds) / 2_000_000 if microseconds.isdecimal() else 0.0
        """Seconds between two signs of life, twice as often as asked for; 0: none are wanted."""

    @property
    def is_enabled(self) -> bool:
        """Whether anybody is told."""
        return bool(self._address)

    def notify(self, *lines: str) -> None:
        """Send lines such as READY=1; a manager that does not listen is no reason to stop."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)  # noqa: FBT003 - its only argument
            try:
                manager.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return
