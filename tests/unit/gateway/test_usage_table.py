import datetime as dt
import time
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.side_requests.usage_table import format_count, format_dollars, format_usage
from gateway.spending.days import midnight
from sessions.records import UsageTotals


def moment(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "zone", "began"),
    [
        pytest.param("2026-11-18T16:00:00Z", "UTC", "2026-11-18T00:00:00Z", id="utc"),
        pytest.param("2026-11-18T00:00:00Z", "UTC", "2026-11-18T00:00:00Z", id="at midnight"),
        pytest.param(
            "2026-11-18T23:30:00Z",
            "Asia/Tokyo",
            "2026-11-18T15:00:00Z",
            id="already the next day there",
        ),
        pytest.param(
            "2026-03-29T10:00:00Z", "Europe/Berlin", "2026-03-28T23:00:00Z", id="clocks set forward"
        ),
        pytest.param(
            "2026-10-25T10:00:00Z", "Europe/Berlin", "2026-10-24T22:00:00Z", id="clocks set back"
        ),
    ],
)
def test_a_day_starts_at_midnight_in_the_machines_time_zone(
    now: str, zone: str, began: str
) -> None:
    assert midnight(moment(now), ZoneInfo(zone)) == moment(began)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_day_with_a_change_of_the_clocks_starts_at_midnight() -> None:
    assert midnight(moment("2026-03-29T10:00:00Z")) == moment("2026-03-28T23:00:00Z")


@given(st.integers(0, 4_000_000_000_000))
def test_without_a_time_zone_the_machines_is_used(now: int) -> None:
    began = midnight(now)
    assert began <= now < began + 26 * 3_600_000
    local = dt.datetime.fromtimestamp(began / 1000, dt.UTC).astimezone()
    assert (local.hour, local.minute) == (0, 0)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0k"),
        (12_345, "12.3k"),
        (999_940, "999.9k"),
        (999_960, "1.0M"),
        (4_600_000, "4.6M"),
        (2_000_000_000, "2.0G"),
    ],
)
def test_counts_are_formatted_briefly(number: int, shown: str) -> None:
    assert format_count(number) == shown


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (None, "?"),
        (0.0, "0.0000"),
        (0.00001, "<0.0001"),
        (0.01234, "0.0123"),
        (12.34, "12.34"),
        (1234.5, "1,234"),
    ],
)
def test_small_amounts_have_more_digits(cost: float | None, shown: str) -> None:
    assert format_dollars(cost) == shown


def test_the_table_is_aligned() -> None:
    text = format_usage(
        UsageTotals(
            input_tokens=1000, output_tokens=500, cached_tokens=400, cost=0.0018, requests=1
        ),
        UsageTotals(
            input_tokens=20_000, output_tokens=9999, cached_tokens=800, cost=0.5, requests=12
        ),
        UsageTotals(requests=40),
    )
    assert text.split("```")[1].splitlines()[1:] == [
        "               last     here    today",
        "requests          1       12       40",
        "tokens in     1,000    20.0k        0",
        "  cached        400      800        0",
        "tokens out      500    9,999        0",
        "dollars      0.0018   0.5000        ?",
    ]


@pytest.mark.parametrize(
    ("cost", "unpriced", "shown"),
    [
        pytest.param(0.5, 0, "   0.5000", id="all prices known"),
        pytest.param(0.5, 2, "  ≥0.5000", id="some prices known"),
        pytest.param(0.00001, 2, "        ?", id="only a negligible price known"),
        pytest.param(0.0, 2, "        ?", id="only a free part known"),
        pytest.param(None, 2, "        ?", id="no price known"),
    ],
)
def test_an_incomplete_sum_is_marked(cost: float | None, unpriced: int, shown: str) -> None:
    text = format_usage(
        UsageTotals(input_tokens=1, output_tokens=1, cost=1.0),
        UsageTotals(input_tokens=1, output_tokens=1),
        UsageTotals(
            input_tokens=1,
            output_tokens=1,
            cached_tokens=0,
            cost=cost,
            requests=3,
            unpriced=unpriced,
        ),
    )
    assert f"dollars        1.00        ?{shown}" in text.splitlines()
    assert ("≥: some prices are unknown" in text) is ("≥" in shown)


def test_the_table_is_a_plain_text_block() -> None:
    assert format_usage(UsageTotals(), UsageTotals(), UsageTotals()).startswith("```text\n")


def test_rows_without_values_are_left_out_of_the_table() -> None:
    text = format_usage(UsageTotals(), UsageTotals(), UsageTotals())
    assert "cached" not in text
    assert "dollars" not in text
    assert "requests          0" in text


@given(
    *[
        st.builds(
            UsageTotals,
            input_tokens=st.integers(0, 10**12),
            output_tokens=st.integers(0, 10**12),
            cached_tokens=st.integers(0, 10**12),
            cost=st.none() | st.floats(0, 10**5),
        )
    ]
    * 3
)
def test_all_lines_of_the_table_have_the_same_length(
    last: UsageTotals, here: UsageTotals, today: UsageTotals
) -> None:
    lines = format_usage(last, here, today).split("```")[1].splitlines()[1:]
    assert {len(line) for line in lines} == {37}
