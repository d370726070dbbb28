"""Carries out what `gateway.operate.systemd.plan` says, and asks systemd how the service is."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gateway.errors import CannotStart
from gateway.operate.systemd.plan import Call, MakeFolder, RemoveFile, Step, WriteFile
from gateway.operate.systemd.scope import Scope
from gateway.operate.systemd.unit import NAME, OLDEST

ASKED_WITHIN = 15.0
BOOTED = Path("/run/systemd/system")
"""There only while systemd runs the machine."""

_SHOWN = (
    "LoadState,ActiveState,SubState,StatusText,MainPID,NRestarts,ExecMainStatus,UnitFileState,"
    "ExecMainStartTimestampMonotonic"
)


_PASSED_ON = (
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
"""Variables that its commands may need; what is secret is not among them."""


class NotDone(CannotStart):
    """A step of the installation did not work."""


class Manager:
    """The service manager of the machine, or of one user."""

    def __init__(self, scope: Scope, environ: Mapping[str, str]) -> None:
        self._scope = scope
        self._environ = {
            name: value for name, value in environ.items() if name.startswith(_PASSED_ON)
        }
        runtime = Path(f"/run/user/{os.geteuid()}")
        if scope.user and "XDG_RUNTIME_DIR" not in environ and runtime.is_dir():
            self._environ["XDG_RUNTIME_DIR"] = str(runtime)  # `su` and cron leave it out

    def carry_out(self, step: Step) -> None:
        """Do one step; raises `NotDone`."""
        try:
            match step:
                case MakeFolder(path, mode):
                    path.mkdir(mode=mode, parents=True, exist_ok=True)
                case WriteFile(path, text, mode):
                    write_whole(path, text, mode)
                case RemoveFile(path):
                    path.unlink(missing_ok=True)
                case Call(words, within, may_fail):
                    self._call(words, within, may_fail=may_fail)
        except OSError as error:
            msg = f"{error.filename or 'A file'} cannot be written: {error.strerror}."
            raise NotDone(msg) from error

    def _call(self, words: tuple[str, ...], within: float, *, may_fail: bool) -> None:
        done = self._run(words, within)
        if done.returncode and not may_fail:
            said = (done.stderr or done.stdout).strip()
            msg = f"{' '.join(words)} failed ({done.returncode})"
            raise NotDone(*(f"{msg}: {said}" if said else f"{msg}.").splitlines())

    def show(self) -> dict[str, str]:
        """What systemd knows about the service."""
        words = self._scope.systemctl("show", NAME, f"--property={_SHOWN}")
        said = self._run(words, ASKED_WITHIN).stdout
        return dict(line.partition("=")[::2] for line in said.splitlines())

    def version(self) -> int:
        """Which systemd this is; the oldest we write for when it does not say."""
        try:
            said = self._run(("systemctl", "--version"), ASKED_WITHIN).stdout
        except NotDone:
            return OLDEST
        first = said.split()[1:2]
        return int(first[0]) if first and first[0].isdecimal() else OLDEST

    def lingers(self, name: str) -> bool:
        """Whether the manager of a user goes on when the user has logged out."""
        words = ("loginctl", "show-user", name, "--property=Linger", "--value")
        return self._run(words, ASKED_WITHIN).stdout.strip() != "no"

    def last_lines(self, count: int) -> str:
        """The end of the service's log."""
        words = self._scope.journalctl(lines=count, follow=False)
        return self._run(words, ASKED_WITHIN).stdout.strip()

    def watch_log(self, *, lines: int, follow: bool) -> int:
        """Show the log to whoever sits here; gives the exit code."""
        words = self._scope.journalctl(lines=lines, follow=follow)
        try:
            return subprocess.call(words, env=self._environ)  # noqa: S603 - a list of words
        except FileNotFoundError as error:
            raise _missing(words) from error

    def _run(self, words: tuple[str, ...], within: float) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - a list of words, no shell
                words,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=within,
                check=False,
            )
        except FileNotFoundError as error:
            raise _missing(words) from error
        except subprocess.TimeoutExpired as error:
            msg = f"{' '.join(words)} did not end within {within:g} s."
            raise NotDone(msg) from error


def _missing(words: tuple[str, ...]) -> NotDone:
    return NotDone(f"The command {words[0]} is not here; is this a machine with systemd?")


def write_whole(path: Path, text: str, mode: int) -> None:
    """Write a file so that nobody ever sees half of it, not even after a power cut."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - by its number
            file.write(text)
            file.flush()
            os.fchmod(number, mode)
            os.fsync(number)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)  # there only when something went wrong
