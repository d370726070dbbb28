"""Sans-IO: the files that come with a message: how they are called, and where they are put."""

import re
import unicodedata
from collections.abc import Iterable

from platforms.core.contract import File, Part
from sessions.records import Attachment
from sessions.values.size import in_words

FOLDER = "received"
"""Of a workspace; in it, each message that brings files has a folder of its own."""

OF_A_MESSAGE = re.compile(r"[0-9a-hjkmnp-tv-z]{10}")
"""What such a folder is called."""

MOST = 20
LONGEST_NAME = 100  # bytes

TOO_MANY = f"only the first {MOST} files of a message are taken"

_UNKNOWN = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[a-z0-9.+_-]{1,60}/[a-z0-9.+_-]{1,80}")
_INSTEAD = str.maketrans({"[": "(", "]": ")", "“": "'", "”": "'", '"': "'", "`": "'"})
_ENDINGS = {
    "application/pdf": ".pdf",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/webm": ".webm",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
}
_LONGEST_ENDING = 12
_SPACE = 5  # bytes for the number behind a name that is there already


def attachments(inbox_id: str, parts: Iterable[Part]) -> tuple[Attachment, ...]:
    """Settle where the files of a message go; the same whenever it is read again."""
    folder = f"{FOLDER}/{inbox_id.rpartition('_')[2][-10:]}"
    taken: set[str] = set()
    found = []
    for number, file in enumerate(part for part in parts if isinstance(part, File)):
        media_type = clean_media_type(file.media_type)
        name = clean_name(file.name, media_type)
        found.append(
            Attachment(
                name,
                media_type,
                f"{folder}/{_another(name, taken)}",
                ref=file.ref,
                size=file.size,
                voice=file.voice,
                trouble=TOO_MANY if number >= MOST else "",
            )
        )
    return tuple(found)


def as_part(file: Attachment) -> File:
    """Give back what the adapter had said of a file."""
    return File(file.name, file.media_type, file.ref, file.size, file.voice)


def clean_name(name: str, media_type: str = _UNKNOWN) -> str:
    """Make a name that is a file's name everywhere, that can be read, and that says no more."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/ ").rpartition("/")[2]
    shown = "".join(map(_seen, last.translate(_INSTEAD)))
    bare = " ".join(shown.split()).lstrip(". ").rstrip(". ")
    return _shortened(bare) or f"file{ending_of(media_type)}"


def clean_media_type(said: str) -> str:
    """Take the kind of a file as it was said, unless it is no such word."""
    kind = said.partition(";")[0].strip().lower()
    return kind if _MEDIA_TYPE.fullmatch(kind) else _UNKNOWN


def ending_of(media_type: str) -> str:
    """Give the ending that files of a kind usually have; none where it is not known."""
    return _ENDINGS.get(media_type, "")


def too_large(largest: int, size: int | None = None) -> str:
    """Say that a file is too large; without a size it was given up on its way."""
    is_ = in_words(size) if size is not None else f"more than {in_words(largest)}"
    return f"too large ({is_}, at most {in_words(largest)})"


def _seen(sign: str) -> str:
    """Leave out what is not seen, and what changes the direction of a text."""
    kind = unicodedata.category(sign)
    if kind.startswith("Z") or sign in "\t\r\n":
        return " "
    return "" if kind.startswith("C") else sign


def _shortened(name: str, most: int = LONGEST_NAME - _SPACE) -> str:
    """Shorten a name before its ending."""
    if len(name.encode()) <= most:
        return name
    stem, ending = _parted(name)
    room = most - len(ending.encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(". ") + ending


def _parted(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    if not stem or len(ending.encode()) >= _LONGEST_ENDING or " " in ending:
        return name, ""
    return stem, dot + ending


def _another(name: str, taken: set[str]) -> str:
    """Give a name that is not taken yet; some file systems do not tell capitals apart."""
    stem, ending = _parted(name)
    number, free = 1, name
    while free.casefold() in taken:
        number += 1
        free = f"{stem}-{number}{ending}"
    taken.add(free.casefold())
    return free
