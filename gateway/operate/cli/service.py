"""`holdfast service`: Holdfast as a service of systemd."""

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
from gateway.config.loader import SERVICE_HOME, Loaded, Options, environment, state_folder
from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli import restarting
from gateway.operate.cli.common import as_json, order, print_fields, print_json, settings_of
from gateway.operate.cli.daemon import status as status_of_daemon
from gateway.operate.systemd import plan, program
from gateway.operate.systemd.manager import BOOTED, Manager, NotDone
from gateway.operate.systemd.scope import Scope, of_machine, of_user
from gateway.operate.systemd.unit import NAME, Unit, system_unit, user_unit
from gateway.process.control_socket import NotRunning
from sessions.values.clock import SystemClock

SHOWN_LINES = 100
_AFTER_FAILURE = 12
_WELL = {"active", "reloading"}
_NAMED_IN_FILE = re.compile(r"""["']env:([A-Za-z_][A-Za-z0-9_]*)["']""")


class NeedsRoot(CannotStart):
    """The service of the machine needs root."""


class NoSystemd(CannotStart):
    """There is no systemd here."""

    def __init__(self) -> None:
        super().__init__(
            "systemd does not run this machine, so there is no service to look after. In a container "
            "“holdfast run” is the main process (see deploy/Containerfile); anywhere else have what "
            "starts programs here start “holdfast run”."
        )


class NotInstalled(CannotStart):
    """Holdfast is not installed as a service."""


class Here(Struct, frozen=True):
    """Where a command is given, and by whom."""

    environ: Mapping[str, str]
    root: bool
    booted: bool
    """Whether systemd runs the machine."""
    machine: Scope

    @classmethod
    def now(cls) -> "Here":
        """The real one."""
        machine = of_machine(SERVICE_HOME)
        return cls(environment(), os.geteuid() == 0, BOOTED.is_dir(), machine)

    def scope(self, *, user: bool) -> Scope:
        """The service that is meant."""
        if not user:
            return self.machine
        config = self.environ.get("XDG_CONFIG_HOME")
        home = Path(self.environ["HOME"]) if self.environ.get("HOME") else Path.home()
        state = state_folder(self.environ, root=False)
        return of_user(home, Path(config) if config else None, state)

    def installed(self, *, user: bool) -> Scope:
        """The one that is installed: the machine's, if there is one."""
        if not self.booted:
            raise NoSystemd
        own = self.scope(user=True)
        wanted = (own,) if user else (self.machine, own)
        found = next((each for each in wanted if each.unit.exists()), None)
        if found is None:
            option, whose = (" --user", " of this user") if user else ("", "")
            msg = (
                f"Holdfast is not installed as a service{whose}; "
                f"install it with: holdfast service install{option}"
            )
            raise NotInstalled(msg)
        return found

    def may_change(self, scope: Scope, what: str) -> None:
        """Refuse what cannot work from here."""
        if not self.booted:
            raise NoSystemd
        if not scope.user and not self.root:
            msg = (
                f"The service of the machine needs root: sudo {_own_name()} service {what}. "
                "One of your own needs none: add --user."
            )
            raise NeedsRoot(msg)


