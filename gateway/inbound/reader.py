"""Sans-IO: converts stored events to messages for a turn."""

from collections.abc import Callable, Iterable
from typing import TypeGuard

import msgspec

from gateway.inbound import routing
from gateway.inbound.request_options import person_of, read_request
from gateway.media.incoming import plan_attachments
from platforms.core.contract import (
    File,
    Forward,
    Inbound,
    InboundEdit,
    InboundMessage,
    Part,
    Prompt,
    Text,
)
from sessions.conversation.events import BusyPolicy, PendingMessage
from sessions.key import parse_key
from sessions.records import InboxEntry, Message, MessageRole
from sessions.values.frames import clean_name, frame_reply, frame_room, neutralize_labels
from sessions.values.ids import stable_id

_decode_inbound = msgspec.json.Decoder[Inbound](Inbound).decode
_MESSAGE_COMMANDS = {"queue": BusyPolicy.QUEUE, "steer": BusyPolicy.STEER}


class InboxReader:
    """Reads inbox rows."""

    def __init__(self, default_busy: Callable[[], BusyPolicy]) -> None:
        self._default_busy = default_busy

    def read_pending(self, entry: InboxEntry) -> PendingMessage:
        """See `sessions.conversation.actor.ActorHost`."""
        event = read_event(entry)
        if isinstance(event, InboundMessage):
            return self.make_pending(
                entry, event, routing.parse_command(event.text, _MESSAGE_COMMANDS)
            )
        return PendingMessage(
            id=entry.id,
            address=entry.address,
            person="",
            message=Message(MessageRole.USER),
            origin=origin_of(entry),
        )

    def make_pending(
        self,
        entry: InboxEntry,
        event: InboundMessage,
        command: routing.ParsedCommand | routing.UnknownCommand | None,
    ) -> PendingMessage:
        """Return the pending message of an entry; `command` is the parsed text of its event."""
        if event.wishes:
            return read_request(entry, event, origin_of(entry))
        mode, parts = self._default_busy(), event.parts
        if is_message_command(command):
            mode, parts = _MESSAGE_COMMANDS[command.word], (Text(command.args),)
        sender = sender_label(entry.key, event.sender.name, event.sender.id, direct=event.direct)
        message = Message(
            MessageRole.USER,
            content=_message_content(event, parts, shared=sender is not None),
            sender=sender,
            files=plan_attachments(entry.id, event.parts),
        )
        if (words := _words(parts)) != message.content:
            message = msgspec.structs.replace(message, words=words)
        person = person_of(event)
        origin = origin_of(entry)
        return PendingMessage(
            id=entry.id,
            address=entry.address,
            person=person,
            message=message,
            mode=mode,
            reply_to=event.id,
            direct=event.direct,
            origin=origin,
        )

    def apply_edit(self, entry: InboxEntry, edit: InboundEdit) -> InboxEntry:
        """Return the stored message with the content of an edit; a used prompt stays as it is."""
        event = read_event(entry)
        assert isinstance(event, InboundMessage)  # noqa: S101 - only messages wait
        if any(isinstance(part, Prompt) for part in event.parts):
            return entry
        changed = msgspec.structs.replace(event, parts=edit.parts)
        return msgspec.structs.replace(entry, payload=msgspec.json.encode(changed))


def sender_label(key: str, name: str, sender_id: str, *, direct: bool) -> str | None:
    """Return the sender as the model sees it; None in a conversation with one person."""
    if direct or parse_key(key).user:
        return None
    return f"{clean_name(name)} ({sender_id})".strip()


def is_message_command(
    command: routing.ParsedCommand | routing.UnknownCommand | None,
) -> TypeGuard[routing.ParsedCommand]:
    """Return True for `/queue TEXT` and `/steer TEXT`, which are messages with a busy mode."""
    return (
        isinstance(command, routing.ParsedCommand)
        and command.word in _MESSAGE_COMMANDS
        and command.args != ""
    )


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


def _message_content(event: InboundMessage, parts: Iterable[Part], *, shared: bool) -> str:
    """Return the text of a message together with the words of others, each in a frame.

    In a session of several people no line may look like the sender label of another person.
    """
    lines = []
    if event.context:
        lines.append(frame_room((quote.sender, quote.text) for quote in event.context))
    if event.reply_to:
        lines.append(frame_reply(event.reply_to.sender, event.reply_to.text))
    for part in parts:
        match part:
            case Text():
                lines.append(neutralize_labels(part.text) if shared else part.text)
            case Forward() | Prompt():
                lines.append(part.text)
            case File():
                pass
    return "\n".join(lines).strip()


def _words(parts: Iterable[Part]) -> str:
    """Return the words that people see as this message, for notices and titles."""
    said = (
        part.words if isinstance(part, Forward | Prompt) else part.text
        for part in parts
        if not isinstance(part, File)
    )
    return "\n".join(said).strip()
