"""Sans-IO: what a model reads about the files that came with a message.

Names, kinds and spoken words are those of whoever sent the file: they stand inside of one bracket,
which they can neither close nor break in two.
"""

import re
import unicodedata

from agent.request.pictures import is_picture
from sessions.records import Attachment
from sessions.values.size import format_size

_REPLACEMENTS = str.maketrans({"[": "(", "]": ")", "“": '"', "”": '"'})
_MAX_LENGTH = 500  # characters of what is no speech


def append_file_lines(text: str, files: tuple[Attachment, ...]) -> str:
    """Write a line for each file behind the words it came with."""
    return "\n".join(filter(None, (text, *map(format_file_line, files))))


def format_file_line(file: Attachment) -> str:
    """Write the line of one file."""
    if file.heard:
        return f"[Voice message: “{_to_single_line(file.heard)}”]"
    kind = _describe_kind(file)
    if file.fetched:
        about = _shorten(file.media_type)
        if file.size is not None:
            about += f", {format_size(file.size)}"
        beside = f"; {_trim_sentence(file.trouble)}" if file.trouble else ""
        return f"[{kind}: {_shorten(file.path)} ({about}){beside}]"
    if file.trouble:
        return f"[{kind} {_shorten(file.name)} could not be had: {_trim_sentence(file.trouble)}.]"
    return f"[{kind} {_shorten(file.name)} was not fetched.]"


def _describe_kind(file: Attachment) -> str:
    if file.voice:
        return "Voice message"
    if file.fetched:
        return "Picture" if is_picture(file) else "File"
    return "Picture" if file.media_type.startswith("image/") else "File"


def _shorten(text: str) -> str:
    plain = _to_single_line(text)
    return plain if len(plain) <= _MAX_LENGTH else f"{plain[:_MAX_LENGTH]}…"


def _trim_sentence(text: str) -> str:
    return _shorten(text).rstrip(". ")


def _to_single_line(text: str) -> str:
    """Put a text on one line, without signs that are not seen or that would end its bracket."""
    spaced = re.sub(r"\s+", " ", text.translate(_REPLACEMENTS)).strip()
    return "".join(sign for sign in spaced if not _is_invisible(sign))


def _is_invisible(sign: str) -> bool:
    """Tell control signs and those that change the direction of a text; joiners are harmless."""
    kind = unicodedata.category(sign)
    return kind in {"Cc", "Cs", "Zl", "Zp"} or (kind == "Cf" and sign not in "\u200c\u200d")
