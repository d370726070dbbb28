"""`holdfast config discord-invite` and `slack-manifest`: prepare a platform for the bot."""

import asyncio

import click

from gateway.config.loader import ConfigOptions
from gateway.errors import CannotStart, ConfigError
from gateway.operate.cli.common import config_options, load_settings, print_json
from platforms.core.errors import PlatformError, Unauthorized
from platforms.core.registry import PlatformNotInstalled, UnknownPlatform, find_platform


@click.command("discord-invite")
@config_options
def discord_invite(options: ConfigOptions) -> None:
    """Print the link that adds the Discord bot to a server."""
    _require_installed("discord")
    config = load_settings(options).settings.platforms.get("discord")
    if config is None:
        msg = "Discord is not configured; set DISCORD_BOT_TOKEN, or platforms.discord.token."
        raise ConfigError(msg)
    from platforms.discord.invite import fetch_invite_link  # noqa: PLC0415 - loads the library

    try:
        # The settings are an object of the platform's own class.
        link = asyncio.run(fetch_invite_link(config.token.reveal(), config.base_url))  # type: ignore[attr-defined]
    except Unauthorized as error:
        raise ConfigError(str(error)) from error
    except PlatformError as error:
        raise CannotStart(str(error)) from error
    click.echo(link)


@click.command("slack-manifest")
@click.option("--name", default="Holdfast", show_default=True, help="Name of the app.")
@click.option(
    "--url",
    default="",
    metavar="URL",
    help='Public https:// address of /slack/events for mode = "http"; without a URL the app uses '
    "Socket Mode.",
)
def slack_manifest(name: str, url: str) -> None:
    """Print the manifest to create the Slack app from."""
    if url and not url.startswith("https://"):
        msg = "must begin with https://, because Slack sends requests to no other address"
        raise click.BadParameter(msg, param_hint="--url")
    _require_installed("slack")
    from platforms.slack.manifest import manifest  # noqa: PLC0415 - needs the library

    print_json(manifest(name, url))


def _require_installed(platform: str) -> None:
    try:
        find_platform(platform)
    except (PlatformNotInstalled, UnknownPlatform) as error:
        raise CannotStart(str(error)) from error
