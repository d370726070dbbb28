"""People without access: how many notices they can cause."""

from collections.abc import Iterable

import pytest

from gateway.access.strangers import (
    MAX_REPLIES_PER_CODE,
    MAX_REPLIES_PER_PERSON,
    MAX_REPLIES_TOGETHER,
    StrangerBounds,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
REMEMBERED = 10_000  # people


def test_the_admins_get_one_notice_an_hour_for_all_strangers_together() -> None:
    bounds = StrangerBounds()
    told = [bounds.try_notify(f"telegram:{person}", person) for person in range(400)]
    assert told == [True] + [False] * 399


def test_a_person_counts_once_a_day() -> None:
    bounds = StrangerBounds()
    assert bounds.try_notify("telegram:1", 0)
    assert not any(bounds.try_notify("telegram:1", hour * HOUR) for hour in range(1, 24))
    assert bounds.take_digest(DAY - 1) == 0
    assert bounds.try_notify("telegram:1", DAY)


def test_the_digest_counts_the_people_once_and_is_due_after_an_hour() -> None:
    bounds = StrangerBounds()
    for person in range(3):
        for message in range(100):
            bounds.try_notify(f"telegram:{person}", message)
    assert bounds.take_digest(HOUR - 1) == 0
    assert bounds.take_digest(HOUR) == 2
    assert bounds.take_digest(2 * HOUR) == 0


def test_a_person_who_comes_before_a_due_digest_is_counted_in_the_digest() -> None:
    bounds = StrangerBounds()
    assert bounds.try_notify("telegram:1", 0)
    assert not bounds.try_notify("telegram:2", 1)
    assert not bounds.try_notify("telegram:3", HOUR)
    assert bounds.take_digest(HOUR) == 2
    assert not bounds.try_notify("telegram:4", HOUR + 1), "the digest was the notice of this hour"


def test_replies_to_one_person_are_limited_per_hour() -> None:
    bounds = StrangerBounds()
    replies = sum(bounds.try_reply("telegram:1", 10 * second) for second in range(400))
    assert replies == MAX_REPLIES_PER_PERSON == 5
    assert bounds.try_reply("telegram:1", HOUR)
    assert bounds.try_reply("telegram:2", HOUR)


def test_replies_to_codes_are_limited_for_each_wrong_code() -> None:
    bounds = StrangerBounds()
    replies = sum(bounds.try_reply_to_code("telegram:1", 4, second) for second in range(400))
    assert replies == MAX_REPLIES_PER_CODE
    assert bounds.try_reply_to_code("telegram:1", 5, 400)
    assert bounds.try_reply("telegram:1", 400), "other replies have a bound of their own"


def test_replies_to_codes_count_with_the_replies_to_all_strangers() -> None:
    bounds = StrangerBounds()
    replies = sum(
        bounds.try_reply_to_code(f"telegram:{person}", 1, person) for person in range(400)
    )
    assert replies == MAX_REPLIES_TOGETHER
    assert not bounds.try_reply("telegram:500", 400)


def test_replies_to_all_strangers_together_are_limited_per_minute() -> None:
    bounds = StrangerBounds()
    replies = sum(bounds.try_reply(f"telegram:{person}", person) for person in range(400))
    assert replies == MAX_REPLIES_TOGETHER == 30
    assert bounds.try_reply("telegram:500", MINUTE)


@pytest.mark.parametrize(
    ("others", "returning", "counted_again"),
    [(REMEMBERED - 1, 0, 0), (REMEMBERED, 0, 1), (REMEMBERED, REMEMBERED, 0)],
)
def test_of_many_strangers_the_earliest_is_counted_again(
    others: int, returning: int, counted_again: int
) -> None:
    bounds = StrangerBounds()
    for person in range(others + 1):
        bounds.try_notify(f"telegram:{person}", 0)
    bounds.try_notify(f"telegram:{returning}", 1)
    assert bounds.take_digest(HOUR) == others + counted_again


def test_a_stranger_who_returned_is_remembered_longer_than_the_others() -> None:
    bounds = StrangerBounds()
    for person in range(REMEMBERED):
        bounds.try_notify(f"telegram:{person}", 0)
    bounds.try_notify("telegram:0", DAY)
    bounds.take_digest(DAY)
    bounds.try_notify("telegram:new", DAY)
    bounds.try_notify("telegram:0", DAY)
    assert bounds.take_digest(DAY + HOUR) == 1, "only the new one"


@pytest.mark.parametrize(("others", "replies"), [(REMEMBERED - 1, 0), (REMEMBERED, 1)])
def test_the_replies_to_the_earliest_of_many_strangers_are_forgotten(
    others: int, replies: int
) -> None:
    bounds = StrangerBounds()
    for person in (0, 1):
        for _ in range(MAX_REPLIES_PER_PERSON):
            bounds.try_reply(f"telegram:{person}", 0)
    for person in range(1, others + 1):
        bounds.try_reply(f"telegram:{person}", 0)
    assert not bounds.try_reply("telegram:1", MINUTE)
    assert bounds.try_reply("telegram:0", MINUTE) is bool(replies)


def test_a_stranger_who_writes_on_is_remembered_longer_than_the_others() -> None:
    bounds = StrangerBounds()
    for person in range(REMEMBERED):
        for _ in range(MAX_REPLIES_PER_PERSON if person == 0 else 1):
            bounds.try_reply(f"telegram:{person}", 0)
    bounds.try_reply("telegram:0", 0)
    bounds.try_reply("telegram:new", 0)
    assert not bounds.try_reply("telegram:0", MINUTE)


def test_each_wrong_code_allows_three_replies() -> None:
    bounds = StrangerBounds()
    for wrong_codes in (1, 2):
        replies = [bounds.try_reply_to_code("telegram:1", wrong_codes, 0) for _ in range(9)]
        assert replies == [True] * MAX_REPLIES_PER_CODE + [False] * 6
    assert MAX_REPLIES_PER_CODE == 3


def reply_to_codes(bounds: StrangerBounds, people: Iterable[int]) -> None:
    """Reply to each person as often as allowed after one wrong code, in a minute of their own."""
    for person in people:
        for _ in range(MAX_REPLIES_PER_CODE):
            assert bounds.try_reply_to_code(f"telegram:{person}", 1, person * MINUTE)


@pytest.mark.parametrize(("others", "replies"), [(REMEMBERED - 1, False), (REMEMBERED, True)])
def test_the_replies_to_the_codes_of_the_earliest_stranger_are_forgotten(
    others: int, *, replies: bool
) -> None:
    bounds = StrangerBounds()
    reply_to_codes(bounds, range(others + 1))
    later = (others + 2) * MINUTE
    assert not bounds.try_reply_to_code(f"telegram:{others}", 1, later)
    assert bounds.try_reply_to_code("telegram:0", 1, later) is replies


def test_a_stranger_who_sent_another_code_is_remembered_longer_than_the_others() -> None:
    bounds = StrangerBounds()
    reply_to_codes(bounds, range(REMEMBERED))
    later = (REMEMBERED + 1) * MINUTE
    for _ in range(MAX_REPLIES_PER_CODE):
        assert bounds.try_reply_to_code("telegram:0", 2, later)
    assert bounds.try_reply_to_code("telegram:new", 1, later)
    assert not bounds.try_reply_to_code("telegram:0", 2, later)
