"""Sums of the usage of model requests."""

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam as given
from sqlalchemy.engine import Connection

from sessions.records import UsageTotals
from sessions.store.schema import attempts, sessions, turns

# A turn has the key of its session, and sessions have an index on the key.
_of_key = sa.select(sessions.c.id).where(sessions.c.key == given("key"))
_FILTERS: dict[str, sa.ColumnElement[bool]] = {
    "turn_id": turns.c.id == given("turn_id"),
    "session_id": turns.c.session_id == given("session_id"),
    "key": turns.c.session_id.in_(_of_key),
    "person": turns.c.person == given("person"),
    "since": turns.c.started_at >= given("since"),
    "requests_from": attempts.c.started_at >= given("requests_from"),
    "requests_before": attempts.c.started_at < given("requests_before"),
}
_IS_UNPRICED = attempts.c.cost.is_(None) & (attempts.c.input_tokens + attempts.c.output_tokens > 0)


@functools.cache
def usage_query(filters: frozenset[str]) -> sa.Select[Any]:
    """Return the query for the sums over all requests that match the named filters."""
    numbers = (attempts.c.input_tokens, attempts.c.output_tokens, attempts.c.cached_tokens)
    return (
        sa.select(
            *(sa.func.coalesce(sa.func.sum(number), 0) for number in numbers),
            sa.func.sum(attempts.c.cost),
            sa.func.count(),
            sa.func.count(sa.case((_IS_UNPRICED, 1))),
        )
        .select_from(turns)
        .join(attempts, attempts.c.turn_id == turns.c.id)
        .where(*(_FILTERS[name] for name in sorted(filters)))
    )


def sum_usage(connection: Connection, filters: dict[str, str | int]) -> UsageTotals:
    """Return the total usage; `filters` maps filter names to values."""
    row = connection.execute(usage_query(frozenset(filters)), filters).one()
    used, made, cached, cost, requests, unpriced = row
    return UsageTotals(
        input_tokens=int(used),
        output_tokens=int(made),
        cached_tokens=int(cached),
        cost=cost,
        requests=requests,
        unpriced=unpriced,
    )
