import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.answer.accumulate import ProgressKind
from agent.settings import Timeouts
from agent.watchdog import (
    Deadline,
    TimeoutCause,
    Watchdog,
    WatchdogLimits,
    compute_limits,
    is_local,
)

LIMITS = WatchdogLimits(
    first_token=10.0,
    gaps={ProgressKind.TEXT: 6.0, ProgressKind.TOOL: 8.0, ProgressKind.REASONING: 9.0},
    wire_dead=5.0,
    lifetime=50.0,
    min_rate=0.0,
    min_rate_window=2.0,
    first_notice=4.0,
    notice_after=3.0,
)
# As in the scenarios of slow answers: five characters per second over two seconds.
RATED = replace(
    LIMITS,
    gaps={ProgressKind.TEXT: 0.6, ProgressKind.TOOL: 0.8, ProgressKind.REASONING: 3.0},
    min_rate=5.0,
)


def started(limits: WatchdogLimits = LIMITS) -> Watchdog:
    return Watchdog(limits, 100.0)


def test_the_first_token_timeout_applies_from_the_start() -> None:
    assert started().deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)


def test_headers_do_not_extend_the_first_token_timeout() -> None:
    dog = started()
    dog.on_bytes(104.0, ping=False)
    assert dog.deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)


@pytest.mark.parametrize(
    ("kind", "deadline"),
    [
        (ProgressKind.TEXT, Deadline(111.0, TimeoutCause.GAP_TEXT)),
        (ProgressKind.TOOL, Deadline(113.0, TimeoutCause.GAP_TOOL)),
        (ProgressKind.REASONING, Deadline(114.0, TimeoutCause.GAP_REASONING)),
    ],
)
def test_the_gap_timeout_depends_on_the_kind_of_the_last_progress(
    kind: ProgressKind, deadline: Deadline
) -> None:
    dog = started()
    dog.on_progress(103.0, ProgressKind.TEXT)
    dog.on_progress(105.0, kind)
    assert dog.deadline() == deadline


def test_pings_do_not_extend_the_gap_timeout() -> None:
    dog = started()
    dog.on_progress(101.0, ProgressKind.TEXT)
    for now in (102.0, 104.0, 106.0):
        dog.on_bytes(now, ping=True)
    assert dog.deadline() == Deadline(107.0, TimeoutCause.GAP_TEXT)


def test_missing_pings_end_a_request_that_had_them() -> None:
    dog = started()
    assert dog.on_bytes(101.0, ping=True, heartbeat=True)
    assert dog.deadline() == Deadline(106.0, TimeoutCause.WIRE_DEAD)
    assert not dog.on_bytes(105.5, ping=False)
    assert dog.deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)


def test_a_burst_of_empty_events_does_not_count_as_regular_pings() -> None:
    dog = started()
    assert [dog.on_bytes(100.0 + at, ping=True, heartbeat=True) for at in (0.0, 0.1, 0.2)] == [
        False
    ] * 3
    assert dog.deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)
    assert [dog.on_bytes(101.0 + at, ping=True, heartbeat=True) for at in (0.0, 1.0)] == [
        True,
        False,
    ]
    assert dog.deadline() == Deadline(107.0, TimeoutCause.WIRE_DEAD)


def test_structural_events_count_as_pings_only_after_several_pauses() -> None:
    """While a model reasons invisibly, a service may send an event at the end of each thought."""
    dog = started()
    assert [dog.on_bytes(101.0 + at, ping=True) for at in (0.0, 1.0)] == [False, False]
    assert dog.deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)
    assert dog.on_bytes(103.0, ping=True)
    assert dog.deadline() == Deadline(108.0, TimeoutCause.WIRE_DEAD)


def test_the_lifetime_limits_a_request_with_progress() -> None:
    dog = started()
    dog.on_progress(149.0, ProgressKind.TEXT)
    assert dog.deadline() == Deadline(150.0, TimeoutCause.LIFETIME)


def test_after_the_finish_reason_the_connection_has_two_seconds_to_close() -> None:
    dog = started()
    dog.on_progress(101.0, ProgressKind.TEXT)
    dog.on_finish(102.0)
    dog.on_finish(103.0)
    assert dog.deadline() == Deadline(104.0, TimeoutCause.LINGER)


Pieces = list[tuple[float, int]]  # (time, characters)


