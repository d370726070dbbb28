import math
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.learned import DurationHistogram, LearnedTarget, LearnedTargets


def test_learned_facts_are_keyed_by_provider_address_and_model() -> None:
    experience = LearnedTargets()
    one = experience.get("openai", "https://a", "m")
    assert experience.get("openai", "https://a", "m") is one
    others = [
        ("other", "https://a", "m"),
        ("openai", "https://b", "m"),
        ("openai", "https://a", "n"),
    ]
    assert all(experience.get(*other) is not one for other in others)


def test_the_least_recently_used_targets_are_dropped() -> None:
    experience = LearnedTargets()
    used = experience.get("p", "", "used")
    idle = experience.get("p", "", "idle")
    for number in range(300):
        experience.get("p", "", f"m{number}")
        assert experience.get("p", "", "used") is used
    assert len(experience) == 256
    assert experience.get("p", "", "idle") is not idle


def test_the_breaker_of_a_target_is_shared() -> None:
    experience = LearnedTargets()
    for _ in range(2):
        experience.get("p", "", "m").breaker.record_stall(0.0)
    assert not experience.get("p", "", "m").breaker.allows_request(1.0)
    assert experience.get("p", "", "n").breaker.allows_request(1.0)


def test_two_unmarked_ends_are_trusted_until_one_marker_is_seen() -> None:
    learned = LearnedTarget()
    seen = [learned.omits_end_marker]
    for learn in (
        learned.record_unmarked_end,
        learned.record_unmarked_end,
        learned.record_end_marker,
        learned.record_unmarked_end,
    ):
        learn()
        seen.append(learned.omits_end_marker)
    assert seen == [False, False, True, False, False]


def test_streaming_is_tried_again_after_ten_minutes() -> None:
    learned = LearnedTarget()
    assert learned.should_stream(0.0)
    learned.record_no_streaming(100.0)
    assert not learned.should_stream(100.0)
    assert not learned.should_stream(699.9)
    assert learned.should_stream(700.0)


def test_the_slow_first_token_time_needs_five_samples() -> None:
    learned = LearnedTarget()
    for _ in range(4):
        learned.record_first_token(1.0)
    assert learned.slow_first_token_seconds() is None
    learned.record_first_token(10.0)
    soft = learned.slow_first_token_seconds()
    assert soft is not None
    assert 20.0 <= soft <= 20.0 * 1.15


def test_a_rare_slow_start_does_not_raise_the_slow_first_token_time() -> None:
    learned = LearnedTarget()
    for number in range(100):
        learned.record_first_token(60.0 if number % 25 == 0 else 2.0)
    soft = learned.slow_first_token_seconds()
    assert soft is not None
    assert 4.0 <= soft <= 4.0 * 1.15


def test_the_longest_gap_needs_fifty_samples_of_its_kind() -> None:
    learned = LearnedTarget()
    for _ in range(49):
        learned.record_gap("text", 1.0)
    assert learned.longest_gap_seconds("text") is None
    learned.record_gap("text", 5.0)
    longest = learned.longest_gap_seconds("text")
    assert longest is not None
    assert 40.0 <= longest <= 40.0 * 1.15
    assert learned.longest_gap_seconds("tool") is None


def test_one_long_gap_in_a_thousand_does_not_raise_the_longest_gap() -> None:
    learned = LearnedTarget()
    for number in range(900):
        learned.record_gap("text", 80.0 if number == 450 else 0.05)
    longest = learned.longest_gap_seconds("text")
    assert longest is not None
    assert longest <= 0.4 * 1.15


def test_the_longest_gap_follows_a_service_that_becomes_slow() -> None:
    learned = LearnedTarget()
    for _ in range(5000):
        learned.record_gap("text", 0.1)
    for _ in range(50):
        learned.record_gap("text", 3.0)
    longest = learned.longest_gap_seconds("text")
    assert longest is not None
    assert longest >= 24.0
    for _ in range(5000):
        learned.record_gap("text", 0.1)
    longest = learned.longest_gap_seconds("text")
    assert longest is not None
    assert longest <= 0.8 * 1.15


def test_quantiles_survive_the_halving_of_counts() -> None:
    learned = LearnedTarget()
    for _ in range(1000):
        learned.record_first_token(1.0)
        learned.record_gap("text", 1.0)
    assert learned.slow_first_token_seconds() is not None
    assert learned.longest_gap_seconds("text") is not None


DURATIONS = st.lists(st.floats(0.0011, 5000, allow_nan=False), min_size=1, max_size=400)


@given(DURATIONS, st.sampled_from((0.5, 0.95, 0.99, 1.0)))
def test_a_quantile_is_at_most_one_bucket_too_long(seconds: Sequence[float], share: float) -> None:
    durations = DurationHistogram()
    for each in seconds:
        durations.add(each)
    exact = sorted(seconds)[math.ceil(len(seconds) * share - 1e-9) - 1]
    assert exact * (1 - 1e-9) <= durations.quantile(share) <= exact * 1.15 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("seconds", "lowest", "highest"),
    [
        pytest.param(0.0, 0.0, 0.001, id="zero"),
        pytest.param(-1.0, 0.0, 0.001, id="negative"),
        pytest.param(1e9, 3600.0, 6000.0, id="above the last bucket"),
    ],
)
def test_extreme_durations_land_in_the_outer_buckets(
    seconds: float, lowest: float, highest: float
) -> None:
    durations = DurationHistogram()
    durations.add(seconds)
    assert lowest <= durations.quantile(0.95) <= highest


def test_an_empty_histogram_has_no_quantile() -> None:
    assert DurationHistogram().quantile(0.95) == 0.0


def test_a_million_durations_take_constant_memory_and_little_time() -> None:
    durations = DurationHistogram()
    before = time.process_time()
    for number in range(200_000):
        durations.add(number % 100 / 10)
    assert time.process_time() - before < 2.0
    assert durations.sample_count < 1000


def test_without_reported_usage_the_correction_is_one() -> None:
    assert LearnedTarget().token_correction == 1.0


@pytest.mark.parametrize(
    ("estimated", "reported", "correction"),
    [
        pytest.param(1000, 1300, 1.3, id="more than estimated"),
        pytest.param(1000, 800, 0.8, id="fewer"),
        pytest.param(1000, 9000, 2.0, id="never more than twice"),
        pytest.param(1000, 10, 0.5, id="never less than half"),
        pytest.param(1000, 0, 1.0, id="not reported"),
        pytest.param(0, 1000, 1.0, id="no estimate"),
    ],
)
def test_the_correction_follows_reported_token_counts(
    estimated: int, reported: int, correction: float
) -> None:
    learned = LearnedTarget()
    learned.record_token_count(estimated, reported)
    assert learned.token_correction == pytest.approx(correction)


def test_a_long_request_weighs_more_than_a_short_one() -> None:
    learned = LearnedTarget()
    learned.record_token_count(100_000, 120_000)
    learned.record_token_count(20, 60)
    assert learned.token_correction == pytest.approx(1.2, abs=0.01)


def test_the_correction_adapts_to_changes_of_the_service() -> None:
    learned = LearnedTarget()
    for _ in range(20):
        learned.record_token_count(1000, 1500)
    for _ in range(20):
        learned.record_token_count(1000, 1000)
    assert learned.token_correction == pytest.approx(1.0, abs=0.02)


def test_the_learned_context_window_is_unknown_at_first() -> None:
    learned = LearnedTarget()
    assert learned.context_window is None
