"""Runs the steps of `gateway.operate.systemd.plan` and queries systemd about the service."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gateway.errors import CannotStart
from gateway.operate.systemd.plan import InstallStep, MakeFolder, RemoveFile, RunCommand, WriteFile
from gateway.operate.systemd.scope import ServiceScope
from gateway.operate.systemd.unit import MIN_SYSTEMD_VERSION, UNIT_NAME

_QUERY_TIMEOUT_SECONDS = 15.0
SYSTEMD_RUNTIME_FOLDER = Path("/run/systemd/system")
"""Exists only while systemd runs the machine."""

_PROPERTIES = (
    "LoadState,ActiveState,SubState,StatusText,MainPID,NRestarts,ExecMainStatus,UnitFileState,"
    "ExecMainStartTimestampMonotonic"
)


_INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_",
    "TERM",
    "TZ",
    "XDG_",
    "DBUS_",
    "SYSTEMD_",
)
"""Names or prefixes of variables passed to systemd's commands; none of them holds a secret."""


class StepFailed(CannotStart):
    """A step of the installation failed."""


class ServiceManager:
    """systemd's manager of the machine or of one user."""

    def __init__(self, scope: ServiceScope, environ: Mapping[str, str]) -> None:
        self._scope = scope
        self._environ = {
            name: value for name, value in environ.items() if name.startswith(_INHERITED_VARIABLES)
        }
        runtime = Path(f"/run/user/{os.geteuid()}")
        if scope.is_user and "XDG_RUNTIME_DIR" not in environ and runtime.is_dir():
            self._environ["XDG_RUNTIME_DIR"] = str(runtime)  # `su` and cron do not set it

    def run_step(self, step: InstallStep) -> None:
        """Run one step; raise `StepFailed` on failure."""
        try:
            match step:
                case MakeFolder(path, mode):
                    path.mkdir(mode=mode, parents=True, exist_ok=True)
                case WriteFile(path, text, mode):
                    write_atomically(path, text, mode)
                case RemoveFile(path):
                    path.unlink(missing_ok=True)
                case RunCommand(words, within, may_fail):
                    self._run_command(words, within, may_fail=may_fail)
        except OSError as error:
            msg = f"{error.filename or 'A file'} cannot be written: {error.strerror}."
            raise StepFailed(msg) from error

    def _run_command(
        self, arguments: tuple[str, ...], timeout_seconds: float, *, may_fail: bool
    ) -> None:
        done = self._run(arguments, timeout_seconds)
        if done.returncode and not may_fail:
            output = (done.stderr or done.stdout).strip()
            msg = f"{' '.join(arguments)} failed ({done.returncode})"
            raise StepFailed(*(f"{msg}: {output}" if output else f"{msg}.").splitlines())

    def show_properties(self) -> dict[str, str]:
        """Return systemd's properties of the service."""
        words = self._scope.systemctl("show", UNIT_NAME, f"--property={_PROPERTIES}")
        output = self._run(words, _QUERY_TIMEOUT_SECONDS).stdout
        return dict(line.partition("=")[::2] for line in output.splitlines())

    def systemd_version(self) -> int:
        """Return the version of systemd; the oldest supported one if unknown."""
        try:
            output = self._run(("systemctl", "--version"), _QUERY_TIMEOUT_SECONDS).stdout
        except StepFailed:
            return MIN_SYSTEMD_VERSION
        first = output.split()[1:2]
        return int(first[0]) if first and first[0].isdecimal() else MIN_SYSTEMD_VERSION

    def has_linger(self, user_name: str) -> bool:
        """Return True if the user's services keep running after the user logs out."""
        words = ("loginctl", "show-user", user_name, "--property=Linger", "--value")
        return self._run(words, _QUERY_TIMEOUT_SECONDS).stdout.strip() != "no"

    def log_tail(self, lines: int) -> str:
        """Return the last lines of the service's log."""
        words = self._scope.journalctl(lines=lines, follow=False)
        return self._run(words, _QUERY_TIMEOUT_SECONDS).stdout.strip()

    def show_log(self, *, lines: int, follow: bool) -> int:
        """Print the log to the terminal; return journalctl's exit code."""
        words = self._scope.journalctl(lines=lines, follow=follow)
        try:
            return subprocess.call(words, env=self._environ)  # noqa: S603 - argument list
        except FileNotFoundError as error:
            raise _command_missing(words) from error

    def _run(
        self, arguments: tuple[str, ...], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - argument list, no shell
                arguments,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except FileNotFoundError as error:
            raise _command_missing(arguments) from error
        except subprocess.TimeoutExpired as error:
            msg = f"{' '.join(arguments)} did not finish within {timeout_seconds:g} s."
            raise StepFailed(msg) from error


def _command_missing(arguments: tuple[str, ...]) -> StepFailed:
    return StepFailed(f"The command {arguments[0]} was not found; does this machine use systemd?")


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Write a file atomically and durably: no reader sees half of it, even after a power cut."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)  # left only by a failure