def killed(
    pieces: Pieces, limits: WatchdogLimits, kind: ProgressKind = ProgressKind.TEXT
) -> Deadline:
    """Feed timed pieces, with a single timer as in an attempt; return the deadline that ends it."""
    dog = Watchdog(limits, 0.0)
    timer = dog.deadline().when
    for now, size in pieces:
        while timer <= now:
            deadline = dog.deadline()
            if deadline.when <= timer:
                return Deadline(timer, deadline.cause)
            timer = deadline.when
        if dog.on_progress(now, kind, size):
            timer = dog.deadline().when
    return dog.deadline()


def drip(interval: float, size: int, until: float) -> Pieces:
    return [(step * interval, size) for step in range(1, int(until / interval))]


@pytest.mark.parametrize(
    ("interval", "size", "window"),
    [
        pytest.param(0.45, 1, 2.0, id="single characters"),
        pytest.param(0.1, 1, 2.0, id="just below the rate"),
        pytest.param(0.45, 1, 0.5, id="two characters per window"),
        pytest.param(0.3, 1, 0.5, id="gaps longer than half a window"),
        pytest.param(0.01, 0, 2.0, id="pieces without characters"),
    ],
)
def test_a_dripping_answer_times_out_after_one_rate_window(
    interval: float, size: int, window: float
) -> None:
    rate = 5.0 if interval > 0.2 else 12.0
    limits = replace(RATED, min_rate=rate, min_rate_window=window)
    end = killed(drip(interval, size, 40.0), limits)
    assert end.cause is TimeoutCause.MIN_RATE
    assert end.when == pytest.approx(interval + window)


def test_an_answer_that_starts_to_drip_times_out_within_four_thirds_of_the_window() -> None:
    quick = drip(0.05, 10, 6.0)
    slow = [(quick[-1][0] + at, size) for at, size in drip(0.45, 1, 40.0)]
    end = killed(quick + slow, RATED)
    assert end.cause is TimeoutCause.MIN_RATE
    assert 1.9 <= end.when - quick[-1][0] <= 2.6


def test_an_answer_above_the_minimum_rate_does_not_time_out() -> None:
    assert killed(drip(0.1, 1, 60.0), RATED) == Deadline(50.0, TimeoutCause.LIFETIME)


def test_without_a_minimum_rate_an_answer_may_drip() -> None:
    end = killed(drip(0.45, 1, 60.0), replace(RATED, min_rate=0.0))
    assert end == Deadline(50.0, TimeoutCause.LIFETIME)


def test_silence_is_left_to_the_gap_timeout() -> None:
    pieces = drip(0.05, 10, 4.0)
    end = killed(pieces, RATED, ProgressKind.REASONING)
    assert end == Deadline(pieces[-1][0] + 3.0, TimeoutCause.GAP_REASONING)


def test_the_rate_measurement_restarts_after_a_long_silence() -> None:
    before, pause = drip(0.05, 10, 4.0), 2.3
    begun = before[-1][0] + pause
    after = [(begun + at, size) for at, size in drip(0.1, 1, 60.0)]
    end = killed([*before, *after], RATED, ProgressKind.REASONING)
    assert end == Deadline(50.0, TimeoutCause.LIFETIME)
    dripping = [(begun + at, 1) for at, _ in drip(0.45, 1, 60.0)]
    end = killed([*before, *dripping], RATED, ProgressKind.REASONING)
    assert end.cause is TimeoutCause.MIN_RATE
    assert end.when == pytest.approx(begun + 0.45 + 2.0)


def test_a_late_timer_does_not_hide_a_drip() -> None:
    dog = started(RATED)
    for now, size in drip(0.45, 1, 4.0):
        dog.on_progress(100.0 + now, ProgressKind.REASONING, size)
    assert dog.deadline().cause is TimeoutCause.MIN_RATE
    assert dog.deadline().when == pytest.approx(102.45)


def test_the_rate_applies_only_between_first_token_and_finish() -> None:
    dog = started(RATED)
    assert dog.deadline() == Deadline(110.0, TimeoutCause.FIRST_TOKEN)
    dog.on_progress(105.0, ProgressKind.REASONING, 1)
    dog.on_progress(106.9, ProgressKind.REASONING, 1)
    assert dog.deadline() == Deadline(107.0, TimeoutCause.MIN_RATE)
    dog.on_finish(106.95)
    assert dog.deadline() == Deadline(108.95, TimeoutCause.LINGER)


