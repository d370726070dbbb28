"""Sans-IO: what a program that asks over HTTP wants besides an answer; stored with its message.

A message that carries wishes is taken as it is: its words are never a command, it always waits for
its turn, and what it says of earlier messages opens its session.
"""

from collections.abc import Iterator

import msgspec

from gateway.media.incoming import plan_attachments
from platforms.core.contract import File, InboundMessage, Part
from sessions.conversation.events import PendingMessage
from sessions.records import Attachment, InboxEntry, Message, ToolCall


class EarlierMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that was said before, as the program tells it."""

    role: str  # as in `sessions.records.TelegramMessage`
    text: str = ""
    files: tuple[File, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class RequestOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a message is to be answered."""

    system: str = ""  # added to our own prompt
    model: str = ""  # empty: the one that answers there anyway
    max_output_tokens: int | None = None
    temperature: float | None = None
    effort: str | None = None
    before: tuple[EarlierMessage, ...] = ()
    rows: tuple[Message, ...] = ()  # of another conversation, which this one branches off
    after: str = ""  # the session that goes on
    once: bool = False  # the conversation is this request, and is closed with its answer
    keyed: bool = False  # it may be sent again, and then means the same
    digest: str = ""  # of the request: under the same key nothing else may be asked
    kept: bool = False  # the answer may be asked for again by its id
    called: str = ""  # the model, as the answer names it
    echo: bytes = b""  # what the answer says of its request, in the words of the request's form


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RequestOptions).decode


def encode_options(options: RequestOptions) -> bytes:
    """Write wishes for the message that carries them."""
    return _encode(options)


def decode_options(encoded: bytes) -> RequestOptions:
    """Read them back."""
    return _decode(encoded)


def read_request(entry: InboxEntry, event: InboundMessage, origin: str) -> PendingMessage:
    """Read a stored message that carries wishes."""
    wishes = decode_options(event.wishes)
    parts: list[Part] = [file for row in wishes.before for file in row.files]
    files = iter(plan_attachments(entry.id, (*parts, *event.parts)))
    before = (*wishes.rows, *(_to_message(row, files) for row in wishes.before))
    message = Message("user", event.text, files=tuple(files))
    return PendingMessage(
        id=entry.id,
        address=entry.address,
        person=f"{event.address.platform}:{event.sender.id}",
        message=message,
        origin=origin,
        prior_messages=before,
        request_options=encode_options(msgspec.structs.replace(wishes, before=(), rows=())),
        single_turn=wishes.once,
        continued_session=wishes.after,
    )


def _to_message(row: EarlierMessage, files: Iterator[Attachment]) -> Message:
    own = tuple(next(files) for _ in row.files)
    return Message(
        row.role, row.text, tool_calls=row.tool_calls, tool_call_id=row.tool_call_id, files=own
    )
