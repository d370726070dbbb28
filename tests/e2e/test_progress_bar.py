"""Backup and restore show their progress on a terminal, and nowhere else."""

import asyncio
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.loader import read_environment
from sessions.store import prepare
from sessions.store.copy import sqlite_location
from tests.fakes.seat import Seat, seated

HOLDFAST = Path(sys.executable).with_name("holdfast")
PATIENCE = 40.0
RANDOM_BYTES = 2_000_000  # does not compress, and does not fit into a pipe


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    state = tmp_path / "state"
    environ = {
        **{n: v for n, v in read_environment().items() if n.startswith(("PATH", "COVERAGE"))},
        "HOME": str(tmp_path),
        "HOLDFAST_HOME": str(state),
        "HOLDFAST_CONFIG": os.devnull,
        "LANG": "C.UTF-8",
        "COLUMNS": "120",
    }
    subprocess.run((HOLDFAST, "db", "upgrade"), env=environ, check=True, timeout=PATIENCE)
    (state / "workspace").mkdir()
    (state / "workspace/film.bin").write_bytes(secrets.token_bytes(RANDOM_BYTES))
    return environ


async def drain(pipe: Path, into: Path | None = None) -> None:
    """Read a pipe to its end."""

    def read() -> None:
        with pipe.open("rb") as source:
            content = source.read()
        if into:
            into.write_bytes(content)

    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(read)


async def test_a_slow_backup_shows_a_bar_with_size_and_time(
    environ: dict[str, str], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ("bash", "-c", f"exec {HOLDFAST} backup - >{pipe}")
    async with seated(*command, env=environ, folder=tmp_path) as seat:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # opened, and not read
        try:
            await seat.sees(r"Writing the backup: \[#*-+\] [\d.]+ [KM]B of 2\.\d MB, \d+ s")
            await drain(pipe)
        finally:
            os.close(reader)
        assert await seat.ends() == 0
        assert shown_at_the_end(seat) == (
            "holdfast: the backup was written, but could not be read back to verify it."
        )


def shown_at_the_end(seat: Seat) -> str:
    """Return the last line of the screen, as a person sees it."""
    return seat.screen.rstrip("\n").rsplit("\r", 1)[-1]


async def test_a_slow_restore_shows_its_progress(environ: dict[str, str], tmp_path: Path) -> None:
    archive, pipe = tmp_path / "a.tar.gz", tmp_path / "pipe"
    backup = await asyncio.create_subprocess_exec(HOLDFAST, "backup", archive, env=environ)
    assert await backup.wait() == 0
    os.mkfifo(pipe)
    content = archive.read_bytes()
    environ["HOLDFAST_HOME"] = str(tmp_path / "other")
    async with seated(HOLDFAST, "restore", pipe, env=environ, folder=tmp_path) as seat:
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        with os.fdopen(writer, "wb") as source:
            await asyncio.to_thread(source.write, content[: RANDOM_BYTES // 2])
            await seat.sees(r"Unpacking the backup: [\d.]+ [KM]B, \d+ s")
            await asyncio.to_thread(source.write, content[RANDOM_BYTES // 2 :])
        await seat.sees("No damage found in the database")
        assert await seat.ends() == 0


async def test_in_a_pipe_nothing_is_shown(environ: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    backup = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"exec {HOLDFAST} backup - >{pipe}"),
        env=environ,
        stderr=asyncio.subprocess.PIPE,
    )
    await drain(pipe)
    _, said = await backup.communicate()
    assert said == b"holdfast: the backup was written, but could not be read back to verify it.\n"


async def test_a_start_at_a_terminal_upgrades_an_older_database(
    environ: dict[str, str], tmp_path: Path
) -> None:
    database = tmp_path / "state/holdfast.db"
    database.unlink()
    where = sqlite_location(database)
    prepare.create_database(where, "0001")
    assert prepare.needs_migration(where)
    environ["HOLDFAST_HTTP__PORT"] = "0"
    async with seated(HOLDFAST, "run", env=environ, folder=tmp_path) as seat:
        await seat.sees("Holdfast is running")
        assert "Upgrading" not in seat.screen  # it took less than two seconds
        seat.types("\x03")
        assert await seat.ends() == 0
    assert not prepare.needs_migration(where)
    assert [*(tmp_path / "state/backups").glob("before-*.db")]
