"""Sans-IO: the state of an undelivered answer, and of the platforms."""

from gateway.inbound.routing import connection_name
from gateway.operate.why.facts import (
    NO_GATEWAY,
    START_HINT,
    MessageReport,
    RunningGateway,
    WaitStatus,
)
from sessions.records import ItemState, OutboxItem
from sessions.values.address import Address
from sessions.values.text import format_time

_CONNECTED = "connected"


def delivery_status(report: MessageReport, item: OutboxItem) -> WaitStatus:
    """Return the state of an outgoing message that is not sent yet."""
    what = f"{item.kind} {item.id}"
    match item.state:
        case ItemState.PENDING | ItemState.ATTEMPTING:
            return _pending(report, item, what)
        case ItemState.UNKNOWN:
            return WaitStatus(
                f"its {what} may or may not have arrived: the connection broke while it was sent"
                f"{error_suffix(item)}",
                "the platform confirms it, or the message is sent again, marked as a possible duplicate"
                + _when_connected(report, item),
            )
        case ItemState.DEAD:
            return WaitStatus(
                f"its {what} could not be delivered: {item.error or 'no cause is known'}",
                "the cause is fixed, and /retry requests a new answer",
            )
        case ItemState.SENT:
            return WaitStatus(f"its {what} is sent")


def _pending(report: MessageReport, item: OutboxItem, what: str) -> WaitStatus:
    phase = "is being sent" if item.state is ItemState.ATTEMPTING else "is waiting to be sent"
    tries = f", after {item.tries} tries" if item.tries > 1 else ""
    if report.daemon is None:
        return WaitStatus(
            f"its {what} is waiting to be sent{tries}: no gateway is running on this state folder",
            START_HINT,
        )
    if problem := _platform_trouble(report, item.address):
        return WaitStatus(
            f"its {what} is waiting to be sent{tries}: {problem}", "the platform works again"
        )
    until = max(item.not_before, _paused_until(report, item.address))
    if until > report.now:
        return WaitStatus(
            f"its {what} is waiting{tries}: the platform accepts no message before {format_time(until)}",
            "that time is reached",
        )
    if not item.final:
        return WaitStatus(f"its {what} is being written", "its turn ends")
    return WaitStatus(f"its {what} {phase}{tries}{error_suffix(item)}", "the platform accepts it")


def _when_connected(report: MessageReport, item: OutboxItem) -> str:
    if report.daemon is None:
        return f", once {START_HINT}"
    return ", once the platform works again" if _platform_trouble(report, item.address) else ""


def error_suffix(item: OutboxItem) -> str:
    """Return the platform's error in parentheses; empty without one."""
    return f" ({item.error})" if item.error else ""


def _paused_until(report: MessageReport, address: Address) -> int:
    chat = f"{address.platform}@{address.account}:{address.chat}"
    return max(report.pauses.get(chat, 0), report.pauses.get(f"{chat}:{address.thread}", 0))


def _platform_trouble(report: MessageReport, address: Address) -> str:
    return platform_trouble(report.daemon, connection_name(address.platform, address.account))


def platform_trouble(daemon: RunningGateway | None, platform: str) -> str:
    """Return why a platform cannot deliver; empty if no problem is known."""
    if daemon is None:
        return NO_GATEWAY
    state = daemon.platforms.get(platform)
    if state is None:
        return f"{platform} is not configured, or its library is missing"
    return "" if state == _CONNECTED else f"{platform} is not connected ({state})"
