"""`holdfast run`: the daemon."""

import asyncio
import gc
from collections.abc import Mapping

import click

gc.disable()  # importing makes many objects and no garbage
try:
    from gateway.cli.common import configured, settings_of
    from gateway.config import Loaded, Options, environment
    from gateway.observe import log
    from gateway.observe.redact import Redactor, secrets_in
    from gateway.runner import GatewayRunner
    from gateway.service import serve
    from platforms.core.registry import specs
finally:
    gc.freeze()  # the collector need not look at them again
    gc.enable()


@click.command(help="Start the gateway; Ctrl-C stops it.")
@configured
def run(options: Options) -> None:
    """See the help."""
    loaded = settings_of(options)
    asyncio.run(_run(loaded, prepared_log(loaded)))


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


async def _run(loaded: Loaded, redactor: Redactor) -> None:
    runner = GatewayRunner(loaded.settings, loaded.home, specs=specs(), redactor=redactor)

    async def greet() -> None:
        link = await runner.operations["link"]() if runner.url else None
        claim = None
        if used(loaded) and not runner.has_admin:
            claim = await runner.operations["pair_claim"]()
        for line in greeting(loaded, str(link) if link else None, _code(claim)):
            click.echo(line)

    await serve(runner, loaded.home, environment(), then=greet)


def _code(claim: object) -> str | None:
    return claim.get("code") if isinstance(claim, dict) else None


def used(loaded: Loaded) -> tuple[str, ...]:
    """Platforms that are configured, apart from the terminal and the page."""
    return tuple(name for name in loaded.settings.platforms if name not in {"console", "web"})


_ENVIRONMENT: Mapping[str, str] = {
    "Telegram": "TELEGRAM_BOT_TOKEN",
    "Discord": "DISCORD_BOT_TOKEN",
    "Slack": "SLACK_BOT_TOKEN and SLACK_APP_TOKEN",
}


def greeting(loaded: Loaded, link: str | None, claim: str | None) -> list[str]:
    """What somebody who starts the gateway should know, a few lines."""
    lines = ["Holdfast is running. Ctrl-C stops it."]
    if link:
        lines.append(f"  Chat in the browser:   {link}")
        lines.append(
            "                         (opens once, within an hour; `holdfast link` prints another)"
        )
    lines.append("  Chat in a terminal:    holdfast chat")
    if loaded.settings.model.provider in {None, "demo"}:
        lines.append(
            "  No model is configured: the demo answers. For a real one set OPENAI_API_KEY or "
            "ANTHROPIC_API_KEY."
        )
    known = specs()
    missing = [
        f"{platform} ({variables})"
        for platform, variables in _ENVIRONMENT.items()
        if platform.lower() in known and platform.lower() not in used(loaded)
    ]
    if missing:
        lines.append(f"  To add a platform set: {', '.join(missing)}.")
    if claim:
        lines.append(
            f"  Nobody is an admin yet: send “claim {claim}” to the bot in a DM, within an hour."
        )
    return lines
