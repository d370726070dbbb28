"""`holdfast config`: checks the configuration and shows the values in force."""

import sys

import click
from msgspec.structs import replace

from gateway.config.layers import format_path
from gateway.config.loader import (
    ConfigOptions,
    ConfigReport,
    LoadedConfig,
    check,
    load,
    read_environment,
)
from gateway.config.own_address import own_address_problems
from gateway.config.render import build_schema, render_settings, settings_data
from gateway.errors import CannotStart, ConfigError
from gateway.http import api_key
from gateway.operate.cli.common import config_options, json_option, load_settings, print_json
from gateway.operate.cli.platforms import discord_invite, slack_manifest
from platforms.core.registry import load_specs


@click.group(help="Check and show the configuration.")
def config() -> None:
    """See the help."""


config.add_command(discord_invite)
config.add_command(slack_manifest)


@config.command("check", short_help="Report every problem in the configuration.")
@json_option
@config_options
def check_(options: ConfigOptions, *, as_json: bool) -> None:
    """Report every problem in the configuration; exit code 78 if there is one."""
    report = _check_for_start(options)
    path = str(report.path) if report.path else None
    if as_json:
        print_json(
            {
                "ok": not report.problems,
                "file": path,
                "problems": report.problems,
                "warnings": report.warnings,
            }
        )
    else:
        for line in (*report.problems, *report.warnings):
            click.echo(line, err=True)
        if not report.problems:
            click.echo(f"The configuration is valid ({path or 'no file, all defaults'}).")
    if report.problems:
        sys.exit(ConfigError.exit_code)


def _check_for_start(options: ConfigOptions) -> ConfigReport:
    """Check the configuration, including what `run` refuses and other commands do not need."""
    report = check(options, read_environment(), load_specs())
    if report.problems:
        return report
    loaded = load(options, read_environment(), load_specs())
    return replace(report, problems=tuple(own_address_problems(loaded)))


@config.command()
@click.option("--secrets", is_flag=True, help="Print secrets instead of ***.")
@json_option
@config_options
def show(options: ConfigOptions, *, secrets: bool, as_json: bool) -> None:
    """Show the values in force, and where each comes from."""
    loaded = load_settings(options)
    try:
        loaded = with_generated_key(loaded)
    except CannotStart as error:
        if secrets:
            raise
        click.echo(f"holdfast: {error}", err=True)  # everything else can still be shown
    if as_json:
        print_json(
            {
                "file": str(loaded.path) if loaded.path else None,
                "state": str(loaded.home),
                "values": settings_data(loaded.settings, secrets=secrets),
                "sources": {format_path(key): label for key, label in loaded.sources.items()},
            }
        )
        return
    click.echo(f"# file: {loaded.path or 'none'}")
    click.echo(f"# state: {loaded.home}")
    click.echo(render_settings(loaded.settings, loaded.sources, secrets=secrets), nl=False)


def with_generated_key(loaded: LoadedConfig) -> LoadedConfig:
    """Add the generated API key if none is configured."""
    http = loaded.settings.http
    key = None if http.api_key else api_key.read(loaded.home)
    if key is None:
        return loaded
    settings = replace(loaded.settings, http=replace(http, api_key=key))
    source = str(api_key.key_path(loaded.home))
    return replace(
        loaded, settings=settings, sources={**loaded.sources, ("http", "api_key"): source}
    )


@config.command(short_help="Print a JSON Schema of the file, for editors.")
def schema() -> None:
    """Print a JSON Schema of the configuration file, for editors."""
    print_json(build_schema(load_specs()))
