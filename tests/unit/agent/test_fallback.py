from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.fallback import FallbackChain


def everybody(_index: int) -> bool:
    return True


def nobody(_index: int) -> bool:
    return False


def test_the_first_target_is_asked_first() -> None:
    assert FallbackChain(3).pick(everybody) == 0


def test_targets_take_over_in_their_order_until_none_is_left() -> None:
    chain, asked = FallbackChain(3), []
    while (index := chain.pick(everybody)) is not None:
        asked.append(index)
        chain.mark_failed(index)
    assert asked == [0, 1, 2]


def test_a_target_behind_an_open_breaker_is_passed_over() -> None:
    assert FallbackChain(3).pick(lambda index: index == 2) == 2


def test_when_all_are_barred_the_first_is_asked_all_the_same() -> None:
    assert FallbackChain(2).pick(nobody) == 0


def test_when_all_that_are_left_are_barred_the_first_of_these_is_asked() -> None:
    chain = FallbackChain(3)
    chain.mark_failed(0)
    assert chain.pick(nobody) == 1


def test_a_target_that_failed_is_not_asked_again_though_its_breaker_would_allow_it() -> None:
    chain = FallbackChain(2)
    chain.mark_failed(1)
    chain.mark_failed(0)
    assert chain.pick(everybody) is None


def test_breakers_are_asked_once_each_and_not_after_a_yes() -> None:
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
    assert chain.pick(everybody) == 2
    chain.mark_failed(2)
    assert chain.pick(everybody) is None


@pytest.mark.parametrize(
    ("keys", "failed", "index", "other"),
    [
        pytest.param("a", "", 0, False, id="alone"),
        pytest.param("ab", "", 0, True, id="two"),
        pytest.param("aa", "", 0, False, id="twice the same"),
        pytest.param("aa", "", 1, False, id="twice the same, the second"),
        pytest.param("ab", "b", 0, False, id="the other failed"),
        pytest.param("abc", "b", 0, True, id="a third is left"),
        pytest.param("ab", "a", 0, True, id="asked about one that failed"),
    ],
)
def test_tells_whether_there_is_anybody_else(
    keys: str, failed: str, index: int, other: bool
) -> None:
    chain = FallbackChain(len(keys), keys)
    for key in failed:
        chain.mark_failed(keys.index(key))
    assert chain.has_other(index) is other


def test_every_target_needs_a_key() -> None:
    with pytest.raises(ValueError, match="2 targets, but 1 keys"):
        FallbackChain(2, "a")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.lists(st.booleans(), min_size=8))
def test_a_turn_asks_every_distinct_target_once_whatever_the_breakers_say(
    keys: Sequence[int], allowed: Sequence[bool]
) -> None:
    chain, asked = FallbackChain(len(keys), keys), []
    while (index := chain.pick(lambda index: allowed[index])) is not None:
        asked.append(keys[index])
        chain.mark_failed(index)
    assert sorted(asked) == sorted(set(keys))
