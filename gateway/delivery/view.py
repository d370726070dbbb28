"""Sans-IO: the wanted content of an item, its messages, and the record of shown messages.

`ItemBody` is the wanted content, the `render_` functions split it into messages for a platform, and
`ShownItem` records their state. `ItemBody` and `ShownItem` are stored in the item's row.
"""

import enum
from hashlib import blake2b

import msgspec

from platforms.core.contract import Button, Capabilities, Live, Repeat, Task
from platforms.core.markdown import close_open_marks
from platforms.core.split import IncrementalSplitter, split, text_length
from sessions.records import OutboxItem

DUPLICATE_MARK = "⚠️ This may be a duplicate: an earlier try to send it was cut off."
"""Notice above a message that is sent again although the first attempt may have arrived."""

_STREAMING_SUFFIX = "~"


class ItemBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Content of an item; a new body for the same item changes its messages."""

    text: str = ""  # Markdown
    buttons: tuple[Button, ...] = ()
    path: str = ""  # file of an upload
    name: str = ""
    media_type: str = ""
    urgent: bool = False  # goes first and waits for no running op
    deferred: bool = False  # goes after the answers of the chat
    only_for: str = ""  # id of the person in a room for whom alone it is


class ShownState(enum.StrEnum):
    """State of a message."""

    TRYING = "trying"
    UNKNOWN = "unknown"  # interrupted: may or may not be shown
    SHOWN = "shown"
    LOST = "lost"  # was shown, but can no longer be changed


class ShownMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One message of an item."""

    op: str
    fate: ShownState
    message: str = ""  # the platform's id, once known
    looks: str = ""  # digest of the shown content; empty if uncertain
    since: int = 0  # time of the first attempt, milliseconds
    marked: bool = False  # carries `DUPLICATE_MARK`
    repeats: int = 0


class ShownItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages of an item that are or may be shown, in order."""

    parts: tuple[ShownMessage, ...] = ()


_write_json = msgspec.json.Encoder().encode
_read_body = msgspec.json.Decoder(ItemBody).decode
_read_shown = msgspec.json.Decoder(ShownItem).decode


def write_body(body: ItemBody) -> bytes:
    """Encode a body for the item's row."""
    return _write_json(body)


def read_body(item: OutboxItem) -> ItemBody:
    """Decode the body of an item."""
    return _read_body(item.body)


def write_shown(shown: ShownItem) -> bytes:
    """Encode the message states for the item's row."""
    return _write_json(shown)


def read_shown(item: OutboxItem) -> ShownItem:
    """Decode the message states of an item."""
    return _read_shown(item.shown) if item.shown else ShownItem()


def message_digest(
    text: str, buttons: tuple[Button, ...], *, streaming: bool, tasks: tuple[Task, ...] = ()
) -> str:
    """Return a digest of a message's content, to detect later whether it must be edited.

    Tasks count only while streaming: they are unknown after a restart, and that alone must not
    change a finished message.
    """
    digest = blake2b(text.encode(errors="replace"), digest_size=9)
    for button in buttons:
        digest.update(f"\0{button.label}\0{button.action}".encode())
    if not streaming:
        return digest.hexdigest()
    for task in tasks:
        digest.update(f"\0{task.id}\0{task.title}\0{task.state}".encode(errors="replace"))
    return digest.hexdigest() + _STREAMING_SUFFIX


def may_be_streaming(part: ShownMessage) -> bool:
    """Return True if a message may still need the edit that ends it."""
    return not part.looks or part.looks.endswith(_STREAMING_SUFFIX)


def render_final(text: str, capabilities: Capabilities) -> tuple[str, ...]:
    """Split a finished text into messages."""
    return split(text, _text_room(capabilities), capabilities.unit)


def render_live(
    text: str,
    capabilities: Capabilities,
    status: str = "",
    growing: IncrementalSplitter | None = None,
) -> tuple[str, ...]:
    """Split an unfinished answer into messages; the last one is still growing.

    On a stream, text can only be appended, so nothing is closed or added. Otherwise open Markdown
    marks are closed, and an edited message shows the status below its text.
    """
    room = _text_room(capabilities)
    found = (growing or IncrementalSplitter()).split(text, room, capabilities.unit)
    if not found:  # show a status alone only where it can be edited away
        return (status,) if status and capabilities.live is Live.EDIT else ()
    done = tuple(piece.message for piece in found[:-1])
    last = found[-1].unclosed
    if capabilities.live is not Live.STREAM:
        ending = f"\n\n{status}" if status and capabilities.live is Live.EDIT else ""
        last = _first_fitting(
            (close_open_marks(last) + ending, close_open_marks(last), last + found[-1].after),
            capabilities,
        )
    return (*done, last) if last.strip() else done


def _first_fitting(choices: tuple[str, ...], capabilities: Capabilities) -> str:
    """Return the first choice within the limit; the last choice always fits."""
    for choice in choices[:-1]:
        if text_length(choice, capabilities.unit) <= capabilities.text_limit:
            return choice
    return choices[-1]


def mark_duplicate(text: str) -> str:
    """Prepend the duplicate notice to a text."""
    return f"{DUPLICATE_MARK}\n\n{text}"


def fits_caption(text: str, capabilities: Capabilities) -> bool:
    """Return True if a text fits into a file's caption."""
    left = capabilities.caption_limit - _mark_room(capabilities)
    return text_length(text, capabilities.unit) <= left


def _text_room(capabilities: Capabilities) -> int:
    return capabilities.text_limit - _mark_room(capabilities)


def _mark_room(capabilities: Capabilities) -> int:
    """Reserve space for the duplicate notice, which must not change where a text is split."""
    if capabilities.repeat is not Repeat.MARK:
        return 0
    return text_length(mark_duplicate(""), capabilities.unit)
