import datetime as dt

import pytest

from sessions.conversation.expiry import ExpiryPolicy
from sessions.records import SessionReason

UTC = dt.UTC


def at(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expiry", "used", "now", "reason"),
    [
        (ExpiryPolicy(), "2026-01-01T00:00", "2026-12-31T00:00", None),
        (ExpiryPolicy(idle_minutes=30), "2026-01-01T10:00", "2026-01-01T10:29", None),
        (ExpiryPolicy(idle_minutes=30), "2026-01-01T10:00", "2026-01-01T10:30", SessionReason.IDLE),
        (ExpiryPolicy(daily_at=dt.time(4), zone=UTC), "2026-01-01T05:00", "2026-01-02T03:59", None),
        (
            ExpiryPolicy(daily_at=dt.time(4), zone=UTC),
            "2026-01-01T05:00",
            "2026-01-02T04:00",
            SessionReason.DAILY,
        ),
        (
            ExpiryPolicy(daily_at=dt.time(4), zone=UTC),
            "2026-01-01T03:59",
            "2026-01-02T03:59",
            SessionReason.DAILY,
        ),
        (ExpiryPolicy(daily_at=dt.time(4), zone=UTC), "2026-01-01T04:00", "2026-01-01T23:00", None),
        (
            ExpiryPolicy(idle_minutes=60, daily_at=dt.time(4), zone=UTC),
            "2026-01-01T03:30",
            "2026-01-01T04:10",
            SessionReason.DAILY,
        ),
    ],
)
def test_a_session_expires_according_to_the_policy(
    expiry: ExpiryPolicy, used: str, now: str, reason: SessionReason | None
) -> None:
    assert expiry.expiry_reason(at(used), at(now)) is reason


def test_the_daily_reset_uses_the_time_zone() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    expiry = ExpiryPolicy(daily_at=dt.time(4), zone=zone)
    assert (
        expiry.expiry_reason(at("2026-01-01T01:00"), at("2026-01-01T02:00")) is SessionReason.DAILY
    )
    assert expiry.expiry_reason(at("2026-01-01T02:00"), at("2026-01-01T03:00")) is None