@given(
    st.lists(st.tuples(st.floats(0.01, 2.5), st.integers(0, 40)), max_size=60),
    st.sampled_from(ProgressKind),
)
def test_the_rate_never_ends_an_answer_above_the_minimum(
    steps: list[tuple[float, int]], kind: ProgressKind
) -> None:
    pieces: Pieces = []
    for wait, size in steps:
        pieces.append(((pieces[-1][0] if pieces else 0.0) + wait, size))
    end = killed(pieces, RATED, kind)
    if end.cause is TimeoutCause.MIN_RATE:
        assert end.when >= pieces[0][0] + 2.0 - 1e-6
        # The pieces inside the window at the deadline.
        span = [size for at, size in pieces if end.when - 2.0 + 1e-6 < at <= end.when]
        assert sum(span) < 10


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.integers(0, 4)), min_size=3, max_size=80))
def test_no_answer_stays_below_the_minimum_rate_for_long(steps: list[tuple[float, int]]) -> None:
    pieces: Pieces = []
    for wait, size in steps:
        pieces.append(((pieces[-1][0] if pieces else 0.0) + wait, size))
    end = killed(pieces, replace(RATED, gaps=dict.fromkeys(ProgressKind, 99.0), lifetime=99.0))
    begun = pieces[0][0]
    slow_since: float | None = None
    for now, _ in pieces:
        recent = sum(size for at, size in pieces if now - 2.25 < at <= now)
        slow = now >= begun + 2.25 and recent < 10
        slow_since = (slow_since or now) if slow else None
        if slow_since is not None:
            assert end.when <= now


@given(
    st.lists(
        st.tuples(st.floats(0.01, 3.0), st.integers(0, 12), st.sampled_from(ProgressKind)),
        max_size=40,
    )
)
def test_rescheduling_only_on_request_never_misses_a_deadline(
    steps: list[tuple[float, int, ProgressKind]],
) -> None:
    dog = Watchdog(RATED, 0.0)
    now = 0.0
    timer = dog.deadline().when
    for wait, size, kind in steps:
        now += wait
        deadline = dog.deadline()
        assert timer <= deadline.when
        if deadline.when <= now:
            return
        if timer <= now:
            timer = deadline.when
        if dog.on_progress(now, kind, size):
            timer = dog.deadline().when


def test_the_user_is_notified_of_silence_before_the_first_token_and_inside_an_answer() -> None:
    dog = started()
    assert dog.notice_at() == 104.0
    assert dog.silent_seconds(104.0) == 4.0
    assert dog.seconds_until_deadline(104.0) == 6.0
    dog.on_bytes(105.0, ping=False)
    dog.on_progress(106.0, ProgressKind.TOOL)
    assert dog.notice_at() == 109.0
    assert dog.silent_seconds(109.5) == 3.5
    assert dog.seconds_until_deadline(109.5) == 4.5
    assert dog.seconds_until_deadline(200.0) == 0.0
    dog.on_finish(110.0)
    assert dog.notice_at() is None


def test_progress_reports_when_the_deadline_may_be_closer() -> None:
    dog = started()
    said = [ProgressKind.TEXT, ProgressKind.TEXT, ProgressKind.TOOL, ProgressKind.TOOL]
    told = [dog.on_progress(100.0 + at, kind, 5) for at, kind in enumerate(said)]
    assert told == [True, False, True, False]


def limits(
    timeouts: Timeouts, tokens: int = 0, effort: str | None = None, url: str = ""
) -> WatchdogLimits:
    return compute_limits(timeouts, input_tokens=tokens, effort=effort, base_url=url or None)


@pytest.mark.parametrize(
    ("tokens", "effort", "url", "first"),
    [
        pytest.param(0, None, "", 90.0, id="short request"),
        pytest.param(10_000, None, "", 90.0, id="longest without extra time"),
        pytest.param(30_000, None, "", 120.0, id="longer request"),
        pytest.param(1_000_000, None, "", 300.0, id="maximum"),
        pytest.param(0, "low", "", 90.0, id="low effort"),
        pytest.param(0, "high", "", 300.0, id="high effort"),
        pytest.param(0, "xhigh", "", 600.0, id="xhigh effort"),
        pytest.param(0, None, "http://127.0.0.1:11434/v1", 900.0, id="local service"),
    ],
)
def test_the_first_token_timeout_adapts_to_the_request(
    tokens: int, effort: str | None, url: str, first: float
) -> None:
    assert limits(Timeouts(), tokens, effort, url).first_token == first


def test_gaps_are_longer_for_local_services() -> None:
    assert limits(Timeouts()).gaps == {
        ProgressKind.TEXT: 90.0,
        ProgressKind.TOOL: 150.0,
        ProgressKind.REASONING: 180.0,
    }
    assert limits(Timeouts(), url="http://localhost/v1").gaps[ProgressKind.TEXT] == 270.0


