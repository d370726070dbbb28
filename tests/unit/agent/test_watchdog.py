import pytest

from agent.accumulate import Progress
from agent.settings import Timeouts
from agent.watchdog import Cause, Deadline, Limits, Watchdog, is_local, limits_for

LIMITS = Limits(
    first_token=10.0,
    gaps={Progress.TEXT: 6.0, Progress.TOOL: 8.0, Progress.REASONING: 9.0},
    wire_dead=5.0,
    lifetime=50.0,
)


def started() -> Watchdog:
    return Watchdog(LIMITS, 100.0)


def test_silence_from_the_start_is_given_the_time_of_the_first_token() -> None:
    assert started().deadline() == Deadline(110.0, Cause.FIRST_TOKEN)


def test_headers_and_empty_pieces_do_not_stretch_the_first_token() -> None:
    dog = started()
    dog.wire(104.0, ping=False)
    assert dog.deadline() == Deadline(110.0, Cause.FIRST_TOKEN)


@pytest.mark.parametrize(
    ("kind", "deadline"),
    [
        (Progress.TEXT, Deadline(111.0, Cause.GAP_TEXT)),
        (Progress.TOOL, Deadline(113.0, Cause.GAP_TOOL)),
        (Progress.REASONING, Deadline(114.0, Cause.GAP_REASONING)),
    ],
)
def test_the_gap_counts_from_the_last_progress_by_its_kind(
    kind: Progress, deadline: Deadline
) -> None:
    dog = started()
    dog.progress(103.0, Progress.TEXT)
    dog.progress(105.0, kind)
    assert dog.deadline() == deadline


def test_pings_do_not_keep_a_dead_answer_alive() -> None:
    dog = started()
    dog.progress(101.0, Progress.TEXT)
    for now in (102.0, 104.0, 106.0):
        dog.wire(now, ping=True)
    assert dog.deadline() == Deadline(107.0, Cause.GAP_TEXT)


def test_where_pings_came_their_absence_counts() -> None:
    dog = started()
    dog.wire(101.0, ping=True)
    assert dog.deadline() == Deadline(106.0, Cause.WIRE_DEAD)
    dog.wire(105.5, ping=False)
    assert dog.deadline() == Deadline(110.0, Cause.FIRST_TOKEN)


def test_a_request_has_a_longest_life_whatever_it_says() -> None:
    dog = started()
    dog.progress(149.0, Progress.TEXT)
    assert dog.deadline() == Deadline(150.0, Cause.LIFETIME)


def test_after_the_reason_to_stop_the_wire_gets_little_time_to_close() -> None:
    dog = started()
    dog.progress(101.0, Progress.TEXT)
    dog.ended(102.0)
    dog.ended(103.0)
    assert dog.deadline() == Deadline(104.0, Cause.LINGER)


def limits(timeouts: Timeouts, tokens: int = 0, effort: str | None = None, url: str = "") -> Limits:
    return limits_for(timeouts, input_tokens=tokens, effort=effort, base_url=url or None)


@pytest.mark.parametrize(
    ("tokens", "effort", "url", "first"),
    [
        pytest.param(0, None, "", 90.0, id="short request"),
        pytest.param(10_000, None, "", 90.0, id="as long as is free"),
        pytest.param(30_000, None, "", 120.0, id="longer request"),
        pytest.param(1_000_000, None, "", 300.0, id="never more"),
        pytest.param(0, "low", "", 90.0, id="thinks little"),
        pytest.param(0, "high", "", 300.0, id="thinks long"),
        pytest.param(0, "xhigh", "", 600.0, id="thinks very long"),
        pytest.param(0, None, "http://127.0.0.1:11434/v1", 900.0, id="a machine of one's own"),
    ],
)
def test_the_first_token_adapts(tokens: int, effort: str | None, url: str, first: float) -> None:
    assert limits(Timeouts(), tokens, effort, url).first_token == first


def test_gaps_are_longer_on_a_machine_of_one_s_own() -> None:
    assert limits(Timeouts()).gaps == {
        Progress.TEXT: 90.0,
        Progress.TOOL: 150.0,
        Progress.REASONING: 180.0,
    }
    assert limits(Timeouts(), url="http://localhost/v1").gaps[Progress.TEXT] == 270.0


def test_a_configured_clock_is_taken_as_it_is() -> None:
    configured = Timeouts(
        first_token=1, gap_text=0.6, gap_tool=0.8, gap_reasoning=0.7, wire_dead=0.5, lifetime=5
    )
    assert limits(configured, 1_000_000, "xhigh", "http://localhost") == Limits(
        1, {Progress.TEXT: 0.6, Progress.TOOL: 0.8, Progress.REASONING: 0.7}, 0.5, 5
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
def test_tells_what_is_local(url: str, local: bool) -> None:
    assert is_local(url) is local
