import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.delivery.pacing import AccountBudget, OpPriority, Pace

budgets = st.tuples(st.integers(1, 30), st.floats(0.1, 50.0))
waits = st.lists(
    st.tuples(st.sampled_from(OpPriority), st.floats(0.0, 3.0)), min_size=1, max_size=80
)


def _assert_within(moments: list[float], burst: int, per_second: float) -> None:
    """Assert that no period contains more ops than the documented budget allows."""
    for first, start in enumerate(moments):
        for last in range(first, len(moments)):
            assert last - first + 1 <= burst + (moments[last] - start) * per_second + 1e-6


@given(budgets, waits)
@settings(max_examples=200, deadline=None)
def test_the_budget_is_never_exceeded(
    budget: tuple[int, float], asked: list[tuple[OpPriority, float]]
) -> None:
    burst, per_second = budget
    pace = Pace(burst, per_second, 0.0)
    now, moments = 0.0, []
    for weight, later in asked:
        now = pace.ready_at(weight, now + later)
        while (at := pace.ready_at(weight, now)) > now:
            now = at
        pace.take(now)
        moments.append(now)
    _assert_within(moments, burst, per_second)


@given(budgets, st.floats(0.0, 30.0))
@settings(max_examples=200, deadline=None)
def test_a_final_op_is_sent_soon_despite_constant_live_updates(
    budget: tuple[int, float], arrives: float
) -> None:
    burst, per_second = budget
    pace = Pace(burst, per_second, 0.0)
    now = 0.0
    for _ in range(200):
        now = pace.ready_at(OpPriority.COSMETIC, now)
        if now > arrives:
            break
        if pace.ready_at(OpPriority.COSMETIC, now) <= now:
            pace.take(now)
    at = pace.ready_at(OpPriority.FINAL, arrives)
    assert at - arrives <= 1.0 / per_second + 1e-6


def test_live_updates_reserve_budget_for_final_ops_and_those_for_urgent_ops() -> None:
    pace = Pace(5, 0.001, 0.0)
    counts = {}
    for weight in (OpPriority.COSMETIC, OpPriority.FINAL, OpPriority.URGENT):
        counts[weight] = 0
        while pace.ready_at(weight, 0.0) == 0.0:
            pace.take(0.0)
            counts[weight] += 1
    assert counts == {OpPriority.COSMETIC: 3, OpPriority.FINAL: 1, OpPriority.URGENT: 1}


def test_a_retry_after_delays_every_priority() -> None:
    pace = Pace(20, 1.0, 0.0)
    pace.on_rate_limited(10.0, 137.0)
    for weight in OpPriority:
        assert pace.ready_at(weight, 20.0) == 147.0
    assert pace.ready_at(OpPriority.FINAL, 147.0) == 147.0


def test_a_shorter_retry_after_does_not_shorten_a_longer_one() -> None:
    pace = Pace(20, 1.0, 0.0)
    pace.on_rate_limited(0.0, 100.0)
    pace.on_rate_limited(1.0, 5.0)
    assert pace.blocked_until == 100.0


@given(st.integers(1, 30), st.integers(1, 40), waits)
@settings(max_examples=200, deadline=None)
def test_the_per_minute_limit_is_never_exceeded(
    burst: int, per_minute: int, asked: list[tuple[OpPriority, float]]
) -> None:
    pace = Pace(burst, 1.0, 0.0, per_minute=per_minute)
    now, moments = 0.0, []
    for weight, later in asked:
        now += later
        while (at := pace.ready_at(weight, now)) > now:
            now = at
        pace.take(now)
        moments.append(now)
    for number, start in enumerate(moments):
        assert sum(start <= at < start + 60.0 for at in moments[number:]) <= per_minute


def test_live_updates_reserve_a_part_of_the_minute_and_use_the_rest() -> None:
    pace = Pace(5, 20 / 60, 0.0, per_minute=20)
    now, moments = 0.0, []
    while now < 180.0:
        if (at := pace.ready_at(OpPriority.COSMETIC, now)) > now:
            now = at
            continue
        pace.take(now)
        moments.append(now)
    assert len(moments) >= 3 * 17
    assert pace.ready_at(OpPriority.FINAL, now) == now


# --- all chats together ---------------------------------------------------------------------------


def _chats(number: int, account: AccountBudget) -> list[Pace]:
    return [Pace(1000, 1000.0, 0.0, account=account) for _ in range(number)]


@given(
    st.integers(1, 10),
    st.floats(1.0, 40.0),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(OpPriority), st.floats(0.0, 0.5)), max_size=120
    ),
)
@settings(max_examples=200, deadline=None)
def test_after_a_429_all_chats_together_stay_within_the_account_budget(
    burst: int, per_second: float, asked: list[tuple[int, OpPriority, float]]
) -> None:
    account = AccountBudget(burst, per_second, 0.0)
    account.on_rate_limited(0.0)
    chats = _chats(6, account)
    now, urgent, others = 0.0, list[float](), list[float]()
    for chat, weight, later in asked:
        now += later
        if chats[chat].ready_at(weight, now) <= now:
            moments = urgent if weight is OpPriority.URGENT else others
            moments.append(chats[chat].take(now, weight))
    _assert_within(sorted(others), burst, per_second)
    _assert_within(urgent, burst, per_second)  # they do not wait for the others


