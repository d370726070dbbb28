"""Copies of whole databases: during writes, between engines, and before migrations."""

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from sessions.changes import (
    AnswerApproval,
    AppendMessages,
    PutApproval,
    PutItem,
    SetInbox,
    SetSession,
    StartTool,
)
from sessions.errors import (
    Conflict,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)
from sessions.records import (
    ApprovalState,
    InboxState,
    ItemKind,
    ItemState,
    Message,
    SessionReason,
    SessionState,
    TurnState,
)
from sessions.store import after_restore, prepare, safety_copy, vacuum
from sessions.store import copy as copying
from sessions.store.engine import migration_engine, parse_url, reader_engine
from sessions.store.migrations import HEAD
from sessions.store.schema import metadata
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ADDRESS, ended, entry, item, opened, question, started, talk
from tests.contract.test_store_opening import WRITTEN_AT_0001
from tests.fakes import postgres

NOW = 1_800_000_000_000
ODD = "naïve 🦉 \ufffd \\u0000 ' \" %"


def content(url: str) -> dict[str, list[tuple[object, ...]]]:
    engine = reader_engine(parse_url(url), without_writer=True)
    with engine.connect() as connection:
        found = {
            name: sorted(tuple(row) for row in connection.execute(sa.select(table)))
            for name, table in metadata.tables.items()
            if name != "shelves"
        }
    engine.dispose()
    return found


async def fill(store: SessionStore) -> None:
    await talk(store, "s1", 3)
    await talk(store, "s2", 1, key="web:a")
    for number in range(5):
        await store.accept(entry(f"i{number}", payload=bytes(range(256)) if number else None))
    await store.apply(
        started("t1", "s1", "i1", said=ODD),
        StartTool(turn_id="t1", call_id="c1", tool="pay", risk="write", arguments=ODD, at=2100),
        PutApproval(question("p1", arguments=f"\ud800 {ODD}")),
        AnswerApproval(id="p1", state=ApprovalState.ALLOWED, by="ann", at=2200),
        PutApproval(question("p2")),
        PutItem(item("o1", turn="t1", final=False)),
        PutItem(item("o2", text=ODD)),
        PutItem(item("o3", state=ItemState.SENT)),
    )
    await store.put_value("shelf", "name", ODD)


async def test_a_copy_is_identical_and_usable(
    store: SessionStore, store_url: str, tmp_path: Path
) -> None:
    await fill(store)
    copy = tmp_path / "copy.db"
    assert copying.copy_database(parse_url(store_url), copy) == HEAD
    copying.check_integrity(copy)
    url = f"sqlite:///{copy}"
    assert content(url) == content(store_url)
    other = await SessionStore.open(url, clock=SystemClock())
    assert await other.get_value("shelf", "name") == ODD
    await other.apply(AppendMessages("s1", "t1", (Message("assistant", "on"),), 3000), ended("t1"))
    assert (await other.sessions.history("s1"))[-1].content == "on"
    await other.close()


async def test_a_copy_during_writes_is_one_snapshot(
    store: SessionStore, store_url: str, tmp_path: Path
) -> None:
    """Two rows are always written together; a copy has both or neither."""
    await store.apply(opened("s1"), opened("s2", key="web:a"))
    enough = asyncio.Event()
    written = 0

    async def write() -> None:
        nonlocal written
        while not enough.is_set():
            words = (Message("user", f"{written} " + "x" * 200),)
            await store.apply(
                AppendMessages("s1", "t", words, 2000), AppendMessages("s2", "t", words, 2000)
            )
            written += 1

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(write())
        for number in range(3):
            before = written
            copy = tmp_path / f"{number}.db"
            await asyncio.to_thread(copying.copy_database, parse_url(store_url), copy)
            with sqlite3.connect(copy) as raw:
                counts = raw.execute(
                    "SELECT count(*) FROM messages GROUP BY session_id ORDER BY session_id"
                ).fetchall()
            raw.close()
            assert len(set(counts)) <= 1
            assert counts == [] or counts[0][0] >= before
            copying.check_integrity(copy)
        enough.set()
    assert await store.find_problems() == ()


async def test_deleted_data_is_not_in_a_copy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    store = await SessionStore.open(url, clock=SystemClock())
    await talk(store, "s1", 300)
    await store.database.write(lambda c: c.execute(sa.text("DELETE FROM messages")))
    copying.copy_database(parse_url(url), tmp_path / "copy.db")
    await store.close()
    assert b'"content"' not in (tmp_path / "copy.db").read_bytes()
    with sqlite3.connect(tmp_path / "copy.db") as raw:
        assert raw.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    raw.close()


# --- into PostgreSQL -------------------------------------------------------------------------


