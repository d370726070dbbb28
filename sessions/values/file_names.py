"""Sans-IO: names and media types of files from elsewhere, made safe to store and to show."""

import re
import unicodedata

RECEIVED_FOLDER = "received"
"""Folder in a workspace with one subfolder per message or call that has files."""

MESSAGE_FOLDER_PATTERN = re.compile(r"[0-9a-hjkmnp-tv-z]{10}")
"""Name of such a subfolder."""

MAX_NAME_BYTES = 100

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
_NUMBER_SUFFIX_BYTES = 5  # for the number that makes a name unique


def clean_name(name: str, media_type: str = _UNKNOWN_MEDIA_TYPE) -> str:
    """Return a readable file name that is valid on every system."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/ ").rpartition("/")[2]
    shown = "".join(map(_visible_character, last.translate(_REPLACED_CHARACTERS)))
    bare = " ".join(shown.split()).lstrip(". ").rstrip(". ")
    return _shorten_name(bare) or f"file{extension_for(media_type)}"


def clean_media_type(media_type: str) -> str:
    """Return the declared media type, or `application/octet-stream` if malformed."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind if _MEDIA_TYPE_PATTERN.fullmatch(kind) else _UNKNOWN_MEDIA_TYPE


def extension_for(media_type: str) -> str:
    """Return the usual extension of a media type; empty if unknown."""
    return _EXTENSIONS.get(media_type, "")


def _visible_character(character: str) -> str:
    """Drop invisible characters and those that change the text direction."""
    kind = unicodedata.category(character)
    if kind.startswith("Z") or character in "\t\r\n":
        return " "
    return "" if kind.startswith("C") else character


def _shorten_name(name: str, max_bytes: int = MAX_NAME_BYTES - _NUMBER_SUFFIX_BYTES) -> str:
    """Shorten a name but keep the extension."""
    if len(name.encode()) <= max_bytes:
        return name
    stem, extension = _split_extension(name)
    max_stem_bytes = max_bytes - len(extension.encode())
    return stem.encode()[:max_stem_bytes].decode(errors="ignore").rstrip(". ") + extension


def _split_extension(name: str) -> tuple[str, str]:
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) >= _MAX_EXTENSION_BYTES or " " in extension:
        return name, ""
    return stem, dot + extension


def unique_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, ignoring case, as some file systems do."""
    stem, extension = _split_extension(name)
    number, free = 1, name
    while free.casefold() in taken:
        number += 1
        free = f"{stem}-{number}{extension}"
    taken.add(free.casefold())
    return free
