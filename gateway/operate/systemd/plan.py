"""Sans-IO: the steps to install and uninstall the service.

`--dry-run` prints these steps; `gateway.operate.systemd.manager` runs them. Commands are argument
lists and never pass through a shell.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gateway.operate.systemd.scope import ServiceScope
from gateway.operate.systemd.unit import UNIT_NAME

START_TIMEOUT_SECONDS = 3700.0
"""Upper bound for `systemctl start`; systemd itself gives up earlier unless the daemon asks for
more time."""
_COMMAND_TIMEOUT_SECONDS = 60.0


class MakeFolder(Struct, frozen=True):
    """A folder to create; an existing one is left unchanged."""

    path: Path
    mode: int


class WriteFile(Struct, frozen=True):
    """A file to write atomically."""

    path: Path
    text: str
    mode: int = 0o644
    secret: bool = False


class RemoveFile(Struct, frozen=True):
    """A file to remove, if present."""

    path: Path


class RunCommand(Struct, frozen=True):
    """A command to run."""

    arguments: tuple[str, ...]
    timeout_seconds: float = _COMMAND_TIMEOUT_SECONDS
    may_fail: bool = False


InstallStep = MakeFolder | WriteFile | RemoveFile | RunCommand


def install_steps(
    scope: ServiceScope, unit_text: str, variables: Mapping[str, str]
) -> tuple[InstallStep, ...]:
    """Return the steps to install and start the service; `variables` become credentials."""
    secrets = tuple(
        WriteFile(scope.credentials_folder / name, f"{value}\n", 0o600, secret=True)
        for name, value in sorted(variables.items())
    )
    return (
        MakeFolder(scope.credentials_folder.parent, 0o755),
        MakeFolder(scope.credentials_folder, 0o700),
        *secrets,
        MakeFolder(scope.unit_path.parent, 0o755),
        WriteFile(scope.unit_path, unit_text),
        RunCommand(scope.systemctl("daemon-reload")),
        RunCommand(scope.systemctl("enable", UNIT_NAME)),
        RunCommand(scope.systemctl("start", UNIT_NAME), START_TIMEOUT_SECONDS),
    )


def uninstall_steps(scope: ServiceScope, stop_timeout_seconds: float) -> tuple[InstallStep, ...]:
    """Return the steps to stop the service and remove the unit; all data stays."""
    return (
        RunCommand(scope.systemctl("stop", UNIT_NAME), stop_timeout_seconds, may_fail=True),
        RunCommand(scope.systemctl("disable", UNIT_NAME), may_fail=True),
        RemoveFile(scope.unit_path),
        RunCommand(scope.systemctl("daemon-reload")),
        RunCommand(scope.systemctl("reset-failed", UNIT_NAME), may_fail=True),
    )


def describe_step(step: InstallStep) -> Iterator[str]:
    """Yield a step as shell-like lines; includes the text of a file unless marked as secret."""
    match step:
        case MakeFolder(path, mode):
            yield f"mkdir -p -m {mode:o} {shlex.quote(str(path))}"
        case WriteFile(path, text, mode, secret):
            what = "a secret from this environment" if secret else "this text"
            yield f"write {shlex.quote(str(path))} (mode {mode:o}), {what}"
            if not secret:
                yield from (f"    {line}".rstrip() for line in text.splitlines())
        case RemoveFile(path):
            yield f"rm -f {shlex.quote(str(path))}"
        case RunCommand(words):
            yield shlex.join(words)
