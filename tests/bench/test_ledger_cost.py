"""Counting must not be felt: `python -m tests.bench.ledger` says how much it is."""

from tests.bench.ledger import cost


def test_counting_a_turn_costs_next_to_nothing() -> None:
    # Below 20 microseconds by itself; measuring coverage makes it several times slower.
    assert cost(turns=1_000) < 250e-6
