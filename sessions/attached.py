"""Sans-IO: the words and attachments of messages, for people and for the next turns."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sessions.records import Attachment, Message
from sessions.values.frames import strip_stored_frames

_MAX_NAMES = 3
_ONLY_QUOTED = "a quoted message"


def request_text(message: Message) -> str:
    """Return the request for people: the author's own words, without any frame for the model.

    A message without words is described by its transcripts, else by the names of its files.
    """
    own = own_words(message)
    if own.strip():
        return own
    heard = "\n\n".join(file.heard for file in message.files if file.heard)
    described = heard or name_files(message.files)
    return described or (_ONLY_QUOTED if message.content.strip() else "")


def own_words(message: Message) -> str:
    """Return the words that the author of a message wrote, without words of others."""
    return strip_stored_frames(message.content) if message.words is None else message.words


def name_files(files: Sequence[Attachment]) -> str:
    """List file names briefly, for people."""
    named = ["voice message" if file.voice else file.name for file in files]
    more = len(named) - _MAX_NAMES
    shown = ", ".join(named[:_MAX_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def is_fetch_finished(file: Attachment) -> bool:
    """Return True if the download has succeeded or failed."""
    return file.fetched or bool(file.trouble)


def is_from(message: Message, person: str) -> bool:
    """Return True if a message is from this person; a message without a sender is.

    The sender of a message in a shared session ends with the id of the person in parentheses.
    """
    return message.sender is None or message.sender.endswith(f"({person.partition(':')[2]})")


def unfetched_files(rows: Iterable[Message], person: str) -> tuple[Attachment, ...]:
    """Return each file of a person without a download result once."""
    found = {
        file.path: file
        for row in rows
        if row.files and is_from(row, person)
        for file in row.files
        if not is_fetch_finished(file)
    }
    return tuple(found.values())


def with_fetch_results(message: Message, results: Mapping[str, Attachment]) -> Message:
    """Return the message with download results, matched by path; unchanged if none applies."""
    if results.keys().isdisjoint(file.path for file in message.files):
        return message
    files = tuple(results.get(file.path, file) for file in message.files)
    return msgspec.structs.replace(message, files=files)


def with_known_transcripts(
    messages: tuple[Message, ...], history: Iterable[Message]
) -> tuple[Message, ...]:
    """Copy known transcripts into messages, so that a repeated request transcribes no file twice."""
    heard = {file.path: file.heard for row in history for file in row.files if file.heard}
    return tuple(
        msgspec.structs.replace(
            message,
            files=tuple(
                msgspec.structs.replace(file, heard=heard.get(file.path, file.heard))
                for file in message.files
            ),
        )
        for message in messages
    )
