"""The tool for the current date and time."""

import datetime as dt
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.errors import ToolError
from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool


@tool(risk=Risk.READ, emoji="🕐", parallel=True, label="timezone")
async def current_time(context: ToolContext, timezone: str = "UTC") -> str:
    """Get the current date and time.

    Args:
        context: Not part of the call.
        timezone: IANA time zone, such as Europe/Berlin.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"There is no time zone {timezone!r}; use a name such as Europe/Berlin or UTC."
        raise ToolError(msg) from None
    now = dt.datetime.fromtimestamp(context.clock.now() / 1000, zone)
    return now.strftime("%A, %Y-%m-%d %H:%M:%S %Z (UTC%z)")