async def test_rows_are_copied_from_sqlite_to_postgresql_and_back(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    from_, to = f"sqlite:///{tmp_path / 'holdfast.db'}", postgres_server.database()
    where = parse_url(to)
    prepare.prepare(where)
    store = await SessionStore.open(from_, clock=SystemClock())
    await fill(store)
    await store.close()
    copying.copy_database(parse_url(from_), tmp_path / "copy.db")
    copying.check_unused(where)
    assert copying.replace_contents(where, tmp_path / "copy.db", "aside_1", "m1") is True
    assert content(to) == content(from_)
    store = await SessionStore.open(to, clock=SystemClock())
    await store.check_writable()
    with pytest.raises(StoreUnavailable, match="A Holdfast is connected to postgresql://"):
        copying.check_unused(where)
    before = max(each.seq for each in await store.timeline(ADDRESS, 0, 100))
    await store.accept(entry("new"))  # numbers continue after the copied ones
    added = await store.inbox.get("new")
    assert added
    assert added.seq > before
    await store.apply(AppendMessages("s1", "t1", (Message("user", "next"),), 3000))
    assert (await store.sessions.history("s1"))[-1].content == "next"
    await store.close()
    copying.copy_database(where, tmp_path / "back.db")
    copying.check_integrity(tmp_path / "back.db")
    assert content(f"sqlite:///{tmp_path / 'back.db'}") == content(to)
    postgres_server.drop(to)


async def test_a_daemon_that_is_just_ending_is_not_connected(
    postgres_server: postgres.Server,
) -> None:
    url = postgres_server.database()
    where = parse_url(url)
    prepare.prepare(where)
    with prepare.connect(where, reader_engine(where)) as connection:
        connection.begin()
        ending = threading.Timer(0.3, connection.close)
        ending.start()
        await asyncio.to_thread(copying.check_unused, where)
        ending.join()
    postgres_server.drop(url)


async def test_an_empty_postgresql_database_is_filled(new_url: str, tmp_path: Path) -> None:
    if new_url.startswith("sqlite"):
        return
    prepare.prepare(parse_url(f"sqlite:///{tmp_path / 'a.db'}"))
    copying.merge_wal(tmp_path / "a.db")
    assert copying.replace_contents(parse_url(new_url), tmp_path / "a.db", "aside_2", "m2") is False
    prepare.check_current(parse_url(new_url))


def test_a_failed_fill_keeps_the_old_rows(postgres_url: str, tmp_path: Path) -> None:
    prepare.prepare(parse_url(f"sqlite:///{tmp_path / 'a.db'}"))
    with sqlite3.connect(tmp_path / "a.db") as raw:  # with a row that PostgreSQL rejects
        raw.execute("PRAGMA foreign_keys=OFF")
        raw.execute(
            "INSERT INTO messages (session_id, turn_id, at, taken_back, body) "
            "VALUES ('nobody', 't', 1, 0, '{}')"
        )
    raw.close()
    before = content(postgres_url)
    with pytest.raises(StoreError):
        copying.replace_contents(parse_url(postgres_url), tmp_path / "a.db", "aside_3", "m3")
    assert content(postgres_url) == before
    with reader_engine(parse_url(postgres_url)).connect() as connection:
        assert "aside_3" not in sa.inspect(connection).get_schema_names()


# --- copies before a migration ---------------------------------------------------------------


def at_first(folder: Path) -> tuple[str, Path]:
    """Create a database as the first version wrote it."""
    file = folder / "holdfast.db"
    prepare.create_database(parse_url(f"sqlite:///{file}"), "0001")
    with sqlite3.connect(file) as raw:
        raw.executescript(WRITTEN_AT_0001)
    raw.close()
    return f"sqlite:///{file}", file


def version_of(file: Path) -> tuple[str, int, set[str]]:
    with sqlite3.connect(file) as raw:
        version = raw.execute("SELECT version_num FROM alembic_version").fetchone()[0]
        messages = raw.execute("SELECT count(*) FROM messages").fetchone()[0]
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema")}
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
    return version, messages, tables


class FixedClock:
    """A clock that stands still."""

    def __init__(self, now: int = NOW) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return 0.0


async def test_an_older_database_is_copied_before_its_migration(tmp_path: Path) -> None:
    url, file = at_first(tmp_path)
    keep_in = tmp_path / "backups"
    store = await SessionStore.open(url, clock=FixedClock(), copy_folder=keep_in)
    assert (await store.sessions.history("s1"))[0].content == "hello"
    await store.close()
    (copy,) = keep_in.iterdir()
    assert copy.name == f"before-{HEAD}-20270115T080000Z.db"
    assert (copy.stat().st_mode & 0o777, keep_in.stat().st_mode & 0o777) == (0o600, 0o700)
    assert version_of(copy)[:2] == ("0001", 1)
    assert version_of(file)[0] == HEAD
    # An up-to-date database is not copied.
    store = await SessionStore.open(url, clock=FixedClock(), copy_folder=keep_in)
    await store.close()
    assert len(list(keep_in.iterdir())) == 1


def test_old_copies_and_unfinished_files_are_deleted(tmp_path: Path) -> None:
    _, file = at_first(tmp_path)
    keep_in = tmp_path / "backups"
    keep_in.mkdir()
    (keep_in / "before-0002-20200101T000000Z.db").write_bytes(b"the oldest")
    (keep_in / ".before-0003-20200101T000000Z.db.part").write_bytes(b"half")
    (keep_in / "mine.db").write_bytes(b"unrelated")
    for day in range(3):
        safety_copy.keep_copy(file, keep_in, NOW + day * 86_400_000)
    assert sorted(each.name for each in keep_in.iterdir()) == [
        f"before-{HEAD}-20270115T080000Z.db",
        f"before-{HEAD}-20270116T080000Z.db",
        f"before-{HEAD}-20270117T080000Z.db",
        "mine.db",
    ]


async def test_a_full_disk_prevents_the_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = at_first(tmp_path)
    before = file.read_bytes()
    monkeypatch.setattr(safety_copy, "MIN_FREE_BYTES", 2**62)
    with pytest.raises(StoreUnavailable, match=r"no room in .*holdfast db upgrade --no-backup"):
        await SessionStore.open(url, clock=FixedClock(), copy_folder=tmp_path / "backups")
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreUnavailable, match=r"cannot be copied to .*: File exists; .*--no-backup"
    ):
        await SessionStore.open(url, clock=FixedClock(), copy_folder=tmp_path / "file")
    assert version_of(file)[0] == "0001"
    assert len(before) == file.stat().st_size
    store = await SessionStore.open(url, clock=FixedClock())
    await store.close()
    assert version_of(file)[0] == HEAD


