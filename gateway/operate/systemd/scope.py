"""Sans-IO: the service of the machine and the service of one user: where their files are."""

from pathlib import Path

from msgspec import Struct

from gateway.config.credentials import MACHINE_FOLDER, USER_FOLDER
from gateway.operate.systemd.unit import UNIT_NAME


class ServiceScope(Struct, frozen=True, kw_only=True):
    """One of the two managers that may run the service."""

    is_user: bool
    unit_path: Path
    """The unit file that `install` writes."""
    credentials_folder: Path
    state_folder: Path

    @property
    def user_option(self) -> str:
        """What a command of ours must be given to mean this one."""
        return " --user" if self.is_user else ""

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A command to the manager."""
        return ("systemctl", *(("--user",) if self.is_user else ()), *words)

    def journalctl(self, *, lines: int, follow: bool) -> tuple[str, ...]:
        """The command that shows the log; the journal knows the time of each line."""
        of_unit = f"--user-unit={UNIT_NAME}" if self.is_user else f"--unit={UNIT_NAME}"
        shown = (f"--lines={lines}", "--output=short-iso", "--no-hostname", "--no-pager")
        return ("journalctl", of_unit, *shown, *(("--follow",) if follow else ()))


def machine_scope(state: Path) -> ServiceScope:
    """The service of the machine."""
    unit = Path("/etc/systemd/system") / UNIT_NAME
    return ServiceScope(
        is_user=False, unit_path=unit, credentials_folder=MACHINE_FOLDER, state_folder=state
    )


def user_scope(home: Path, config: Path | None, state: Path) -> ServiceScope:
    """The service of one user; `config` is `$XDG_CONFIG_HOME`, which systemd follows."""
    unit = (config or home / ".config") / "systemd/user" / UNIT_NAME
    return ServiceScope(
        is_user=True, unit_path=unit, credentials_folder=home / USER_FOLDER, state_folder=state
    )
