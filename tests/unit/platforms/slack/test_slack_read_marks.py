"""Conversations in use, and gaps in what was received."""

import pytest

from platforms.slack.read_marks import (
    MAX_PLACES,
    SlackPlace,
    SlackPlaces,
    parse_timestamp,
    timestamp_ms,
)


def test_the_last_message_seen_only_moves_forward() -> None:
    places = SlackPlaces()
    places.update("C1", "5.0", "7.000001", "U1")
    places.update("C1", "5.0", "6.000000", "U2")
    assert places.find("C1", "5.0") == SlackPlace(
        channel="C1", thread="5.0", seen="7.000001", user="U2"
    )


def test_places_survive_a_restart_in_order() -> None:
    places = SlackPlaces()
    places.update("C1", "1.0", "1.0", "U1")
    places.update("C2", "2.0", "2.0", "U1")
    places.update("C1", "1.0", "3.0", "U1")
    again = SlackPlaces(places.dump())
    assert not places.changed
    assert [place.channel for place in again] == ["C1", "C2"]
    again.mark_gap(5_000, 2_500)
    assert [place.channel for place, _ in again.with_gaps()] == ["C1"]


def test_a_gap_begins_at_the_last_complete_message_even_after_several_restarts() -> None:
    places = SlackPlaces()
    for number in range(4):
        places.update(f"C{number}", "", f"{number + 1}.0")
    places.mark_gap(10, 0)
    order = [place.channel for place, _ in places.with_gaps()]
    assert order == ["C3", "C2", "C1", "C0"]
    reading = places.with_gaps()
    places.close_gap(*next(reading))
    places.close_gap(*next(reading))
    places.update("C0", "", "100.0")  # a new message does not close the gap
    again = SlackPlaces(places.dump())
    again.mark_gap(20, 0)
    found = [(place.channel, place.missed) for place, _ in again.with_gaps()]
    assert found == [("C0", "1.0"), ("C1", "2.0"), ("C3", "4.0"), ("C2", "3.0")]


def test_every_gap_gets_its_turn_even_if_few_are_read_between_restarts() -> None:
    places, read = SlackPlaces(), []
    for number in range(10):
        places.update(f"C{number}", "", "1.0")
    for restart in range(1, 11):
        places = SlackPlaces(places.dump())
        places.mark_gap(restart, 0)
        place, gaps = next(places.with_gaps())
        places.close_gap(place, gaps)
        read.append(place.channel)
        for busy in ("C8", "C9"):  # busy places must not overtake the others
            places.update(busy, "", f"{restart + 1}.0")
    assert sorted(read) == [f"C{number}" for number in range(10)]


def test_a_gap_that_opens_while_a_place_is_read_stays_open() -> None:
    places = SlackPlaces()
    places.update("C1", "", "1.0")
    places.mark_gap(10, 0)
    ((place, gaps),) = places.with_gaps()
    places.mark_gap(11, 0)
    places.close_gap(place, gaps)
    ((place, gaps),) = places.with_gaps()
    places.close_gap(place, gaps)
    assert not list(places.with_gaps())


def test_last_thread_is_found_per_channel_and_person() -> None:
    places = SlackPlaces()
    places.update("C1", "1.0", "1.0", "U1")
    places.update("C1", "2.0", "2.0", "U1")
    places.update("C1", "3.0", "3.0", "U2")
    places.update("C1", "", "4.0", "U1")
    assert places.last_thread("C1", "U1") == "2.0"
    assert places.last_thread("C2", "U1") == ""


def test_the_least_recently_used_place_is_forgotten_first() -> None:
    places = SlackPlaces()
    for number in range(MAX_PLACES + 1):
        places.update(f"C{number}", "", "1.0")
    assert places.find("C0", "") is None
    assert places.find("C1", "")


@pytest.mark.parametrize(
    ("ts", "read"),
    [("1700000000.000100", (1700000000, 100)), ("17.1", (17, 100000)), ("", (0, 0)), ("x", (0, 0))],
)
def test_a_timestamp_is_parsed_without_rounding(ts: str, read: tuple[int, int]) -> None:
    assert parse_timestamp(ts) == read
    assert timestamp_ms(ts) == read[0] * 1000 + read[1] // 1000
