"""Sans-IO: the summary of a chat, and the answer for unknown ids."""

from collections.abc import Iterator, Sequence

from gateway.inbound.routing import connection_name
from gateway.operate.why.facts import (
    MessageReport,
    RunningGateway,
    format_message_count,
)
from gateway.operate.why.shown import error_suffix, platform_trouble
from gateway.operate.why.standing import wait_status
from sessions.key import parse_key
from sessions.records import InboxEntry, InboxState, ItemState, OutboxItem
from sessions.settings import IGNORED_RETENTION_DAYS
from sessions.values.address import Address
from sessions.values.text import format_time


def chat_summary(reports: Sequence[MessageReport]) -> str:
    """Return in one line whether a message or answer in a chat still waits."""
    waiting = [
        report
        for report in reports
        if report.entry.state not in _FINAL_STATES and not wait_status(report).is_settled
    ]
    open_items = [
        item
        for report in reports
        for item in report.items
        if report.entry.state in _FINAL_STATES
        and item.state not in {ItemState.SENT, ItemState.DEAD}
    ]
    if not waiting and not open_items:
        return "nothing is waiting"
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
    """Yield the known facts about a platform when no message matches `text`."""
    yield f"Nothing is known about {text}: no chat, message, turn, answer or session has this name."
    platform = platform_of(text)
    if platform is None:
        return
    problem = platform_trouble(daemon, platform)
    yield f"{platform}: {problem}." if problem else f"{platform} is connected."
    if not newest:
        yield f"No message from {platform} has been received yet."
        return
    yield (
        f"The last message from {platform} arrived {format_time(newest[0].received_at)} in "
        f"{newest[0].key}."
    )
    if ignored:
        yield f"Recently ignored messages (kept for {IGNORED_RETENTION_DAYS} days):"
    for entry in ignored:
        yield f"  {format_time(entry.received_at)}  {entry.key}: {entry.decision or 'ignored'}"


def platform_of(text: str) -> str | None:
    """Return the connection named in a chat's name; None if `text` is not such a name."""
    try:
        key = parse_key(text)
    except ValueError:
        return None
    return connection_name(key.platform, key.account)


def unrequested_item_line(item: OutboxItem) -> str:
    """Describe the state of an outgoing message that answers no received message."""
    state = f"{item.kind} {item.id} for {_chat_name(item.address)}: {item.state.value}"
    at = f" {format_time(item.settled_at)}" if item.settled_at else ""
    return f"{state}{at}{error_suffix(item)}"


def _chat_name(address: Address) -> str:
    return f"{connection_name(address.platform, address.account)}:{address.chat}"