def test_chats_take_turns_with_live_updates_and_use_the_account_budget() -> None:
    chats = _chats(100, AccountBudget(4, 25.0, 0.0))
    times = [0] * 100
    for tick in range(2_000):  # 20 seconds; every chat asks constantly
        now = tick / 100
        for number, chat in enumerate(chats):
            if chat.ready_at(OpPriority.COSMETIC, now) <= now:
                chat.take(now, OpPriority.COSMETIC)
                times[number] += 1
    assert sum(times) >= 0.95 * 25 * 20
    assert max(times) - min(times) <= 1


def test_chats_that_asked_and_left_delay_no_others() -> None:
    """Ended answers do not return their turns, so the queue could be a minute long."""
    *rush, late = _chats(2_001, AccountBudget(4, 25.0, 0.0))
    for chat in rush:
        if chat.ready_at(OpPriority.COSMETIC, 0.0) <= 0.0:
            chat.take(0.0, OpPriority.COSMETIC)
    assert late.ready_at(OpPriority.COSMETIC, 1.0) <= 7.0
    again = late.ready_at(OpPriority.COSMETIC, 1.0)
    assert late.ready_at(OpPriority.COSMETIC, again) == again


@pytest.mark.parametrize("count", [200, 1_000])
def test_far_too_many_chats_still_use_the_whole_account_budget(count: int) -> None:
    chats = _chats(count, AccountBudget(4, 25.0, 0.0))
    asks = dict.fromkeys(range(count), 0.0)
    taken = 0
    for tick in range(3_000):  # 30 seconds; every chat asks at its assigned turn
        now = tick / 100
        for number in [number for number, at in asks.items() if at <= now]:
            asks[number] = chats[number].ready_at(OpPriority.COSMETIC, now)
            if asks[number] <= now:
                chats[number].take(now, OpPriority.COSMETIC)
                taken += 1
    assert taken >= 0.95 * 25 * 30


def test_a_later_chat_does_not_overtake_waiting_ones() -> None:
    account = AccountBudget(4, 10.0, 0.0)
    first, second, waits, late = _chats(4, account)
    for chat in (first, second):
        assert chat.ready_at(OpPriority.COSMETIC, 0.0) == 0.0
        chat.take(0.0, OpPriority.COSMETIC)
    turn = waits.ready_at(OpPriority.COSMETIC, 0.0)
    assert turn > 0.0
    assert late.ready_at(OpPriority.COSMETIC, turn - 0.001) > turn
    assert waits.ready_at(OpPriority.COSMETIC, turn) == turn


@given(
    st.integers(3, 10),
    st.floats(1.0, 40.0),
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 0.5)), max_size=120),
)
@settings(max_examples=200, deadline=None)
def test_live_updates_always_stay_within_the_account_budget(
    burst: int, per_second: float, asked: list[tuple[int, float]]
) -> None:
    chats = _chats(6, AccountBudget(burst, per_second, 0.0))
    now, moments = 0.0, []
    for chat, later in asked:
        now += later
        if chats[chat].ready_at(OpPriority.COSMETIC, now) <= now:
            moments.append(chats[chat].take(now, OpPriority.COSMETIC))
            assert moments[-1] == now
    _assert_within(moments, burst, per_second)


def test_many_final_ops_wait_for_nothing_without_live_updates() -> None:
    finals = _chats(500, AccountBudget(4, 25.0, 0.0))
    assert {final.take(10.0) for final in finals} == {10.0}


def test_final_ops_after_live_updates_are_delayed_only_briefly() -> None:
    chats = _chats(500, AccountBudget(4, 25.0, 0.0))
    live = 0
    for tick in range(300):
        for chat in chats[:50]:
            if chat.ready_at(OpPriority.COSMETIC, tick / 100) <= tick / 100:
                chat.take(tick / 100, OpPriority.COSMETIC)
                live = tick
    goes = sorted(chat.take(3.0) for chat in chats)
    assert goes[12] > 3.4
    assert goes[-1] == live / 100 + 0.7
    assert {chat.take(5.0) for chat in chats[:100]} == {5.0}


def test_after_a_429_final_ops_queue_for_a_while() -> None:
    account = AccountBudget(4, 10.0, 0.0)
    (first, *others) = _chats(7, account)
    first.on_rate_limited(0.0, 1.0)
    goes = [chat.take(1.0) for chat in others]
    assert goes == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.1, 1.2])
    assert {chat.take(700.0) for chat in others} == {700.0}


