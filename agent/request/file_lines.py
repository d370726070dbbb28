"""Sans-IO: text lines that describe a message's files to the model.

File names, media types and transcripts come from the sender and are not trusted: they are put on
one line inside brackets, with every character removed that could close the bracket.
"""

from agent.request.pictures import is_picture
from sessions.records import Attachment
from sessions.values.frames import to_single_line
from sessions.values.size import format_size

_QUOTATION_MARKS = str.maketrans("“”", '""')
_MAX_LENGTH = 500  # characters of a name, type or error; transcripts have no limit here


def append_file_lines(text: str, files: tuple[Attachment, ...]) -> str:
    """Append one line per file to a message's text."""
    return "\n".join(filter(None, (text, *map(format_file_line, files))))


def format_file_line(file: Attachment) -> str:
    """Return the line for one file: kind, path, type and size, or why the file is missing."""
    if file.heard:
        return f"[Voice message: “{_to_single_line(file.heard)}”]"
    kind = _describe_kind(file)
    if file.fetched:
        about = _shorten(file.media_type)
        if file.size is not None:
            about += f", {format_size(file.size)}"
        problem = f"; {_trim_sentence(file.trouble)}" if file.trouble else ""
        return f"[{kind}: {_shorten(file.path)} ({about}){problem}]"
    if file.trouble:
        return f"[{kind} {_shorten(file.name)} is not available: {_trim_sentence(file.trouble)}.]"
    return f"[{kind} {_shorten(file.name)} was not downloaded.]"


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
    return to_single_line(text.translate(_QUOTATION_MARKS))
