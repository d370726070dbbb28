"""Sans-IO: what a model reads about the files that came with a message.

Names, kinds and spoken words are those of whoever sent the file: they stand inside of one bracket,
which they can neither close nor break in two.
"""

import re
import unicodedata

from agent.request.pictures import is_picture
from sessions.records import Attachment
from sessions.values.size import in_words

_INSTEAD = str.maketrans({"[": "(", "]": ")", "“": '"', "”": '"'})
_LONGEST = 500  # characters of what is no speech


def with_files(text: str, files: tuple[Attachment, ...]) -> str:
    """Write a line for each file behind the words it came with."""
    return "\n".join(filter(None, (text, *map(line, files))))


def line(file: Attachment) -> str:
    """Write the line of one file."""
    if file.heard:
        return f"[Voice message: “{_plain(file.heard)}”]"
    kind = _kind(file)
    if file.fetched:
        about = _short(file.media_type)
        if file.size is not None:
            about += f", {in_words(file.size)}"
        beside = f"; {_sentence(file.trouble)}" if file.trouble else ""
        return f"[{kind}: {_short(file.path)} ({about}){beside}]"
    if file.trouble:
        return f"[{kind} {_short(file.name)} could not be had: {_sentence(file.trouble)}.]"
    return f"[{kind} {_short(file.name)} was not fetched.]"


def _kind(file: Attachment) -> str:
    if file.voice:
        return "Voice message"
    if file.fetched:
        return "Picture" if is_picture(file) else "File"
    return "Picture" if file.media_type.startswith("image/") else "File"


def _short(text: str) -> str:
    plain = _plain(text)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"


def _sentence(text: str) -> str:
    return _short(text).rstrip(". ")


def _plain(text: str) -> str:
    """Put a text on one line, without signs that are not seen or that would end its bracket."""
    spaced = re.sub(r"\s+", " ", text.translate(_INSTEAD)).strip()
    return "".join(sign for sign in spaced if not _unseen(sign))


def _unseen(sign: str) -> bool:
    """Tell control signs and those that change the direction of a text; joiners are harmless."""
    kind = unicodedata.category(sign)
    return kind in {"Cc", "Cs", "Zl", "Zp"} or (kind == "Cf" and sign not in "\u200c\u200d")