def test_postgresql_is_migrated_without_a_copy_and_logs_it(
    new_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if new_url.startswith("sqlite"):
        return
    prepare.create_database(parse_url(new_url), "0001")
    with caplog.at_level("INFO"):
        prepare.prepare(
            parse_url(new_url), safety_copy.copy_before_migration(tmp_path / "backups", NOW)
        )
    assert "use your own PostgreSQL backup" in caplog.text
    assert not (tmp_path / "backups").exists()
    prepare.check_current(parse_url(new_url))


def test_a_failed_migration_leaves_the_database_unchanged(new_url: str) -> None:
    """The second migration succeeds; the third finds an existing table."""
    where = parse_url(new_url)
    prepare.create_database(where, "0001")
    engine = migration_engine(where)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE summaries (mine TEXT)")
    with pytest.raises(StoreError, match="summaries"):
        prepare.prepare(where)
    with engine.connect() as connection:
        assert prepare.current_revision(connection) == "0001"
        assert not sa.inspect(connection).has_table("approvals")
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("DROP TABLE summaries")
    engine.dispose()
    prepare.prepare(where)
    prepare.check_current(where)


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import alembic.command, alembic.config
import sqlalchemy as sa
from sessions.store import prepare as opening
from sessions.store.engine import parse_url

folder = Path(sys.argv[1])
for number in range(1, 500, 3):
    file = folder / f"{number}.db"
    shutil.copy(folder / "holdfast.db", file)
    child = os.fork()
    if child == 0:
        left = number
        def count(*_):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        sa.event.listen(sa.Engine, "before_cursor_execute", count)
        sa.event.listen(sa.Engine, "commit", count)
        opening.prepare(parse_url(f"sqlite:///{file}"))
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""


def test_a_kill_during_migration_leaves_the_old_or_the_new_schema(tmp_path: Path) -> None:
    _, file = at_first(tmp_path)
    copying.merge_wal(file)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=55,
        check=True,
    )
    last = int(done.stdout)
    assert last > 20
    found = [version_of(tmp_path / f"{number}.db") for number in range(1, last + 1, 3)]
    assert {(version, messages) for version, messages, _ in found} == {("0001", 1), (HEAD, 1)}
    assert all(("approvals" in tables) == (version == HEAD) for version, _, tables in found)
    for number in (1, 16, last):
        prepare.prepare(parse_url(f"sqlite:///{tmp_path / f'{number}.db'}"))
        prepare.check_current(parse_url(f"sqlite:///{tmp_path / f'{number}.db'}"))


def test_a_copy_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    url, file = at_first(tmp_path)
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    with pytest.raises(StoreTooNew):
        copying.copy_database(parse_url(url), tmp_path / "copy.db")


