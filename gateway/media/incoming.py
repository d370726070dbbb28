"""Sans-IO: names and paths of received files."""

from collections.abc import Iterable

from platforms.core.contract import File, Part
from sessions.records import Attachment
from sessions.values.file_names import RECEIVED_FOLDER, clean_media_type, clean_name, unique_name
from sessions.values.ids import unique_part
from sessions.values.size import format_size

MAX_FILES = 20
TOO_MANY_FILES = f"only the first {MAX_FILES} files of a message are accepted"


def plan_attachments(inbox_id: str, parts: Iterable[Part]) -> tuple[Attachment, ...]:
    """Assign a path to each file of a message; the result is the same on every call."""
    folder = f"{RECEIVED_FOLDER}/{unique_part(inbox_id)[-10:]}"
    taken: set[str] = set()
    found = []
    for number, file in enumerate(part for part in parts if isinstance(part, File)):
        media_type = clean_media_type(file.media_type)
        name = clean_name(file.name, media_type)
        found.append(
            Attachment(
                name=name,
                media_type=media_type,
                path=f"{folder}/{unique_name(name, taken)}",
                ref=file.ref,
                size=file.size,
                voice=file.voice,
                trouble=TOO_MANY_FILES if number >= MAX_FILES else "",
            )
        )
    return tuple(found)


def to_file_part(file: Attachment) -> File:
    """Return the file part as received from the adapter."""
    return File(file.name, file.media_type, ref=file.ref, size=file.size, voice=file.voice)


def too_large_message(max_bytes: int, size: int | None = None) -> str:
    """Return the message for a file that is too large; without a size, for an aborted download."""
    actual = format_size(size) if size is not None else f"more than {format_size(max_bytes)}"
    return f"too large ({actual}, at most {format_size(max_bytes)})"
