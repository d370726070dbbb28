"""Sans-IO: what is done to install the service and to take it away, step by step.

`--dry-run` prints these steps; `gateway.operate.systemd.manager` carries them out. Commands are lists of
words: no shell ever reads them.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gateway.operate.systemd.scope import Scope
from gateway.operate.systemd.unit import NAME

START_WITHIN = 3700.0
"""Seconds; the manager gives up long before, unless the daemon asks for more time."""
QUICK_WITHIN = 60.0


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


class Call(Struct, frozen=True):
    """A command."""

    words: tuple[str, ...]
    within: float = QUICK_WITHIN
    may_fail: bool = False


Step = MakeFolder | WriteFile | RemoveFile | Call


def install(scope: Scope, unit: str, carried: Mapping[str, str]) -> tuple[Step, ...]:
    """Install and start it; `carried` are variables that only this environment knows so far."""
    secrets = tuple(
        WriteFile(scope.credentials / name, f"{value}\n", 0o600, secret=True)
        for name, value in sorted(carried.items())
    )
    return (
        MakeFolder(scope.credentials.parent, 0o755),
        MakeFolder(scope.credentials, 0o700),
        *secrets,
        MakeFolder(scope.unit.parent, 0o755),
        WriteFile(scope.unit, unit),
        Call(scope.systemctl("daemon-reload")),
        Call(scope.systemctl("enable", NAME)),
        Call(scope.systemctl("start", NAME), START_WITHIN),
    )


def uninstall(scope: Scope, stop_within: float) -> tuple[Step, ...]:
    """Stop it and take the unit away; state, configuration and credentials stay."""
    return (
        Call(scope.systemctl("stop", NAME), stop_within, may_fail=True),
        Call(scope.systemctl("disable", NAME), may_fail=True),
        RemoveFile(scope.unit),
        Call(scope.systemctl("daemon-reload")),
        Call(scope.systemctl("reset-failed", NAME), may_fail=True),
    )


def described(step: Step) -> Iterator[str]:
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
        case Call(words):
            yield shlex.join(words)
