"""Sans-IO: what an item should look like in a chat, and what of it is known to be shown.

`Body` is what the gateway wants to show, `render` cuts it into messages for a platform, and `ShownItem`
is the memory of what became of them. `Body` and `ShownItem` are stored in the item's row.
"""

import enum
import functools
from hashlib import blake2b

import msgspec

from platforms.core.contract import Address, Button, Capabilities, Live, Repeat, Task
from platforms.core.markdown import close_open_marks
from platforms.core.split import IncrementalSplitter, split, text_length
from sessions.records import OutboxItem

DUPLICATE_MARK = "⚠️ This may be a duplicate: an earlier try to send it was cut off."
"""Stands above a message that is sent again although the first try may have arrived."""

_STREAMING_SUFFIX = "~"


class ItemBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an item should show; an item put again with another body changes its messages."""

    text: str = ""  # Markdown
    buttons: tuple[Button, ...] = ()
    path: str = ""  # of an upload
    name: str = ""
    media_type: str = ""
    urgent: bool = False  # goes first in its chat, and waits for no other op


class ShownState(enum.StrEnum):
    """What is known of a message that was tried."""

    TRYING = "trying"
    UNKNOWN = "unknown"  # cut off: it may be shown or not
    SHOWN = "shown"
    LOST = "lost"  # it was shown, but cannot be changed any more


class ShownMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One message of an item."""

    op: str
    fate: ShownState
    message: str = ""  # the platform's name for it, once known
    looks: str = ""  # a digest of what it shows; empty when that is not known for sure
    since: int = 0  # when it was first tried, milliseconds
    marked: bool = False  # it says that it may be a duplicate
    repeats: int = 0


class ShownItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known to be shown of an item, in order of its messages."""

    parts: tuple[ShownMessage, ...] = ()


_write_json = msgspec.json.Encoder().encode
_read_body = msgspec.json.Decoder(ItemBody).decode
_read_shown = msgspec.json.Decoder(ShownItem).decode
_read_address = msgspec.json.Decoder(Address).decode


def write_body(body: ItemBody) -> bytes:
    """Write a body for the item's row."""
    return _write_json(body)


def read_body(item: OutboxItem) -> ItemBody:
    """Read what an item should show."""
    return _read_body(item.body)


def write_shown(shown: ShownItem) -> bytes:
    """Write the memory of an item's messages for its row."""
    return _write_json(shown)


def read_shown(item: OutboxItem) -> ShownItem:
    """Read what is known to be shown of an item."""
    return _read_shown(item.shown) if item.shown else ShownItem()


def write_address(address: Address) -> str:
    """Write an address for the rows that carry one."""
    return _write_json(address).decode()


@functools.lru_cache(maxsize=1024)
def read_address(text: str) -> Address:
    """Read an address back."""
    return _read_address(text)


def message_digest(
    text: str, buttons: tuple[Button, ...], *, streaming: bool, tasks: tuple[Task, ...] = ()
) -> str:
    """Digest what a message shows, to see later whether it must be changed.

    Tasks count while it is written: after a restart nobody knows them any more, and a message that
    is whole must not be changed for that.
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
    """Tell whether a message may still wait for the edit that ends it."""
    return not part.looks or part.looks.endswith(_STREAMING_SUFFIX)


def render_final(text: str, capabilities: Capabilities) -> tuple[str, ...]:
    """Cut a whole text into messages."""
    return split(text, _text_room(capabilities), capabilities.unit)


def render_live(
    text: str,
    capabilities: Capabilities,
    status: str = "",
    growing: IncrementalSplitter | None = None,
) -> tuple[str, ...]:
    """Cut an answer that is being written: the last message is the one that goes on.

    A stream may only grow, so nothing is closed or added there; anywhere else what is still open
    is closed, and a message that is edited shows the status below.
    """
    room = _text_room(capabilities)
    found = (growing or IncrementalSplitter()).split(text, room, capabilities.unit)
    if not found:  # where it can be taken away again, the status is shown alone
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
    """Take the first that is not too long; the last choice always fits."""
    for choice in choices[:-1]:
        if text_length(choice, capabilities.unit) <= capabilities.text_limit:
            return choice
    return choices[-1]


def mark_duplicate(text: str) -> str:
    """Say above a text that it may be there twice."""
    return f"{DUPLICATE_MARK}\n\n{text}"


def fits_caption(text: str, capabilities: Capabilities) -> bool:
    """Tell whether a text can go with a file."""
    left = capabilities.caption_limit - _mark_room(capabilities)
    return text_length(text, capabilities.unit) <= left


def _text_room(capabilities: Capabilities) -> int:
    return capabilities.text_limit - _mark_room(capabilities)


def _mark_room(capabilities: Capabilities) -> int:
    """Leave room for the mark where one may be needed: a mark must not change where text is cut."""
    if capabilities.repeat is not Repeat.MARK:
        return 0
    return text_length(mark_duplicate(""), capabilities.unit)
