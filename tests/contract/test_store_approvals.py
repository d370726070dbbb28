"""Approvals on every database: asked once, answered once, used once."""

import asyncio

import msgspec
import pytest

from sessions.changes import AnswerApproval, Checkpoint, PutApproval
from sessions.errors import Conflict, RecordNotFound
from sessions.records import Approval, ApprovalState
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.contract.store_kit import ended, opened, question, started

OPEN, ALLOWED, DENIED = ApprovalState.OPEN, ApprovalState.ALLOWED, ApprovalState.DENIED
EXPIRED, USED = ApprovalState.EXPIRED, ApprovalState.USED


@pytest.fixture(autouse=True)
async def turn(store: SessionStore) -> None:
    """Start a turn that asks."""
    await store.apply(opened("s1"), started("t1", "s1"))


def answer(
    id_: str, state: ApprovalState = ALLOWED, by: str = "admin", at: int = 3000
) -> AnswerApproval:
    return AnswerApproval(id=id_, state=state, by=by, at=at)


def ids(found: tuple[Approval, ...]) -> list[str]:
    return [each.id for each in found]


async def state_of(store: SessionStore, id_: str) -> ApprovalState:
    found = await store.approvals.get(id_)
    assert found
    return found.state


# --- asking ----------------------------------------------------------------------------------


async def test_an_approval_is_read_back_unchanged(store: SessionStore) -> None:
    put = question("p1", arguments='{"text": "a\\u0000b \N{GRINNING FACE}"}')
    await store.apply(PutApproval(put))
    assert await store.approvals.get("p1") == put
    assert await store.approvals.get("p2") is None


async def test_a_second_approval_with_the_same_id_is_refused(
    store: SessionStore,
) -> None:
    await store.apply(PutApproval(question("p1")))
    with pytest.raises(Conflict, match="already in the database"):
        await store.apply(PutApproval(question("p1", tool="another")))
    assert await store.approvals.get("p1") == question("p1")


async def test_an_approval_of_a_missing_turn_is_refused(store: SessionStore) -> None:
    with pytest.raises(RecordNotFound):
        await store.apply(PutApproval(question("p1", turn="t9")))


async def test_open_approvals_are_listed_oldest_first(store: SessionStore) -> None:
    for name, key, at in (
        ("p1", "web:b", 40),
        ("p2", "web:a", 30),
        ("p3", "web:b", 20),
        ("p5", "web:a", 10),
        ("p4", "web:a", 10),
        ("p6", "web:a", 5),
    ):
        await store.apply(PutApproval(question(name, key=key, asked_at=at)))
    await store.apply(answer("p6"))
    assert ids(await store.approvals.open()) == ["p4", "p5", "p3", "p2", "p1"]
    assert ids(await store.approvals.open("web:a")) == ["p4", "p5", "p2"]
    assert await store.approvals.open("web:c") == ()
    assert (await store.approvals.open("web:b"))[0] == question("p3", key="web:b", asked_at=20)


# --- answering -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [ALLOWED, DENIED, EXPIRED])
async def test_an_answer_is_stored_with_person_time_and_reason(
    store: SessionStore, state: ApprovalState
) -> None:
    await store.apply(PutApproval(question("p1")))
    await store.apply(
        AnswerApproval(id="p1", state=state, by="web:ann", at=3000, reason="because \x00")
    )
    assert await store.approvals.get("p1") == msgspec.structs.replace(
        question("p1"),
        state=state,
        answered_by="web:ann",
        answered_at=3000,
        reason="because \N{REPLACEMENT CHARACTER}",
    )


WAYS: dict[ApprovalState, set[ApprovalState]] = {
    OPEN: {ALLOWED, DENIED, EXPIRED},
    ALLOWED: {USED},
    DENIED: set(),
    EXPIRED: set(),
    USED: set(),
}


@pytest.mark.parametrize("before", list(ApprovalState))
async def test_only_valid_state_transitions_are_accepted(
    store: SessionStore, before: ApprovalState
) -> None:
    for after in ApprovalState:
        put = question(f"to {after.value}", state=before)
        await store.apply(PutApproval(put))
        if after in WAYS[before]:
            await store.apply(answer(put.id, after))
            assert await state_of(store, put.id) is after
            continue
        refused = f"is {before.value}; it cannot become {after.value}"
        with pytest.raises(Conflict, match=refused):
            await store.apply(answer(put.id, after))
        assert await store.approvals.get(put.id) == put


async def test_using_a_permission_keeps_the_recorded_answer(store: SessionStore) -> None:
    await store.apply(
        PutApproval(question("p1")),
        AnswerApproval(id="p1", state=ALLOWED, by="ann", at=3000, reason="ok"),
    )
    await store.apply(AnswerApproval(id="p1", state=USED, by="", at=4000))
    used = await store.approvals.get("p1")
    assert used
    assert (used.state, used.answered_by, used.answered_at, used.reason) == (
        USED,
        "ann",
        3000,
        "ok",
    )


