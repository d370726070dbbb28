"""Sans-IO: reassembly of messages that clients split: albums, long texts, series of forwards.

A message that may continue is held until its join window closes. The caller must persist the held
pieces meanwhile; see `receive`.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from platforms.core.contract import InboundEdit, InboundMessage, Part, Text, Unit
from platforms.core.split import text_length

_LONG_TEXT_UNITS = 4000
"""UTF-16 units; the client probably split a text of at least this length."""

_MAX_TEXT_UNITS = 4096

JOIN_SECONDS = 1.0
ALBUM_JOIN_SECONDS = 0.6
_MAX_REMEMBERED = 200
_MAX_PARTS = 50


class MessagePiece(msgspec.Struct, frozen=True):
    """A received message with the album or forward series that it may belong to."""

    message: InboundMessage
    album: str = ""
    forwarded: bool = False

    @property
    def may_continue(self) -> bool:
        """True if a following message may belong to the same utterance."""
        return bool(self.album) or self.forwarded or self.is_long

    @property
    def is_long(self) -> bool:
        """True for a text so long that the client may have split it."""
        message = self.message
        is_text = len(message.parts) == 1 and isinstance(message.parts[0], Text)
        return is_text and text_length(message.text, Unit.UTF16) >= _LONG_TEXT_UNITS


class HeldPieces(msgspec.Struct):
    """Pieces of one utterance received so far, and the end of its join window."""

    pieces: list[MessagePiece]
    deadline: float


class MessageJoiner:
    """Buffer of messages that may continue; times are seconds of one monotonic clock."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._held: dict[tuple[str, str, str], HeldPieces] = {}
        self._unstored: dict[tuple[str, str], list[MessagePiece]] = {}  # released, not yet stored
        self._joined_groups: OrderedDict[tuple[str, str], tuple[InboundMessage, ...]] = (
            OrderedDict()
        )

    def add(self, piece: MessagePiece, now: float) -> list[InboundMessage]:
        """Add a message; return the messages that are complete now, in order."""
        key = _key(piece.message)
        held = self._held.get(key)
        if held and _continues(held.pieces[-1], piece) and len(held.pieces) < _MAX_PARTS:
            held.pieces.append(piece)
            if piece.may_continue:
                held.deadline = now + self._window(piece)
                return []
            return self._release(key)
        complete = self._release(key) if held else []
        if piece.may_continue:
            self._held[key] = HeldPieces([piece], now + self._window(piece))
            return complete
        return [*complete, piece.message]

    def release_due(self, now: float) -> list[InboundMessage]:
        """Release and return the messages whose join window has closed."""
        keys = [key for key, held in self._held.items() if held.deadline <= now]
        return [message for key in keys for message in self._release(key)]

    def release_of(self, chat: str, sender: str) -> list[InboundMessage]:
        """Release and return the held messages of one sender in a chat, because an event follows."""
        keys = [key for key in self._held if key[0] == chat and key[2] == sender]
        return [message for key in keys for message in self._release(key)]

    @property
    def next_due(self) -> float | None:
        """Time at which the next join window closes."""
        return min((held.deadline for held in self._held.values()), default=None)

    def on_stored(self, message: InboundMessage) -> None:
        """Forget the pieces of a released message, which is stored now."""
        self._unstored.pop((message.address.chat, message.id), None)

    @property
    def pieces(self) -> list[MessagePiece]:
        """All pieces that are not stored yet, held or already released."""
        held = (utterance.pieces for utterance in self._held.values())
        return [piece for pieces in (*self._unstored.values(), *held) for piece in pieces]

    def restore(self, pieces: Iterable[MessagePiece]) -> list[InboundMessage]:
        """Discard the buffer and return the messages joined from pieces of an earlier run."""
        self._held.clear()
        self._unstored.clear()
        complete = []
        for piece in pieces:
            complete += self.add(piece, 0.0)
        return [*complete, *self.release_due(float("inf"))]

    def redirect_edit(self, edit: InboundEdit) -> InboundEdit:
        """Apply the edit to held pieces; for a piece of a joined message, return the joined edit."""
        address = edit.address
        for held in self._held.values():
            for number, piece in enumerate(held.pieces):
                if piece.message.id == edit.message and piece.message.address == address:
                    edited = msgspec.structs.replace(piece.message, parts=edit.parts)
                    held.pieces[number] = msgspec.structs.replace(piece, message=edited)
        group = self._joined_groups.get((address.chat, edit.message))
        if group is None:
            return edit
        group = tuple(
            msgspec.structs.replace(member, parts=edit.parts)
            if member.id == edit.message
            else member
            for member in group
        )
        for member in group:
            self._joined_groups[address.chat, member.id] = group
        return msgspec.structs.replace(edit, message=group[0].id, parts=_join_parts(group))

    def _window(self, piece: MessagePiece) -> float:
        return self._scale * (ALBUM_JOIN_SECONDS if piece.album else JOIN_SECONDS)

    def _release(self, key: tuple[str, str, str]) -> list[InboundMessage]:
        held = self._held.pop(key)
        self._unstored[key[0], held.pieces[0].message.id] = held.pieces
        group = tuple(piece.message for piece in held.pieces)
        if len(group) > 1:
            for message in group:
                self._joined_groups[message.address.chat, message.id] = group
            while len(self._joined_groups) > _MAX_REMEMBERED:
                self._joined_groups.popitem(last=False)
        return [join_messages(group)]


def join_messages(group: tuple[InboundMessage, ...]) -> InboundMessage:
    """Return one message with the parts of all pieces and the id of the first."""
    first = group[0]
    if len(group) == 1:
        return first
    return msgspec.structs.replace(
        first,
        parts=_join_parts(group),
        addressed=any(each.addressed for each in group),
        reply_to=next((each.reply_to for each in group if each.reply_to), None),
        context=next((each.context for each in group if each.context), ()),
    )


def _join_parts(group: tuple[InboundMessage, ...]) -> tuple[Part, ...]:
    """Concatenate the parts and restore the line breaks that the client dropped.

    A client splits at a line break where possible and drops the break. A piece of the full message
    length was split in the middle of a line.
    """
    parts: list[Part] = []
    for message in group:
        for part in message.parts:
            last = parts[-1] if parts else None
            if isinstance(part, Text) and isinstance(last, Text):
                split_in_line = text_length(last.text, Unit.UTF16) % _MAX_TEXT_UNITS == 0
                parts[-1] = Text(last.text + ("" if split_in_line else "\n") + part.text)
            else:
                parts.append(part)
    return tuple(parts)


def _continues(last: MessagePiece, piece: MessagePiece) -> bool:
    if last.album or piece.album:
        return last.album == piece.album
    if last.forwarded or piece.forwarded:
        return last.forwarded and piece.forwarded
    is_text = len(piece.message.parts) == 1 and isinstance(piece.message.parts[0], Text)
    is_command = piece.message.text.startswith(("/", "!"))
    return last.is_long and is_text and not is_command


def _key(message: InboundMessage) -> tuple[str, str, str]:
    return message.address.chat, message.address.thread, message.sender.id
