"""Sans-IO: files that came with messages: what is still to be found out, which words stand for them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sessions.records import Attachment, Message

_NAMED = 3


def request_of(message: Message) -> str:
    """Say what somebody asked for: in their words, spoken ones too, or else name what they sent."""
    if message.content.strip():
        return message.content
    heard = "\n\n".join(file.heard for file in message.files if file.heard)
    return heard or names(message.files)


def names(files: Sequence[Attachment]) -> str:
    """Name files in a few words, for people."""
    named = ["voice message" if file.voice else file.name for file in files]
    more = len(named) - _NAMED
    shown = ", ".join(named[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def is_settled(file: Attachment) -> bool:
    """Whether it is known what came of it."""
    return file.fetched or bool(file.trouble)


def unsettled(rows: Iterable[Message]) -> tuple[Attachment, ...]:
    """List the files that nobody has fetched, or tried to, each once."""
    found = {
        file.path: file for row in rows if row.files for file in row.files if not is_settled(file)
    }
    return tuple(found.values())


def with_settled(message: Message, settled: Mapping[str, Attachment]) -> Message:
    """Put what came of files into their row; `settled` goes by their paths."""
    if settled.keys().isdisjoint(file.path for file in message.files):
        return message
    files = tuple(settled.get(file.path, file) for file in message.files)
    return msgspec.structs.replace(message, files=files)


def remembering(messages: tuple[Message, ...], history: Iterable[Message]) -> tuple[Message, ...]:
    """Let messages that are asked anew keep what was heard in their files: it is not heard twice."""
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
