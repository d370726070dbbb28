"""`holdfast db`: upgrades the database and finds damage."""

import asyncio
import sys
from pathlib import Path

import click

from gateway.config.loader import ConfigOptions, LoadedConfig
from gateway.errors import HoldfastError
from gateway.operate.cli.common import (
    config_options,
    json_option,
    load_settings,
    open_store,
    print_json,
    read_store,
    store_url,
    translate_store_errors,
)
from gateway.operate.cli.found_config import confirm_found_store
from gateway.operate.cli.progress import show_progress
from gateway.process.lock import hold_state_folder
from sessions.store import prepare
from sessions.store.engine import DatabaseLocation, parse_url
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


@db.command(short_help="Upgrade the database, and release unused space.")
@click.option("--no-backup", is_flag=True, help="Make no copy first, for example on a full disk.")
@json_option
@config_options
def upgrade(options: ConfigOptions, *, no_backup: bool, as_json: bool) -> None:
    """Upgrade the database (as `run` does at every start), and release unused space."""
    loaded = load_settings(options)
    confirm_found_store(options)
    where = parse_url(store_url(loaded))
    with (
        hold_state_folder(loaded.home, store_url=store_url(loaded)),
        show_progress() as progress,
    ):
        progress.begin("Upgrading the database", database_bytes(where))
        asyncio.run(_upgrade(loaded, None if no_backup else loaded.home / _BACKUPS_FOLDER))
        progress.begin("Compacting the database", database_bytes(where))
        with translate_store_errors():
            sizes = vacuum_database(where)
    if as_json:
        print_json({"compacted": sizes and {"before": sizes[0], "after": sizes[1]}})
        return
    click.echo("The database is up to date.")
    if sizes:
        before, after = map(format_size, sizes)
        click.echo(f"The file was compacted from {before} to {after}.")


async def upgrade_before_start(loaded: LoadedConfig) -> None:
    """Upgrade an older database, and show progress: a start would do the same silently."""
    where = parse_url(store_url(loaded))
    with translate_store_errors():
        if not await asyncio.to_thread(prepare.needs_migration, where):
            return
    with show_progress() as progress:
        progress.begin("Upgrading the database", database_bytes(where))
        await _upgrade(loaded, loaded.home / _BACKUPS_FOLDER)


def database_bytes(where: DatabaseLocation) -> int:
    """Return the size of a SQLite file; 0 if there is none."""
    return where.file.stat().st_size if where.file and where.file.exists() else 0


async def _upgrade(loaded: LoadedConfig, keep_in: Path | None) -> None:
    async with open_store(loaded, read_only=False, keep_in=keep_in):
        pass  # opening the store upgrades the database


@db.command(short_help="Check the database for damage.")
@json_option
@config_options
def check(options: ConfigOptions, *, as_json: bool) -> None:
    """Check the database for damage, also while Holdfast runs; exit code 1 if there is any."""
    found = read_store(options, SessionStore.find_problems)
    if as_json:
        print_json({"ok": not found, "problems": found})
        sys.exit(int(bool(found)))
    if found:
        raise DatabaseDamaged(*(f"{problem}." for problem in found), RESTORE_HINT)
    click.echo("No damage found in the database.")
