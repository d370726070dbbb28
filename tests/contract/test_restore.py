"""A backup of either database, put into either database."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.operate.backup.restoring import PreparedRestore, apply_restore, prepare_restore
from gateway.operate.backup.writing import BackupSource, write_backup_file
from gateway.process.lock import hold_state_folder
from sessions.changes import PutItem
from sessions.errors import StoreUnavailable
from sessions.store.after_restore import MOMENT, SHELF, ClosedWork
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import entry, item, started, talk
from tests.contract.test_store_copies import fill
from tests.fakes import postgres

NOW = 1_800_000_000_000


def back_up(url: str, home: Path, file: Path) -> None:
    home.mkdir()
    write_backup_file(
        BackupSource(home=home, store_url=url, version="1.0", made_at="2027-01-15T08:00:00.000Z"),
        file,
    )


def put_back(file: Path, home: Path, url: str, *, moved: bool = False) -> PreparedRestore:
    with hold_state_folder(home):
        ready = prepare_restore(file, home, url, NOW, moved=moved)
        apply_restore(ready)
    return ready


async def test_every_database_goes_into_every_other_one(
    store: SessionStore, store_url: str, new_url: str, tmp_path: Path
) -> None:
    await fill(store)
    file = tmp_path / "b.tgz"
    back_up(store_url, tmp_path / "home", file)
    engine = "postgresql" if new_url.startswith("postgresql") else "sqlite"
    other = new_url if engine == "postgresql" else f"sqlite:///{tmp_path / 'new' / 'holdfast.db'}"
    ready = put_back(file, tmp_path / "new", other)
    assert (ready.replaces_state, ready.ended_work.turns, ready.ended_work.questions) == (
        False,
        1,
        2,
    )
    fresh = await SessionStore.open(other, clock=SystemClock())
    assert await fresh.find_problems() == ()
    assert await fresh.sessions.history("s1") == await store.sessions.history("s1")
    assert await fresh.outbox.undelivered() == ()
    assert await fresh.get_value(SHELF, MOMENT) == str(NOW)
    await fresh.accept(entry("later"))
    await talk(fresh, "s9", 1, key="web:later")
    await fresh.close()


async def test_what_is_in_postgresql_is_kept_in_a_schema_of_its_own(
    new_url: str, tmp_path: Path
) -> None:
    if new_url.startswith("sqlite"):
        return
    store = await SessionStore.open(new_url, clock=SystemClock())
    await talk(store, "s1", 2)
    await store.apply(started("t9", "s1"), PutItem(item("o1")))
    home, file = tmp_path / "home", tmp_path / "b.tgz"
    back_up(new_url, home, file)
    await talk(store, "s2", 1, key="web:newer")
    with pytest.raises(StoreUnavailable, match=r"A Holdfast is connected to .*; stop it first"):
        put_back(file, home, new_url)
    assert not (home / ".restore").exists()
    await store.close()
    ready = put_back(file, home, new_url, moved=True)
    assert (ready.replaces_state, ready.ended_work) == (True, ClosedWork())
    assert "the schema before_restore_20270115t080000z of postgresql://" in ready.aside_location
    store = await SessionStore.open(new_url, clock=SystemClock())
    assert [each.id for each in await store.sessions.list()] == ["s1"]
    assert len(await store.turns.running()) == 1
    old = await store.database.read(
        lambda c: c.exec_driver_sql("SELECT id FROM before_restore_20270115t080000z.sessions").all()
    )
    assert {each.id for each in old} == {"s1", "s2"}
    await store.close()


# --- kill -9 ---------------------------------------------------------------------------------

KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import psycopg
import sqlalchemy.dialects.sqlite, sqlalchemy.dialects.postgresql.psycopg
from gateway.operate.backup.restoring import prepare_restore, apply_restore
from gateway.process.lock import hold_state_folder

folder, home, server = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
events = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}
for number in range(1, 200):
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE killed{number} TEMPLATE old")
    here = folder / str(number)
    shutil.copytree(home, here)
    child = os.fork()
    if child == 0:
        left = number
        def hook(event, args):
            global left
            if event in events and str(folder) in str(args[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        with hold_state_folder(here):
            url = f"{server}/killed{number}"
            ready = prepare_restore(folder / "b.tar", here, url, 1_800_000_000_000, moved=True)
            sys.addaudithook(hook)
            apply_restore(ready)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
print(number)
"""
NOTES = Path("workspace", "telegram%3A1001", "notes.txt")


@pytest.mark.process
@pytest.mark.timeout(180)
async def test_a_killed_restore_into_postgresql_leaves_the_old_or_the_new_state(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    home, runs = tmp_path / "home", tmp_path / "runs"
    runs.mkdir()
    base = postgres_server.database("old")
    store = await SessionStore.open(base, clock=SystemClock())
    await talk(store, "new", 1)
    (home / NOTES).parent.mkdir(parents=True)
    (home / NOTES).write_text("new")
    source = BackupSource(home=home, store_url=base, version="1.0", made_at="now")
    write_backup_file(source, runs / "b.tar")
    await talk(store, "old", 1, key="telegram:2002")  # since the backup
    await store.close()
    (home / NOTES).write_text("old")
    last = _kill_everywhere(runs, home, postgres_server)
    seen = set()
    for number in range(1, last + 1):
        url = postgres_server.url(f"killed{number}")
        with hold_state_folder(runs / str(number), store_url=url):  # as the next start does
            assert not (runs / str(number) / ".restore").exists()
        store = await SessionStore.open(url, clock=SystemClock())
        sessions = {each.id for each in await store.sessions.list()}
        await store.close()
        is_new = sessions == {"new"}
        assert is_new or sessions == {"new", "old"}
        assert (runs / str(number) / NOTES).read_text() == ("new" if is_new else "old"), number
        seen.add(is_new)
        postgres_server.drop(url)
    assert seen == {False, True}


def _kill_everywhere(runs: Path, home: Path, server: postgres.Server) -> int:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(runs), str(home), server.url("").rstrip("/")],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
