"""Sans-IO: the service of the machine and the service of one user: where their files are."""

from pathlib import Path

from msgspec import Struct

from gateway.config.credentials import OF_MACHINE, OF_USER
from gateway.operate.systemd.unit import NAME


class Scope(Struct, frozen=True, kw_only=True):
    """One of the two managers that may run the service."""

    user: bool
    unit: Path
    """The unit file that `install` writes."""
    credentials: Path
    state: Path

    @property
    def option(self) -> str:
        """What a command of ours must be given to mean this one."""
        return " --user" if self.user else ""

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A command to the manager."""
        return ("systemctl", *(("--user",) if self.user else ()), *words)

    def journalctl(self, *, lines: int, follow: bool) -> tuple[str, ...]:
        """The command that shows the log; the journal knows the time of each line."""
        of_unit = f"--user-unit={NAME}" if self.user else f"--unit={NAME}"
        shown = (f"--lines={lines}", "--output=short-iso", "--no-hostname", "--no-pager")
        return ("journalctl", of_unit, *shown, *(("--follow",) if follow else ()))


def of_machine(state: Path) -> Scope:
    """The service of the machine."""
    unit = Path("/etc/systemd/system") / NAME
    return Scope(user=False, unit=unit, credentials=OF_MACHINE, state=state)


def of_user(home: Path, config: Path | None, state: Path) -> Scope:
    """The service of one user; `config` is `$XDG_CONFIG_HOME`, which systemd follows."""
    unit = (config or home / ".config") / "systemd/user" / NAME
    return Scope(user=True, unit=unit, credentials=home / OF_USER, state=state)
