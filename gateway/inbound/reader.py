"""Sans-IO: converts stored events to messages for a turn."""

from collections.abc import Callable

import msgspec

from gateway.inbound import routing
from gateway.inbound.request_options import read_request
from gateway.media.incoming import plan_attachments
from platforms.core.contract import (
    Inbound,
    InboundEdit,
    InboundMessage,
    Quote,
)
from sessions.conversation.events import (
    BusyPolicy,
    PendingMessage,
)
from sessions.key import parse_key
from sessions.records import InboxEntry, Message
from sessions.values.ids import stable_id

_decode_inbound = msgspec.json.Decoder[Inbound](Inbound).decode
_BUSY_MODES = {"queue": BusyPolicy.QUEUE, "steer": BusyPolicy.STEER}


class InboxReader:
    """Reads inbox rows."""

    def __init__(self, default_busy: Callable[[], BusyPolicy]) -> None:
        self._default_busy = default_busy

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """See `sessions.conversation.actor.ActorHost`."""
        event = read_event(entry)
        if not isinstance(event, InboundMessage):
            return PendingMessage(
                id=entry.id,
                address=entry.address,
                person="",
                message=Message("user"),
                origin=origin_of(entry),
            )
        if event.wishes:
            return read_request(entry, event, origin_of(entry))
        mode, text = self._busy_mode(event.text)
        key = parse_key(entry.key)
        shared = not event.direct and not key.user
        message = Message(
            "user",
            content=_message_content(event, text),
            sender=f"{event.sender.name} ({event.sender.id})".strip() if shared else None,
            files=plan_attachments(entry.id, event.parts),
        )
        person = f"{event.address.platform}:{event.sender.id}"
        # In a room the answer must show which message it answers.
        reply_to = "" if event.direct else event.id
        origin = origin_of(entry)
        return PendingMessage(
            id=entry.id,
            address=entry.address,
            person=person,
            message=message,
            mode=mode,
            reply_to=reply_to,
            origin=origin,
        )

    def is_message_command(self, command: routing.ParsedCommand | routing.UnknownCommand) -> bool:
        """Return True for `/queue TEXT` and `/steer TEXT`, which are messages with a busy mode."""
        return (
            isinstance(command, routing.ParsedCommand)
            and command.word in _BUSY_MODES
            and command.args != ""
        )

    def apply_edit(self, entry: InboxEntry, edit: InboundEdit) -> InboxEntry:
        """Return the stored message with the content of an edit."""
        event = read_event(entry)
        assert isinstance(event, InboundMessage)  # noqa: S101 - only messages wait
        changed = msgspec.structs.replace(event, parts=edit.parts)
        return msgspec.structs.replace(entry, payload=msgspec.json.encode(changed))

    def _busy_mode(self, text: str) -> tuple[BusyPolicy, str]:
        command = routing.parse_command(text, _BUSY_MODES)
        if isinstance(command, routing.ParsedCommand) and command.args:
            return _BUSY_MODES[command.word], command.args
        return self._default_busy(), text


def read_event(entry: InboxEntry) -> Inbound:
    """Decode the stored event."""
    event: Inbound = _decode_inbound(entry.payload or b"")
    return event


def origin_of(entry: InboxEntry) -> str:
    """Return the id from which the ids of all replies to an event are derived.

    The id depends on platform, account, chat and event only. A second gateway with the same token
    therefore gives its replies the same ids, and a platform that deduplicates by id shows one of
    them.
    """
    return stable_id(entry.source, entry.event)


def _message_content(event: InboundMessage, text: str) -> str:
    """Return the text of a message together with the quoted messages."""
    lines = []
    if event.context:
        lines.append("[Earlier in this room, from people who may not be known:")
        lines.extend(f"  {_format_quote(quote)}" for quote in event.context)
        lines.append("]")
    if event.reply_to:
        lines.append(f"[In reply to {_format_quote(event.reply_to)}]")
    lines.append(text)
    return "\n".join(lines).strip()


def _format_quote(quote: Quote) -> str:
    return f"{quote.sender}: {quote.text}" if quote.sender else quote.text
