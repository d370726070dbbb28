"""`holdfast db`: brings the database up to date and looks whether it is sound."""

import asyncio
from pathlib import Path

import click

from gateway.config.loader import ConfigOptions, LoadedConfig
from gateway.errors import HoldfastError
from gateway.operate.cli.common import (
    config_options,
    load_settings,
    open_store,
    read_store,
    store_url,
    translate_store_errors,
)
from gateway.process.lock import hold_state_folder
from sessions.store.engine import parse_url
from sessions.store.store import SessionStore
from sessions.store.vacuum import vacuum_database
from sessions.values.size import format_size

BACKUPS_FOLDER = "backups"
"""The folder of the state folder in which copies of a database are kept."""

RESTORE_HINT = "The database is not sound; a backup can be put in its place: holdfast restore FILE"


class DatabaseDamaged(HoldfastError):
    """Something is wrong with the database."""


@click.group(help="Look after the database.")
def db() -> None:
    """See the help."""


@db.command()
@click.option("--no-backup", is_flag=True, help="Keep no copy of it first; for a full disk.")
@config_options
def upgrade(options: ConfigOptions, *, no_backup: bool) -> None:
    """Bring the database up to date (`run` does so by itself), and give unused room back."""
    loaded = load_settings(options)
    with hold_state_folder(loaded.home):
        asyncio.run(_upgrade(loaded, None if no_backup else loaded.home / BACKUPS_FOLDER))
        with translate_store_errors():
            sizes = vacuum_database(parse_url(store_url(loaded)))
    click.echo("The database is up to date.")
    if sizes:
        before, after = map(format_size, sizes)
        click.echo(f"It was written anew: {before} before, {after} now.")


async def _upgrade(loaded: LoadedConfig, keep_in: Path | None) -> None:
    async with open_store(loaded, read_only=False, keep_in=keep_in):
        pass  # opening it is what brings it up to date


@db.command()
@config_options
def check(options: ConfigOptions) -> None:
    """Look for damage, also while a daemon runs; exit code 1 when there is some."""
    found = read_store(options, SessionStore.find_problems)
    if found:
        raise DatabaseDamaged(*(f"{what}." for what in found), RESTORE_HINT)
    click.echo("The database is sound.")
