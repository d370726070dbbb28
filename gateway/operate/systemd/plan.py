"""Sans-IO: what is done to install the service and to take it away, step by step.

`--dry-run` prints these steps; `gateway.operate.systemd.manager` carries them out. Commands are lists of
words: no shell ever reads them.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gateway.operate.systemd.scope import ServiceScope
from gateway.operate.systemd.unit import UNIT_NAME

START_TIMEOUT_SECONDS = 3700.0
"""Seconds; the manager gives up long before, unless the daemon asks for more time."""
COMMAND_TIMEOUT_SECONDS = 60.0


class MakeFolder(Struct, frozen=True):
    """A folder; one that is there stays as it is."""

    path: Path
    mode: int


class WriteFile(Struct, frozen=True):
    """A file, written whole or not at all."""

    path: Path
    text: str
    mode: int = 0o644
    secret: bool = False


class RemoveFile(Struct, frozen=True):
    """A file to take away, if it is there."""

    path: Path


class RunCommand(Struct, frozen=True):
    """A command."""

    arguments: tuple[str, ...]
    timeout_seconds: float = COMMAND_TIMEOUT_SECONDS
    may_fail: bool = False


InstallStep = MakeFolder | WriteFile | RemoveFile | RunCommand


def install_steps(
    scope: ServiceScope, unit_text: str, variables: Mapping[str, str]
) -> tuple[InstallStep, ...]:
    """Install and start it; `carried` are variables that only this environment knows so far."""
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
    """Stop it and take the unit away; state, configuration and credentials stay."""
    return (
        RunCommand(scope.systemctl("stop", UNIT_NAME), stop_timeout_seconds, may_fail=True),
        RunCommand(scope.systemctl("disable", UNIT_NAME), may_fail=True),
        RemoveFile(scope.unit_path),
        RunCommand(scope.systemctl("daemon-reload")),
        RunCommand(scope.systemctl("reset-failed", UNIT_NAME), may_fail=True),
    )


def describe_step(step: InstallStep) -> Iterator[str]:
    """What a step does, for people; the text of a file too, unless it is a secret."""
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
