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


def test_a_new_breaker_allows_all_requests() -> None:
    breaker = CircuitBreaker()
    assert all(breaker.allows_request(now) for now in (0.0, 0.0, 5.0))
    assert breaker.open_until is None


def test_one_stall_does_not_open_the_breaker() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(10.0)
    assert breaker.allows_request(10.0)
    assert breaker.open_until is None


def test_two_stalls_open_the_breaker_for_one_minute() -> None:
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
def test_two_stalls_count_only_within_ten_minutes(second: float, opens: bool) -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_stall(second)
    assert (breaker.open_until is not None) is opens


def test_a_success_between_two_stalls_resets_the_count() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_success(1.0)
    breaker.record_stall(2.0)
    assert breaker.allows_request(2.0)


def test_exactly_one_probe_is_allowed_after_the_pause() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    assert not breaker.allows_request(160.0)
    assert not breaker.allows_request(1000.0)


def test_a_successful_probe_closes_the_breaker() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_success(161.0)
    assert breaker.open_until is None
    assert breaker.allows_request(161.0)
    assert breaker.allows_request(161.0)


def test_each_stalled_probe_doubles_the_pause_up_to_ten_minutes() -> None:
    breaker, now, pauses = opened(100.0), 100.0, []
    for _ in range(6):
        assert breaker.open_until is not None
        pauses.append(breaker.open_until - now)
        now = breaker.open_until
        assert breaker.allows_request(now)
        breaker.record_stall(now)
    assert pauses == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_a_success_resets_the_length_of_the_pause() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_stall(160.0)
    assert breaker.allows_request(280.0)
    breaker.record_success(281.0)
    breaker.record_stall(300.0)
    assert breaker.allows_request(300.0)
    breaker.record_stall(301.0)
    assert breaker.open_until == 361.0


def test_an_abandoned_probe_allows_another_one() -> None:
    breaker = opened(100.0)
    assert breaker.allows_request(160.0)
    breaker.record_abandoned(165.0)
    assert breaker.open_until == 160.0
    assert breaker.allows_request(165.0)
    assert not breaker.allows_request(165.0)


def test_an_abandoned_request_does_not_reset_the_stall_count() -> None:
    breaker = CircuitBreaker()
    breaker.record_stall(0.0)
    breaker.record_abandoned(1.0)
    breaker.record_stall(2.0)
    assert not breaker.allows_request(2.0)


def test_stalls_of_earlier_requests_do_not_extend_the_pause() -> None:
    breaker = opened(100.0)
    for now in (101.0, 110.0, 159.0):
        breaker.record_stall(now)
    assert breaker.open_until == 160.0


def test_a_stall_after_the_pause_counts_as_a_failed_probe() -> None:
    breaker = opened(100.0)
    breaker.record_stall(200.0)
    assert breaker.open_until == 320.0


def test_a_late_success_of_an_earlier_request_closes_the_breaker() -> None:
    breaker = opened(100.0)
    breaker.record_success(110.0)
    assert breaker.allows_request(110.0)


def test_a_probe_without_a_result_expires() -> None:
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
def test_the_pause_is_bounded_and_only_one_probe_runs_in_any_sequence(
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
