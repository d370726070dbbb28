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
    from agent.providers.registry import available
    from gateway.access.claim import Claim, how_to_claim
    from gateway.config.loader import (
        SERVICE_HOME,
        Loaded,
        Options,
        environment,
        inherited,
        load,
        of_service,
        take_handover,
    )
    from gateway.errors import CannotStart
    from gateway.observe import log
    from gateway.observe.redact import Redactor, secrets_in
    from gateway.operate.cli.common import configured, settings_of, store_url, told
    from gateway.process import memory
    from gateway.process.handover import Handover
    from gateway.process.service import serve
    from gateway.process.start_log import Starts
    from gateway.process.successor import Successor, words_of
    from gateway.runner import GatewayRunner
    from gateway.settings import Settings
    from platforms.core.registry import specs
    from sessions.store.store import SessionStore
finally:
    gc.freeze()  # the collector need not look at them again
    gc.enable()

logger = logging.getLogger(__name__)

_OBJECTS = 5_000
"""New objects after which the collector looks for garbage. A thousand turns make thousands of them
in a moment and hardly any garbage; Python's own 700 would have it look at them all the time."""

_LOOKS = 4, 20
"""Looks at what is new after which it looks at what has been there a little longer, too, and looks
at that after which it looks at everything. What broken connections leave is large and soon among
the former: with twenty looks before the first it took megabytes. To look at everything takes long
where many turns run."""


