"""The systemd service: installed as this version would install it, running, starting at boot."""

import asyncio
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from gateway.config.loader import LoadedConfig
from gateway.errors import HoldfastError
from gateway.operate.doctor.context import DoctorContext
from gateway.operate.systemd.manager import ServiceManager
from gateway.operate.systemd.scope import ServiceScope
from sessions.values.finding import Finding, fail, ok, warn

TIMEOUT_SECONDS = 20.0
_RUNNING_STATES = {"active", "reloading", "activating", "refreshing"}
_MANY_RESTARTS = 3
_COMMENT_MARKS = ("#", ";")  # of systemd


class ServiceCheck(Struct, frozen=True):
    """Check of the scopes in which a service may be installed."""

    has_systemd: bool  # systemd runs this machine
    scopes: tuple[ServiceScope, ...]
    render_unit: Callable[[LoadedConfig, ServiceScope, int], str]
    """Renders the expected unit file; raises `HoldfastError` if none can work."""

    async def run(self, context: DoctorContext) -> Sequence[Finding]:
        """Compare each installed service with the one this version would install."""
        return await asyncio.to_thread(lambda: [*self._findings(context)])

    def _findings(self, context: DoctorContext) -> Iterator[Finding]:
        installed = [scope for scope in self.scopes if scope.unit_path.exists()]
        if not installed:
            hint = "; to start it at boot: holdfast service install" if self.has_systemd else ""
            yield ok("service", f"not installed{hint}")
            return
        if len(installed) > 1:
            yield warn(
                "service",
                "the service is installed twice, for the machine and for this user",
                "Remove one of them: `holdfast service uninstall --user`.",
            )
        for scope in installed:
            yield from self._scope_findings(context, scope)

    def _scope_findings(self, context: DoctorContext, scope: ServiceScope) -> Iterator[Finding]:
        manager = ServiceManager(scope, context.environ)
        if self.has_systemd:
            try:
                yield from _state_findings(manager.show_properties(), scope)
            except HoldfastError as error:
                yield warn("service", str(error), "Check that systemd answers: `systemctl status`.")
        yield from self._unit_findings(context, scope, manager)
        if context.home != scope.state_folder:
            yield warn(
                "state folder",
                f"the service uses {scope.state_folder}, but this command checked {context.home}",
                f"Run `{_sudo_prefix(scope)}HOLDFAST_HOME={scope.state_folder} holdfast doctor`.",
            )
        if scope.is_user and self.has_systemd:
            yield from _linger_findings(manager, context.environ, scope)

    def _unit_findings(
        self, context: DoctorContext, scope: ServiceScope, manager: ServiceManager
    ) -> Iterator[Finding]:
        if context.loaded is None or any(
            _is_from_command_line(source) for source in context.loaded.sources.values()
        ):
            return
        again = f"Run `{_sudo_prefix(scope)}holdfast service install{scope.user_option}` again"
        try:
            wanted = self.render_unit(context.loaded, scope, manager.systemd_version())
            there = scope.unit_path.read_text(encoding="utf-8")
        except HoldfastError as error:
            yield warn(
                "unit", f"no working unit file can be written: {error}", f"Fix that first. {again}."
            )
            return
        except OSError as error:
            yield warn(
                "unit", f"{scope.unit_path} cannot be read: {error.strerror}", "Run this as root."
            )
            return
        differs = first_difference(there, wanted)
        if differs:
            yield warn(
                "unit",
                f"{scope.unit_path} does not match this version and configuration: {differs}",
                f"{again}. Keep your own changes in a drop-in (`systemctl edit`).",
            )
        else:
            yield ok("unit", f"{scope.unit_path} is up to date")


def _is_from_command_line(source: str) -> bool:
    """Return True for a value from `--set`, which the service does not get."""
    return source.startswith("--set")


def first_difference(installed: str, expected: str) -> str:
    """Describe the first line that differs; empty if systemd reads the same in both texts."""
    end = len(installed.splitlines()) + 1
    for (number, old), (_, new) in zip_longest(
        _effective_lines(installed), _effective_lines(expected), fillvalue=(end, "")
    ):
        if old != new:
            return f"line {number} is “{old}”, not “{new}”"
    return ""


def _effective_lines(unit: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that systemd reads, with their numbers; it skips comments."""
    for number, line in enumerate(unit.splitlines(), 1):
        setting = line.strip()
        if setting and not setting.startswith(_COMMENT_MARKS):
            yield number, setting


def _state_findings(shown: Mapping[str, str], scope: ServiceScope) -> Iterator[Finding]:
    state = shown.get("ActiveState", "unknown")
    logs = f"`holdfast service logs{scope.user_option}`"
    if state == "failed":
        code = shown.get("ExecMainStatus", "?")
        yield fail(
            "service",
            f"the service has failed (exit code {code})",
            f"See why with {logs}, then: `holdfast service start{scope.user_option}`.",
        )
    elif state not in _RUNNING_STATES:
        yield warn(
            "service",
            f"the service is installed but not running ({state})",
            f"Start it: `{_sudo_prefix(scope)}holdfast service start{scope.user_option}`.",
        )
    else:
        text = shown.get("StatusText", "")
        yield ok("service", f"{state}: {text}" if text else state)
    if shown.get("UnitFileState") not in {"enabled", "", None}:
        yield warn(
            "service",
            "the service does not start at boot",
            f"Run `{_sudo_prefix(scope)}systemctl{scope.user_option} enable holdfast`.",
        )
    restarts = shown.get("NRestarts", "")
    if restarts.isdecimal() and int(restarts) >= _MANY_RESTARTS:
        yield warn(
            "service", f"the service was restarted {restarts} times after failures", f"See {logs}."
        )


def _linger_findings(
    manager: ServiceManager, environ: Mapping[str, str], scope: ServiceScope
) -> Iterator[Finding]:
    name = environ.get("USER") or pwd.getpwuid(scope.unit_path.stat().st_uid).pw_name
    try:
        lingers = manager.has_linger(name)
    except HoldfastError as error:
        yield warn("linger", str(error), "Check that systemd-logind runs.")
        return
    if lingers:
        yield ok("linger", f"the service keeps running when {name} logs out")
    else:
        yield warn(
            "linger",
            f"the service stops when {name} logs out",
            f"Run `sudo loginctl enable-linger {name}`.",
        )


def _sudo_prefix(scope: ServiceScope) -> str:
    return "" if scope.is_user else "sudo "
