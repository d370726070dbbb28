"""A limit on the log lines of the official package.

The package logs a traceback for each message that it cannot decode, and a server can send such
messages without end. One line per server, place in the package and minute is enough.
"""

import logging
from contextvars import ContextVar

from sessions.values.exceptions import error_line

SERVER: ContextVar[str] = ContextVar("mcp_server", default="")
"""Name of the server that a task works for; inherited by the tasks that it creates."""

_LOGGERS = (
    "client",  # of `mcp.client.session`
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)
_INTERVAL_SECONDS = 60.0

_Place = tuple[str, str, int]  # server, file and line


class PackageLogFilter(logging.Filter):
    """Passes one record per server, place and minute, in one line, with the number of the others."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[_Place, float] = {}  # seconds since 1970
        self._suppressed: dict[_Place, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        server = SERVER.get()
        place = (server, record.pathname, record.lineno)
        last = self._last.get(place)
        if last is not None and 0 <= record.created - last < _INTERVAL_SECONDS:
            self._suppressed[place] = self._suppressed.get(place, 0) + 1
            return False
        self._last[place] = record.created
        more = self._suppressed.pop(place, 0)
        error = record.exc_info[1] if record.exc_info else None
        reason = f" ({error_line(error)})" if isinstance(error, Exception) else ""
        suffix = f" [{more} more before this]" if more else ""
        record.msg = f"MCP server {server}: {record.getMessage()}{reason}{suffix}"
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


def limit_package_logs() -> None:
    """Install the filter; a second call has no effect."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, PackageLogFilter) for each in logger.filters):
            logger.addFilter(PackageLogFilter())
