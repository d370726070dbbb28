from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.breaker import CircuitBreaker


def opened(at: float = 100.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    breaker.record_stall(at - 1)
    breaker.record_stall(at)
    return breaker


def test_a_fresh_breaker_lets_everybody_pass() -> None:
    breaker = CircuitBreaker()
    assert all(breaker.allows_request(now) for now in (0.0, 0.0, 5.0))
    assert breaker.open_until is None


def test_one_hanging_request_changes_nothing() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(10.0)
    assert breaker.allows_request(10.0)
    assert breaker.open_until is None


def test_two_hanging_requests_close_the_way_for_a_minute() -> None:
    breaker = opened(100.0)
    assert breaker.open_until == 160.0
    assert not breaker.allows_request(100.0)
    assert not breaker.allows_request(159.9)
    assert breaker.allows_request(160.0)


@pytest.mark.parametrize(
    ("second", "opens"),
    [
        pytest.param(600.0, True, id="just within ten minutes"),
        pytest.param(600.1, False, id="just after ten minutes"),
    ],
)
def test_two_kills_count_together_for_ten_minutes(second: float, opens: bool) -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_stall(second)
    assert (breaker.open_until is not None) is opens


def test_a_success_between_two_kills_forgives_the_first() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_success(1.0)
    breaker.record_stall(2.0)
    assert breaker.allows_request(2.0)


def test_after_the_pause_exactly_one_request_may_look() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    assert not breaker.allows_request(160.0)
    assert not breaker.allows_request(1000.0)


def test_a_probe_that_succeeds_opens_the_way_for_everybody() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_success(161.0)
    assert breaker.open_until is None
    assert breaker.allows_request(161.0)
    assert breaker.allows_request(161.0)


def test_each_probe_that_fails_doubles_the_pause_up_to_ten_minutes() -> None:
    breaker, now, pauses = opened(100.0), 100.0, []
    for _ in range(6):
        assert breaker.open_until is not None
        pauses.append(breaker.open_until - now)
        now = breaker.open_until
        assert breaker.allows_request(now)
        breaker.record_stall(now)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_after_a_success_the_next_pause_is_short_again() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_stall(160.0)
    assert breaker.allows_request(280.0)
    breaker.record_success(281.0)
    breaker.record_stall(300.0)
    assert breaker.allows_request(300.0)
    breaker.record_stall(301.0)
    assert breaker.open_until == 361.0


def test_a_probe_that_was_stopped_lets_another_one_look() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_abandoned(165.0)
    assert breaker.open_until == 160.0
    assert breaker.allows_request(165.0)
    assert not breaker.allows_request(165.0)


def test_a_stopped_request_tells_nothing_while_the_way_is_free() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_abandoned(1.0)
    breaker.record_stall(2.0)
    assert not breaker.allows_request(2.0)


def test_requests_that_were_under_way_do_not_lengthen_the_pause() -> None:
    breaker = opened(100.0)
    for now in (101.0, 110.0, 159.0):
        breaker.record_stall(now)
    assert breaker.open_until == 160.0


def test_a_kill_after_the_pause_counts_as_a_look_that_failed() -> None:
    breaker = opened(100.0)
    breaker.record_stall(200.0)
    assert breaker.open_until == 320.0


def test_a_late_success_of_a_request_from_before_opens_the_way() -> None:
    breaker = opened(100.0)
    breaker.record_success(110.0)
    assert breaker.allows_request(110.0)


def test_a_probe_that_nobody_ever_settles_does_not_close_the_way_for_ever() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    assert not breaker.allows_request(160.0 + 3599.0)
    assert breaker.allows_request(160.0 + 3600.0)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 700, allow_nan=False),
        st.sampled_from(("ask", "killed", "succeeded", "given_up")),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_the_pause_is_bounded_and_one_probe_looks(
    steps: Sequence[tuple[float, str]],
) -> None:
    breaker, now, probing = CircuitBreaker(), 0.0, False
    for wait, what in steps:
        now += wait
        until = breaker.open_until
        if what == "ask":
            if until is None:
                assert breaker.allows_request(now)
            elif now < until:
                assert not breaker.allows_request(now)
            elif not probing:
                assert breaker.allows_request(now)
                probing = True
        elif what == "killed":
            breaker.record_stall(now)
            probing = probing and breaker.open_until == until
        else:
            (breaker.record_success if what == "succeeded" else breaker.record_abandoned)(now)
            probing = False
        if breaker.open_until is not None:
            assert breaker.open_until <= now + 600.0
            assert breaker.open_until >= 60.0