@pytest.mark.parametrize(
    ("floor", "first", "text", "reasoning"),
    [
        pytest.param(60.0, 90.0, 90.0, 180.0, id="below all"),
        pytest.param(160.0, 160.0, 160.0, 180.0, id="between"),
        pytest.param(600.0, 600.0, 600.0, 600.0, id="above all"),
    ],
)
def test_known_pauses_of_a_model_extend_the_timeouts(
    floor: float, first: float, text: float, reasoning: float
) -> None:
    found = compute_limits(
        Timeouts(), input_tokens=0, effort=None, base_url=None, min_silence=floor
    )
    assert found.first_token == first
    assert found.gaps[ProgressKind.TEXT] == text
    assert found.gaps[ProgressKind.REASONING] == reasoning


@pytest.mark.parametrize(
    ("url", "learned", "gap"),
    [
        pytest.param("", 10.0, 90.0, id="faster than the default"),
        pytest.param("", 200.0, 200.0, id="slower than the default"),
        pytest.param("", 1000.0, 300.0, id="maximum"),
        pytest.param("http://localhost", 280.0, 280.0, id="local service"),
        pytest.param("http://localhost", 10.0, 270.0, id="fast local service"),
    ],
)
def test_learned_gaps_extend_the_gap_timeout(url: str, learned: float, gap: float) -> None:
    found = compute_limits(
        Timeouts(),
        input_tokens=0,
        effort=None,
        base_url=url or None,
        learned_gaps={ProgressKind.TEXT: learned},
    )
    assert found.gaps[ProgressKind.TEXT] == gap
    assert found.gaps[ProgressKind.TOOL] == (450.0 if url else 150.0)


@pytest.mark.parametrize(
    ("timeouts", "soft", "notice"),
    [
        pytest.param(Timeouts(), None, 30.0, id="nothing learned"),
        pytest.param(Timeouts(), 20.0, 30.0, id="fast"),
        pytest.param(Timeouts(), 45.0, 45.0, id="slow"),
        pytest.param(Timeouts(), 500.0, 60.0, id="very slow"),
        pytest.param(Timeouts(notice_after=100.0), 500.0, 100.0, id="late notice configured"),
        pytest.param(Timeouts(notice_after=0.3), 0.1, 0.3, id="early notice configured"),
        pytest.param(Timeouts(first_token_soft=2.0), 45.0, 2.0, id="configured"),
    ],
)
def test_a_learned_slow_start_delays_the_first_notice(
    timeouts: Timeouts, soft: float | None, notice: float
) -> None:
    found = compute_limits(
        timeouts, input_tokens=0, effort=None, base_url=None, learned_first_token=soft
    )
    assert found.first_notice == notice
    assert found.notice_after == timeouts.notice_after


def test_an_adaptive_timeout_does_not_exceed_the_lifetime() -> None:
    assert limits(Timeouts(lifetime=20.0)).first_token == 20.0
    assert limits(Timeouts(lifetime=20.0)).lifetime == 20.0


def test_configured_timeouts_are_used_unchanged() -> None:
    configured = Timeouts(
        first_token=1,
        first_token_soft=0.3,
        notice_after=0.2,
        gap_text=0.6,
        gap_tool=0.8,
        gap_reasoning=0.7,
        wire_dead=0.5,
        lifetime=5,
        min_rate=7,
        min_rate_window=2,
    )
    found = compute_limits(
        configured,
        input_tokens=1_000_000,
        effort="xhigh",
        base_url="http://localhost",
        min_silence=600.0,
        learned_first_token=50.0,
        learned_gaps=dict.fromkeys(ProgressKind, 200.0),
    )
    assert found == WatchdogLimits(
        first_token=1,
        gaps={ProgressKind.TEXT: 0.6, ProgressKind.TOOL: 0.8, ProgressKind.REASONING: 0.7},
        wire_dead=0.5,
        lifetime=5,
        min_rate=7,
        min_rate_window=2,
        first_notice=0.3,
        notice_after=0.2,
    )


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://10.1.2.3/v1", True),
        ("http://192.168.0.9/v1", True),
        ("http://172.16.0.1/v1", True),
        ("http://172.32.0.1/v1", False),
        ("http://172.example/v1", False),
        ("http://box.local/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://localhost.example.com/v1", False),
        ("nonsense", False),
    ],
)
def test_local_addresses_are_recognized(url: str, local: bool) -> None:
    assert is_local(url) is local
