import pytest

from gateway.process.health import MAX_PROBLEM_LENGTH, format_status_summary


@pytest.mark.parametrize(
    ("platforms", "running", "line"),
    [
        ({"telegram": "connected"}, 0, "Answering on telegram; idle."),
        (
            {"telegram": "connected", "web": "connected"},
            1,
            "Answering on telegram and web; 1 turn running.",
        ),
        (
            {"discord": "no answer within 15 s.", "slack": "connected"},
            3,
            "Answering on slack; discord: no answer within 15 s; 3 turns running.",
        ),
        ({"telegram": "refused"}, 0, "No platform is connected; telegram: refused; idle."),
        ({}, 0, "No platform is connected; idle."),
    ],
)
def test_status_summary_is_one_line(platforms: dict[str, str], running: int, line: str) -> None:
    assert format_status_summary(platforms, running) == line


def test_status_summary_during_a_stop() -> None:
    assert (
        format_status_summary({"web": "connected"}, 2, stopping=True)
        == "Stopping; 2 turns still running."
    )
    assert format_status_summary({"web": "connected"}, 0, stopping=True) == "Stopping."


def test_problem_of_a_platform_is_shortened_to_one_line() -> None:
    line = format_status_summary({"telegram": "bad\nWATCHDOG=1\x1b[2J " + "x" * 500}, 0)
    assert line.isprintable()
    assert len(line) < MAX_PROBLEM_LENGTH + 100
