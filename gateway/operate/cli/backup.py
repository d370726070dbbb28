"""`holdfast backup` and `holdfast restore`: everything that must survive, in one file."""

import asyncio
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from gateway.config.loader import Loaded, Options
from gateway.errors import CannotStart
from gateway.operate.backup.manifest import Manifest
from gateway.operate.backup.restoring import Prepared, discard, prepare, put_in_place
from gateway.operate.backup.writing import Source, write, write_file
from gateway.operate.cli.common import (
    as_json,
    configured,
    opened,
    print_json,
    settings_of,
    store_url,
    told,
)
from gateway.operate.cli.db import WAY_OUT, Unsound
from gateway.process.lock import only_daemon
from sessions.store.after_restore import Over
from sessions.values.clock import SystemClock, rfc3339
from sessions.values.size import in_words

_SHOWN = 10


@click.command(
    help="Put database, workspaces, drafts and files into FILE (`.tar`: not compressed; `-`: the "
    "output), also while the gateway runs. It is read again before this says that it is done."
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--secrets", is_flag=True, help="Also the secrets that lie in the state folder.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@as_json
@configured
def backup(options: Options, file: Path, *, secrets: bool, force: bool, as_json: bool) -> None:
    """See the help."""
    loaded = settings_of(options)
    if not loaded.home.is_dir():
        msg = f"There is no state folder {loaded.home}; nothing is there to be backed up."
        raise CannotStart(msg)
    source = Source(
        loaded.home,
        store_url(loaded),
        version("holdfast"),
        rfc3339(SystemClock().now()),
        secrets=secrets,
    )
    with told():
        if str(file) == "-":
            with tempfile.TemporaryDirectory(prefix="holdfast-backup-") as work:
                manifest = write(source, sys.stdout.buffer, Path(work))
                sys.stdout.buffer.flush()
            click.echo("holdfast: the backup was written; it was not read again.", err=True)
            return
        manifest = write_file(source, file, force=force)
    size = file.stat().st_size
    elsewhere = _elsewhere(loaded)
    if as_json:
        print_json(_data(manifest) | {"file": str(file), "bytes": size, "elsewhere": elsewhere})
        return
    files = sum(member.kind == "file" for member in manifest.members) - 1
    click.echo(
        f"{file} holds the database and {files} {'file' if files == 1 else 'files'}, "
        f"{in_words(size)}. It was read again and is whole."
    )
    for each in manifest.left_out[:_SHOWN]:
        click.echo(f"Not in it: {each}.")
    if len(manifest.left_out) > _SHOWN:
        click.echo(f"Not in it: {len(manifest.left_out) - _SHOWN} more; --json names them.")
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
@as_json
@configured
def restore(options: Options, file: Path, *, yes: bool, moved: bool, as_json: bool) -> None:
    """See the help."""
    loaded = settings_of(options)
    with only_daemon(loaded.home):
        now = SystemClock().now()
        with told():
            ready = prepare(
                file.absolute(), loaded.home.absolute(), store_url(loaded), now, moved=moved
            )
        try:
            if ready.replaces and not yes:
                _confirm(ready)
            with told():
                put_in_place(ready)
        finally:
            discard(loaded.home)
    findings = asyncio.run(_findings(loaded))
    if as_json:
        print_json(
            _data(ready.manifest)
            | {"restored_from": str(file), "over": ready.over, "findings": findings}
            | {"aside": ready.kept if ready.replaces else None}
        )
    else:
        _say(ready)
    if findings:
        raise Unsound(*(f"{what}." for what in findings), WAY_OUT)
    if not as_json:
        click.echo("The database is sound.")


def _confirm(ready: Prepared) -> None:
    if not sys.stdin.isatty():
        msg = f"{ready.home} is not empty; say --yes to have what is there moved aside."
        raise click.UsageError(msg)
    if not click.confirm(
        f"This puts the backup of {ready.manifest.made_at} in the place of what is in "
        f"{ready.home}, which goes to {ready.kept}. Go on?"
    ):
        msg = "Nothing was changed."
        raise CannotStart(msg)


async def _findings(loaded: Loaded) -> tuple[str, ...]:
    async with opened(loaded, read_only=True) as store:
        return await store.findings()


def _say(ready: Prepared) -> None:
    manifest = ready.manifest
    click.echo(
        f"Restored as of {manifest.made_at} (made by version {manifest.version}) into {ready.home}."
    )
    if ready.replaces:
        click.echo(f"What was there is kept in {ready.kept}.")
    for line in over_lines(ready.over):
        click.echo(line)
    if not manifest.secrets:
        click.echo("The backup holds no secrets: those that are here stay, missing ones are made.")


def over_lines(over: Over) -> list[str]:
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


def _data(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "schema": manifest.schema,
        "made_at": manifest.made_at,
        "secrets": manifest.secrets,
        "files": sum(member.kind == "file" for member in manifest.members) - 1,
        "left_out": manifest.left_out,
    }


def _elsewhere(loaded: Loaded) -> str | None:
    configured_ = loaded.settings.agent.workspace
    if not configured_:
        return None
    place = Path(configured_).expanduser().absolute()
    return None if place.is_relative_to(loaded.home) else str(place)
