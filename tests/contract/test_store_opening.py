"""Creating, migrating and refusing databases."""

import asyncio
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sessions.changes import EndAttempt, PutApproval, PutSummary
from sessions.errors import (
    StoreCorrupt,
    StoreError,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from sessions.records import Message, UsageTotals
from sessions.store import engine, migrations, prepare
from sessions.store.engine import migration_engine, parse_url
from sessions.store.schema import metadata
from sessions.store.store import SessionStore
from sessions.values.address import Address
from sessions.values.clock import SystemClock
from tests.contract.store_kit import question, talk


@pytest.fixture
def store_url(new_url: str) -> str:
    return new_url


@pytest.fixture
def connection(store_url: str) -> Iterator[sa.Connection]:
    """Connect to an empty database."""
    where = parse_url(store_url)
    if where.file:
        where.file.touch()
    migrating = migration_engine(where)
    with migrating.connect() as connection:
        yield connection
    migrating.dispose()


def shape(connection: sa.Connection) -> object:
    """Return everything the database knows about its tables."""
    connection.rollback()
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_schema")
        # The two ways create columns and constraints in different orders.
        return {row.name: sorted(re.split(r"[\s(),]+", row.sql or "")) for row in rows}
    columns = "table_name, column_name, data_type, collation_name, is_nullable, column_default"
    questions = (
        f"{columns}, is_identity FROM information_schema.columns WHERE table_schema = 'public'",
        "indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conname NOT LIKE 'pg_%%'",
        "sequencename, data_type::text FROM pg_sequences",
    )
    return [
        sorted(tuple(map(str, row)) for row in connection.exec_driver_sql(f"SELECT {question}"))
        for question in questions
    ]


def test_migrations_and_schema_create_the_same_tables(
    connection: sa.Connection, store_url: str
) -> None:
    prepare.migrate(connection)
    by_steps = shape(connection)
    context = MigrationContext.configure(connection)
    assert compare_metadata(context, metadata) == []
    connection.rollback()
    with connection.begin():
        metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
    prepare.prepare(parse_url(store_url))
    assert shape(connection) == by_steps


WRITTEN_AT_0001 = """
INSERT INTO sessions (id, key, address, state, messages, created_at, updated_at)
VALUES ('s1', 'web:a', '{"platform":"web","chat":"a"}', 'active', 1, 1, 2);
INSERT INTO messages (session_id, turn_id, at, body)
VALUES ('s1', 't1', 1, '{"role":"user","content":"hello"}');
INSERT INTO turns (id, session_id, key, address, state, request, started_at)
VALUES ('t1', 's1', 'web:a', '{"platform":"web","chat":"a"}', 'done', 'hello', 1);
INSERT INTO attempts (turn_id, number, target, started_at, input_tokens)
VALUES ('t1', 1, 'openai/one', 1, 7)
"""


WRITTEN_AT_0002 = """
INSERT INTO sessions (id, key, address, state, messages, created_at, updated_at)
VALUES ('s2', 'web:b', '{"platform":"web","chat":"b"}', 'active', 1, 1, 2);
INSERT INTO messages (session_id, turn_id, at, body)
SELECT 's2', 't2', 1, '{"role":"user","content":"behind it"}' FROM sessions;
UPDATE sessions SET summary = 'an earlier talk', summary_upto = (SELECT min(id) FROM messages)
WHERE id = 's2';
INSERT INTO turns (id, session_id, key, address, state, request, started_at)
VALUES ('t2', 's2', 'web:b', '{"platform":"web","chat":"b"}', 'running', 'hello', 1);
INSERT INTO attempts (turn_id, number, target, started_at) VALUES ('t2', 1, 'openai/one', 1);
INSERT INTO tool_runs (turn_id, call_id, tool, risk, arguments, started_at)
VALUES ('t2', 'c1', 'pay', 'write', '{}', 1)
"""


async def test_rows_of_older_versions_survive_the_migrations(
    connection: sa.Connection, store_url: str
) -> None:
    prepare.migrate(connection, "0001")
    connection.rollback()
    with connection.begin():
        _run(connection, WRITTEN_AT_0001)
    prepare.migrate(connection, "0002")
    connection.rollback()
    with connection.begin():
        _run(connection, WRITTEN_AT_0002)
    with pytest.raises(StoreTooOld):
        prepare.check_current(parse_url(store_url))
    store = await SessionStore.open(store_url, clock=SystemClock())
    try:
        assert await store.sessions.context("s1") == ("", (Message("user", "hello"),))
        turn = await store.turns.get("t1")
        assert turn
        assert turn.person == ""
        assert turn.address == Address("web", "a")
        assert await store.spending.totals(key="web:a") == UsageTotals(
            input_tokens=7, requests=1, unpriced=1
        )
        assert await store.sessions.context("s2") == (
            "an earlier talk",
            (Message("user", "behind it"),) * 2,
        )
        assert [run.attempt for run in await store.turns.tool_runs("t2")] == [0]
        await store.apply(
            EndAttempt(turn_id="t2", number=1, verdict="DONE", at=3, request_hash="c0ffee")
        )
        await store.apply(PutSummary(session_id="s1", keep=0, summary="greetings", at=3))
        await store.apply(PutApproval(question("p1")))
        assert await store.sessions.context("s1") == ("greetings", ())
    finally:
        await store.close()


def _run(connection: sa.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.exec_driver_sql(statement)


def test_the_revision_list_matches_the_migration_files() -> None:
    config = Config()
    config.set_main_option("script_location", "sessions.store:migrations")
    script = ScriptDirectory.from_config(config)
    files = [revision.revision for revision in script.walk_revisions()]
    assert tuple(reversed(files)) == migrations.REVISIONS
    assert script.get_current_head() == migrations.HEAD


def _set_version(connection: sa.Connection, version: str) -> None:
    with connection.begin():
        found = sa.table("alembic_version", sa.column("version_num"))
        connection.execute(sa.update(found).values(version_num=version))


def test_an_up_to_date_database_is_not_touched_and_alembic_not_imported(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.prepare(parse_url(store_url))
    for name in [name for name in sys.modules if name.partition(".")[0] == "alembic"]:
        monkeypatch.delitem(sys.modules, name)
    prepare.prepare(parse_url(store_url))
    prepare.check_current(parse_url(store_url))
    assert "alembic" not in sys.modules


def test_an_outdated_database_is_migrated(
    connection: sa.Connection, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.migrate(connection)
    older = "0000"
    monkeypatch.setattr(prepare, "REVISIONS", (older, *migrations.REVISIONS))
    _set_version(connection, older)
    asked: list[sa.Connection] = []
    monkeypatch.setattr(prepare, "migrate", asked.append)
    prepare.prepare(parse_url(store_url))
    assert len(asked) == 1
    with pytest.raises(StoreTooOld, match="older version; start the gateway once"):
        prepare.check_current(parse_url(store_url))


def test_a_database_of_a_newer_version_is_refused(
    connection: sa.Connection, store_url: str
) -> None:
    prepare.prepare(parse_url(store_url))
    _set_version(connection, "9999")
    for look in (prepare.prepare, prepare.check_current, prepare.check_compatible):
        with pytest.raises(StoreTooNew, match=r"newer version of Holdfast \(9999, this one knows"):
            look(parse_url(store_url))


async def test_checking_compatibility_changes_nothing(
    connection: sa.Connection, store_url: str
) -> None:
    where = parse_url(store_url)
    await SessionStore.check_compatible(store_url)  # nothing exists yet
    assert prepare.current_revision(connection) is None
    connection.rollback()
    if where.file:
        where.file.unlink()
        await SessionStore.check_compatible(store_url)
        assert not where.file.exists()
    prepare.prepare(where)
    await SessionStore.check_compatible(store_url)


async def test_several_processes_can_open_a_new_database_at_once(store_url: str) -> None:
    async def one() -> None:
        store = await SessionStore.open(store_url, clock=SystemClock())
        await store.close()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(one())
    store = await SessionStore.open(store_url, clock=SystemClock(), read_only=True)
    assert await store.sessions.list() == ()
    await store.close()


async def test_opening_read_only_changes_nothing_and_needs_a_database(store_url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"There is no database at .* yet; holdfast run"):
        await SessionStore.open(store_url, clock=SystemClock(), read_only=True)
    file = parse_url(store_url).file
    assert file is None or not file.exists()


# --- SQLite ----------------------------------------------------------------------------------


async def test_a_closed_database_can_be_read_without_being_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a folder?x=1#%41' / 'holdfast.db'}"
    store = await SessionStore.open(url, clock=SystemClock())
    await talk(store, "s1", 1)
    await store.close()
    file = tmp_path / "a folder?x=1#%41" / "holdfast.db"
    before = file.read_bytes()
    reading = await SessionStore.open(url, clock=SystemClock(), read_only=True)
    assert len(await reading.sessions.list()) == 1
    await reading.close()
    assert file.read_bytes() == before


def test_a_lock_on_a_database_without_a_write_ahead_log_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE theirs (name TEXT)")
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.rollback)
    release.start()
    prepare.prepare(parse_url(f"sqlite:///{file}"))
    release.join()
    other.close()


def test_a_lock_that_is_never_released_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOCK_TIMEOUT_SECONDS", 0.1)
    file = tmp_path / "holdfast.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("CREATE TABLE theirs (name TEXT)")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process has locked it"):
        prepare.prepare(parse_url(f"sqlite:///{file}"))
    other.close()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    prepare.prepare(parse_url(f"sqlite:///{tmp_path / 'holdfast.db'}"))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    file.write_bytes(b"a diary, not a database" * 400)
    for look in (prepare.prepare, prepare.check_current):
        with pytest.raises(StoreCorrupt, match=r"holdfast\.db cannot be used: the file is damaged"):
            look(parse_url(f"sqlite:///{file}"))
    assert file.read_bytes().startswith(b"a diary")


def test_a_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE sessions (mine TEXT)")
    theirs.close()
    with pytest.raises(StoreError, match="table sessions already exists"):
        prepare.prepare(parse_url(f"sqlite:///{file}"))
    with sqlite3.connect(file) as theirs:
        tables = theirs.execute("SELECT name FROM sqlite_schema").fetchall()
    theirs.close()
    assert tables == [("sessions",)]


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = f"sqlite:///{tmp_path / 'file' / 'holdfast.db'}"
    with pytest.raises(StoreUnavailable, match="cannot be opened: File exists"):
        prepare.prepare(parse_url(url))


def test_migrating_a_table_does_not_delete_dependent_rows(tmp_path: Path) -> None:
    where = parse_url(f"sqlite:///{tmp_path / 'holdfast.db'}")
    prepare.prepare(where)
    with migration_engine(where).connect() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 0


# --- PostgreSQL ------------------------------------------------------------------------------


async def test_an_unreachable_server_is_reported_without_the_password() -> None:
    url = "postgresql://ann:secret@127.0.0.1:1/holdfast?sslpassword=secret"
    with pytest.raises(StoreUnavailable) as caught:
        await SessionStore.open(url, clock=SystemClock())
    assert "postgresql://ann:***@127.0.0.1:1/holdfast cannot be used" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_missing_postgresql_database_is_reported(store_url: str) -> None:
    if store_url.startswith("sqlite"):
        return
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        await SessionStore.open(f"{store_url.rpartition('/')[0]}/nowhere", clock=SystemClock())