def test_an_older_database_is_copied_without_migration(new_url: str, tmp_path: Path) -> None:
    prepare.create_database(parse_url(new_url), "0002")
    copy = tmp_path / "copy.db"
    assert copying.copy_database(parse_url(new_url), copy) == "0002"
    prepare.prepare(parse_url(f"sqlite:///{copy}"))
    prepare.check_current(parse_url(f"sqlite:///{copy}"))


# --- free space ------------------------------------------------------------------------------


async def test_a_file_of_an_older_version_is_vacuumed_once(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.db"
    where = parse_url(f"sqlite:///{file}")
    with sqlite3.connect(file) as raw:  # as older versions created it
        raw.execute("PRAGMA journal_mode=WAL")
    raw.close()
    prepare.prepare(where)
    store = await SessionStore.open(f"sqlite:///{file}", clock=SystemClock())
    await talk(store, "s1", 500)
    await store.database.write(lambda c: c.execute(sa.text("DELETE FROM messages")))
    await store.database.write(lambda c: c.execute(sa.text("UPDATE sessions SET messages = 0")))
    await store.close()
    copying.merge_wal(file)
    sizes = vacuum.vacuum_database(where)
    assert sizes
    assert sizes[1] < sizes[0]
    with sqlite3.connect(file) as raw:
        assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    raw.close()
    assert vacuum.vacuum_database(where) is None
    copying.check_integrity(file)


def test_postgresql_is_not_vacuumed(postgres_url: str) -> None:
    assert vacuum.vacuum_database(parse_url(postgres_url)) is None


# --- restored copies -------------------------------------------------------------------------


async def test_open_work_of_a_restored_copy_is_closed(store: SessionStore, store_url: str) -> None:
    await fill(store)
    await store.accept(entry("k1", state=InboxState.COMMAND))
    await store.accept(entry("w1", key="web:new"))
    await store.put_value("writers", "77", "5")
    await store.apply(
        SetSession("s2", SessionState.SUSPENDED, SessionReason.STOP, 3000),
        SetInbox(ids=("i4",), state=InboxState.HELD, at=3000, session_id="s2"),
    )
    engine = migration_engine(parse_url(store_url))
    with engine.connect() as connection, connection.begin():
        over = after_restore.close_open_work(connection, NOW)
    assert over == after_restore.ClosedWork(turns=1, held=3, unanswered=2, unsent=2, questions=2)
    assert await store.turns.running() == ()
    assert await store.inbox.waiting_keys() == ()
    assert await store.inbox.pending_commands() == ()
    assert await store.outbox.undelivered() == ()
    assert await store.approvals.open() == ()
    turn = await store.turns.get("t1")
    assert turn
    assert (turn.state, turn.cause) == (TurnState.INTERRUPTED, "restored")
    session = await store.sessions.get("s1")
    assert session
    assert (session.state, session.reason) == (SessionState.SUSPENDED, SessionReason.CRASH)
    assert {each.id for each in await store.inbox.held("s1")} == {"i0", "i2", "i3"}
    assert {each.id for each in await store.inbox.held("s2")} == {"i4"}
    (traced,) = await store.trace("w1")
    assert traced.entry.decision == after_restore.RESTORED_REASON
    allowed = await store.approvals.find_allowed("s1", "pay", f"\ud800 {ODD}", 0)
    assert allowed is None
    with pytest.raises(Conflict):
        await store.apply(AnswerApproval(id="p1", state=ApprovalState.USED, by="", at=NOW))
    assert await store.get_value(after_restore.SHELF, after_restore.MOMENT) == str(NOW)
    assert await store.find_problems() == ()
    with engine.connect() as connection, connection.begin():
        after_restore.remove_writer_rows(connection)
        assert after_restore.close_open_work(connection, NOW + 1) == after_restore.ClosedWork()
    assert await store.values("writers") == {}
    engine.dispose()


async def test_upload_paths_are_rewritten_to_the_new_folder(
    store: SessionStore, store_url: str
) -> None:
    upload = item("o1", text='{"text":"a","path":"/old/home/outgoing/shown/f/ä.txt"}')
    other = item("o2", text='{"text":"\\"path\\":\\"/old/home/x\\""}')
    for each in (upload, other):
        await store.apply(PutItem(msgspec.structs.replace(each, kind=ItemKind.UPLOAD)))
    engine = migration_engine(parse_url(store_url))
    with engine.connect() as connection, connection.begin():
        after_restore.rewrite_upload_paths(connection, "/old/home/", "/new/")
    engine.dispose()
    bodies = [each.body.decode() for each in await store.outbox.undelivered()]
    assert bodies == ['{"text":"a","path":"/new/outgoing/shown/f/ä.txt"}', other.body.decode()]
