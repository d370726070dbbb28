import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.usage import Price, Usage, compute_cost

PRICE = Price(input=1.0, output=10.0, cached=0.25)


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        pytest.param(Usage(1_000_000, 0), PRICE, 1.0, id="input"),
        pytest.param(Usage(0, 1_000_000), PRICE, 10.0, id="output"),
        pytest.param(
            Usage(1_000_000, 0, 600_000), PRICE, 0.4 + 0.15, id="part of the input cached"
        ),
        pytest.param(
            Usage(1_000_000, 0, 600_000), Price(1.0, 10.0), 1.0, id="no price for cached input"
        ),
        pytest.param(
            Usage(1_000_000, 0, 1_000_000), Price(1.0, 10.0, 0.0), 0.0, id="cached input is free"
        ),
        pytest.param(Usage(5, 5), None, None, id="no price list"),
        pytest.param(Usage(5, 5, cost=0.5), None, 0.5, id="cost reported by the service"),
        pytest.param(Usage(5, 5, cost=0.5), PRICE, 0.5, id="reported cost overrides the price"),
        pytest.param(Usage(5, 5, cost=0.0), PRICE, 0.0, id="reported cost of zero"),
    ],
)
def test_the_cost_of_an_answer_is_computed(
    usage: Usage, price: Price | None, cost: float | None
) -> None:
    assert compute_cost(usage, price) == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        pytest.param(Usage(1, 2, 3), Usage(4, 5, 6), Usage(5, 7, 9), id="no cost known"),
        pytest.param(Usage(cost=0.5), Usage(1), Usage(1, cost=0.5), id="one cost known"),
        pytest.param(Usage(cost=0.5), Usage(cost=0.25), Usage(cost=0.75), id="both costs known"),
        pytest.param(Usage(cost=0.0), Usage(), Usage(cost=0.0), id="cost of zero"),
    ],
)
def test_usage_of_several_requests_is_added(first: Usage, second: Usage, together: Usage) -> None:
    assert first + second == together
    assert second + first == together


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_cached_tokens_are_part_of_the_input_tokens(fresh: int, cached: int) -> None:
    usage = Usage(fresh + cached, 7, cached)
    assert usage.total_tokens == fresh + cached + 7
    cost = compute_cost(usage, PRICE)
    assert cost == pytest.approx((fresh * 1.0 + cached * 0.25 + 70) / 1_000_000)
