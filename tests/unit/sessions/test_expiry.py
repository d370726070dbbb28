import datetime as dt

import pytest

from sessions.conversation.expiry import Expiry
from sessions.records import Reason

UTC = dt.UTC


def at(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expiry", "used", "now", "reason"),
    [
        (Expiry(), "2026-01-01T00:00", "2026-12-31T00:00", None),
        (Expiry(idle_minutes=30), "2026-01-01T10:00", "2026-01-01T10:29", None),
        (Expiry(idle_minutes=30), "2026-01-01T10:00", "2026-01-01T10:30", Reason.IDLE),
        (Expiry(daily_at=dt.time(4), zone=UTC), "2026-01-01T05:00", "2026-01-02T03:59", None),
        (
            Expiry(daily_at=dt.time(4), zone=UTC),
            "2026-01-01T05:00",
            "2026-01-02T04:00",
            Reason.DAILY,
        ),
        (Expiry(daily_at=dt.time(4), zone=UTC), "2026-01-01T04:00", "2026-01-01T23:00", None),
        (
            Expiry(idle_minutes=60, daily_at=dt.time(4), zone=UTC),
            "2026-01-01T03:30",
            "2026-01-01T04:10",
            Reason.DAILY,
        ),
    ],
)
def test_a_session_expires_by_the_policy(
    expiry: Expiry, used: str, now: str, reason: Reason | None
) -> None:
    assert expiry.expired(at(used), at(now)) is reason


def test_the_daily_hour_is_one_of_the_zone() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    expiry = Expiry(daily_at=dt.time(4), zone=zone)
    assert expiry.expired(at("2026-01-01T01:00"), at("2026-01-01T02:00")) is Reason.DAILY
    assert expiry.expired(at("2026-01-01T02:00"), at("2026-01-01T03:00")) is None
