"""Sans-IO: what an answer waits for that is not shown yet, and how the platforms stand."""

from typing import assert_never

from gateway.delivery.view import read_address
from gateway.inbound.routing import connection_name
from gateway.operate.why.facts import (
    NO_GATEWAY,
    START_HINT,
    MessageReport,
    RunningGateway,
    WaitStatus,
    format_time,
)
from sessions.records import ItemState, OutboxItem

_CONNECTED = "connected"


def delivery_status(report: MessageReport, item: OutboxItem) -> WaitStatus:
    """Say how something stands that is not sent."""
    what = f"{item.kind} {item.id}"
    match item.state:
        case ItemState.PENDING | ItemState.ATTEMPTING:
            return _pending(report, item, what)
        case ItemState.UNKNOWN:
            return WaitStatus(
                f"it is not known whether its {what} arrived: a try to send it was cut off"
                f"{error_suffix(item)}",
                "the platform is asked, or the message sent once more with a mark that it may be a "
                "duplicate; it is never repeated blindly" + _when_connected(report, item),
            )
        case ItemState.DEAD:
            return WaitStatus(
                f"its {what} could not be delivered and was given up: "
                f"{item.error or 'no cause is known'}",
                "what the platform complains of is mended, and /retry makes a new answer",
            )
        case ItemState.SENT:
            return WaitStatus(f"its {what} is sent")
        case _:
            assert_never(item.state)


def _pending(report: MessageReport, item: OutboxItem, what: str) -> WaitStatus:
    verb = "is being sent" if item.state is ItemState.ATTEMPTING else "waits to be sent"
    tries = f", after {item.tries} tries" if item.tries > 1 else ""
    if report.daemon is None:
        return WaitStatus(
            f"its {what} waits to be sent{tries}: no gateway runs on this state folder", START_HINT
        )
    if trouble := _platform_trouble(report, item.address):
        return WaitStatus(
            f"its {what} waits to be sent{tries}: {trouble}", "the platform works again"
        )
    until = max(item.not_before, _paused_until(report, item.address))
    if until > report.now:
        return WaitStatus(
            f"its {what} waits{tries}: the platform asked us to send nothing before {format_time(until)}",
            "that moment comes; nothing can be done about it here",
        )
    if not item.final:
        return WaitStatus(f"its {what} is being written", "its turn ends")
    return WaitStatus(f"its {what} {verb}{tries}{error_suffix(item)}", "the platform takes it")


def _when_connected(report: MessageReport, item: OutboxItem) -> str:
    if report.daemon is None:
        return f", once {START_HINT}"
    return ", once the platform works again" if _platform_trouble(report, item.address) else ""


def error_suffix(item: OutboxItem) -> str:
    """What its platform complained of."""
    return f" ({item.error})" if item.error else ""


def _paused_until(report: MessageReport, address: str) -> int:
    place = read_address(address)
    chat = f"{place.platform}@{place.account}:{place.chat}"
    return max(report.pauses.get(chat, 0), report.pauses.get(f"{chat}:{place.thread}", 0))


def _platform_trouble(report: MessageReport, address: str) -> str:
    place = read_address(address)
    return platform_trouble(report.daemon, connection_name(place.platform, place.account))


def platform_trouble(daemon: RunningGateway | None, platform: str) -> str:
    """Say what keeps a platform from working; empty: nothing, as far as is known."""
    if daemon is None:
        return NO_GATEWAY
    standing = daemon.platforms.get(platform)
    if standing is None:
        return f"{platform} is not configured, or its library is missing"
    return "" if standing == _CONNECTED else f"{platform} is not connected ({standing})"
