"""`holdfast backup` and `holdfast restore`: everything that must survive, in one file."""

import asyncio
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from gateway.config.loader import ConfigOptions, LoadedConfig
from gateway.errors import CannotStart
from gateway.operate.backup.manifest import Manifest
from gateway.operate.backup.restoring import (
    PreparedRestore,
    apply_restore,
    discard_prepared,
    prepare_restore,
)
from gateway.operate.backup.writing import BackupSource, write_backup, write_backup_file
from gateway.operate.cli.common import (
    config_options,
    json_option,
    load_settings,
    open_store,
    print_json,
    store_url,
    translate_store_errors,
)
from gateway.operate.cli.db import RESTORE_HINT, DatabaseDamaged
from gateway.process.lock import hold_state_folder
from sessions.store.after_restore import ClosedWork
from sessions.values.clock import SystemClock, rfc3339
from sessions.values.size import format_size

_MAX_LISTED = 10


@click.command(
    help="Put database, workspaces, drafts and files into FILE (`.tar`: not compressed; `-`: the "
    "output), also while the gateway runs. It is read again before this says that it is done."
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--secrets", is_flag=True, help="Also the secrets that lie in the state folder.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@json_option
@config_options
def backup(
    options: ConfigOptions, file: Path, *, secrets: bool, force: bool, as_json: bool
) -> None:
    """See the help."""
    loaded = load_settings(options)
    if not loaded.home.is_dir():
        msg = f"There is no state folder {loaded.home}; nothing is there to be backed up."
        raise CannotStart(msg)
    source = BackupSource(
        home=loaded.home,
        store_url=store_url(loaded),
        version=version("holdfast"),
        made_at=rfc3339(SystemClock().now()),
        include_secrets=secrets,
    )
    with translate_store_errors():
        if str(file) == "-":
            with tempfile.TemporaryDirectory(prefix="holdfast-backup-") as work:
                manifest = write_backup(source, sys.stdout.buffer, Path(work))
                sys.stdout.buffer.flush()
            click.echo("holdfast: the backup was written; it was not read again.", err=True)
            return
        manifest = write_backup_file(source, file, force=force)
    size = file.stat().st_size
    elsewhere = _external_workspace(loaded)
    if as_json:
        print_json(
            _manifest_data(manifest) | {"file": str(file), "bytes": size, "elsewhere": elsewhere}
        )
        return
    files = sum(member.kind == "file" for member in manifest.members) - 1
    click.echo(
        f"{file} holds the database and {files} {'file' if files == 1 else 'files'}, "
        f"{format_size(size)}. It was read again and is whole."
    )
    for each in manifest.left_out[:_MAX_LISTED]:
        click.echo(f"Not in it: {each}.")
    if len(manifest.left_out) > _MAX_LISTED:
        click.echo(f"Not in it: {len(manifest.left_out) - _MAX_LISTED} more; --json names them.")
    if elsewhere:
        click.echo(f"Not in it: {elsewhere} (agent.workspace), outside of the state folder.")


@click.command(
    help="Put a backup in the place of what is there, which is moved aside. The gateway must not "
    "run. What waited in the backup is neither answered nor sent again, unless --moved says that "
    "nothing ran since it was made."
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--moved", is_flag=True, help="Nothing ran since the backup: go on where it stood.")
@json_option
@config_options
def restore(options: ConfigOptions, file: Path, *, yes: bool, moved: bool, as_json: bool) -> None:
    """See the help."""
    loaded = load_settings(options)
    with hold_state_folder(loaded.home):
        now = SystemClock().now()
        with translate_store_errors():
            ready = prepare_restore(
                file.absolute(), loaded.home.absolute(), store_url(loaded), now, moved=moved
            )
        try:
            if ready.replaces_state and not yes:
                _confirm(ready)
            with translate_store_errors():
                apply_restore(ready)
        finally:
            discard_prepared(loaded.home)
    findings = asyncio.run(_find_problems(loaded))
    if as_json:
        print_json(
            _manifest_data(ready.manifest)
            | {"restored_from": str(file), "over": ready.ended_work, "findings": findings}
            | {"aside": ready.aside_location if ready.replaces_state else None}
        )
    else:
        _print_result(ready)
    if findings:
        raise DatabaseDamaged(*(f"{what}." for what in findings), RESTORE_HINT)
    if not as_json:
        click.echo("The database is sound.")


def _confirm(ready: PreparedRestore) -> None:
    if not sys.stdin.isatty():
        msg = f"{ready.home} is not empty; say --yes to have what is there moved aside."
        raise click.UsageError(msg)
    if not click.confirm(
        f"This puts the backup of {ready.manifest.made_at} in the place of what is in "
        f"{ready.home}, which goes to {ready.aside_location}. Go on?"
    ):
        msg = "Nothing was changed."
        raise CannotStart(msg)


async def _find_problems(loaded: LoadedConfig) -> tuple[str, ...]:
    async with open_store(loaded, read_only=True) as store:
        return await store.find_problems()


def _print_result(ready: PreparedRestore) -> None:
    manifest = ready.manifest
    click.echo(
        f"Restored as of {manifest.made_at} (made by version {manifest.version}) into {ready.home}."
    )
    if ready.replaces_state:
        click.echo(f"What was there is kept in {ready.aside_location}.")
    for line in describe_ended_work(ready.ended_work):
        click.echo(line)
    if not manifest.secrets:
        click.echo("The backup holds no secrets: those that are here stay, missing ones are made.")


def describe_ended_work(over: ClosedWork) -> list[str]:
    """Say what was under way in a backup and is over now."""
    parts = [
        (over.turns, "running answer was ended", "running answers were ended"),
        (over.held, "waiting message is kept for /resume", "waiting messages are kept for /resume"),
        (over.unanswered, "message is left unanswered", "messages are left unanswered"),
        (over.unsent, "thing to be shown is not sent", "things to be shown are not sent"),
        (over.questions, "question about a tool is over", "questions about tools are over"),
    ]
    told_ = [f"{number} {one if number == 1 else many}" for number, one, many in parts if number]
    if not told_:
        return []
    return [
        f"It may have been done since the backup, so it is not done again: {', '.join(told_)}.",
        "(If nothing ran since the backup was made: restore it once more, with --moved.)",
    ]


def _manifest_data(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "schema": manifest.schema,
        "made_at": manifest.made_at,
        "secrets": manifest.secrets,
        "files": sum(member.kind == "file" for member in manifest.members) - 1,
        "left_out": manifest.left_out,
    }


def _external_workspace(loaded: LoadedConfig) -> str | None:
    configured_ = loaded.settings.agent.workspace
    if not configured_:
        return None
    place = Path(configured_).expanduser().absolute()
    return None if place.is_relative_to(loaded.home) else str(place)
