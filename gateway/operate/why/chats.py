"""Sans-IO: a chat as a whole, and what can be said of what was never received."""

from collections.abc import Iterator, Sequence

from gateway.delivery.view import read_address
from gateway.inbound.routing import connection_name
from gateway.operate.why.facts import (
    MessageReport,
    RunningGateway,
    format_message_count,
    format_time,
)
from gateway.operate.why.shown import error_suffix, platform_trouble
from gateway.operate.why.standing import wait_status
from sessions.key import parse_key
from sessions.records import InboxEntry, InboxState, ItemState, OutboxItem


def chat_summary(reports: Sequence[MessageReport]) -> str:
    """Say of a chat whether anything waits there; the ways are the newest of it."""
    waiting = [
        way
        for way in reports
        if way.entry.state not in _FINAL_STATES and not wait_status(way).is_settled
    ]
    open_items = [
        item
        for way in reports
        for item in way.trace.items
        if way.entry.state in _FINAL_STATES and item.state not in {ItemState.SENT, ItemState.DEAD}
    ]
    if not waiting and not open_items:
        return "nothing waits here"
    words = []
    if waiting:
        words.append(f"{format_message_count(len(waiting))} not answered yet")
    if open_items:
        words.append(
            f"{len(open_items)} answer{'' if len(open_items) == 1 else 's'} not delivered yet"
        )
    return "; ".join(words)


_FINAL_STATES = {InboxState.DONE, InboxState.IGNORED, InboxState.REFUSED}


def not_found_lines(
    text: str,
    daemon: RunningGateway | None,
    newest: Sequence[InboxEntry],
    ignored: Sequence[InboxEntry],
) -> Iterator[str]:
    """Say what can be said where nothing was received that is called so."""
    yield f"Nothing was received that is called {text}: no chat, message, turn, answer or session."
    platform = platform_of(text)
    if platform is None:
        return
    trouble = platform_trouble(daemon, platform)
    yield f"{platform}: {trouble}." if trouble else f"{platform} is connected."
    if not newest:
        yield f"Nothing has come from {platform} yet."
        return
    yield f"The last thing from {platform} came {format_time(newest[0].received_at)}, of {newest[0].key}."
    if ignored:
        yield "Ignored there of late (what is ignored is forgotten after 7 days):"
    for entry in ignored:
        yield f"  {format_time(entry.received_at)}  {entry.key}: {entry.decision or 'ignored'}"


def platform_of(text: str) -> str | None:
    """Read the platform out of a chat's name; None when it is no such name."""
    try:
        key = parse_key(text)
    except ValueError:
        return None
    return connection_name(key.platform, key.account)


def unrequested_item_line(item: OutboxItem) -> str:
    """Say how something stands that was shown without anybody having asked for it."""
    state = f"{item.kind} {item.id} for {_chat_name(item.address)}: {item.state.value}"
    at = f" {format_time(item.settled_at)}" if item.settled_at else ""
    return f"{state}{at}{error_suffix(item)}"


def _chat_name(address: str) -> str:
    place = read_address(address)
    return f"{connection_name(place.platform, place.account)}:{place.chat}"
