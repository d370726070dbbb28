"""`holdfast db`: brings the database up to date and looks whether it is sound."""

import asyncio
from pathlib import Path

import click

from gateway.config.loader import Loaded, Options
from gateway.errors import HoldfastError
from gateway.operate.cli.common import configured, opened, read_store, settings_of, store_url, told
from gateway.process.lock import only_daemon
from sessions.store.engine import place
from sessions.store.store import SessionStore
from sessions.store.vacuum import compact
from sessions.values.size import in_words

BACKUPS = "backups"
"""The folder of the state folder in which copies of a database are kept."""

WAY_OUT = "The database is not sound; a backup can be put in its place: holdfast restore FILE"


class Unsound(HoldfastError):
    """Something is wrong with the database."""


@click.group(help="Look after the database.")
def db() -> None:
    """See the help."""


@db.command()
@click.option("--no-backup", is_flag=True, help="Keep no copy of it first; for a full disk.")
@configured
def upgrade(options: Options, *, no_backup: bool) -> None:
    """Bring the database up to date (`run` does so by itself), and give unused room back."""
    loaded = settings_of(options)
    with only_daemon(loaded.home):
        asyncio.run(_upgrade(loaded, None if no_backup else loaded.home / BACKUPS))
        with told():
            sizes = compact(place(store_url(loaded)))
    click.echo("The database is up to date.")
    if sizes:
        before, after = map(in_words, sizes)
        click.echo(f"It was written anew: {before} before, {after} now.")


async def _upgrade(loaded: Loaded, keep_in: Path | None) -> None:
    async with opened(loaded, read_only=False, keep_in=keep_in):
        pass  # opening it is what brings it up to date


@db.command()
@configured
def check(options: Options) -> None:
    """Look for damage, also while a daemon runs; exit code 1 when there is some."""
    found = read_store(options, SessionStore.findings)
    if found:
        raise Unsound(*(f"{what}." for what in found), WAY_OUT)
    click.echo("The database is sound.")
