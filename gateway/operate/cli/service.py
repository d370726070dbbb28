"""`holdfast service`: installs and controls Holdfast as a systemd service."""

import functools
import getpass
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from gateway.config import credentials
from gateway.config.loader import (
    SERVICE_HOME,
    ConfigOptions,
    LoadedConfig,
    read_environment,
    state_folder,
)
from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli import restarting
from gateway.operate.cli.common import (
    call_daemon,
    json_option,
    load_settings,
    print_fields,
    print_json,
)
from gateway.operate.cli.daemon import status as status_of_daemon
from gateway.operate.cli.found_config import confirm_found_config
from gateway.operate.systemd import plan, program
from gateway.operate.systemd.manager import SYSTEMD_RUNTIME_FOLDER, ServiceManager, StepFailed
from gateway.operate.systemd.scope import ServiceScope, machine_scope, user_scope
from gateway.operate.systemd.unit import (
    UNIT_NAME,
    ServiceUnit,
    render_system_unit,
    render_user_unit,
)
from gateway.process.control_socket import NotRunning
from sessions.values.clock import SystemClock

_DEFAULT_LOG_LINES = 100
_LOG_LINES_AFTER_FAILURE = 12
_RUNNING_STATES = {"active", "reloading"}
_ENV_REFERENCE = re.compile(r"""["']env:([A-Za-z_][A-Za-z0-9_]*)["']""")


class NeedsRoot(CannotStart):
    """The machine's service needs root."""


