"""Sans-IO: a chat as a whole, and what can be said of what was never received."""

from collections.abc import Iterator, Sequence

from gateway.delivery.view import read_address
from gateway.inbound.routing import name_of
from gateway.operate.why.facts import Daemon, Way, messages, moment
from gateway.operate.why.shown import error, platform_trouble
from gateway.operate.why.standing import waits
from sessions.key import parse_key
from sessions.records import InboxEntry, InboxState, Item, ItemState


def summary(ways: Sequence[Way]) -> str:
    """Say of a chat whether anything waits there; the ways are the newest of it."""
    waiting = [way for way in ways if way.entry.state not in _OVER and not waits(way).over]
    open_items = [
        item
        for way in ways
        for item in way.traced.items
        if way.entry.state in _OVER and item.state not in {ItemState.SENT, ItemState.DEAD}
    ]
    if not waiting and not open_items:
        return "nothing waits here"
    words = []
    if waiting:
        words.append(f"{messages(len(waiting))} not answered yet")
    if open_items:
        words.append(
            f"{len(open_items)} answer{'' if len(open_items) == 1 else 's'} not delivered yet"
        )
    return "; ".join(words)


_OVER = {InboxState.DONE, InboxState.IGNORED, InboxState.REFUSED}


def nothing(
    text: str,
    daemon: Daemon | None,
    last: Sequence[InboxEntry],
    ignored: Sequence[InboxEntry],
) -> Iterator[str]:
    """Say what can be said where nothing was received that is called so."""
    yield f"Nothing was received that is called {text}: no chat, message, turn, answer or session."
    platform = platform_of(text)
    if platform is None:
        return
    trouble = platform_trouble(daemon, platform)
    yield f"{platform}: {trouble}." if trouble else f"{platform} is connected."
    if not last:
        yield f"Nothing has come from {platform} yet."
        return
    yield f"The last thing from {platform} came {moment(last[0].received_at)}, of {last[0].key}."
    if ignored:
        yield "Ignored there of late (what is ignored is forgotten after 7 days):"
    for entry in ignored:
        yield f"  {moment(entry.received_at)}  {entry.key}: {entry.decision or 'ignored'}"


def platform_of(text: str) -> str | None:
    """Read the platform out of a chat's name; None when it is no such name."""
    try:
        key = parse_key(text)
    except ValueError:
        return None
    return name_of(key.platform, key.account)


def lone(item: Item) -> str:
    """Say how something stands that was shown without anybody having asked for it."""
    state = f"{item.kind} {item.id} for {_place(item.address)}: {item.state.value}"
    at = f" {moment(item.settled_at)}" if item.settled_at else ""
    return f"{state}{at}{error(item)}"


def _place(address: str) -> str:
    place = read_address(address)
    return f"{name_of(place.platform, place.account)}:{place.chat}"
