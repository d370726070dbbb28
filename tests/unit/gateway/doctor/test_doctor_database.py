"""Doctor checks of the database, which leave the database unchanged."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.operate.doctor.database import _findings, check_database
from gateway.operate.doctor.report import VERSION_SUBJECT
from sessions.settings import StoreSettings
from sessions.store.engine import parse_url
from sessions.store.inspect import DatabaseInspection, inspect_database
from sessions.store.migrations import HEAD
from sessions.store.prepare import prepare
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from sessions.values.finding import Finding
from sessions.values.secret import Secret
from tests.fakes.case import case_of, only, told


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with a database of this version."""
    prepare(parse_url(f"sqlite:///{tmp_path / 'holdfast.db'}"))
    return tmp_path


@contextlib.contextmanager
def opened(home: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(home / "holdfast.db")) as connection, connection:
        yield connection


async def looked(home: Path) -> list[Finding]:
    return list(await check_database(case_of(home)))


def traces(home: Path) -> dict[str, tuple[int, int]]:
    """Include the folder itself, because temporary files change its time."""
    seen = (home, *home.iterdir())
    return {each.name: (each.stat().st_size, each.stat().st_mtime_ns) for each in seen}


async def test_an_undamaged_database_is_reported_with_its_size_and_left_unchanged(
    home: Path,
) -> None:
    before = traces(home)
    found = await looked(home)
    assert told(found) == [("ok", "integrity")]
    assert "no damage, " in found[0].text
    assert traces(home) == before


async def test_a_database_in_use_by_a_daemon_is_checked(home: Path) -> None:
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=SystemClock())
    try:
        await store.put_value("a", "b", "c")
        before = traces(home)
        assert told(await looked(home)) == [("ok", "integrity")]
        assert traces(home).keys() == before.keys()
        await store.put_value("a", "b", "d")  # the store is not locked
    finally:
        await store.close()


async def test_a_missing_or_empty_database_is_ok(tmp_path: Path) -> None:
    (found,) = await looked(tmp_path)
    assert (found.level, "is created" in found.text) == ("ok", True)
    assert list(traces(tmp_path)) == [tmp_path.name]
    with opened(tmp_path) as connection:
        connection.execute("CREATE TABLE other (x)")
    (found,) = await looked(tmp_path)
    assert "tables are created" in found.text


async def test_a_database_of_a_newer_version_is_a_failure(home: Path) -> None:
    with opened(home) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    found = only(await looked(home), VERSION_SUBJECT)
    assert (found.level, f"9999; this one supports up to {HEAD}" in found.text) == ("fail", True)
    assert "restore a backup" in found.fix


async def test_a_database_of_an_older_version_is_ok(home: Path) -> None:
    with opened(home) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    found = only(await looked(home), VERSION_SUBJECT)
    assert found.level == "ok"


async def test_a_damaged_page_is_found(home: Path) -> None:
    with opened(home) as connection:
        connection.execute("CREATE TABLE many (x)")
        connection.executemany("INSERT INTO many VALUES (?)", [("y" * 900,)] * 200)
    with (home / "holdfast.db").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(size // 4096 - 20, size // 4096 - 10):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    found = only(await looked(home), "integrity")
    assert found.level == "fail"
    assert "is damaged" in found.text
    assert "restore" in found.fix


async def test_a_file_that_is_not_a_database_is_reported_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"this is a text and no database at all" * 100)
    assert told(await looked(tmp_path)) == [("fail", "integrity")]


async def test_a_database_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()
    found = only(await looked(tmp_path), "database")
    assert found.level == "fail"
    store = StoreSettings(url=Secret("nonsense"))
    found = only(await check_database(case_of(tmp_path, store=store)), "database")
    assert "URL cannot be used" in found.text


def test_a_check_that_runs_out_of_time_does_not_report_ok(home: Path) -> None:
    with opened(home) as connection:
        connection.execute("CREATE TABLE many (x)")
        connection.executemany("INSERT INTO many VALUES (?)", [("y" * 90,)] * 20_000)
    found = inspect_database(f"sqlite:///{home / 'holdfast.db'}", timeout_seconds=0.0)
    assert found.incomplete
    only_one = only(list(_findings(found)), "integrity")
    assert (only_one.level, "db check" in only_one.fix) == ("warn", True)


def test_a_large_log_and_much_free_space_are_reported() -> None:
    large = DatabaseInspection(
        name="x", version=HEAD, size_bytes=10**9, wal_bytes=300 * 2**20, free_bytes=6 * 10**8
    )
    found = list(_findings(large))
    assert told(found) == [("ok", "integrity"), ("warn", "size"), ("ok", "size")]
    assert told(list(_findings(msgspec.structs.replace(large, wal_bytes=0, free_bytes=0)))) == [
        ("ok", "integrity")
    ]


async def test_postgresql_is_checked(tmp_path: Path) -> None:
    gone = StoreSettings(url=Secret("postgresql://nobody:geheim@127.0.0.1:1/none"))
    found = only(await check_database(case_of(tmp_path, store=gone)), "database")
    assert found.level == "fail"
    assert "geheim" not in found.text