def test_final_ops_precede_live_updates_and_those_precede_trivial_ops() -> None:
    final, live, typing = _chats(3, AccountBudget(4, 10.0, 0.0))
    for _ in range(6):
        final.take(0.0)
    assert live.ready_at(OpPriority.COSMETIC, 0.1) > 0.1  # many ops were just sent
    assert typing.ready_at(OpPriority.TRIVIAL, 0.5) > 0.5
    assert final.ready_at(OpPriority.FINAL, 0.5) == 0.5
    assert live.ready_at(OpPriority.COSMETIC, 0.7) == 0.7
    live.take(0.7, OpPriority.COSMETIC)
    assert typing.ready_at(OpPriority.TRIVIAL, 0.71) > 0.71
    assert typing.ready_at(OpPriority.TRIVIAL, 5.0) == 5.0


def _sustained(pace: Pace, start: float) -> float:
    """Return the seconds between ops after the burst."""
    while pace.ready_at(OpPriority.FINAL, start) <= start:
        pace.take(start)
    return pace.ready_at(OpPriority.FINAL, start) - start


def test_a_429_halves_the_pace_which_recovers_slowly() -> None:
    pace = Pace(4, 1.0, 0.0)
    assert _sustained(pace, 0.0) == 1.0
    pace.on_rate_limited(0.0, 1.0)
    slowed = _sustained(pace, 2.0)
    assert 1.5 < slowed <= 2.0
    assert _sustained(pace, 100.0) < slowed
    assert _sustained(pace, 1000.0) == 1.0


def test_many_429s_never_block_a_chat_permanently() -> None:
    pace = Pace(4, 1.0, 0.0)
    for now in range(50):
        pace.on_rate_limited(float(now), 1.0)
    at = pace.ready_at(OpPriority.FINAL, 51.0)
    assert at - 51.0 <= 16.0


def test_a_rested_budget_equals_a_new_one() -> None:
    pace = Pace(3, 1.0, 0.0)
    assert pace.is_rested(0.0)
    pace.take(0.0)
    assert not pace.is_rested(0.5)
    assert pace.is_rested(1.0)
    pace.block(5.0)
    assert not pace.is_rested(4.0)
    pace.on_rate_limited(5.0, 1.0)
    assert not pace.is_rested(60.0)
    assert pace.is_rested(700.0)


def test_a_stopped_or_reversed_clock_adds_no_budget() -> None:
    pace = Pace(1, 1.0, 10.0)
    pace.take(10.0)
    assert pace.ready_at(OpPriority.URGENT, 5.0) >= 6.0
    assert pace.ready_at(OpPriority.URGENT, 10.5) == 11.0


# --- urgent ops -----------------------------------------------------------------------------------


def test_an_urgent_op_does_not_queue_behind_the_answers_of_other_chats_after_a_429() -> None:
    stopped, *others = _chats(200, AccountBudget(3, 26.0, 0.0))
    others[0].on_rate_limited(0.0, 1.0)
    assert max(chat.take(2.0) for chat in others) > 9.0
    assert stopped.ready_at(OpPriority.URGENT, 2.0) == 2.0
    assert stopped.take(2.0, OpPriority.URGENT) == 2.0
    assert others[0].take(2.0) > 9.4  # the urgent op is counted


def test_an_urgent_op_does_not_pause_after_live_updates() -> None:
    stopped, live = _chats(2, AccountBudget(3, 26.0, 0.0))
    while live.ready_at(OpPriority.COSMETIC, 0.0) <= 0.0:
        live.take(0.0, OpPriority.COSMETIC)
    live.take(0.0)
    live.take(0.0)
    assert live.take(0.0) > 0.0
    assert stopped.take(0.0, OpPriority.URGENT) == 0.0


def test_after_a_429_urgent_ops_stay_within_the_account_budget_among_themselves() -> None:
    chats = _chats(50, AccountBudget(3, 10.0, 0.0))
    chats[0].on_rate_limited(0.0, 1.0)
    moments = [chat.take(5.0, OpPriority.URGENT) for chat in chats]
    _assert_within(moments, 3, 10.0)


@pytest.mark.parametrize(("burst", "per_second"), [(5, 1.0), (5, 20 / 60), (10, 1.0)])
def test_an_urgent_op_goes_right_after_a_retry_after_and_a_final_op(
    burst: int, per_second: float
) -> None:
    pace = Pace(burst, per_second, 0.0)
    for now in (0.0, 1.0, 2.0):
        pace.on_rate_limited(now, 1.0)
    for priority in OpPriority:
        assert pace.ready_at(priority, 2.5) == 3.0
    assert pace.ready_at(OpPriority.FINAL, 3.0) == 3.0
    pace.take(3.0)
    assert pace.ready_at(OpPriority.FINAL, 3.0) > 4.0
    assert pace.ready_at(OpPriority.URGENT, 3.0) == 3.0


def test_one_op_of_the_minute_is_reserved_for_an_urgent_one() -> None:
    pace = Pace(100, 100.0, 0.0, per_minute=20)
    while pace.ready_at(OpPriority.FINAL, 0.0) <= 0.0:
        pace.take(0.0)
    assert pace.ready_at(OpPriority.URGENT, 0.0) == 0.0
    pace.take(0.0, OpPriority.URGENT)
    assert pace.ready_at(OpPriority.URGENT, 0.0) == 61.0
