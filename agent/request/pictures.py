"""Sans-IO: which files of a conversation a model is shown as pictures.

Services take four formats, a few megabytes each; of a long conversation only the newest are shown,
because every request carries them anew. The other files are only named.
"""

from collections.abc import Iterable, Sequence

from sessions.records import Attachment, Message

MAX_PICTURE_BYTES = 3_750_000
"""Bytes of a picture; a third more as base64, which is where services draw the line at 5 MB."""

SIGNATURE_BYTES = 12
"""Bytes that show what a picture is."""

MAX_PICTURES = 8
MAX_TOTAL_BYTES = 16_000_000

_SIGNATURES = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

PICTURE_OMITTED = "[A picture stands here that you cannot be shown; say so if it matters.]"
"""Told in the place of a picture that the service does not take."""


def detect_media_type(beginning: bytes) -> str | None:
    """Tell from its first bytes what a picture is, whatever it is called; None: not for us."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in _SIGNATURES if beginning.startswith(begins)), None)


def is_picture(file: Attachment) -> bool:
    """Tell whether a file may be shown."""
    return (
        file.fetched and file.media_type in PICTURE_TYPES and (file.size or 0) <= MAX_PICTURE_BYTES
    )


def count_pictures(row: Message) -> int:
    """Count the pictures of a row."""
    return sum(map(is_picture, row.files))


def select_pictures(rows: Sequence[Message]) -> tuple[Attachment, ...]:
    """Choose what is shown: the newest, as many as a request may carry."""
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
        if row.files:  # hardly any has one
            yield from filter(is_picture, reversed(row.files))