def spare_the_collector() -> None:
    """What is loaded by now stays, such as the SDK of the model: it need not be looked at again."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(_OBJECTS, *_LOOKS)


@click.command(help="Start the gateway; Ctrl-C stops it.")
@click.option("--check", is_flag=True, help="Only say whether it could start.")
@configured
def run(options: Options, *, check: bool) -> None:
    """See the help."""
    if check:
        asyncio.run(_could_start(load(options, environment(), specs())))
        click.echo("It could start.")
        return
    run_here(options, settings_of(options), sys.argv)


After = Callable[[GatewayRunner], Awaitable[None]]


def run_here(
    options: Options, loaded: Loaded, words: Sequence[str], after: After | None = None
) -> None:
    """Be the daemon until told to stop; a restart starts the program anew with these words.

    `after` is carried out once the greeting is printed.
    """
    handover = Handover(take_handover())
    original = (*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1], *words[1:])
    successor = Successor(words_of(words, original, sys.executable), inherited(), handover)
    if of_service(environment()):  # what root wrote there the service could not write any more
        msg = (
            f"{SERVICE_HOME} belongs to the service of this machine; start that with: "
            "holdfast service start. To run another one give it a folder of its own: HOLDFAST_HOME."
        )
        raise CannotStart(msg)
    memory.keep_together()
    gc.disable()  # until all is loaded: the SDK of the model comes last, and is the largest
    try:
        again = asyncio.run(_run(options, loaded, prepared_log(loaded), successor, after))
    finally:
        gc.enable()
    if again:
        successor.take_over()


async def _could_start(loaded: Loaded) -> None:
    """Look at what keeps a start from working, apart from what a running gateway holds."""
    with told():
        await SessionStore.check_fit(store_url(loaded))


def prepared_log(loaded: Loaded, *, quiet: bool = False) -> Redactor:
    """Write logs as configured, without secrets; gives what takes those out."""
    redactor = Redactor(secrets_in(loaded.settings))
    gateway = loaded.settings.gateway
    log.configure(
        redactor,
        level="error" if quiet else gateway.log_level,
        form=gateway.log_format,
        journal=log.into_journal(environment()),
    )
    return redactor


async def _run(
    options: Options,
    loaded: Loaded,
    redactor: Redactor,
    successor: Successor,
    after: After | None,
) -> bool:
    """Run until the end; says whether it is to be started again."""
    runner = GatewayRunner(
        loaded.settings,
        loaded.home,
        specs=specs(),
        redactor=redactor,
        successor=successor,
        reread=lambda: _reread(options),
    )
    starts = Starts(loaded.home, runner.be_careful)

    async def greet() -> None:
        starts.ready()
        spare_the_collector()
        # Read before an upgrade puts another one there.
        logging.getLogger(__name__).debug("this is Holdfast %s", successor.version)
        link = await runner.operations["link"]() if runner.url else None
        claim = None
        if used(loaded) and not runner.has_admin:
            claim = convert(await runner.operations["pair_claim"](), Claim)
        name = own_name(sys.argv[0], Path.cwd(), shutil.which)
        lines = greeting(
            loaded,
            str(link) if link else None,
            claim,
            name,
            made_key=runner.made_key,
            managed="NOTIFY_SOCKET" in environment(),
        )
        for line in (*lines, *not_installed(environment(), specs())):
            click.echo(line)
        if after:
            await after(runner)

    await serve(
        runner, loaded.home, environment(), then=greet, handover=successor.handover, starts=starts
    )
    return runner.restarting.is_set()


def _reread(options: Options) -> Settings:
    """Read the configuration as it is by now; what is odd about it goes to the log."""
    loaded = load(options, environment(), specs())
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def used(loaded: Loaded) -> tuple[str, ...]:
    """Platforms that are configured, apart from the terminal and the page."""
    return tuple(name for name in loaded.settings.platforms if name not in {"console", "web"})


_ENVIRONMENT: Mapping[str, str] = {
    "Telegram": "TELEGRAM_BOT_TOKEN",
    "Discord": "DISCORD_BOT_TOKEN",
    "Slack": "SLACK_BOT_TOKEN and SLACK_APP_TOKEN",
}


_KEYS: Mapping[str, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


def own_name(started_as: str, folder: Path, which: Callable[[str], str | None]) -> str:
    """How a person who started it here starts it again: it may not be on their PATH."""
    found = Path(started_as)
    if which(found.name) or not found.is_absolute():
        return found.name if which(found.name) else started_as
    inside = found.is_relative_to(folder) and folder != Path("/")
    return str(found.relative_to(folder)) if inside else started_as


def not_installed(environ: Mapping[str, str], known: Container[str]) -> list[str]:
    """Say of tokens that are set that nothing here can use them, rather than keep silent."""
    return [
        f"  {variable} is set, but what speaks to {platform} is not installed; "
        f"install holdfast[{platform.lower()}]."
        for platform, variables in _ENVIRONMENT.items()
        for variable in variables.split(" and ")
        if environ.get(variable) and platform.lower() not in known
    ]


def greeting(
    loaded: Loaded,
    link: str | None,
    claim: Claim | None,
    name: str = "holdfast",
    *,
    made_key: bool = False,
    managed: bool = False,
) -> list[str]:
    """What somebody who starts the gateway should know, a few lines; `managed`: by systemd."""
    lines = ["Holdfast is running." if managed else "Holdfast is running. Ctrl-C stops it."]
    if link:
        lines.append(f"  Chat in the browser:   {link}")
        lines.append(
            f"                         (opens once, within an hour; `{name} link` prints another)"
        )
    lines.append(f"  Chat in a terminal:    {name} chat")
    if made_key:
        lines.append(
            f"  A key for programs that use the API was made; `{name} config show --secrets` prints it."
        )
    if loaded.settings.model.provider in {None, "demo"}:
        keys = " or ".join(key for provider, key in _KEYS.items() if provider in available())
        lines.append(f"  No model is configured: the demo answers. For a real one set {keys}.")
    known = specs()
    missing = [
        f"{platform} ({variables})"
        for platform, variables in _ENVIRONMENT.items()
        if platform.lower() in known and platform.lower() not in used(loaded)
    ]
    if missing:
        lines.append(f"  To add a platform set: {', '.join(missing)}.")
    if claim:
        lines += how_to_claim(used(loaded), claim, name)
    return lines
