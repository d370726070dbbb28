"""Sans-IO: what an answer waits for that is not shown yet, and how the platforms stand."""

from typing import assert_never

from gateway.delivery.view import read_address
from gateway.inbound.routing import name_of
from gateway.operate.why.facts import NO_GATEWAY, START, Daemon, Waits, Way, moment
from sessions.records import Item, ItemState

_CONNECTED = "connected"


def undelivered(way: Way, item: Item) -> Waits:
    """Say how something stands that is not sent."""
    what = f"{item.kind} {item.id}"
    match item.state:
        case ItemState.PENDING | ItemState.ATTEMPTING:
            return _pending(way, item, what)
        case ItemState.UNKNOWN:
            return Waits(
                f"it is not known whether its {what} arrived: a try to send it was cut off"
                f"{error(item)}",
                "the platform is asked, or the message sent once more with a mark that it may be a "
                "duplicate; it is never repeated blindly" + _once_there(way, item),
            )
        case ItemState.DEAD:
            return Waits(
                f"its {what} could not be delivered and was given up: "
                f"{item.error or 'no cause is known'}",
                "what the platform complains of is mended, and /retry makes a new answer",
            )
        case ItemState.SENT:
            return Waits(f"its {what} is sent")
        case _:
            assert_never(item.state)


def _pending(way: Way, item: Item, what: str) -> Waits:
    verb = "is being sent" if item.state is ItemState.ATTEMPTING else "waits to be sent"
    tries = f", after {item.tries} tries" if item.tries > 1 else ""
    if way.daemon is None:
        return Waits(
            f"its {what} waits to be sent{tries}: no gateway runs on this state folder", START
        )
    if trouble := _platform_trouble(way, item.address):
        return Waits(f"its {what} waits to be sent{tries}: {trouble}", "the platform works again")
    until = max(item.not_before, _pause(way, item.address))
    if until > way.now:
        return Waits(
            f"its {what} waits{tries}: the platform asked us to send nothing before {moment(until)}",
            "that moment comes; nothing can be done about it here",
        )
    if not item.final:
        return Waits(f"its {what} is being written", "its turn ends")
    return Waits(f"its {what} {verb}{tries}{error(item)}", "the platform takes it")


def _once_there(way: Way, item: Item) -> str:
    if way.daemon is None:
        return f", once {START}"
    return ", once the platform works again" if _platform_trouble(way, item.address) else ""


def error(item: Item) -> str:
    """What its platform complained of."""
    return f" ({item.error})" if item.error else ""


def _pause(way: Way, address: str) -> int:
    place = read_address(address)
    chat = f"{place.platform}@{place.account}:{place.chat}"
    return max(way.pauses.get(chat, 0), way.pauses.get(f"{chat}:{place.thread}", 0))


def _platform_trouble(way: Way, address: str) -> str:
    place = read_address(address)
    return platform_trouble(way.daemon, name_of(place.platform, place.account))


def platform_trouble(daemon: Daemon | None, platform: str) -> str:
    """Say what keeps a platform from working; empty: nothing, as far as is known."""
    if daemon is None:
        return NO_GATEWAY
    standing = daemon.platforms.get(platform)
    if standing is None:
        return f"{platform} is not configured, or its library is missing"
    return "" if standing == _CONNECTED else f"{platform} is not connected ({standing})"
