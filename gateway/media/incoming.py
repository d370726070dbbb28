"""Sans-IO: the files that come with a message: how they are called, and where they are put."""

import re
import unicodedata
from collections.abc import Iterable

from platforms.core.contract import File, Part
from sessions.records import Attachment
from sessions.values.size import format_size

RECEIVED_FOLDER = "received"
"""Of a workspace; in it, each message that brings files has a folder of its own."""

MESSAGE_FOLDER_PATTERN = re.compile(r"[0-9a-hjkmnp-tv-z]{10}")
"""What such a folder is called."""

MAX_FILES = 20
MAX_NAME_BYTES = 100  # bytes

TOO_MANY_FILES = f"only the first {MAX_FILES} files of a message are taken"

_UNKNOWN_MEDIA_TYPE = "application/octet-stream"
_MEDIA_TYPE_PATTERN = re.compile(r"[a-z0-9.+_-]{1,60}/[a-z0-9.+_-]{1,80}")
_REPLACED_CHARACTERS = str.maketrans({"[": "(", "]": ")", "“": "'", "”": "'", '"': "'", "`": "'"})
_EXTENSIONS = {
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
_MAX_EXTENSION_BYTES = 12
_NUMBER_SUFFIX_BYTES = 5  # bytes for the number behind a name that is there already


def plan_attachments(inbox_id: str, parts: Iterable[Part]) -> tuple[Attachment, ...]:
    """Settle where the files of a message go; the same whenever it is read again."""
    folder = f"{RECEIVED_FOLDER}/{inbox_id.rpartition('_')[2][-10:]}"
    taken: set[str] = set()
    found = []
    for number, file in enumerate(part for part in parts if isinstance(part, File)):
        media_type = clean_media_type(file.media_type)
        name = clean_name(file.name, media_type)
        found.append(
            Attachment(
                name=name,
                media_type=media_type,
                path=f"{folder}/{_unique_name(name, taken)}",
                ref=file.ref,
                size=file.size,
                voice=file.voice,
                trouble=TOO_MANY_FILES if number >= MAX_FILES else "",
            )
        )
    return tuple(found)


def to_file_part(file: Attachment) -> File:
    """Give back what the adapter had said of a file."""
    return File(file.name, file.media_type, ref=file.ref, size=file.size, voice=file.voice)


def clean_name(name: str, media_type: str = _UNKNOWN_MEDIA_TYPE) -> str:
    """Make a name that is a file's name everywhere, that can be read, and that says no more."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/ ").rpartition("/")[2]
    shown = "".join(map(_visible_character, last.translate(_REPLACED_CHARACTERS)))
    bare = " ".join(shown.split()).lstrip(". ").rstrip(". ")
    return _shorten_name(bare) or f"file{extension_for(media_type)}"


def clean_media_type(media_type: str) -> str:
    """Take the kind of a file as it was said, unless it is no such word."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind if _MEDIA_TYPE_PATTERN.fullmatch(kind) else _UNKNOWN_MEDIA_TYPE


def extension_for(media_type: str) -> str:
    """Give the ending that files of a kind usually have; none where it is not known."""
    return _EXTENSIONS.get(media_type, "")


def too_large_message(max_bytes: int, size: int | None = None) -> str:
    """Say that a file is too large; without a size it was given up on its way."""
    is_ = format_size(size) if size is not None else f"more than {format_size(max_bytes)}"
    return f"too large ({is_}, at most {format_size(max_bytes)})"


def _visible_character(character: str) -> str:
    """Leave out what is not seen, and what changes the direction of a text."""
    kind = unicodedata.category(character)
    if kind.startswith("Z") or character in "\t\r\n":
        return " "
    return "" if kind.startswith("C") else character


def _shorten_name(name: str, max_bytes: int = MAX_NAME_BYTES - _NUMBER_SUFFIX_BYTES) -> str:
    """Shorten a name before its ending."""
    if len(name.encode()) <= max_bytes:
        return name
    stem, ending = _split_extension(name)
    room = max_bytes - len(ending.encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(". ") + ending


def _split_extension(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    if not stem or len(ending.encode()) >= _MAX_EXTENSION_BYTES or " " in ending:
        return name, ""
    return stem, dot + ending


def _unique_name(name: str, taken: set[str]) -> str:
    """Give a name that is not taken yet; some file systems do not tell capitals apart."""
    stem, ending = _split_extension(name)
    number, free = 1, name
    while free.casefold() in taken:
        number += 1
        free = f"{stem}-{number}{ending}"
    taken.add(free.casefold())
    return free
