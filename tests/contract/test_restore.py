"""A backup of either database, put into either database."""

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
