"""Sans-IO: names, request bodies and events exchanged between page and daemon."""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from platforms.core.contract import Button, ChatSummary, File, RowAuthor, TranscriptRow

MAX_FILES = 20  # per message
INLINE_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types shown in the page; all other files are offered for download."""

MIN_CHAT_LENGTH, MAX_CHAT_LENGTH = 4, 40  # of the name of a conversation
_CHAT = re.compile(rf"[A-Za-z0-9_-]{{{MIN_CHAT_LENGTH},{MAX_CHAT_LENGTH}}}")

MessageId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{8,64}\Z")]
KEEPALIVE = b": keepalive\n\n"


class UploadRef(msgspec.Struct, frozen=True):
    """A file that was uploaded before the message."""

    ref: Annotated[str, msgspec.Meta(pattern=r"\A[a-f0-9]{32}\Z")]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    type: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.+-]{1,60}/[A-Za-z0-9_.+-]{1,100}\Z")]


class NewMessage(msgspec.Struct, frozen=True):
    """A message from the page; a repeat after a lost response carries the same id."""

    id: MessageId
    text: str = ""
    files: Annotated[tuple[UploadRef, ...], msgspec.Meta(max_length=MAX_FILES)] = ()


class ButtonPress(msgspec.Struct, frozen=True):
    """A pressed button."""

    id: MessageId
    action: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    message: Annotated[str, msgspec.Meta(max_length=80)] = ""


class PageError(msgspec.Struct, frozen=True):
    """A refusal: a word for programs and a sentence for people."""

    type: str
    message: str


def is_chat(name: str) -> bool:
    """Return True if this is a valid name of a conversation."""
    return _CHAT.fullmatch(name) is not None


def normalize_text(text: str) -> str:
    """Replace NUL, which databases refuse, and CRLF."""
    return text.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")


def encode_error(kind: str, message: str) -> bytes:
    """Encode a refusal in the error format of the HTTP interface."""
    return msgspec.json.encode({"error": PageError(kind, message)})


def encode_event(name: str, data: object, event_id: int | None = None) -> bytes:
    """Encode one server-sent event; JSON has no raw newlines, so one data line is enough."""
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def row_data(row: TranscriptRow) -> dict[str, object]:
    """Convert a row for the page, without the delivery state of answers."""
    return {
        "id": row.id,
        "seq": row.seq,
        "at": row.at,
        "author": row.author,
        "text": row.text,
        "state": row.state if row.author is RowAuthor.USER else "",
        "buttons": button_data(row.buttons),
        "replyTo": row.reply_to,
        "files": [_file_data(row, place, file) for place, file in enumerate(row.files)],
    }


def _file_data(row: TranscriptRow, place: int, file: File) -> dict[str, object]:
    """Convert a file for the page, without paths on the disk."""
    data: dict[str, object] = {
        "name": file.name,
        "type": file.media_type,
        "at": f"{row.seq}/{place}",
        "shown": file.media_type in INLINE_MEDIA_TYPES,
    }
    return data | ({"ref": file.ref} if row.author is RowAuthor.USER else {})


def button_data(buttons: Sequence[Button]) -> list[dict[str, str]]:
    """Convert buttons for the page."""
    return [{"label": button.label, "action": button.action} for button in buttons]


def chat_data(chat: ChatSummary) -> dict[str, object]:
    """Convert a line of the conversation list for the page."""
    return {"id": chat.chat, "title": chat.title, "at": chat.updated_at}
