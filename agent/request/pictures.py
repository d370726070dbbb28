"""Sans-IO: selection of the files that a model is shown as pictures.

Services accept four formats of a few megabytes each. Only the newest pictures of a conversation are
sent, because every request carries them again; other files are described in text.
"""

from collections.abc import Iterable, Sequence

from sessions.records import Attachment, Message

MAX_PICTURE_BYTES = 3_750_000
"""Limit per picture; base64 adds a third, and services accept 5 MB of base64."""

SIGNATURE_BYTES = 12
"""Number of leading bytes that identify the format."""

MAX_PICTURES = 8
MAX_TOTAL_BYTES = 16_000_000

_SIGNATURES = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

PICTURE_OMITTED = "[A picture was here, but you cannot see it. Say so if it matters.]"
"""Text in place of a picture that the service does not accept."""


def detect_media_type(beginning: bytes) -> str | None:
    """Detect a picture's media type from its first bytes; None if the format is not supported."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in _SIGNATURES if beginning.startswith(begins)), None)


def is_picture(file: Attachment) -> bool:
    """Return True if the file can be sent to a model as a picture."""
    return (
        file.fetched and file.media_type in PICTURE_TYPES and (file.size or 0) <= MAX_PICTURE_BYTES
    )


def count_pictures(row: Message) -> int:
    """Return the number of pictures in a row."""
    return sum(map(is_picture, row.files))


def select_pictures(rows: Sequence[Message]) -> tuple[Attachment, ...]:
    """Return the newest pictures, up to the limits of one request."""
    chosen: dict[str, Attachment] = {}
    room = MAX_TOTAL_BYTES
    for file in _newest_first(rows):
        room -= file.size or 0
        if len(chosen) == MAX_PICTURES or room < 0:
            break
        chosen.setdefault(file.path, file)
    return tuple(chosen.values())


def _newest_first(rows: Sequence[Message]) -> Iterable[Attachment]:
    for row in reversed(rows):
        if row.files:  # most rows have none
            yield from filter(is_picture, reversed(row.files))
