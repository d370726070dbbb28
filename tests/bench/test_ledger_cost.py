"""Counting must not be felt."""

from tests.bench.ledger import cost


def test_a_turn_is_counted_in_less_than_fifty_microseconds() -> None:
    assert cost(turns=1_000) < 50e-6
