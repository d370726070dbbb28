from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.fallback import FallbackChain


def all_closed(_index: int) -> bool:
    return True


def all_open(_index: int) -> bool:
    return False


def test_the_primary_target_is_picked_first() -> None:
    assert FallbackChain(3).pick(all_closed) == 0


def test_failed_targets_are_replaced_in_order_until_none_is_left() -> None:
    chain, asked = FallbackChain(3), []
    while (index := chain.pick(all_closed)) is not None:
        asked.append(index)
        chain.mark_failed(index)
    assert asked == [0, 1, 2]


def test_a_target_with_an_open_breaker_is_skipped() -> None:
    assert FallbackChain(3).pick(lambda index: index == 2) == 2


def test_the_first_target_is_picked_when_all_breakers_are_open() -> None:
    assert FallbackChain(2).pick(all_open) == 0


def test_the_first_remaining_target_is_picked_when_all_others_failed_or_are_open() -> None:
    chain = FallbackChain(3)
    chain.mark_failed(0)
    assert chain.pick(all_open) == 1


def test_a_failed_target_is_not_picked_even_if_its_breaker_allows_it() -> None:
    chain = FallbackChain(2)
    chain.mark_failed(1)
    chain.mark_failed(0)
    assert chain.pick(all_closed) is None


def test_each_breaker_is_asked_at_most_once_until_one_allows() -> None:
    asked: list[int] = []

    def allows(index: int) -> bool:
        asked.append(index)
        return index == 1

    chain = FallbackChain(4, "abab")
    assert chain.pick(allows) == 1
    assert asked == [0, 1]
    assert FallbackChain(4, "aaab").pick(lambda index: index == 3) == 3


def test_equal_targets_fail_together() -> None:
    chain = FallbackChain(3, ("a", "a", "b"))
    chain.mark_failed(1)
    assert chain.pick(all_closed) == 2
    chain.mark_failed(2)
    assert chain.pick(all_closed) is None


@pytest.mark.parametrize(
    ("keys", "failed", "index", "other"),
    [
        pytest.param("a", "", 0, False, id="one target"),
        pytest.param("ab", "", 0, True, id="two targets"),
        pytest.param("aa", "", 0, False, id="duplicate targets"),
        pytest.param("aa", "", 1, False, id="second of duplicate targets"),
        pytest.param("ab", "b", 0, False, id="the other failed"),
        pytest.param("abc", "b", 0, True, id="a third is left"),
        pytest.param("ab", "a", 0, True, id="current target failed"),
    ],
)
def test_has_other_is_false_when_no_different_target_is_left(
    keys: str, failed: str, index: int, other: bool
) -> None:
    chain = FallbackChain(len(keys), keys)
    for key in failed:
        chain.mark_failed(keys.index(key))
    assert chain.has_other(index) is other


def test_a_missing_target_key_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 targets, but 1 keys"):
        FallbackChain(2, "a")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.lists(st.booleans(), min_size=8))
def test_every_distinct_target_is_picked_once_for_any_breaker_state(
    keys: Sequence[int], allowed: Sequence[bool]
) -> None:
    chain, asked = FallbackChain(len(keys), keys), []
    while (index := chain.pick(lambda index: allowed[index])) is not None:
        asked.append(keys[index])
        chain.mark_failed(index)
    assert sorted(asked) == sorted(set(keys))
