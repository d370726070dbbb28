"""Sans-IO: texts that are too long for a chat: the first messages are shown, and the whole is a file."""

from platforms.core.contract import Capabilities
from sessions.records import ItemKind, OutboxItem

FILE_NAME, FILE_TYPE = "answer.md", "text/markdown"

STILL_WRITING = "*I'm still writing. This is getting long, so you get the whole text as a file when it is done.*"
IN_FILE = "*This is too long for the chat. The file below has the whole text.*"
NOT_SHOWN = "*The rest was too long for the chat and is not shown.*"
_CUT = "\n\n(The text is longer than a file may be in this chat, and ends here.)\n"

_UNSETTLED_MESSAGES = 4
"""Messages after the shown ones that must exist before the shown ones stop changing."""


def max_messages(item: OutboxItem, capabilities: Capabilities) -> int | None:
    """Return the number of messages that an item may have, or None for any number."""
    if capabilities.files is None or item.kind not in {ItemKind.ANSWER, ItemKind.NOTICE}:
        return None
    return capabilities.messages or None


def beginning(text: str, messages: int, capabilities: Capabilities) -> str:
    """Return the part of a text that decides about the first messages."""
    return text[: (messages + _UNSETTLED_MESSAGES) * capabilities.text_limit]


def encode_file(text: str, max_bytes: int) -> bytes:
    """Return the content of the file, of at most `max_bytes`."""
    content = text.encode(errors="replace")
    if len(content) <= max_bytes:
        return content
    cut = content[: max_bytes - len(_CUT.encode())].decode(errors="ignore")
    return (cut + _CUT).encode()