async def test_an_answer_to_an_unknown_approval_is_refused(store: SessionStore) -> None:
    for state in ApprovalState:
        with pytest.raises(RecordNotFound, match="p9 is not in the database"):
            await store.apply(answer("p9", state))


async def test_a_late_answer_rolls_back_its_whole_transaction(store: SessionStore) -> None:
    await store.apply(PutApproval(question("p1")), answer("p1", DENIED, "ann"))
    with pytest.raises(Conflict):
        await store.apply(Checkpoint("t1", "you may"), answer("p1", ALLOWED, "bob"))
    turn = await store.turns.get("t1")
    assert turn
    assert turn.partial == ""
    kept = await store.approvals.get("p1")
    assert kept
    assert (kept.state, kept.answered_by) == (DENIED, "ann")


async def test_exactly_one_of_many_concurrent_answers_counts(
    store: SessionStore, store_url: str
) -> None:
    stores = [store]
    if store_url.startswith("postgresql"):  # another process may write there as well
        stores.append(await SessionStore.open(store_url, clock=SystemClock()))
    winners: list[AnswerApproval] = []
    losers: list[AnswerApproval] = []

    async def give(to: SessionStore, change: AnswerApproval) -> None:
        try:
            await to.apply(change)
        except Conflict:
            losers.append(change)
        else:
            winners.append(change)

    try:
        for round_ in range(5):
            name = f"p{round_}"
            await store.apply(PutApproval(question(name)))
            winners.clear()
            losers.clear()
            async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
                for number in range(20):
                    change = answer(name, (ALLOWED, DENIED)[number % 2], f"person {number}", number)
                    tasks.create_task(give(stores[number % len(stores)], change))
            assert (len(winners), len(losers)) == (1, 19)
            kept = await store.approvals.get(name)
            assert kept
            assert (kept.state, kept.answered_by) == (winners[0].state, winners[0].by)
    finally:
        for other in stores[1:]:
            await other.close()


# --- finding a permission --------------------------------------------------------------------


async def test_a_permission_is_found_only_for_exactly_its_call(store: SessionStore) -> None:
    await store.apply(PutApproval(question("p1")), answer("p1"))
    found = await store.approvals.find_allowed("s1", "pay", '{"amount": 1}', 2100)
    assert found == await store.approvals.get("p1")
    assert await store.approvals.find_allowed("s1", "pay", '{"amount":1}', 2100) is None
    assert await store.approvals.find_allowed("s1", "pay", '{"amount": 1} ', 2100) is None
    assert await store.approvals.find_allowed("s1", "Pay", '{"amount": 1}', 2100) is None
    assert await store.approvals.find_allowed("s2", "pay", '{"amount": 1}', 2100) is None
    assert await store.approvals.find_allowed("s1", "pay", '{"amount": 1}', 2101) is None


EXACT = [
    "nul \x00",
    "lone \ud800",
    "\ufffd",
    "?",
    "é",
    "e\u0301",
    "pair \ud83d\ude00",
    "\U0001f600",
    "",
]


async def test_unstorable_characters_in_arguments_stay_distinct(
    store: SessionStore,
) -> None:
    texts = [*EXACT, "nul \ufffd", "lone ?", "pair \U0001f600"]
    for number, text in enumerate(texts):
        name = f"p{number}"
        await store.apply(PutApproval(question(name, arguments=text)), answer(name))
    for number, text in enumerate(texts):
        found = await store.approvals.find_allowed("s1", "pay", text, 0)
        assert found
        assert (found.id, found.arguments) == (f"p{number}", text)


async def test_denied_or_used_approvals_are_no_permission(store: SessionStore) -> None:
    for state in (OPEN, DENIED, EXPIRED, USED):
        await store.apply(PutApproval(question(f"p {state.value}", state=state)))
    assert await store.approvals.find_allowed("s1", "pay", '{"amount": 1}', 0) is None


async def test_the_newest_unused_permission_is_found_first(
    store: SessionStore,
) -> None:
    for name, at in (("p1", 10), ("p3", 30), ("p2", 20), ("p4", 30)):
        await store.apply(PutApproval(question(name, asked_at=at)), answer(name))
    order = []
    while found := await store.approvals.find_allowed("s1", "pay", '{"amount": 1}', 0):
        order.append(found.id)
        await store.apply(answer(found.id, USED))
    assert order == ["p4", "p3", "p2", "p1"]


async def test_approvals_survive_a_restart(store: SessionStore, store_url: str) -> None:
    await store.apply(PutApproval(question("p1")), PutApproval(question("p2")), answer("p2"))
    await store.apply(ended("t1"))
    await store.close()
    again = await SessionStore.open(store_url, clock=SystemClock())
    try:
        assert await again.approvals.open() == (question("p1"),)
        found = await again.approvals.find_allowed("s1", "pay", '{"amount": 1}', 0)
        assert found
        assert found.id == "p2"
    finally:
        await again.close()
