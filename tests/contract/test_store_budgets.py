"""Budget reservations and their settlement, on every database."""

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.changes import BudgetLimit, BudgetReservation, SettleBudget, StartAttempt
from sessions.records import BudgetUsage
from sessions.store.store import SessionStore
from tests.contract.store_kit import opened, started

DAY = "2026-11-18"
DAYS = itertools.count()
ALL = BudgetLimit("all", tokens=1000)
ANN = BudgetLimit("user ann", tokens=300, cost=1.0)


def hold(tokens: int, *wants: BudgetLimit, cost: float = 0.0, day: str = DAY) -> BudgetReservation:
    return BudgetReservation(day, wants or (ALL,), tokens, cost)


async def counted(store: SessionStore, scope: str = "all", day: str = DAY) -> BudgetUsage:
    return (await store.spending.on_day(day, [scope]))[scope]


async def test_a_reservation_counts_until_it_is_settled(store: SessionStore) -> None:
    assert await counted(store) == BudgetUsage()
    first = hold(400, ALL, ANN, cost=0.25)
    assert await store.reserve_budget(first) == ANN  # over one limit: reserved in none
    assert (await counted(store), await counted(store, "user ann")) == (
        BudgetUsage(),
        BudgetUsage(),
    )
    first = hold(200, ALL, ANN, cost=0.25)
    assert await store.reserve_budget(first) is None
    for scope in ("all", "user ann"):
        assert await counted(store, scope) == BudgetUsage(200, 0.25, 200, 0.25)
    await store.apply(SettleBudget(first, 30, 0.125))
    for scope in ("all", "user ann"):
        assert await counted(store, scope) == BudgetUsage(30, 0.125, 0, 0.0)
    assert (await counted(store)).used_tokens == 30
    assert (await counted(store)).used_cost == 0.125


async def test_a_reservation_must_fit_all_limits(store: SessionStore) -> None:
    assert await store.reserve_budget(hold(200, ALL, ANN)) is None
    assert await store.reserve_budget(hold(101, ALL, ANN)) == ANN
    # The part that had fitted was released.
    assert await counted(store) == BudgetUsage(200, 0.0, 200, 0.0)
    assert await store.reserve_budget(hold(100, ALL, ANN, cost=1.01)) == ANN
    assert await store.reserve_budget(hold(100, ALL, ANN, cost=1.0)) is None
    assert await store.reserve_budget(hold(0, ANN, cost=0.000_000_001)) == ANN
    assert await store.reserve_budget(hold(700)) is None
    assert await store.reserve_budget(hold(1)) == ALL
    assert await store.reserve_budget(hold(0)) is None


async def test_days_are_counted_separately(store: SessionStore) -> None:
    yesterday = hold(1000, day="2026-11-17")
    assert await store.reserve_budget(yesterday) is None
    assert await store.reserve_budget(hold(1000)) is None
    await store.apply(SettleBudget(yesterday, 10))  # counts on the day of the reservation
    assert await counted(store) == BudgetUsage(1000, 0.0, 1000, 0.0)
    assert await counted(store, day="2026-11-17") == BudgetUsage(10)
    await store.delete_budgets(DAY)
    assert await counted(store, day="2026-11-17") == BudgetUsage()
    assert (await counted(store)).tokens == 1000
    await store.apply(SettleBudget(yesterday, 10))  # the record is gone, which does no harm
    assert await counted(store, day="2026-11-17") == BudgetUsage()


async def test_unconditional_changes_commit_even_if_the_reservation_is_refused(
    store: SessionStore,
) -> None:
    await store.apply(opened("s1"), started("t1", "s1"))
    whole = hold(1000)
    assert await store.reserve_budget(whole) is None
    begun = StartAttempt("t1", 1, "openai/one", 3)
    assert await store.reserve_budget(hold(900), if_reserved=(begun,)) == ALL
    assert await store.reserve_budget(hold(900), (SettleBudget(whole, 200),), (begun,)) == ALL
    assert await counted(store) == BudgetUsage(200)
    turn = await store.turns.get("t1")
    assert turn is not None
    assert turn.attempts == 0
    assert await store.reserve_budget(hold(800), if_reserved=(begun,)) is None
    turn = await store.turns.get("t1")
    assert turn is not None
    assert turn.attempts == 1


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    limit=st.integers(0, 400),
    requests=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=40),
)
async def test_concurrent_requests_within_their_reservations_never_exceed_a_limit(
    store: SessionStore, limit: int, requests: list[tuple[int, int]]
) -> None:
    """Concurrent requests; each uses at most its reservation."""
    day = f"day {next(DAYS)}"
    used: list[int] = []
    most: list[int] = []

    async def request(most_it_takes: int, uses: int) -> None:
        mine = hold(most_it_takes, BudgetLimit("all", limit), day=day)
        if await store.reserve_budget(mine) is None:
            most.append((await counted(store, day=day)).tokens)
            used.append(min(uses, most_it_takes))
            await store.apply(SettleBudget(mine, used[-1]))

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for each in requests:
            tasks.create_task(request(*each))
    assert max(most, default=0) <= limit
    assert await counted(store, day=day) == BudgetUsage(sum(used))


async def test_a_hundred_concurrent_reservations_never_exceed_a_limit(store: SessionStore) -> None:
    """Requests that use more than they reserved exceed the limit by that difference only."""
    got: list[BudgetReservation] = []

    async def request() -> None:
        mine = hold(90)
        if await store.reserve_budget(mine) is None:
            got.append(mine)
            assert (await counted(store)).tokens <= 1000

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(request())
    assert len(got) == 11
    assert await counted(store) == BudgetUsage(990, 0.0, 990, 0.0)
    for mine in got:
        await store.apply(SettleBudget(mine, 100))
    assert await counted(store) == BudgetUsage(1100)
    assert await store.reserve_budget(hold(1)) == ALL


async def test_statements_per_reservation_depend_only_on_the_number_of_limits(
    store: SessionStore,
) -> None:
    for number in range(200):
        await store.reserve_budget(
            hold(1, BudgetLimit(f"user {number}", 5), day=f"2026-10-{number % 31:02}")
        )
    counted_for = {}
    for wants in ((ALL,), (ALL, ANN, BudgetLimit("chat telegram:-1", 500))):
        mine = hold(10, *wants)
        counts = store.count_queries()
        assert await store.reserve_budget(mine) is None
        await store.apply(SettleBudget(mine, 5))
        counted_for[len(wants)] = counts.statements - counts.commits, counts.commits
    begun = counted_for[1][0] - 2  # statements that belong to each transaction
    assert counted_for == {1: (begun + 2, 2), 3: (begun + 6, 2)}
