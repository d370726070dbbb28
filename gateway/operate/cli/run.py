"""`holdfast run`: the daemon."""

import asyncio
import gc
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from pathlib import Path

import click
from msgspec import convert

gc.disable()  # imports create many objects and no garbage
try:
    from agent.providers.registry import available_providers
    from gateway.access.claim import OwnerClaim, claim_instructions
    from gateway.config.loader import (
        SERVICE_HOME,
        ConfigOptions,
        LoadedConfig,
        child_environment,
        is_service_home,
        load,
        read_environment,
        take_handover,
    )
    from gateway.config.own_address import refuse_own_address
    from gateway.errors import CannotStart
    from gateway.observe import log
    from gateway.observe.redact import Redactor, find_secrets
    from gateway.operate.cli.common import (
        config_options,
        print_warnings,
        store_url,
        translate_store_errors,
    )
    from gateway.operate.cli.db import upgrade_before_start
    from gateway.operate.cli.found_config import config_line, confirm_found_config
    from gateway.process import memory
    from gateway.process.context import ProcessContext
    from gateway.process.handover import LOCK, Handover
    from gateway.process.lock import hold_state_folder
    from gateway.process.service import serve
    from gateway.process.start_log import StartLog
    from gateway.process.successor import Successor, restart_command
    from gateway.runner import GatewayRunner
    from gateway.settings import Settings
    from platforms.core.registry import load_specs
    from sessions.store.store import SessionStore
finally:
    gc.freeze()  # exclude the imported objects from every later collection
    gc.enable()

logger = logging.getLogger(__name__)

_GC_THRESHOLD = 5_000
"""New objects before a collection. A thousand turns create thousands of objects at once and hardly
any garbage; with Python's default of 700 the collector would run all the time."""

_GC_GENERATIONS = 4, 20
"""Collections of one generation before the next older generation is collected too. Broken
connections leave large garbage in the middle generation: twenty collections before its first one
cost megabytes. A full collection is slow while many turns run."""


def tune_garbage_collector() -> None:
    """Freeze the objects loaded so far, such as the model SDK, and set the collection thresholds."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(_GC_THRESHOLD, *_GC_GENERATIONS)


@click.command(help="Start the gateway; Ctrl-C stops it.")
@click.option(
    "--check", is_flag=True, help="Check the configuration and the database, and do not start."
)
@config_options
def run(options: ConfigOptions, *, check: bool) -> None:
    """See the help."""
    if check:
        loaded = load(options, read_environment(), load_specs())
        confirm_found_config(options)
        asyncio.run(_check_can_start(loaded))
        click.echo("Holdfast can start.")
        return
    loaded = load(options, read_environment(), load_specs())
    click.echo(config_line(loaded), err=True)
    print_warnings(loaded)
    confirm_found_config(options)
    run_daemon(options, loaded, sys.argv)


OnStarted = Callable[[GatewayRunner], Awaitable[None]]


def run_daemon(
    options: ConfigOptions,
    loaded: LoadedConfig,
    argv: Sequence[str],
    on_started: OnStarted | None = None,
) -> None:
    """Run the daemon until a stop signal; a restart executes `argv` again.

    `on_started` is awaited after the greeting is printed.
    """
    refuse_own_address(loaded)
    handover = Handover(take_handover())
    original = (*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1], *argv[1:])
    successor = Successor(
        restart_command(argv, original, sys.executable), child_environment(), handover
    )
    if is_service_home(read_environment()):  # the service could not write files created by root
        msg = (
            f"{SERVICE_HOME} belongs to this machine's service. Start the service with: "
            "holdfast service start. To run another gateway, set HOLDFAST_HOME to another folder."
        )
        raise CannotStart(msg)
    memory.limit_fragmentation()
    gc.disable()  # until the model SDK, the last and largest import, is loaded
    try:
        again = asyncio.run(
            _run_gateway(options, loaded, configure_logging(loaded), successor, on_started)
        )
    finally:
        gc.enable()
    if again:
        successor.replace_process()


async def _check_can_start(loaded: LoadedConfig) -> None:
    """Check everything that can prevent a start, except resources a running gateway holds."""
    refuse_own_address(loaded)
    with translate_store_errors():
        await SessionStore.check_compatible(store_url(loaded))


def configure_logging(loaded: LoadedConfig, *, quiet: bool = False) -> Redactor:
    """Configure logging as set in the configuration; return the redactor that removes secrets."""
    redactor = Redactor(find_secrets(loaded.settings))
    gateway = loaded.settings.gateway
    log.configure(
        redactor,
        level="error" if quiet else gateway.log_level,
        log_format=gateway.log_format,
        journal=log.is_journal_stream(read_environment()),
    )
    return redactor


async def _run_gateway(
    options: ConfigOptions,
    loaded: LoadedConfig,
    redactor: Redactor,
    successor: Successor,
    on_started: OnStarted | None,
) -> bool:
    """Run until the gateway stops; return True if a restart was requested."""
    lock = successor.handover.take(LOCK)
    with hold_state_folder(loaded.home, lock, store_url=store_url(loaded)) as folder:
        if sys.stderr.isatty():
            await upgrade_before_start(loaded)
        start_log = StartLog(loaded.home)
        runner = GatewayRunner(
            loaded.settings,
            loaded.home,
            specs=load_specs(),
            redactor=redactor,
            process=ProcessContext(
                successor=successor,
                read_settings=lambda: _reload_settings(options),
                crash_count=start_log.crash_count,
            ),
        )

        async def on_ready() -> None:
            start_log.mark_ready()
            tune_garbage_collector()
            await _greet(runner, loaded, successor)
            if on_started:
                await on_started(runner)

        await serve(
            runner,
            folder,
            read_environment(),
            on_ready=on_ready,
            handover=successor.handover,
            start_log=start_log,
            say=click.echo,
        )
    return runner.restarting.is_set()


async def _greet(runner: GatewayRunner, loaded: LoadedConfig, successor: Successor) -> None:
    """Print how to chat, and what can be configured next."""
    # Read the version now: an upgrade may replace the installed one.
    logging.getLogger(__name__).debug("Holdfast %s", successor.version)
    # A link or a code makes its reader the owner, so neither may go to a journal or a file.
    is_private = sys.stdout.isatty()
    needs_owner = bool(configured_platforms(loaded)) and not runner.has_admin
    link = await runner.operations["link"]() if runner.url and is_private else None
    claim = None
    if needs_owner and is_private:
        claim = convert(await runner.operations["pair_claim"](), OwnerClaim)
    name = command_name(sys.argv[0], Path.cwd(), shutil.which)
    lines = greeting_lines(
        loaded,
        str(link) if link else None,
        claim,
        name,
        key_created=runner.created_api_key,
        by_systemd="NOTIFY_SOCKET" in read_environment(),
    )
    if not is_private:
        lines[1:1] = owner_command_lines(name, runner.url, needs_owner=needs_owner)
    for line in (*lines, *missing_platform_lines(read_environment(), load_specs())):
        click.echo(line)


def _reload_settings(options: ConfigOptions) -> Settings:
    """Load the current configuration; log warnings."""
    loaded = load(options, read_environment(), load_specs())
    refuse_own_address(loaded)
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def configured_platforms(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return the configured platforms other than the terminal and the page."""
    return tuple(name for name in loaded.settings.platforms if name not in {"console", "web"})


