"""Sans-IO: the machine's service and a user's service, and the paths of each."""

from pathlib import Path

from msgspec import Struct

from gateway.config.credentials import MACHINE_FOLDER, USER_FOLDER
from gateway.operate.systemd.unit import UNIT_NAME


class ServiceScope(Struct, frozen=True, kw_only=True):
    """The service of the machine or of one user."""

    is_user: bool
    unit_path: Path
    """The unit file."""
    credentials_folder: Path
    state_folder: Path

    @property
    def user_option(self) -> str:
        """Option that selects this scope in `holdfast service` and `systemctl`."""
        return " --user" if self.is_user else ""

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """Return a systemctl command for this scope."""
        return ("systemctl", *(("--user",) if self.is_user else ()), *words)

    def journalctl(self, *, lines: int, follow: bool) -> tuple[str, ...]:
        """Return the command that prints the log, with the journal's timestamps."""
        of_unit = f"--user-unit={UNIT_NAME}" if self.is_user else f"--unit={UNIT_NAME}"
        shown = (f"--lines={lines}", "--output=short-iso", "--no-hostname", "--no-pager")
        return ("journalctl", of_unit, *shown, *(("--follow",) if follow else ()))


def machine_scope(state: Path) -> ServiceScope:
    """Return the scope of the machine's service."""
    unit = Path("/etc/systemd/system") / UNIT_NAME
    return ServiceScope(
        is_user=False, unit_path=unit, credentials_folder=MACHINE_FOLDER, state_folder=state
    )


def user_scope(home: Path, config: Path | None, state: Path) -> ServiceScope:
    """Return the scope of a user's service; `config` is `$XDG_CONFIG_HOME`, as systemd reads it."""
    unit = (config or home / ".config") / "systemd/user" / UNIT_NAME
    return ServiceScope(
        is_user=True, unit_path=unit, credentials_folder=home / USER_FOLDER, state_folder=state
    )
