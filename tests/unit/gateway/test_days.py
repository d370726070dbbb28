from zoneinfo import ZoneInfo

import pytest

from gateway.spending.days import day_of, seconds_until_midnight
from tests.unit.gateway.test_usage_table import moment

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "day", "left"),
    [
        ("2026-11-18T16:00:00Z", "2026-11-18", 7 * 3600),
        ("2026-11-18T23:00:00Z", "2026-11-19", 24 * 3600),
        ("2026-11-18T22:59:59Z", "2026-11-18", 1),
        ("2026-03-28T23:00:00Z", "2026-03-29", 23 * 3600),
        ("2026-10-24T22:00:00Z", "2026-10-25", 25 * 3600),
    ],
    ids=["winter", "midnight", "just before", "clocks go on", "clocks go back"],
)
def test_a_day_ends_at_midnight_in_the_local_time_zone(now: str, day: str, left: int) -> None:
    assert day_of(moment(now), BERLIN) == day
    assert seconds_until_midnight(moment(now), BERLIN) == left


def test_days_before_and_after_are_named() -> None:
    assert day_of(moment("2026-03-01T10:00:00Z"), BERLIN, days=-1) == "2026-02-28"
    assert day_of(moment("2026-12-31T10:00:00Z"), BERLIN, days=1) == "2027-01-01"
