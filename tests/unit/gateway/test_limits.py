from hypothesis import given
from hypothesis import strategies as st

from gateway.inbound.rate_limit import MessageLimit


@given(st.lists(st.integers(0, 200_000), max_size=80), st.integers(1, 10))
def test_no_minute_ever_holds_more_than_the_limit(moments: list[int], limit: int) -> None:
    counter = MessageLimit()
    taken = [now for now in sorted(moments) if counter.allows("a", limit, now)]
    for start in taken:
        assert sum(start <= now < start + 60_000 for now in taken) <= limit


def test_people_are_counted_apart() -> None:
    counter = MessageLimit()
    assert counter.allows("a", 1, 0)
    assert not counter.allows("a", 1, 59_999)
    assert counter.allows("b", 1, 0)
    assert counter.allows("a", 1, 60_000)
