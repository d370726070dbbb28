"""Database URLs and error translation."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from sessions.errors import (
    CommitOutcomeUnknown,
    Conflict,
    RecordNotFound,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from sessions.store.engine import parse_url, translate_error, writer_engine
from sessions.store.schema import make_storable


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:////var/lib/holdfast.db", "/var/lib/holdfast.db"),
        ("sqlite:///holdfast.db", str(Path.cwd() / "holdfast.db")),
        ("sqlite:///~/holdfast.db", str(Path.home() / "holdfast.db")),
        (
            "postgresql://ann:secret@db:5432/chat?sslmode=require",
            "postgresql://ann:***@db:5432/chat",
        ),
        ("postgresql:///chat", "postgresql:///chat"),
    ],
)
def test_a_database_is_named_without_its_password(url: str, name: str) -> None:
    assert parse_url(url).name == name


@pytest.mark.parametrize(
    "url", ["", "holdfast.db", "sqlite://", "mysql://db/chat", "postgresql://db"]
)
def test_an_invalid_url_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(StoreError, match="write sqlite:///FILE or postgresql://"):
        parse_url(url)


def test_postgresql_without_its_driver_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"install holdfast\[pg\]"):
        writer_engine(parse_url("postgresql://ann@db/chat"))


class FromSqlite(sqlite3.OperationalError):
    def __init__(self, code: int, words: str = "words of SQLite") -> None:
        super().__init__(words)
        self.sqlite_errorcode = code


class FromPostgres(Exception):
    def __init__(self, state: str | None, words: str = "words of PostgreSQL\nHINT: none") -> None:
        super().__init__(words)
        self.sqlstate = state


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_BUSY, StoreUnavailable, "another process has locked it"),
        (sqlite3.SQLITE_FULL, StoreUnavailable, "the disk is full"),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable, "the disk reports an error"),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable, "it cannot be written"),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt, "it is damaged; restore a backup"),
        (sqlite3.SQLITE_ERROR, StoreError, "words of SQLite"),
    ],
)
def test_sqlite_errors_are_translated(code: int, kind: type[StoreError], words: str) -> None:
    theirs = OperationalError("SELECT", {}, FromSqlite(code))
    ours = translate_error(theirs, "/x/holdfast.db")
    assert type(ours) is kind
    assert str(ours) == f"The database /x/holdfast.db cannot be used: {words}"
    assert ours.__cause__ is theirs


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", StoreUnavailable),
        ("57P01", StoreUnavailable),
        ("25006", StoreUnavailable),
        ("XX001", StoreCorrupt),
        ("42601", StoreError),
        (None, StoreUnavailable),
    ],
)
def test_postgresql_errors_are_translated(state: str | None, kind: type[StoreError]) -> None:
    ours = translate_error(
        OperationalError("SELECT", {}, FromPostgres(state)), "postgresql://db/chat"
    )
    assert type(ours) is kind
    assert str(ours) == "The database postgresql://db/chat cannot be used: words of PostgreSQL"


def test_a_broken_connection_is_unknown_only_during_a_commit() -> None:
    broken = DBAPIError("COMMIT", {}, FromPostgres(None), connection_invalidated=True)
    assert type(translate_error(broken, "db", committing=True)) is CommitOutcomeUnknown
    assert type(translate_error(broken, "db")) is StoreUnavailable


def test_an_integrity_error_is_a_conflict() -> None:
    twice = IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE constraint failed: a.b"))
    assert type(translate_error(twice, "db")) is Conflict
    orphan = IntegrityError("INSERT", {}, sqlite3.IntegrityError("FOREIGN KEY constraint failed"))
    assert type(translate_error(orphan, "db")) is RecordNotFound


def test_other_errors_are_returned_unchanged() -> None:
    error = ValueError("no")
    assert translate_error(error, "db") is error
    odd = translate_error(sa.exc.ArgumentError(""), "db")
    assert str(odd) == "The database db cannot be used: ArgumentError"


def test_an_error_without_a_message_shows_its_type() -> None:
    assert str(StoreUnavailable()) == "The database cannot be used at the moment."


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("plain", "plain"),
        ("héllo ✓ 😀", "héllo ✓ 😀"),
        ("a\0b", "a\ufffdb"),
        ("a\ud800b", "a?b"),
        ("\0é\udfff", "\ufffdé?"),
    ],
)
def test_unstorable_characters_are_replaced(given: str, stored: str) -> None:
    assert make_storable(given) == stored


@pytest.mark.process
def test_importing_the_store_loads_no_optional_library() -> None:
    code = "import sys, sessions.store.store; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {"alembic", "psycopg", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "mako"}
    assert loaded & heavy == set()
    assert "sqlalchemy" in loaded
