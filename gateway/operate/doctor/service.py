"""The service of systemd: installed as this version would install it, running, and staying."""

import asyncio
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from gateway.config.loader import Loaded
from gateway.errors import HoldfastError
from gateway.operate.doctor.context import Case
from gateway.operate.systemd.manager import Manager
from gateway.operate.systemd.scope import Scope
from sessions.values.finding import Finding, fail, ok, warn

SECONDS = 20.0
_WELL = {"active", "reloading", "activating", "refreshing"}
_MANY = 3


class Services(Struct, frozen=True):
    """Where a service may be installed, and how one would be."""

    booted: bool  # systemd runs this machine
    scopes: tuple[Scope, ...]
    unit_of: Callable[[Loaded, Scope, int], str]
    """The text of the unit; raises `HoldfastError` where none can be."""

    async def look(self, case: Case) -> Sequence[Finding]:
        """Compare what is installed with what would be."""
        return await asyncio.to_thread(lambda: [*self._found(case)])

    def _found(self, case: Case) -> Iterator[Finding]:
        installed = [scope for scope in self.scopes if scope.unit.exists()]
        if not installed:
            hint = "; to have it start by itself: holdfast service install" if self.booted else ""
            yield ok("service", f"not installed{hint}")
            return
        if len(installed) > 1:
            yield warn(
                "service",
                "it is installed twice: for the machine and for this user",
                "Take one away: `holdfast service uninstall --user`.",
            )
        for scope in installed:
            yield from self._one(case, scope)

    def _one(self, case: Case, scope: Scope) -> Iterator[Finding]:
        manager = Manager(scope, case.environ)
        if self.booted:
            try:
                yield from _standing(manager.show(), scope)
            except HoldfastError as error:
                yield warn("service", str(error), "See that systemd answers: `systemctl status`.")
        yield from self._compared(case, scope, manager)
        if case.home != scope.state:
            yield warn(
                "state folder",
                f"the service keeps everything in {scope.state}, and this looked at {case.home}",
                f"Run `{_sudo(scope)}HOLDFAST_HOME={scope.state} holdfast doctor`.",
            )
        if scope.user and self.booted:
            yield from _linger(manager, case.environ, scope)

    def _compared(self, case: Case, scope: Scope, manager: Manager) -> Iterator[Finding]:
        if case.loaded is None or any(
            _is_of_this_visit(each) for each in case.loaded.sources.values()
        ):
            return
        again = f"Run `{_sudo(scope)}holdfast service install{scope.option}` again"
        try:
            wanted = self.unit_of(case.loaded, scope, manager.version())
            there = scope.unit.read_text(encoding="utf-8")
        except HoldfastError as error:
            yield warn("unit", f"no unit could be written now: {error}", f"Mend that. {again}.")
            return
        except OSError as error:
            yield warn(
                "unit", f"{scope.unit} cannot be read: {error.strerror}", "Run this as root."
            )
            return
        differs = first_difference(there, wanted)
        if differs:
            yield warn(
                "unit",
                f"{scope.unit} is not as this version and configuration would have it: {differs}",
                f"{again}; changes of your own belong into a drop-in (`systemctl edit`).",
            )
        else:
            yield ok("unit", f"{scope.unit} is as it should be")


def _is_of_this_visit(source: str) -> bool:
    """Whether a value was given to this very command, and is none of the service's."""
    return source.startswith("--set")


def first_difference(there: str, wanted: str) -> str:
    """Name the first line in which they differ; empty when there is none."""
    for number, (old, new) in enumerate(
        zip_longest(there.splitlines(), wanted.splitlines(), fillvalue=""), 1
    ):
        if old != new:
            return f"line {number} is “{old}”, not “{new}”"
    return ""


def _standing(shown: Mapping[str, str], scope: Scope) -> Iterator[Finding]:
    state = shown.get("ActiveState", "unknown")
    logs = f"`holdfast service logs{scope.option}`"
    if state == "failed":
        code = shown.get("ExecMainStatus", "?")
        yield fail(
            "service",
            f"it has failed (exit code {code})",
            f"See why with {logs}, then: `holdfast service start{scope.option}`.",
        )
    elif state not in _WELL:
        yield warn(
            "service",
            f"it is installed and does not run ({state})",
            f"Start it: `{_sudo(scope)}holdfast service start{scope.option}`.",
        )
    else:
        said = shown.get("StatusText", "")
        yield ok("service", f"{state}: {said}" if said else state)
    if shown.get("UnitFileState") not in {"enabled", "", None}:
        yield warn(
            "service",
            "it does not start with the machine",
            f"Run `{_sudo(scope)}systemctl{scope.option} enable holdfast`.",
        )
    restarts = shown.get("NRestarts", "")
    if restarts.isdecimal() and int(restarts) >= _MANY:
        yield warn(
            "service", f"it was started anew {restarts} times after failures", f"See {logs}."
        )


def _linger(manager: Manager, environ: Mapping[str, str], scope: Scope) -> Iterator[Finding]:
    name = environ.get("USER") or pwd.getpwuid(scope.unit.stat().st_uid).pw_name
    try:
        lingers = manager.lingers(name)
    except HoldfastError as error:
        yield warn("linger", str(error), "See that systemd-logind runs.")
        return
    if lingers:
        yield ok("linger", f"it goes on when {name} logs out")
    else:
        yield warn(
            "linger",
            f"it ends when {name} logs out",
            f"Run `sudo loginctl enable-linger {name}`.",
        )


def _sudo(scope: Scope) -> str:
    return "" if scope.user else "sudo "
