"""The limit on the log lines of the MCP package."""

import logging
from typing import Any

from agent.tools.mcp.package_log import SERVER, PackageLogFilter


def record(created: float, **fields: Any) -> logging.LogRecord:
    values = {"msg": "no %s", "args": ("luck",), "pathname": "session.py", "lineno": 7, **fields}
    made = logging.makeLogRecord(values)
    made.created = created
    return made


def test_one_record_per_server_place_and_minute_passes_with_a_count() -> None:
    limit = PackageLogFilter()
    SERVER.set("far")
    first = record(100.0)
    assert limit.filter(first)
    assert first.getMessage() == "MCP server far: no luck"
    assert not any(limit.filter(record(100.0 + number / 100)) for number in range(1_000))
    assert limit.filter(record(101.0, lineno=8))
    SERVER.set("near")
    assert limit.filter(record(101.0))
    SERVER.set("far")
    late = record(161.0)
    assert limit.filter(late)
    assert late.getMessage() == "MCP server far: no luck [1000 more before this]"
    assert limit.filter(record(50.0))  # the system clock was set back


def test_a_traceback_becomes_one_line() -> None:
    error = ValueError("first line\nsecond line")
    failed = record(1.0, exc_info=(ValueError, error, None))
    assert PackageLogFilter().filter(failed)
    assert failed.getMessage().endswith(": no luck (ValueError: first line)")
    assert failed.exc_info is None
