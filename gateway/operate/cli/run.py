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

gc.disable()  # importing makes many objects and no garbage
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
    from gateway.errors import CannotStart
    from gateway.observe import log
    from gateway.observe.redact import Redactor, find_secrets
    from gateway.operate.cli.common import (
        config_options,
        load_settings,
        store_url,
        translate_store_errors,
    )
    from gateway.process import memory
    from gateway.process.handover import Handover
    from gateway.process.service import serve
    from gateway.process.start_log import StartLog
    from gateway.process.successor import Successor, restart_command
    from gateway.runner import GatewayRunner
    from gateway.settings import Settings
    from platforms.core.registry import load_specs
    from sessions.store.store import SessionStore
finally:
    gc.freeze()  # the collector need not look at them again
    gc.enable()

logger = logging.getLogger(__name__)

_GC_THRESHOLD = 5_000
"""New objects after which the collector looks for garbage. A thousand turns make thousands of them
in a moment and hardly any garbage; Python's own 700 would have it look at them all the time."""

_GC_GENERATIONS = 4, 20
"""Looks at what is new after which it looks at what has been there a little longer, too, and looks
at that after which it looks at everything. What broken connections leave is large and soon among
the former: with twenty looks before the first it took megabytes. To look at everything takes long
where many turns run."""


def tune_garbage_collector() -> None:
    """What is loaded by now stays, such as the SDK of the model: it need not be looked at again."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(_GC_THRESHOLD, *_GC_GENERATIONS)


@click.command(help="Start the gateway; Ctrl-C stops it.")
@click.option("--check", is_flag=True, help="Only say whether it could start.")
@config_options
def run(options: ConfigOptions, *, check: bool) -> None:
    """See the help."""
    if check:
        asyncio.run(_check_can_start(load(options, read_environment(), load_specs())))
        click.echo("It could start.")
        return
    run_daemon(options, load_settings(options), sys.argv)


OnStarted = Callable[[GatewayRunner], Awaitable[None]]


def run_daemon(
    options: ConfigOptions,
    loaded: LoadedConfig,
    argv: Sequence[str],
    on_started: OnStarted | None = None,
) -> None:
    """Be the daemon until told to stop; a restart starts the program anew with these words.

    `after` is carried out once the greeting is printed.
    """
    handover = Handover(take_handover())
    original = (*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1], *argv[1:])
    successor = Successor(
        restart_command(argv, original, sys.executable), child_environment(), handover
    )
    if is_service_home(
        read_environment()
    ):  # what root wrote there the service could not write any more
        msg = (
            f"{SERVICE_HOME} belongs to the service of this machine; start that with: "
            "holdfast service start. To run another one give it a folder of its own: HOLDFAST_HOME."
        )
        raise CannotStart(msg)
    memory.limit_fragmentation()
    gc.disable()  # until all is loaded: the SDK of the model comes last, and is the largest
    try:
        again = asyncio.run(
            _run_gateway(options, loaded, configure_logging(loaded), successor, on_started)
        )
    finally:
        gc.enable()
    if again:
        successor.replace_process()


async def _check_can_start(loaded: LoadedConfig) -> None:
    """Look at what keeps a start from working, apart from what a running gateway holds."""
    with translate_store_errors():
        await SessionStore.check_compatible(store_url(loaded))


def configure_logging(loaded: LoadedConfig, *, quiet: bool = False) -> Redactor:
    """Write logs as configured, without secrets; gives what takes those out."""
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
    """Run until the end; says whether it is to be started again."""
    runner = GatewayRunner(
        loaded.settings,
        loaded.home,
        specs=load_specs(),
        redactor=redactor,
        successor=successor,
        read_settings=lambda: _reload_settings(options),
    )
    starts = StartLog(loaded.home, runner.enter_safe_mode)

    async def greet() -> None:
        starts.mark_ready()
        tune_garbage_collector()
        # Read before an upgrade puts another one there.
        logging.getLogger(__name__).debug("this is Holdfast %s", successor.version)
        link = await runner.operations["link"]() if runner.url else None
        claim = None
        if configured_platforms(loaded) and not runner.has_admin:
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
        for line in (*lines, *missing_platform_lines(read_environment(), load_specs())):
            click.echo(line)
        if on_started:
            await on_started(runner)

    await serve(
        runner,
        loaded.home,
        read_environment(),
        on_ready=greet,
        handover=successor.handover,
        start_log=starts,
    )
    return runner.restarting.is_set()


def _reload_settings(options: ConfigOptions) -> Settings:
    """Read the configuration as it is by now; what is odd about it goes to the log."""
    loaded = load(options, read_environment(), load_specs())
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def configured_platforms(loaded: LoadedConfig) -> tuple[str, ...]:
    """Platforms that are configured, apart from the terminal and the page."""
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
    """How a person who started it here starts it again: it may not be on their PATH."""
    found = Path(started_as)
    if which(found.name) or not found.is_absolute():
        return found.name if which(found.name) else started_as
    inside = found.is_relative_to(folder) and folder != Path("/")
    return str(found.relative_to(folder)) if inside else started_as


def missing_platform_lines(environ: Mapping[str, str], installed: Container[str]) -> list[str]:
    """Say of tokens that are set that nothing here can use them, rather than keep silent."""
    return [
        f"  {variable} is set, but what speaks to {platform} is not installed; "
        f"install holdfast[{platform.lower()}]."
        for platform, variables in _TOKEN_VARIABLES.items()
        for variable in variables.split(" and ")
        if environ.get(variable) and platform.lower() not in installed
    ]


def greeting_lines(
    loaded: LoadedConfig,
    link: str | None,
    claim: OwnerClaim | None,
    command: str = "holdfast",
    *,
    key_created: bool = False,
    by_systemd: bool = False,
) -> list[str]:
    """What somebody who starts the gateway should know, a few lines; `managed`: by systemd."""
    lines = ["Holdfast is running." if by_systemd else "Holdfast is running. Ctrl-C stops it."]
    if link:
        lines.append(f"  Chat in the browser:   {link}")
        lines.append(
            f"                         (opens once, within an hour; `{command} link` prints another)"
        )
    lines.append(f"  Chat in a terminal:    {command} chat")
    if key_created:
        lines.append(
            f"  A key for programs that use the API was made; `{command} config show --secrets` prints it."
        )
    if loaded.settings.model.provider in {None, "demo"}:
        keys = " or ".join(
            key for provider, key in _API_KEY_VARIABLES.items() if provider in available_providers()
        )
        lines.append(f"  No model is configured: the demo answers. For a real one set {keys}.")
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