def scoped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option `--user`, and tell it where it is given."""

    @click.option("--user", is_flag=True, help="The service of this user alone: needs no root.")
    @click.pass_context
    @functools.wraps(command)
    def with_here(ctx: click.Context, /, **given: object) -> None:
        command(here=ctx.obj if isinstance(ctx.obj, Here) else Here.now(), **given)

    return with_here


@click.group(help="Run Holdfast as a service of systemd.")
def service() -> None:
    """See the help."""


# --- install and uninstall ---------------------------------------------------------------------


@service.command()
@scoped
@click.option("--dry-run", is_flag=True, help="Print files and commands, and do nothing.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Configuration file."
)
def install(here: Here, config: Path | None, *, user: bool, dry_run: bool) -> None:
    """Start it, now and with the machine.

    What is set in this environment, such as TELEGRAM_BOT_TOKEN, is kept for the service in a folder
    of credentials. To bring the service up to date, install it again.
    """
    scope = here.scope(user=user)
    manager = Manager(scope, here.environ)
    if not dry_run:
        here.may_change(scope, "install")
    loaded = settings_of(Options(config))
    text = unit_text(loaded, scope, manager.version())
    steps = plan.install(scope, text, _carried(loaded, scope, here.environ))
    if dry_run:
        for step in steps:
            for line in plan.described(step):
                click.echo(line)
        return
    ran_before = manager.show().get("ActiveState") in _WELL
    try:
        for step in steps:
            manager.carry_out(step)
    except NotDone as error:
        raise NotDone(*error.lines, *_last_words(manager)) from error
    _tell_what_next(scope, manager, ran_before=ran_before)


@service.command()
@scoped
def uninstall(here: Here, *, user: bool) -> None:
    """Take it away; what it knows stays."""
    scope = here.installed(user=user)
    here.may_change(scope, "uninstall")
    manager = Manager(scope, here.environ)
    for step in plan.uninstall(scope, plan.START_WITHIN):
        manager.carry_out(step)
    click.echo("Holdfast is no service any more. Left as they are:")
    click.echo(f"  what it knows:  {scope.state}")
    click.echo(f"  configuration:  {scope.credentials.parent}")


# --- the running one ---------------------------------------------------------------------------


@service.command()
@scoped
def start(here: Here, *, user: bool) -> None:
    """Start it; done when it answers."""
    _order(here, "start", user=user)


@service.command()
@scoped
def stop(here: Here, *, user: bool) -> None:
    """Stop it, when running turns are done."""
    _order(here, "stop", user=user)


@service.command()
@scoped
@restarting.when_idle
@restarting.yes
def restart(here: Here, *, user: bool, when_idle: float | None, yes: bool) -> None:
    """Restart it with the program that is installed now.

    Shows what is running and asks first. Works as well for a daemon that was started by hand.
    """
    process = restarting.running_process()
    try:
        scope = here.installed(user=user)
    except (NoSystemd, NotInstalled):
        if process is None:
            raise
        restarting.restart_running(when_idle, sure=yes)
        return
    here.may_change(scope, "restart")
    found = Manager(scope, here.environ).show()
    of_service = process is not None and found.get("MainPID") == str(process)
    if process is not None and not (of_service and _is_outdated(scope, found)):
        restarting.restart_running(when_idle, sure=yes)
        return
    if of_service:  # only systemd gives it what has changed: the unit, and copies of the secrets
        if when_idle is None:
            restarting.ask_first(sure=yes)
        else:
            restarting.wait_until_idle(when_idle)
    _order(here, "restart", user=user)


@service.command()
@scoped
def reload(here: Here, *, user: bool) -> None:
    """Have it read its configuration again, and say what changed by that."""
    try:
        found = order("reload")
    except NotRunning:
        _order(here, "reload", user=user)  # which says what is wrong, if anything is
    else:
        click.echo(found["summary"])


def _is_outdated(scope: Scope, found: Mapping[str, str]) -> bool:
    """Whether the unit or a secret has changed since systemd started the process."""
    since = int(found.get("ExecMainStartTimestampMonotonic") or 0) / 1_000_000
    clock = SystemClock()
    started = clock.now() / 1000 - (clock.monotonic() - since)
    folder = scope.credentials
    secrets = [folder, *folder.iterdir()] if folder.is_dir() else []
    return any(each.stat().st_mtime > started for each in (scope.unit, *secrets))


def _order(here: Here, what: str, *, user: bool) -> None:
    scope = here.installed(user=user)
    here.may_change(scope, what)
    manager = Manager(scope, here.environ)
    try:
        manager.carry_out(plan.Call(scope.systemctl(what, NAME), plan.START_WITHIN))
    except NotDone as error:
        raise NotDone(*error.lines, *_last_words(manager)) from error
    click.echo(_standing(manager.show()))


@service.command()
@scoped
@as_json
def status(here: Here, *, user: bool, as_json: bool) -> None:
    """Say how it stands: exit code 0 or 1."""
    scope = here.installed(user=user)
    found = Manager(scope, here.environ).show()
    runs = found.get("ActiveState") in _WELL
    if as_json:
        print_json(
            {
                "unit": str(scope.unit),
                "state": found.get("ActiveState"),
                "status": found.get("StatusText"),
                "pid": int(found.get("MainPID") or 0) or None,
                "restarts": int(found.get("NRestarts") or 0),
                "enabled": found.get("UnitFileState") == "enabled",
            }
        )
        sys.exit(0 if runs else 1)
    starts = "starts by itself" if found.get("UnitFileState") == "enabled" else "is not enabled"
    fields = {"service": _standing(found), "unit": f"{scope.unit} ({starts})"}
    if restarts := int(found.get("NRestarts") or 0):
        fields["restarts"] = f"{restarts} after failures"
    print_fields(fields)
    if not runs:
        click.echo(f"Its log may say why: holdfast service logs{scope.option}")
        sys.exit(1)
    if not scope.user and not here.root:
        click.echo("More is said to root: sudo holdfast status")
        return
    click.get_current_context().invoke(status_of_daemon, as_json=False)


@service.command()
@scoped
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on.")
@click.option("-n", "--lines", default=SHOWN_LINES, show_default=True, type=click.IntRange(min=0))
def logs(here: Here, *, user: bool, follow: bool, lines: int) -> None:
    """Show its log."""
    scope = here.installed(user=user)
    sys.exit(Manager(scope, here.environ).watch_log(lines=lines, follow=follow))


# --- what it is to be like ---------------------------------------------------------------------


def _own_name() -> str:
    """How a person here calls the command, also one who is another user soon."""
    found = program.program()
    known = shutil.which("holdfast")
    return "holdfast" if known and Path(known).samefile(found) else str(found)


def unit_text(loaded: Loaded, scope: Scope, version: int) -> str:
    """The unit as `install` writes it; raises `HoldfastError` where none could work."""
    unit = _unit(loaded, scope, version)
    return user_unit(unit) if scope.user else system_unit(unit)


def _unit(loaded: Loaded, scope: Scope, version: int) -> Unit:
    settings = loaded.settings
    families = {*settings.tools.enabled}.union(*(route.tools or () for route in settings.route))
    unit = Unit(
        program=program.program(),
        config=_own_config(loaded, scope),
        drain_seconds=settings.gateway.drain_seconds,
        sandbox="shell" in families,
        port=settings.http.port,
        systemd=version,
    )
    if scope.user:
        own = state_folder({"HOME": str(Path.home())}, root=False)
        return replace(unit, home=loaded.home if loaded.home != own else None)
    places = program.folders()
    if closed := program.closed_to_others((*places, unit.program)):
        msg = (
            f"{closed} can be read by its owner only, and the service is a user of its own. "
            f"Open it (chmod -R go+rX {closed}), or install Holdfast where all can read it."
        )
        raise CannotStart(msg)
    return replace(unit, hidden=program.hidden(places), writable=_writable(loaded))


def _own_config(loaded: Loaded, scope: Scope) -> Path | None:
    """The configuration, where the service would not find it by itself."""
    if loaded.path is None:
        return None
    path = loaded.path.absolute()
    usual = scope.credentials.parent / "holdfast.toml"
    if not scope.user:
        if program.hidden((path,)):
            msg = (
                f"A service of the machine cannot see the configuration {path}. "
                f"Move it: mv {path} {usual}"
            )
            raise ConfigError(msg)
        if program.closed_to_others((path,)):
            msg = (
                f"The service is a user of its own and cannot read the configuration {path}. Put "
                f"each secret of it into a file of its own in {scope.credentials}, such as "
                f"TELEGRAM_BOT_TOKEN, and then: chmod 644 {path}"
            )
            raise ConfigError(msg)
    return None if path == usual else path


def _writable(loaded: Loaded) -> tuple[Path, ...]:
    settings = loaded.settings
    found = [settings.agent.workspace] if settings.agent.workspace else []
    url = settings.store.url.reveal() if settings.store.url else ""
    if url.startswith("sqlite:///"):
        found.append(Path(url.removeprefix("sqlite:///")).parent)
    return tuple(each for each in found if not each.is_relative_to(SERVICE_HOME))


def _carried(loaded: Loaded, scope: Scope, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Variables that count here and that the service would not have."""
    names = {label for label in loaded.sources.values() if label in environ}
    if loaded.path:
        names |= {*_NAMED_IN_FILE.findall(loaded.path.read_text(encoding="utf-8"))} & {*environ}
    there = scope.credentials
    kept = credentials.variables(there) if credentials.readable(there) else {}
    return {name: environ[name] for name in names if kept.get(name) != environ[name]}


