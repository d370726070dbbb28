"""The text output of `holdfast status`."""

from typing import Any

from gateway.operate.cli.daemon import format_status

NOW = 1_790_000_000_000
FOUND: dict[str, Any] = {
    "state": "running",
    "pid": 7,
    "version": "1.2.3",
    "safe_mode": None,
    "started_at": NOW - 2 * 3_600_000 - 300_000,
    "url": "http://127.0.0.1:8420/",
    "platforms": {"telegram": "connected", "slack": "Slack did not answer\nin time"},
    "running": 1,
    "today": [{"for": "everyone", "used": "$1.20", "limit": "$5.00"}],
}


def test_the_status_is_readable_at_a_glance() -> None:
    assert format_status(FOUND, NOW) == [
        "Running for 2 h 5 min (since 2026-09-21 12:08:20), version 1.2.3, pid 7.",
        "1 turn running.",
        "  page             http://127.0.0.1:8420/",
        "  telegram         connected",
        "  slack            PROBLEM: Slack did not answer in time",
        "  today, everyone  $1.20 of $5.00",
    ]


def test_models_and_servers_that_do_not_work_are_problems() -> None:
    degraded = {"model openai": "no key", "MCP server shop": "not connected: 401"}
    lines = format_status({**FOUND, "degraded": degraded}, NOW)
    assert "  model openai     PROBLEM: no key" in lines
    assert "  MCP server shop  PROBLEM: not connected: 401" in lines


def test_fields_missing_from_an_older_daemon_are_left_out() -> None:
    old = {"state": "stopping", "started_at": NOW, "url": None, "running": 0}
    assert format_status(old, NOW) == [
        "Stopping for less than a minute (since 2026-09-21 14:13:20), pid unknown.",
        "No turns running.",
    ]


def test_safe_mode_is_shown_first() -> None:
    assert (
        format_status({**FOUND, "safe_mode": "Safe mode: it crashed."}, NOW)[2]
        == "Safe mode: it crashed."
    )
