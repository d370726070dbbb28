"""No statement that a turn needs reads a whole table."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from sessions import opening, statements
from sessions.engine import place, reader
from sessions.queries import inbox, outbox, sessions, turns, values

PARTIAL = {"ix_inbox_waiting", "ix_inbox_command", "ix_turns_running", "ix_outbox_open"}
"""Indexes of what is under way: as short as that is, so they may be read from end to end."""

LISTS = {
    "_CHATS": "all conversations of the web page or the terminal",
    "_SESSIONS": "lists everything, for a person",
    "_SESSIONS_OF_PLATFORM": "likewise",
    "_ABOUT": "a person asks why",
    "_TOOL_RUNS": "sorts the few it finds",
    "_ENTRIES": "only the beginning of others",
    "_ITEMS": "likewise",
}


def everything() -> Iterator[tuple[str, sa.ClauseElement]]:
    upserts = statements.Upserts(sqlite.insert)
    for home in (statements, sessions, inbox, turns, outbox, values, upserts):
        for name, thing in vars(home).items():
            each = thing if isinstance(thing, tuple) else (thing,)
            for number, statement in enumerate(each):
                is_statement = isinstance(statement, sa.Select | sa.UpdateBase)
                if is_statement and not name.startswith("NEXT_"):
                    yield f"{name}[{number}]" if len(each) > 1 else name, statement


ALL = dict(everything())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    where = place(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'holdfast.db'}")
    opening.prepare(where)
    with reader(where).connect() as connection:
        yield connection


def test_all_statements_are_looked_at() -> None:
    assert len(ALL) > 45


@pytest.mark.parametrize("name", sorted(ALL.keys() - LISTS.keys()))
def test_a_statement_finds_its_rows_by_an_index(name: str, database: sa.Connection) -> None:
    text = f"EXPLAIN QUERY PLAN {ALL[name].compile(dialect=database.dialect)}"
    for row in database.exec_driver_sql(text, (1,) * text.count("?")):
        step = str(row[3])
        if step.startswith("SCAN"):
            assert step.rsplit(maxsplit=1)[-1] in PARTIAL, step
        assert "TEMP B-TREE" not in step