# --- what is said ------------------------------------------------------------------------------


def _standing(found: Mapping[str, str]) -> str:
    state, said = found.get("ActiveState", "unknown"), found.get("StatusText", "")
    return f"{state}: {said}" if said else state


def _last_words(manager: Manager) -> list[str]:
    said = manager.last_lines(_AFTER_FAILURE)
    return ["The end of its log:", *(f"  {line}" for line in said.splitlines())] if said else []


def _tell_what_next(scope: Scope, manager: Manager, *, ran_before: bool) -> None:
    name = _own_name()
    click.echo(f"Holdfast is a service now, and starts by itself. {_standing(manager.show())}")
    if ran_before:
        click.echo(
            f"It ran before; to have it run as installed now: {name} service restart{scope.option}"
        )
    click.echo(f"  How it stands:       {name} service status{scope.option}")
    click.echo(f"  What it does:        {name} service logs{scope.option} -f")
    click.echo(f"  To become its owner: {name} pair claim")
    click.echo(f"  Chat in a browser:   {name} link")
    click.echo(f"  Its secrets:         {scope.credentials}, a file each, such as OPENAI_API_KEY")
    if scope.user and not manager.lingers(getpass.getuser()):
        click.echo(
            "  It ends when you log out. To have it go on: "
            f"sudo loginctl enable-linger {getpass.getuser()}"
        )
