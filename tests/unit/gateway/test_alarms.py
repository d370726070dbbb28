"""Delay of alarms, and reports of their end."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.alerts.alarms import Alarm, AlarmCleared, AlarmRaised, Alarms

MINUTE = 60_000


def looks(alarms: Alarms, *seen: tuple[int, str]) -> list[str]:
    """Return the reports about one subject, minute by minute."""
    told = []
    for minute, cause in seen:
        for news in alarms.update({"pigeon": cause}, minute * MINUTE):
            word = "began" if isinstance(news, AlarmRaised) else "over"
            told.append(f"{minute} {word}: {news.alarm.cause}")
    return told


def test_a_problem_of_five_minutes_is_reported_once_and_so_is_its_end() -> None:
    seen = [(0, "rain"), (4, "rain"), (5, "hail"), (9, "rain"), (12, ""), (13, "")]
    assert looks(Alarms(), *seen) == ["5 began: hail", "12 over: hail"]


def test_a_short_problem_is_not_reported() -> None:
    assert looks(Alarms(), (0, "rain"), (4, ""), (5, "rain"), (9, "rain"), (10, "")) == []


def test_each_subject_has_its_own_delay_and_removed_subjects_are_forgotten() -> None:
    alarms = Alarms()
    alarms.update({"pigeon": "rain"}, 0)
    alarms.update({"pigeon": "rain", "raven": "fog"}, 3 * MINUTE)
    assert alarms.seconds_until_next(3 * MINUTE) == 120
    (first,) = alarms.update({"pigeon": "rain", "raven": "fog"}, 5 * MINUTE)
    assert first.subject == "pigeon"
    assert alarms.seconds_until_next(5 * MINUTE) == 180
    assert alarms.update({"raven": ""}, 6 * MINUTE) == []
    assert alarms.seconds_until_next(6 * MINUTE) is None
    assert alarms.announced == {}


def test_the_end_of_a_problem_reported_by_an_earlier_process_is_reported() -> None:
    before, after = Alarms(), Alarms()
    looks(before, (0, "rain"), (6, "rain"))
    assert before.announced == {"pigeon": Alarm("rain", 0, told=True)}
    after.restore(before.announced)
    assert looks(after, (7, "rain"), (60, "")) == ["60 over: rain"]


def test_a_duration_is_at_least_one_minute() -> None:
    assert Alarm("rain", 0).duration_minutes(10) == 1
    assert Alarm("rain", 0).duration_minutes(6 * MINUTE + 1) == 6


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from(["", "rain", "hail"]), st.booleans()),
        max_size=60,
    )
)
def test_raised_and_cleared_events_alternate(
    steps: list[tuple[int, str, bool]],
) -> None:
    alarms, now, since, told = Alarms(), 0, None, False
    for minutes, cause, restarts in steps:
        now += minutes * MINUTE
        if restarts:
            book, alarms = alarms.announced, Alarms()
            alarms.restore(book)
            since = since if told else None
        news = alarms.update({"pigeon": cause}, now)
        if not cause:
            assert [type(each) for each in news] == ([AlarmCleared] if told else [])
            since, told = None, False
            continue
        since = now if since is None else since
        due = not told and now - since >= 5 * MINUTE
        assert [type(each) for each in news] == ([AlarmRaised] if due else [])
        told = told or due
        left = alarms.seconds_until_next(now)
        assert left is None if told else left is not None and left > 0