class NoSystemd(CannotStart):
    """systemd is not running on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "This machine does not run systemd, so there is no service to manage. In a container, make "
            "“holdfast run” the main process (see deploy/Containerfile). On other systems, let the "
            "service manager start “holdfast run”."
        )


class ServiceNotInstalled(CannotStart):
    """Holdfast is not installed as a service."""


class ServiceContext(Struct, frozen=True):
    """Environment and permissions of a service command."""

    environ: Mapping[str, str]
    is_root: bool
    has_systemd: bool
    """True if systemd runs this machine."""
    machine_scope: ServiceScope

    @classmethod
    def detect(cls) -> "ServiceContext":
        """Return the context of this process."""
        machine = machine_scope(SERVICE_HOME)
        return cls(read_environment(), os.geteuid() == 0, SYSTEMD_RUNTIME_FOLDER.is_dir(), machine)

    def scope(self, *, user: bool) -> ServiceScope:
        """Return the scope of this user's service or of the machine's."""
        if not user:
            return self.machine_scope
        config = self.environ.get("XDG_CONFIG_HOME")
        home = Path(self.environ["HOME"]) if self.environ.get("HOME") else Path.home()
        state = state_folder(self.environ, is_root=False)
        return user_scope(home, Path(config) if config else None, state)

    def installed_scope(self, *, user: bool) -> ServiceScope:
        """Return the scope that is installed, preferring the machine's; raise if there is none."""
        if not self.has_systemd:
            raise NoSystemd
        user_own = self.scope(user=True)
        wanted = (user_own,) if user else (self.machine_scope, user_own)
        found = next((scope for scope in wanted if scope.unit_path.exists()), None)
        if found is None:
            option, whose = (" --user", " of this user") if user else ("", "")
            msg = (
                f"Holdfast is not installed as a service{whose}. "
                f"Install it with: holdfast service install{option}"
            )
            raise ServiceNotInstalled(msg)
        return found

    def require_permission(self, scope: ServiceScope, command: str) -> None:
        """Raise `NoSystemd` or `NeedsRoot` if the command cannot work here."""
        if not self.has_systemd:
            raise NoSystemd
        if not scope.is_user and not self.is_root:
            msg = (
                f"The machine's service needs root: sudo {_command_name()} service {command}. "
                "For a service of your own user, which needs no root, add --user."
            )
            raise NeedsRoot(msg)


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--user` to a command, and pass the `ServiceContext`."""

    @click.option("--user", is_flag=True, help="Use this user's own service; needs no root.")
    @click.pass_context
    @functools.wraps(command)
    def with_here(ctx: click.Context, /, **given: object) -> None:
        command(
            here=ctx.obj if isinstance(ctx.obj, ServiceContext) else ServiceContext.detect(),
            **given,
        )

    return with_here


@click.group(help="Run Holdfast as a systemd service.")
def service() -> None:
    """See the help."""


# --- install and uninstall ---------------------------------------------------------------------


@service.command()
@service_options
@click.option("--dry-run", is_flag=True, help="Print the files and commands, and change nothing.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file."
)
def install(here: ServiceContext, config: Path | None, *, user: bool, dry_run: bool) -> None:
    """Install and start the service, now and at every boot.

    Values set in this environment, such as TELEGRAM_BOT_TOKEN, are stored for the service in a
    credentials folder. Run the command again to update the service.
    """
    scope = here.scope(user=user)
    manager = ServiceManager(scope, here.environ)
    if not dry_run:
        here.require_permission(scope, "install")
    confirm_found_config(ConfigOptions(config))
    loaded = load_settings(ConfigOptions(config))
    text = unit_text(loaded, scope, manager.systemd_version())
    steps = plan.install_steps(scope, text, _variables_to_store(loaded, scope, here.environ))
    if dry_run:
        for step in steps:
            for line in plan.describe_step(step):
                click.echo(line)
        return
    ran_before = manager.show_properties().get("ActiveState") in _RUNNING_STATES
    try:
        for step in steps:
            manager.run_step(step)
    except StepFailed as error:
        raise StepFailed(*error.lines, *_log_tail(manager)) from error
    _print_next_steps(scope, manager, ran_before=ran_before)


@service.command()
@service_options
def uninstall(here: ServiceContext, *, user: bool) -> None:
    """Remove the service; its data and configuration stay."""
    scope = here.installed_scope(user=user)
    here.require_permission(scope, "uninstall")
    manager = ServiceManager(scope, here.environ)
    for step in plan.uninstall_steps(scope, plan.START_TIMEOUT_SECONDS):
        manager.run_step(step)
    click.echo("The service is removed. These folders are kept:")
    click.echo(f"  data:           {scope.state_folder}")
    click.echo(f"  configuration:  {scope.credentials_folder.parent}")


# --- the installed service ---------------------------------------------------------------------


@service.command()
@service_options
def start(here: ServiceContext, *, user: bool) -> None:
    """Start the service and wait until the gateway is ready."""
    _run_systemctl(here, "start", user=user)


@service.command()
@service_options
def stop(here: ServiceContext, *, user: bool) -> None:
    """Stop the service after running turns have finished."""
    _run_systemctl(here, "stop", user=user)


@service.command()
@service_options
@restarting.when_idle_option
@restarting.yes_option
def restart(here: ServiceContext, *, user: bool, when_idle: float | None, yes: bool) -> None:
    """Restart with the version that is installed now.

    Lists running tasks and asks first. Also restarts a gateway that was started by hand.
    """
    process = restarting.running_pid()
    try:
        scope = here.installed_scope(user=user)
    except (NoSystemd, ServiceNotInstalled):
        if process is None:
            raise
        restarting.restart_daemon(when_idle, assume_yes=yes)
        return
    here.require_permission(scope, "restart")
    found = ServiceManager(scope, here.environ).show_properties()
    of_service = process is not None and found.get("MainPID") == str(process)
    if process is not None and not (of_service and _is_outdated(scope, found)):
        restarting.restart_daemon(when_idle, assume_yes=yes)
        return
    if of_service:  # only systemd applies a changed unit and changed credentials
        if when_idle is None:
            restarting.confirm_restart(assume_yes=yes)
        else:
            restarting.wait_until_idle(when_idle)
    _run_systemctl(here, "restart", user=user)


@service.command()
@service_options
@json_option
def reload(here: ServiceContext, *, user: bool, as_json: bool) -> None:
    """Read the configuration again and print what changed."""
    try:
        found = call_daemon("reload")
    except NotRunning:
        if as_json:
            raise
        _run_systemctl(here, "reload", user=user)  # reports errors itself
    else:
        if as_json:
            print_json(found)
        else:
            click.echo(found["summary"])


def _is_outdated(scope: ServiceScope, found: Mapping[str, str]) -> bool:
    """Return True if the unit or a credential is newer than the process that systemd started."""
    since = int(found.get("ExecMainStartTimestampMonotonic") or 0) / 1_000_000
    clock = SystemClock()
    started = clock.now() / 1000 - (clock.monotonic() - since)
    folder = scope.credentials_folder
    secrets = [folder, *folder.iterdir()] if folder.is_dir() else []
    return any(path.stat().st_mtime > started for path in (scope.unit_path, *secrets))


def _run_systemctl(here: ServiceContext, command: str, *, user: bool) -> None:
    scope = here.installed_scope(user=user)
    here.require_permission(scope, command)
    manager = ServiceManager(scope, here.environ)
    try:
        manager.run_step(
            plan.RunCommand(scope.systemctl(command, UNIT_NAME), plan.START_TIMEOUT_SECONDS)
        )
    except StepFailed as error:
        raise StepFailed(*error.lines, *_log_tail(manager)) from error
    click.echo(_state_text(manager.show_properties()))


@service.command()
@service_options
@json_option
def status(here: ServiceContext, *, user: bool, as_json: bool) -> None:
    """Show the state of the service; exit code 0 if it runs, else 1."""
    scope = here.installed_scope(user=user)
    found = ServiceManager(scope, here.environ).show_properties()
    runs = found.get("ActiveState") in _RUNNING_STATES
    if as_json:
        print_json(
            {
                "unit": str(scope.unit_path),
                "state": found.get("ActiveState"),
                "status": found.get("StatusText"),
                "pid": int(found.get("MainPID") or 0) or None,
                "restarts": int(found.get("NRestarts") or 0),
                "enabled": found.get("UnitFileState") == "enabled",
            }
        )
        sys.exit(0 if runs else 1)
    starts = "starts at boot" if found.get("UnitFileState") == "enabled" else "is not enabled"
    fields = {"service": _state_text(found), "unit": f"{scope.unit_path} ({starts})"}
    if restarts := int(found.get("NRestarts") or 0):
        fields["restarts"] = f"{restarts} after failures"
    print_fields(fields)
    if not runs:
        click.echo(f"See the log: holdfast service logs{scope.user_option}")
        sys.exit(1)
    if not scope.is_user and not here.is_root:
        click.echo("For details run: sudo holdfast status")
        return
    click.get_current_context().invoke(status_of_daemon, as_json=False)


@service.command()
@service_options
@click.option("-f", "--follow", is_flag=True, help="Follow new log lines.")
@click.option(
    "-n",
    "--lines",
    default=_DEFAULT_LOG_LINES,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of lines.",
)
def logs(here: ServiceContext, *, user: bool, follow: bool, lines: int) -> None:
    """Show the service's log."""
    scope = here.installed_scope(user=user)
    sys.exit(ServiceManager(scope, here.environ).show_log(lines=lines, follow=follow))


# --- the unit ----------------------------------------------------------------------------------


def _command_name() -> str:
    """Return the command to type here: `holdfast` if PATH finds this program, else its path."""
    found = program.find_program()
    known = shutil.which("holdfast")
    return "holdfast" if known and Path(known).samefile(found) else str(found)


def unit_text(loaded: LoadedConfig, scope: ServiceScope, version: int) -> str:
    """Return the unit file that `install` writes; raise `HoldfastError` if none could work."""
    unit = _build_unit(loaded, scope, version)
    return render_user_unit(unit) if scope.is_user else render_system_unit(unit)


def _build_unit(loaded: LoadedConfig, scope: ServiceScope, version: int) -> ServiceUnit:
    settings = loaded.settings
    families = {*settings.tools.enabled}.union(*(route.tools or () for route in settings.route))
    unit = ServiceUnit(
        program=program.find_program(),
        config=_explicit_config(loaded, scope),
        drain_seconds=settings.gateway.drain_seconds,
        uses_sandbox="shell" in families,
        port=settings.http.port,
        systemd_version=version,
    )
    if scope.is_user:
        user_own = state_folder({"HOME": str(Path.home())}, is_root=False)
        return replace(unit, home=loaded.home if loaded.home != user_own else None)
    places = program.program_folders()
    if closed := program.first_private_path((*places, unit.program)):
        msg = (
            f"The service runs as its own user and cannot read {closed}. Allow it "
            f"(chmod -R go+rX {closed}), or install Holdfast in a folder that all users can read."
        )
        raise CannotStart(msg)
    return replace(
        unit,
        hidden_folders=program.hidden_folders(places),
        writable_folders=_writable_folders(loaded),
    )


def _explicit_config(loaded: LoadedConfig, scope: ServiceScope) -> Path | None:
    """Return the configuration path, unless the service finds the file by itself."""
    if loaded.path is None:
        return None
    path = loaded.path.absolute()
    usual = scope.credentials_folder.parent / "holdfast.toml"
    if not scope.is_user:
        if program.hidden_folders((path,)):
            msg = (
                f"The machine's service cannot see the configuration {path}. "
                f"Move it: mv {path} {usual}"
            )
            raise ConfigError(msg)
        if program.first_private_path((path,)):
            msg = (
                f"The service runs as its own user and cannot read the configuration {path}. Move "
                f"each secret into its own file in {scope.credentials_folder}, such as "
                f"TELEGRAM_BOT_TOKEN, and then run: chmod 644 {path}"
            )
            raise ConfigError(msg)
    return None if path == usual else path


def _writable_folders(loaded: LoadedConfig) -> tuple[Path, ...]:
    settings = loaded.settings
    found = [settings.agent.workspace] if settings.agent.workspace else []
    url = settings.store.url.reveal() if settings.store.url else ""
    if url.startswith("sqlite:///"):
        found.append(Path(url.removeprefix("sqlite:///")).parent)
    return tuple(folder for folder in found if not folder.is_relative_to(SERVICE_HOME))


def _variables_to_store(
    loaded: LoadedConfig, scope: ServiceScope, environ: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the environment variables used here that the service would not have."""
    names = {label for label in loaded.sources.values() if label in environ}
    if loaded.path:
        names |= {*_ENV_REFERENCE.findall(loaded.path.read_text(encoding="utf-8"))} & {*environ}
    there = scope.credentials_folder
    kept = credentials.read_variables(there) if credentials.is_readable(there) else {}
    return {name: environ[name] for name in names if kept.get(name) != environ[name]}


# --- output ------------------------------------------------------------------------------------


def _state_text(found: Mapping[str, str]) -> str:
    state, text = found.get("ActiveState", "unknown"), found.get("StatusText", "")
    return f"{state}: {text}" if text else state


def _log_tail(manager: ServiceManager) -> list[str]:
    tail = manager.log_tail(_LOG_LINES_AFTER_FAILURE)
    return ["Last log lines:", *(f"  {line}" for line in tail.splitlines())] if tail else []


def _print_next_steps(scope: ServiceScope, manager: ServiceManager, *, ran_before: bool) -> None:
    name = _command_name()
    click.echo(
        f"Holdfast is installed as a service and starts at boot. {_state_text(manager.show_properties())}"
    )
    if ran_before:
        click.echo(
            "The service was already running. To apply this installation: "
            f"{name} service restart{scope.user_option}"
        )
    click.echo(f"  Status:              {name} service status{scope.user_option}")
    click.echo(f"  Log:                 {name} service logs{scope.user_option} -f")
    click.echo(f"  Become the owner:    {name} pair claim")
    click.echo(f"  Chat in the browser: {name} link")
    click.echo(
        f"  Secrets:             {scope.credentials_folder}, one file each, such as OPENAI_API_KEY"
    )
    if scope.is_user and not manager.has_linger(getpass.getuser()):
        click.echo(
            "  The service stops when you log out. To keep it running: "
            f"sudo loginctl enable-linger {getpass.getuser()}"
        )
