"""`holdfast db`: brings the database up to date and looks whether it is sound."""

import asyncio

import click

from gateway.cli.common import configured, opened, read_store, settings_of
from gateway.config import Loaded, Options
from gateway.errors import HoldfastError
from gateway.lock import only_daemon
from sessions.store import SessionStore


class Damaged(HoldfastError):
    """The database is damaged; restore a backup."""


@click.group(help="Look after the database.")
def db() -> None:
    """See the help."""


@db.command()
@configured
def upgrade(options: Options) -> None:
    """Bring the database up to date; `run` does so by itself."""
    loaded = settings_of(options)
    with only_daemon(loaded.home):
        asyncio.run(_upgrade(loaded))
    click.echo("The database is up to date.")


async def _upgrade(loaded: Loaded) -> None:
    async with opened(loaded, read_only=False):
        pass  # opening it is what brings it up to date


@db.command()
@configured
def check(options: Options) -> None:
    """Look for damage; exit code 1 when there is some."""
    found = read_store(options, SessionStore.integrity)
    if found != "ok":
        msg = f"The database is damaged: {found}; restore a backup."
        raise Damaged(msg)
    click.echo("The database is sound.")
