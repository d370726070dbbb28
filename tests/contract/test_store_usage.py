"""Totals of model usage, on every database."""

import math
from typing import Any

from sessions.changes import Change, EndAttempt, EndTurn, StartAttempt, TakeBackTurn
from sessions.records import TurnState, UsageTotals
from sessions.store.store import SessionStore
from tests.contract.store_kit import opened, started

DAY = 86_400_000


def request(turn: str, number: int, input_: int, cost: float | None = None) -> tuple[Change, ...]:
    """A request whose other numbers derive from the first."""
    return (
        StartAttempt(turn, number, "openai/one", 1),
        EndAttempt(
            turn_id=turn,
            number=number,
            verdict="DONE",
            at=2,
            input_tokens=input_,
            output_tokens=input_ * 10,
            cached_tokens=input_ // 2,
            cost=cost,
        ),
    )


def used(
    input_: int, requests: int, cost: float | None, cached: int, unpriced: int = 0
) -> UsageTotals:
    return UsageTotals(
        input_tokens=input_,
        output_tokens=input_ * 10,
        cached_tokens=cached,
        cost=cost,
        requests=requests,
        unpriced=unpriced,
    )


async def fill(store: SessionStore) -> None:
    """Write turns of two people in two conversations on two days."""
    await store.apply(
        opened("s1", key="web:a"),
        opened("s2", key="web:b"),
        started("t1", "s1", key="web:a", at=1, person="ann"),
        *request("t1", 1, 2, 0.25),
        *request("t1", 2, 4),
        started("t2", "s1", key="web:a", at=DAY, person="bob"),
        *request("t2", 1, 8, 0.5),
        started("t3", "s2", key="web:b", at=DAY + 1, person="ann"),
        *request("t3", 1, 16),
        started("t4", "s2", key="web:b", at=DAY + 2, person="ann"),
    )


ALL = used(30, 4, 0.75, 15, 2)
NOTHING = UsageTotals()
CASES: dict[str, tuple[dict[str, Any], UsageTotals]] = {
    "everything": ({}, ALL),
    "a turn": ({"turn_id": "t1"}, used(6, 2, 0.25, 3, 1)),
    "a turn without requests": ({"turn_id": "t4"}, NOTHING),
    "no turn": ({"turn_id": "t9"}, NOTHING),
    "a session": ({"session_id": "s1"}, used(14, 3, 0.75, 7, 1)),
    "a conversation": ({"key": "web:b"}, used(16, 1, None, 8, 1)),
    "a person": ({"person": "ann"}, used(22, 3, 0.25, 11, 2)),
    "no person": ({"person": ""}, NOTHING),
    "a day": ({"since": DAY}, used(24, 2, 0.5, 12, 1)),
    "a person's day": ({"person": "ann", "since": DAY}, used(16, 1, None, 8, 1)),
    "one of several": ({"key": "web:a", "person": "ann"}, used(6, 2, 0.25, 3, 1)),
    "contradicting filters": ({"session_id": "s2", "key": "web:a"}, NOTHING),
    "all filters": (
        {"turn_id": "t1", "session_id": "s1", "key": "web:a", "person": "ann", "since": 1},
        used(6, 2, 0.25, 3, 1),
    ),
}


async def test_usage_is_summed_over_requests_matching_all_filters(store: SessionStore) -> None:
    await fill(store)
    found = {name: await store.spending.totals(**only) for name, (only, _) in CASES.items()}
    assert found == {name: expected for name, (_, expected) in CASES.items()}
    kinds = {(type(each.input_tokens), type(each.requests)) for each in found.values()}
    assert kinds == {(int, int)}


async def test_retracted_and_failed_turns_still_count(store: SessionStore) -> None:
    await fill(store)
    await store.apply(TakeBackTurn("s1", "t1", 5), EndTurn("t2", TurnState.FAILED, 6, "no answer"))
    assert await store.spending.totals() == ALL


async def test_an_unfinished_request_is_counted_without_cost(
    store: SessionStore,
) -> None:
    await store.apply(opened("s1"), started("t1", "s1"), StartAttempt("t1", 1, "openai/one", 1))
    assert await store.spending.totals(turn_id="t1") == UsageTotals(requests=1)


async def test_sums_of_small_costs_are_exact(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    costs = [0.1, 0.2, 7.5e-8, 1e-9, 123_456.789, 0.0]
    for number, cost in enumerate(costs):
        await store.apply(*request("t1", number + 1, 0, cost))
    assert (await store.spending.totals(turn_id="t1")).cost == 123_457.089000076


async def test_impossible_costs_are_stored_as_unknown(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    for number, cost in enumerate((math.nan, math.inf, -math.inf, 1e300, -1e300)):
        await store.apply(*request("t1", number, 2, cost))
    assert await store.spending.totals() == used(10, 5, None, 5, 5)


async def test_a_cost_of_zero_is_known(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"), *request("t1", 1, 2, 0.0))
    assert (await store.spending.totals()).cost == 0.0


async def test_token_sums_may_exceed_32_bits(store: SessionStore) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    for number in (1, 2):
        await store.apply(*request("t1", number, 3_000_000_000))
    assert (await store.spending.totals()).output_tokens == 60_000_000_000
