"""Sans-IO: the collected data of a message, and text helpers."""

from collections.abc import Mapping

import msgspec

from gateway.access.api_keys import API_PLATFORM
from gateway.inbound.reader import origin_of, read_event
from gateway.inbound.request_options import RequestOptions, decode_options
from platforms.core.contract import InboundMessage
from sessions.records import EntryContext, InboxEntry, MessageTrace, OutboxItem
from sessions.values.item_ids import ItemId

START_HINT = "the gateway is started (holdfast run, or its service)"
NO_GATEWAY = "no gateway is running on this state folder"


class RunningGateway(msgspec.Struct, frozen=True):
    """The state a running gateway reports."""

    stopping: bool = False
    platforms: Mapping[str, str] = {}  # "connected", or the problem


class MessageReport(msgspec.Struct, frozen=True, kw_only=True):
    """A received message with everything that explains the current state."""

    trace: MessageTrace
    around: EntryContext
    now: int
    daemon: RunningGateway | None  # None: not running
    pauses: Mapping[str, int] = {}  # end of the pause a platform asked for, by chat

    @property
    def entry(self) -> InboxEntry:
        """The inbox row of the message."""
        return self.trace.entry

    @property
    def continued_by(self) -> InboxEntry | None:
        """The next API request of the same turn, which brought results of the client's tools."""
        others = (each for each in self.around.turn_entries if each.seq > self.entry.seq)
        return next(filter(continues_turn, others), None)

    @property
    def items(self) -> tuple[OutboxItem, ...]:
        """What was sent in answer to the message."""
        if self.continued_by is None:
            return self.trace.items
        origin = origin_of(self.entry)
        ids = ((item, ItemId.parse(item.id)) for item in self.trace.items)
        return tuple(item for item, parsed in ids if parsed and parsed.origin == origin)


def api_options(entry: InboxEntry) -> RequestOptions | None:
    """Return the options of an API request; None for other messages and for damaged ones."""
    if entry.address.platform != API_PLATFORM or not entry.payload:
        return None
    try:
        event = read_event(entry)
    except msgspec.DecodeError:
        return None
    if not isinstance(event, InboundMessage) or not event.wishes:
        return None
    return decode_options(event.wishes)


def continues_turn(entry: InboxEntry) -> bool:
    """Return True for an API request with which a turn went on, as its client ran the calls."""
    options = api_options(entry)
    return options is not None and bool(options.turn) and options.turn == entry.turn_id


class WaitStatus(msgspec.Struct, frozen=True):
    """The current state of a message, and the event that will change the state, if any."""

    current: str
    unblocked_by: str = ""

    @property
    def is_settled(self) -> bool:
        """True if no further event is expected."""
        return not self.unblocked_by


def format_message_count(count: int) -> str:
    """Return "1 message" or "N messages"."""
    return f"{count} message{'' if count == 1 else 's'}"
