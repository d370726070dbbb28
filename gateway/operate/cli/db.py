"""`holdfast db`: upgrades the database and finds damage."""

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

_BACKUPS_FOLDER = "backups"
"""Subfolder of the state folder for copies of the database."""

RESTORE_HINT = "The database is damaged. Restore a backup with: holdfast restore FILE"


class DatabaseDamaged(HoldfastError):
    """The database is damaged."""


@click.group(help="Upgrade and check the database.")
def db() -> None:
    """See the help."""


@db.command()
@click.option("--no-backup", is_flag=True, help="Make no copy first, for example on a full disk.")
@config_options
def upgrade(options: ConfigOptions, *, no_backup: bool) -> None:
    """Upgrade the database (as `run` does at every start), and release unused space."""
    loaded = load_settings(options)
    with hold_state_folder(loaded.home):
        asyncio.run(_upgrade(loaded, None if no_backup else loaded.home / _BACKUPS_FOLDER))
        with translate_store_errors():
            sizes = vacuum_database(parse_url(store_url(loaded)))
    click.echo("The database is up to date.")
    if sizes:
        before, after = map(format_size, sizes)
        click.echo(f"The file was compacted from {before} to {after}.")


async def _upgrade(loaded: LoadedConfig, keep_in: Path | None) -> None:
    async with open_store(loaded, read_only=False, keep_in=keep_in):
        pass  # opening the store upgrades the database


@db.command()
@config_options
def check(options: ConfigOptions) -> None:
    """Check the database for damage, also while a daemon runs; exit code 1 if there is any."""
    found = read_store(options, SessionStore.find_problems)
    if found:
        raise DatabaseDamaged(*(f"{problem}." for problem in found), RESTORE_HINT)
    click.echo("No damage found in the database.")
