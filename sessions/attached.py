"""Sans-IO: attachments of messages: their download state, transcripts and descriptions."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sessions.records import Attachment, Message

_MAX_NAMES = 3


def request_text(message: Message) -> str:
    """Return the request in words: the text, else transcripts, else the names of the files."""
    if message.content.strip():
        return message.content
    heard = "\n\n".join(file.heard for file in message.files if file.heard)
    return heard or name_files(message.files)


def name_files(files: Sequence[Attachment]) -> str:
    """List file names briefly, for people."""
    named = ["voice message" if file.voice else file.name for file in files]
    more = len(named) - _MAX_NAMES
    shown = ", ".join(named[:_MAX_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def is_fetch_finished(file: Attachment) -> bool:
    """Return True if the download has succeeded or failed."""
    return file.fetched or bool(file.trouble)


def unfetched_files(rows: Iterable[Message]) -> tuple[Attachment, ...]:
    """Return each file without a download result once."""
    found = {
        file.path: file
        for row in rows
        if row.files
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
