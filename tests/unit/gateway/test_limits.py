from hypothesis import given
from hypothesis import strategies as st

from gateway.inbound.rate_limit import MessageRateLimit


@given(st.lists(st.integers(0, 200_000), max_size=80), st.integers(1, 10))
def test_no_minute_has_more_messages_than_the_limit(moments: list[int], limit: int) -> None:
    counter = MessageRateLimit()
    taken = [now for now in sorted(moments) if counter.try_acquire("a", limit, now)]
    for start in taken:
        assert sum(start <= now < start + 60_000 for now in taken) <= limit


def test_people_are_counted_separately() -> None:
    counter = MessageRateLimit()
    assert counter.try_acquire("a", 1, 0)
    assert not counter.try_acquire("a", 1, 59_999)
    assert counter.try_acquire("b", 1, 0)
    assert counter.try_acquire("a", 1, 60_000)


def test_message_counts_for_all_or_for_none() -> None:
    counter = MessageRateLimit()
    assert counter.try_acquire_all({"key": 2, "person": 1}, 0) is None
    assert counter.try_acquire_all({"key": 2, "person": 1}, 1) == "person"
    assert counter.try_acquire_all({"key": 2}, 2) is None
    assert counter.try_acquire_all({"key": 2, "other": 1}, 3) == "key"
    assert counter.try_acquire("other", 1, 4)
