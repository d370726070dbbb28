"""No statement of a turn scans a whole table."""

import itertools
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from sessions.store import prepare, statements
from sessions.store.engine import parse_url, reader_engine
from sessions.store.queries import approvals, budgets, costs, inbox, outbox, sessions, turns, values

PARTIAL = {
    "ix_inbox_waiting",
    "ix_inbox_command",
    "ix_inbox_held",
    "ix_turns_running",
    "ix_outbox_open",
    "ix_approvals_open",
}
"""Partial indexes over open records; they are short, so scanning them is allowed."""

LISTS = {
    "_CHATS": "all conversations of the web page or the terminal",
    "_SESSIONS": "lists everything, for a person",
    "_SESSIONS_OF_PLATFORM": "likewise",
    "_ENTRIES_ABOUT": "a person asks why",
    "_OPEN_ENTRIES_ABOUT": "likewise",
    "_NEWEST": "likewise",
    "_CORRECTIONS": "likewise",
    "_ITEMS_BY_ORIGIN": "likewise",
    "_TOOL_RUNS": "sorts the few it finds",
    "_ENTRIES": "only the beginning of others",
    "_ITEMS": "likewise",
}


def everything() -> Iterator[tuple[str, sa.ClauseElement]]:
    upserts = statements.Upserts(sqlite.insert)
    homes = (statements, sessions, inbox, turns, outbox, approvals, budgets, values, upserts)
    for home in homes:
        for name, thing in vars(home).items():
            each = thing if isinstance(thing, tuple) else (thing,)
            for number, statement in enumerate(each):
                is_statement = isinstance(statement, sa.Select | sa.UpdateBase)
                if is_statement and not name.startswith("NEXT_"):
                    yield f"{name}[{number}]" if len(each) > 1 else name, statement


ALL = dict(everything())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    where = parse_url(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'holdfast.db'}")
    prepare.prepare(where)
    with reader_engine(where).connect() as connection:
        yield connection


def test_all_statements_are_collected() -> None:
    assert len(ALL) > 56


def plan(statement: sa.ClauseElement, database: sa.Connection) -> list[str]:
    text = f"EXPLAIN QUERY PLAN {statement.compile(dialect=database.dialect)}"
    return [str(row[3]) for row in database.exec_driver_sql(text, (1,) * text.count("?"))]


FOUND = "SCAN anon_1"
"""A scan over the result of a subquery."""


@pytest.mark.parametrize("name", sorted(ALL.keys() - LISTS.keys()))
def test_a_statement_finds_its_rows_by_an_index(name: str, database: sa.Connection) -> None:
    for step in plan(ALL[name], database):
        if step.startswith("SCAN") and step != FOUND:
            assert step.rsplit(maxsplit=1)[-1] in PARTIAL, step
        assert "TEMP B-TREE" not in step


def test_reading_the_context_skips_rows_covered_by_the_summary(
    database: sa.Connection,
) -> None:
    [step] = plan(sessions._BEHIND_SUMMARY, database)
    assert "ix_messages_session (session_id=? AND id>?)" in step.replace("rowid", "id")


FILTERS = ("turn_id", "session_id", "key", "person", "since")
NARROW = [
    names
    for count in range(1, len(FILTERS) + 1)
    for names in itertools.combinations(FILTERS, count)
    if names != ("since",)  # over all people: only used when a person asks
]


@pytest.mark.parametrize("names", NARROW, ids="+".join)
def test_costs_are_summed_by_an_index(names: tuple[str, ...], database: sa.Connection) -> None:
    steps = plan(costs.usage_query(frozenset(names)), database)
    assert not [step for step in steps if step.startswith("SCAN")], steps


def test_the_daily_costs_of_a_person_use_one_index(database: sa.Connection) -> None:
    steps = plan(costs.usage_query(frozenset({"person", "since"})), database)
    assert any("ix_turns_person (person=? AND started_at>?)" in step for step in steps), steps