_TOKEN_VARIABLES: Mapping[str, str] = {
    "Telegram": "TELEGRAM_BOT_TOKEN",
    "Discord": "DISCORD_BOT_TOKEN",
    "Slack": "SLACK_BOT_TOKEN and SLACK_APP_TOKEN",
}


_API_KEY_VARIABLES: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


def command_name(started_as: str, folder: Path, which: Callable[[str], str | None]) -> str:
    """Return the command to type here: the name if PATH finds the program, else a path."""
    found = Path(started_as)
    if which(found.name) or not found.is_absolute():
        return found.name if which(found.name) else started_as
    is_inside = found.is_relative_to(folder) and folder != Path("/")
    return str(found.relative_to(folder)) if is_inside else started_as


def missing_platform_lines(environ: Mapping[str, str], installed: Container[str]) -> list[str]:
    """Return a line for each token whose platform is not installed."""
    return [
        f"  {variable} is set, but {platform} support is not installed. "
        f"Install holdfast[{platform.lower()}]."
        for platform, variables in _TOKEN_VARIABLES.items()
        for variable in variables.split(" and ")
        if environ.get(variable) and platform.lower() not in installed
    ]


def owner_command_lines(command: str, page: str | None, *, needs_owner: bool) -> list[str]:
    """Return lines with the commands that print the page's link and the owner's code."""
    lines = [f"  Chat in the browser:   {page} (`{command} link` prints a link)"] if page else []
    if needs_owner:
        lines.append(
            f"  There is no admin yet. `{command} pair claim` prints how to become the owner."
        )
    return lines


def greeting_lines(
    loaded: LoadedConfig,
    link: str | None,
    claim: OwnerClaim | None,
    command: str = "holdfast",
    *,
    key_created: bool = False,
    by_systemd: bool = False,
) -> list[str]:
    """Return the lines printed after the start: how to chat, and what can be configured next."""
    lines = ["Holdfast is running." if by_systemd else "Holdfast is running. Ctrl-C stops it."]
    if link:
        lines.append(f"  Chat in the browser:   {link}")
        lines.append(
            f"                         (works once, within an hour; `{command} link` prints another)"
        )
    lines.append(f"  Chat in a terminal:    {command} chat")
    if key_created:
        lines.append(f"  An API key was created; `{command} config show --secrets` prints it.")
    if loaded.settings.model.provider in {None, "demo"}:
        keys = " or ".join(
            key for provider, key in _API_KEY_VARIABLES.items() if provider in available_providers()
        )
        lines.append(
            f"  No model is configured, so the demo model answers. For a real one set {keys}."
        )
    known = load_specs()
    missing = [
        f"{platform} ({variables})"
        for platform, variables in _TOKEN_VARIABLES.items()
        if platform.lower() in known and platform.lower() not in configured_platforms(loaded)
    ]
    if missing:
        lines.append(f"  To add a platform set: {', '.join(missing)}.")
    if claim:
        lines += claim_instructions(configured_platforms(loaded), claim, command)
    return lines
