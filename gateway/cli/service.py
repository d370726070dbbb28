"""`holdfast service`: Holdfast as a service of systemd."""

import getpass
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from gateway import credentials
from gateway.cli.common import as_json, configured, print_fields, print_json, settings_of
from gateway.cli.daemon import status as status_of_daemon
from gateway.config import SERVICE_HOME, Loaded, Options, environment, state_folder
from gateway.errors import CannotStart, ConfigError
from gateway.systemd import plan, program
from gateway.systemd.manager import BOOTED, Manager, NotDone
from gateway.systemd.scope import Scope, of_machine, of_user
from gateway.systemd.unit import NAME, Unit, system_unit, user_unit

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


@click.group(help="Run Holdfast as a service of systemd.")
def service() -> None:
    """See the help."""


for_user = click.option(
    "--user", is_flag=True, help="The service of this user alone, which needs no root."
)


# --- install and uninstall ---------------------------------------------------------------------


@service.command()
@for_user
@click.option("--dry-run", is_flag=True, help="Print files and commands, and do nothing.")
@configured
def install(options: Options, *, user: bool, dry_run: bool) -> None:
    """Install the service, start it, and have it start with the machine.

    What is set in this environment, such as TELEGRAM_BOT_TOKEN, is kept for it in a folder of
    credentials. To bring it up to date, install it again.
    """
    scope = _scope(user=user)
    manager = Manager(scope, environment())
    if not dry_run:
        _may_change(scope, "install")
    loaded = settings_of(options)
    unit = _unit(loaded, scope, manager.version())
    text = user_unit(unit) if scope.user else system_unit(unit)
    steps = plan.install(scope, text, _carried(loaded, scope))
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
@for_user
def uninstall(*, user: bool) -> None:
    """Stop the service and take it away; what it knows stays where it is."""
    scope = _installed(user=user)
    _may_change(scope, "uninstall")
    manager = Manager(scope, environment())
    for step in plan.uninstall(scope, plan.START_WITHIN):
        manager.carry_out(step)
    click.echo("Holdfast is no service any more. Left as they are:")
    click.echo(f"  what it knows:  {scope.state}")
    click.echo(f"  configuration:  {scope.credentials.parent}")


# --- the running one ---------------------------------------------------------------------------


@service.command()
@for_user
def start(*, user: bool) -> None:
    """Start the service; done when it answers."""
    _order("start", user=user)


@service.command()
@for_user
def stop(*, user: bool) -> None:
    """Stop the service; done when running turns are finished or put aside."""
    _order("stop", user=user)


@service.command()
@for_user
def restart(*, user: bool) -> None:
    """Stop the service and start it again; done when it answers."""
    _order("restart", user=user, first=look_before_restart)


@service.command()
@for_user
def reload(*, user: bool) -> None:
    """Have the service read its configuration again."""
    _order("reload", user=user)


def look_before_restart(scope: Scope) -> None:
    """The one place where a restart by hand can be held up; nothing holds it up yet."""


def _order(what: str, *, user: bool, first: Callable[[Scope], None] | None = None) -> None:
    scope = _installed(user=user)
    _may_change(scope, what)
    if first:
        first(scope)
    manager = Manager(scope, environment())
    try:
        manager.carry_out(plan.Call(scope.systemctl(what, NAME), plan.START_WITHIN))
    except NotDone as error:
        raise NotDone(*error.lines, *_last_words(manager)) from error
    click.echo(_standing(manager.show()))


@service.command()
@for_user
@as_json
@click.pass_context
def status(ctx: click.Context, *, user: bool, as_json: bool) -> None:
    """Say how the service stands; exit code 0 when it runs, 1 when not."""
    scope = _installed(user=user)
    found = Manager(scope, environment()).show()
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
    if not scope.user and os.geteuid():
        click.echo("More is said to root: sudo holdfast status")
        return
    ctx.invoke(status_of_daemon, as_json=False)


@service.command()
@for_user
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on.")
@click.option("-n", "--lines", default=SHOWN_LINES, show_default=True, type=click.IntRange(min=0))
def logs(*, user: bool, follow: bool, lines: int) -> None:
    """Show what the service has logged."""
    scope = _installed(user=user)
    sys.exit(Manager(scope, environment()).watch_log(lines=lines, follow=follow))


# --- which service -----------------------------------------------------------------------------


def _scope(*, user: bool) -> Scope:
    environ = environment()
    if not user:
        return of_machine(SERVICE_HOME)
    config = environ.get("XDG_CONFIG_HOME")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return of_user(home, Path(config) if config else None, state_folder(environ, root=False))


def _installed(*, user: bool) -> Scope:
    """The one that is meant: the machine's, if there is one."""
    if not BOOTED.is_dir():
        raise NoSystemd
    machine, own = _scope(user=False), _scope(user=True)
    wanted = (own,) if user else (machine, own)
    found = next((each for each in wanted if each.unit.exists()), None)
    if found is None:
        whose = " of this user" if user else ""
        msg = (
            f"Holdfast is not installed as a service{whose}; "
            f"install it with: holdfast service install{' --user' if user else ''}"
        )
        raise NotInstalled(msg)
    return found


def _may_change(scope: Scope, what: str) -> None:
    if not BOOTED.is_dir():
        raise NoSystemd
    if not scope.user and os.geteuid():
        msg = (
            f"The service of the machine needs root: sudo {_own_name()} service {what}. "
            "One of your own needs none: add --user."
        )
        raise NeedsRoot(msg)


def _own_name() -> str:
    """How a person here calls the command, also one who is another user soon."""
    found = program.program()
    known = shutil.which("holdfast")
    return "holdfast" if known and Path(known).samefile(found) else str(found)


# --- what it is to be like ---------------------------------------------------------------------


def _unit(loaded: Loaded, scope: Scope, version: int) -> Unit:
    settings = loaded.settings
    families = {*settings.tools.enabled}.union(*(route.tools or () for route in settings.route))
    common = {
        "program": program.program(),
        "config": _own_config(loaded, scope),
        "drain_seconds": settings.gateway.drain_seconds,
        "shell": "shell" in families,
        "port": settings.http.port,
        "systemd": version,
    }
    if scope.user:
        own = state_folder({"HOME": str(Path.home())}, root=False)
        return Unit(**common, home=loaded.home if loaded.home != own else None)
    places = program.folders()
    if closed := program.closed_to_others((*places, common["program"])):
        msg = (
            f"{closed} can be read by its owner only, and the service is a user of its own. "
            f"Open it (chmod -R go+rX {closed}), or install Holdfast where all can read it."
        )
        raise CannotStart(msg)
    return Unit(**common, hidden=program.hidden(places), writable=_writable(loaded))


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


def _carried(loaded: Loaded, scope: Scope) -> Mapping[str, str]:
    """Variables that count here and that the service would not have."""
    environ = environment()
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
