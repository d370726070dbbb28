"""`holdfast backup` and `holdfast restore`: the database and all files in one archive."""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from gateway.config.loader import ConfigOptions, LoadedConfig
from gateway.errors import CannotStart
from gateway.operate.backup.contents import MemberKind
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
from gateway.operate.cli.found_config import confirm_found_store
from gateway.operate.cli.progress import show_progress
from gateway.process.lock import hold_state_folder
from sessions.store.after_restore import ClosedWork
from sessions.values.clock import SystemClock, rfc3339
from sessions.values.size import format_size

_MAX_LISTED = 10


@click.command(
    help="Back up the database, workspaces, drafts and files to FILE, also while the gateway runs. "
    "A name ending in `.tar` is not compressed; `-` writes to standard output. The finished file is "
    "read back to verify it."
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--secrets", is_flag=True, help="Include the secrets in the state folder.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@json_option
@config_options
def backup(
    options: ConfigOptions, file: Path, *, secrets: bool, force: bool, as_json: bool
) -> None:
    """See the help."""
    if as_json and str(file) == "-":
        msg = "--json needs a FILE, because the backup itself goes to standard output."
        raise click.UsageError(msg)
    loaded = load_settings(options)
    confirm_found_store(options)
    if not loaded.home.is_dir():
        msg = f"There is nothing to back up: the state folder {loaded.home} does not exist."
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
            with (
                tempfile.TemporaryDirectory(prefix="holdfast-backup-") as work,
                show_progress() as progress,
            ):
                write_backup(source, sys.stdout.buffer, Path(work), progress=progress)
                sys.stdout.buffer.flush()
            click.echo(
                "holdfast: the backup was written, but could not be read back to verify it.",
                err=True,
            )
            return
        with show_progress() as progress:
            manifest = write_backup_file(source, file, force=force, progress=progress)
    size = file.stat().st_size
    elsewhere = _external_workspace(loaded)
    if as_json:
        print_json(
            _manifest_data(manifest) | {"file": str(file), "bytes": size, "elsewhere": elsewhere}
        )
        return
    files = sum(member.kind is MemberKind.FILE for member in manifest.members) - 1
    click.echo(
        f"{file} holds the database and {files} {'file' if files == 1 else 'files'}, "
        f"{format_size(size)}. The file was read back and is complete."
    )
    for left_out in manifest.left_out[:_MAX_LISTED]:
        click.echo(f"Not included: {left_out}.")
    if len(manifest.left_out) > _MAX_LISTED:
        click.echo(
            f"Not included: {len(manifest.left_out) - _MAX_LISTED} more; --json lists all of them."
        )
    if elsewhere:
        click.echo(f"Not included: {elsewhere} (agent.workspace), outside the state folder.")


@click.command(
    help="Restore the backup FILE; the current state is moved aside. The gateway must be stopped. "
    "Messages that were waiting when the backup was made are not answered or sent again, unless "
    "--moved says that the gateway has not run since."
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--moved", is_flag=True, help="The gateway has not run since the backup: continue its work."
)
@json_option
@config_options
def restore(options: ConfigOptions, file: Path, *, yes: bool, moved: bool, as_json: bool) -> None:
    """See the help."""
    loaded = load_settings(options)
    confirm_found_store(options)
    with hold_state_folder(loaded.home, store_url=store_url(loaded)):
        now = SystemClock().now()
        with translate_store_errors(), show_progress() as progress:
            ready = prepare_restore(
                file.absolute(),
                loaded.home.absolute(),
                store_url(loaded),
                now,
                moved=moved,
                progress=progress,
            )
        try:
            if ready.replaces_state and not yes:
                _confirm(ready)
            with translate_store_errors(), show_progress() as progress:
                progress.begin("Replacing the state")
                apply_restore(ready)
        finally:
            discard_prepared(loaded.home)
    with show_progress() as progress:
        progress.begin("Checking the database")
        findings = asyncio.run(_find_problems(loaded))
    data = _result_data(file, ready, findings)
    if not as_json:
        _print_result(ready)
    if findings:
        raise DatabaseDamaged(*(f"{finding}." for finding in findings), RESTORE_HINT, data=data)
    if as_json:
        print_json(data)
    else:
        click.echo("No damage found in the database.")


def _result_data(file: Path, ready: PreparedRestore, findings: Sequence[str]) -> dict[str, Any]:
    return _manifest_data(ready.manifest) | {
        "restored_from": str(file),
        "over": to_builtins(ready.ended_work),
        "findings": list(findings),
        "aside": str(ready.aside_location) if ready.replaces_state else None,
    }


def _confirm(ready: PreparedRestore) -> None:
    if not sys.stdin.isatty():
        msg = f"{ready.home} is not empty. Use --yes to move its contents aside."
        raise click.UsageError(msg)
    if not click.confirm(
        f"This replaces the contents of {ready.home} with the backup of {_moment(ready.manifest)} and "
        f"moves the current contents to {ready.aside_location}. Continue?"
    ):
        msg = "Nothing was changed."
        raise CannotStart(msg)


async def _find_problems(loaded: LoadedConfig) -> tuple[str, ...]:
    async with open_store(loaded, read_only=True) as store:
        return await store.find_problems()


def _print_result(ready: PreparedRestore) -> None:
    manifest = ready.manifest
    click.echo(
        f"Restored the backup of {_moment(manifest)} (version {manifest.version}) into {ready.home}."
    )
    if ready.replaces_state:
        click.echo(f"The previous contents are in {ready.aside_location}.")
    for line in describe_ended_work(ready.ended_work):
        click.echo(line)
    if not manifest.secrets:
        click.echo(
            "The backup contains no secrets: existing secrets stay, missing ones are generated."
        )


def _moment(manifest: Manifest) -> str:
    """Return the time of a backup for people."""
    return f"{manifest.made_at[:19].replace('T', ' ')} UTC"


def describe_ended_work(over: ClosedWork) -> list[str]:
    """Describe the unfinished work of a backup that the restore has closed."""
    parts = [
        (over.turns, "running answer was ended", "running answers were ended"),
        (over.held, "waiting message is kept for /resume", "waiting messages are kept for /resume"),
        (over.unanswered, "message stays unanswered", "messages stay unanswered"),
        (over.unsent, "outgoing message is not sent", "outgoing messages are not sent"),
        (over.questions, "approval request is closed", "approval requests are closed"),
    ]
    counts = [f"{number} {one if number == 1 else many}" for number, one, many in parts if number]
    if not counts:
        return []
    return [
        f"Not repeated, because it may have been done after the backup: {', '.join(counts)}.",
        "If the gateway has not run since the backup, restore it again with --moved.",
    ]


def _manifest_data(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "schema": manifest.schema,
        "made_at": manifest.made_at,
        "secrets": manifest.secrets,
        "files": sum(member.kind is MemberKind.FILE for member in manifest.members) - 1,
        "left_out": manifest.left_out,
    }


def _external_workspace(loaded: LoadedConfig) -> str | None:
    workspace = loaded.settings.agent.workspace
    if not workspace:
        return None
    path = Path(workspace).expanduser().absolute()
    return None if path.is_relative_to(loaded.home) else str(path)
