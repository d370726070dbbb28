from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.delivery.pacing import Pace, Weight

budgets = st.tuples(st.integers(1, 30), st.floats(0.1, 50.0))
waits = st.lists(st.tuples(st.sampled_from(Weight), st.floats(0.0, 3.0)), min_size=1, max_size=80)


def _assert_within(moments: list[float], burst: int, per_second: float) -> None:
    """No stretch of time holds more ops than the documented budget allows."""
    for first, start in enumerate(moments):
        for last in range(first, len(moments)):
            assert last - first + 1 <= burst + (moments[last] - start) * per_second + 1e-6


@given(budgets, waits)
@settings(max_examples=200, deadline=None)
def test_the_budget_is_never_exceeded_whatever_is_asked_for(
    budget: tuple[int, float], asked: list[tuple[Weight, float]]
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
def test_a_final_op_gets_through_soon_while_live_updates_take_all_they_can(
    budget: tuple[int, float], arrives: float
) -> None:
    burst, per_second = budget
    pace = Pace(burst, per_second, 0.0)
    now = 0.0
    for _ in range(200):
        now = pace.ready_at(Weight.COSMETIC, now)
        if now > arrives:
            break
        if pace.ready_at(Weight.COSMETIC, now) <= now:
            pace.take(now)
    at = pace.ready_at(Weight.FINAL, arrives)
    assert at - arrives <= 1.0 / per_second + 1e-6


def test_live_updates_leave_room_for_a_final_and_a_final_leaves_room_for_an_urgent_op() -> None:
    pace = Pace(5, 0.001, 0.0)
    counts = {}
    for weight in (Weight.COSMETIC, Weight.FINAL, Weight.URGENT):
        counts[weight] = 0
        while pace.ready_at(weight, 0.0) == 0.0:
            pace.take(0.0)
            counts[weight] += 1
    assert counts == {Weight.COSMETIC: 3, Weight.FINAL: 1, Weight.URGENT: 1}


def test_a_retry_after_is_waited_out_in_full_by_everything() -> None:
    pace = Pace(20, 1.0, 0.0)
    pace.limited(10.0, 137.0)
    for weight in Weight:
        assert pace.ready_at(weight, 20.0) == 147.0
    assert pace.ready_at(Weight.FINAL, 147.0) == 147.0


def test_a_shorter_retry_after_does_not_shorten_a_longer_one() -> None:
    pace = Pace(20, 1.0, 0.0)
    pace.limited(0.0, 100.0)
    pace.limited(1.0, 5.0)
    assert pace.blocked_until == 100.0


def _sustained(pace: Pace, start: float) -> float:
    """Seconds from one op to the next once the burst is spent."""
    while pace.ready_at(Weight.URGENT, start) <= start:
        pace.take(start)
    return pace.ready_at(Weight.URGENT, start) - start


def test_a_429_halves_the_pace_and_it_comes_back_slowly() -> None:
    pace = Pace(4, 1.0, 0.0)
    assert _sustained(pace, 0.0) == 1.0
    pace.limited(0.0, 1.0)
    slowed = _sustained(pace, 2.0)
    assert 1.5 < slowed <= 2.0
    assert _sustained(pace, 100.0) < slowed
    assert _sustained(pace, 1000.0) == 1.0


def test_many_429s_never_stop_a_chat_for_good() -> None:
    pace = Pace(4, 1.0, 0.0)
    for now in range(50):
        pace.limited(float(now), 1.0)
    at = pace.ready_at(Weight.FINAL, 51.0)
    assert at - 51.0 <= 16.0


def test_a_budget_is_rested_when_it_remembers_nothing() -> None:
    pace = Pace(3, 1.0, 0.0)
    assert pace.rested(0.0)
    pace.take(0.0)
    assert not pace.rested(0.5)
    assert pace.rested(1.0)
    pace.block(5.0)
    assert not pace.rested(4.0)
    pace.limited(5.0, 1.0)
    assert not pace.rested(60.0)
    assert pace.rested(700.0)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing_away() -> None:
    pace = Pace(1, 1.0, 10.0)
    pace.take(10.0)
    assert pace.ready_at(Weight.URGENT, 5.0) >= 6.0
    assert pace.ready_at(Weight.URGENT, 10.5) == 11.0
