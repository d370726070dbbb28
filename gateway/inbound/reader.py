"""Sans-IO: stored events as messages for a turn."""

from collections.abc import Callable

import msgspec

from gateway.inbound import routing
from gateway.inbound.request_options import requested
from gateway.media.incoming import attachments
from platforms.core.contract import (
    Inbound,
    InboundEdit,
    InboundMessage,
    Quote,
)
from sessions.conversation.events import (
    Busy,
    Pending,
)
from sessions.key import parse_key
from sessions.records import InboxEntry, Message
from sessions.values.ids import made_of

_read = msgspec.json.Decoder[Inbound](Inbound).decode
_MODES = {"queue": Busy.QUEUE, "steer": Busy.STEER}


class Reader:
    """Reads what the inbox holds."""

    def __init__(self, busy: Callable[[], Busy]) -> None:
        self._busy = busy

    def pending(self, entry: InboxEntry) -> Pending:
        """See `sessions.conversation.actor.Hands`."""
        event = read_event(entry)
        if not isinstance(event, InboundMessage):
            return Pending(entry.id, entry.address, "", Message("user"), origin=origin_of(entry))
        if event.wishes:
            return requested(entry, event, origin_of(entry))
        mode, text = self._mode(event.text)
        place = parse_key(entry.key)
        shared = not event.direct and not place.user
        message = Message(
            "user",
            content=_content(event, text),
            sender=f"{event.sender.name} ({event.sender.id})".strip() if shared else None,
            files=attachments(entry.id, event.parts),
        )
        person = f"{event.address.platform}:{event.sender.id}"
        # Between two people it is plain what an answer answers; in a room it must be said.
        reply_to = "" if event.direct else event.id
        origin = origin_of(entry)
        return Pending(entry.id, entry.address, person, message, mode, reply_to, origin)

    def is_message(self, command: routing.Command | routing.Unknown) -> bool:
        """Whether a command is a message with a word in front that says how to handle it."""
        return (
            isinstance(command, routing.Command) and command.word in _MODES and command.args != ""
        )

    def rewritten(self, entry: InboxEntry, edit: InboundEdit) -> InboxEntry:
        """The stored message with the words of an edit."""
        event = read_event(entry)
        assert isinstance(event, InboundMessage)  # noqa: S101 - only messages wait
        changed = msgspec.structs.replace(event, parts=edit.parts)
        return msgspec.structs.replace(entry, payload=msgspec.json.encode(changed))

    def _mode(self, text: str) -> tuple[Busy, str]:
        command = routing.parse_command(text, _MODES)
        if isinstance(command, routing.Command) and command.args:
            return _MODES[command.word], command.args
        return self._busy(), text


def read_event(entry: InboxEntry) -> Inbound:
    """What was received."""
    event: Inbound = _read(entry.payload or b"")
    return event


def origin_of(entry: InboxEntry) -> str:
    """What the ids of all that answers something are made of: platform, account, chat, event.

    Another gateway that receives the same with the same token gives its answer the same ids, so
    that a platform that knows a repeat by its id shows one of the two.
    """
    return made_of(entry.source, entry.event)


def _content(event: InboundMessage, text: str) -> str:
    """All words of a message, with those that it refers to."""
    lines = []
    if event.context:
        lines.append("[Earlier in this room, from people who may not be known:")
        lines.extend(f"  {_quoted(quote)}" for quote in event.context)
        lines.append("]")
    if event.reply_to:
        lines.append(f"[In reply to {_quoted(event.reply_to)}]")
    lines.append(text)
    return "\n".join(lines).strip()


def _quoted(quote: Quote) -> str:
    return f"{quote.sender}: {quote.text}" if quote.sender else quote.text
