"""Sans-IO: what was sent as several messages and said as one: albums, pasted texts, forwards.

A message that may go on is held until its window closes. Whoever holds messages back must keep
them safe meanwhile; see `intake`.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from platforms.core.contract import InboundEdit, InboundMessage, Part, Text, Unit
from platforms.core.split import text_length

LONG_TEXT_UNITS = 4000
"""UTF-16 units; a text of at least this was probably cut by the client, and goes on."""

MAX_TEXT_UNITS = 4096

JOIN_SECONDS = 1.0
ALBUM_JOIN_SECONDS = 0.6
_MAX_REMEMBERED = 200
_MAX_PARTS = 50


class MessagePiece(msgspec.Struct, frozen=True):
    """A message, and what it may be a part of."""

    message: InboundMessage
    album: str = ""
    forwarded: bool = False

    @property
    def may_continue(self) -> bool:
        """Whether another message may belong to it."""
        return bool(self.album) or self.forwarded or self.is_long

    @property
    def is_long(self) -> bool:
        """Whether it is a text that the client may have cut."""
        message = self.message
        only_words = len(message.parts) == 1 and isinstance(message.parts[0], Text)
        return only_words and text_length(message.text, Unit.UTF16) >= LONG_TEXT_UNITS


class HeldPieces(msgspec.Struct):
    """Pieces of one utterance, so far."""

    pieces: list[MessagePiece]
    deadline: float


class MessageJoiner:
    """Holds what may go on; moments are seconds of one monotonic clock."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._held: dict[tuple[str, str, str], HeldPieces] = {}
        self._unstored: dict[tuple[str, str], list[MessagePiece]] = {}  # given, and not stored yet
        self._joined_groups: OrderedDict[tuple[str, str], tuple[InboundMessage, ...]] = (
            OrderedDict()
        )

    def add(self, piece: MessagePiece, now: float) -> list[InboundMessage]:
        """Take a message; gives what is whole now, in order."""
        key = _key(piece.message)
        held = self._held.get(key)
        if held and _continues(held.pieces[-1], piece) and len(held.pieces) < _MAX_PARTS:
            held.pieces.append(piece)
            if piece.may_continue:
                held.deadline = now + self._window(piece)
                return []
            return self._release(key)
        whole = self._release(key) if held else []
        if piece.may_continue:
            self._held[key] = HeldPieces([piece], now + self._window(piece))
            return whole
        return [*whole, piece.message]

    def release_due(self, now: float) -> list[InboundMessage]:
        """Give what nothing was added to in time."""
        keys = [key for key, held in self._held.items() if held.deadline <= now]
        return [message for key in keys for message in self._release(key)]

    def release_of(self, chat: str, sender: str) -> list[InboundMessage]:
        """Give what somebody has said in a chat so far: something else follows it."""
        keys = [key for key in self._held if key[0] == chat and key[2] == sender]
        return [message for key in keys for message in self._release(key)]

    @property
    def next_due(self) -> float | None:
        """When something held is due."""
        return min((held.deadline for held in self._held.values()), default=None)

    def on_stored(self, message: InboundMessage) -> None:
        """A message that was given is safe now."""
        self._unstored.pop((message.address.chat, message.id), None)

    @property
    def pieces(self) -> list[MessagePiece]:
        """Everything that was held and is not stored yet."""
        held = (each.pieces for each in self._held.values())
        return [piece for pieces in (*self._unstored.values(), *held) for piece in pieces]

    def restore(self, pieces: Iterable[MessagePiece]) -> list[InboundMessage]:
        """Give what an earlier run held; its time is over."""
        self._held.clear()
        self._unstored.clear()
        whole = []
        for piece in pieces:
            whole += self.add(piece, 0.0)
        return [*whole, *self.release_due(float("inf"))]

    def redirect_edit(self, edit: InboundEdit) -> InboundEdit:
        """Let the edit of one piece be an edit of the whole that it became a part of."""
        place = edit.address
        for held in self._held.values():
            for number, piece in enumerate(held.pieces):
                if piece.message.id == edit.message and piece.message.address == place:
                    changed = msgspec.structs.replace(piece.message, parts=edit.parts)
                    held.pieces[number] = msgspec.structs.replace(piece, message=changed)
        group = self._joined_groups.get((place.chat, edit.message))
        if group is None:
            return edit
        group = tuple(
            msgspec.structs.replace(each, parts=edit.parts) if each.id == edit.message else each
            for each in group
        )
        for each in group:
            self._joined_groups[place.chat, each.id] = group
        return msgspec.structs.replace(edit, message=group[0].id, parts=_join_parts(group))

    def _window(self, piece: MessagePiece) -> float:
        return self._scale * (ALBUM_JOIN_SECONDS if piece.album else JOIN_SECONDS)

    def _release(self, key: tuple[str, str, str]) -> list[InboundMessage]:
        held = self._held.pop(key)
        self._unstored[key[0], held.pieces[0].message.id] = held.pieces
        group = tuple(piece.message for piece in held.pieces)
        if len(group) > 1:
            for each in group:
                self._joined_groups[each.address.chat, each.id] = group
            while len(self._joined_groups) > _MAX_REMEMBERED:
                self._joined_groups.popitem(last=False)
        return [join_messages(group)]


def join_messages(group: tuple[InboundMessage, ...]) -> InboundMessage:
    """Make one message; it is called like its first piece."""
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
    """Put the pieces together.

    A client cuts at a line's end where it can, and leaves the line break out; where it could not,
    the piece is as long as a message may be.
    """
    parts: list[Part] = []
    for message in group:
        for part in message.parts:
            before = parts[-1] if parts else None
            if isinstance(part, Text) and isinstance(before, Text):
                torn = text_length(before.text, Unit.UTF16) % MAX_TEXT_UNITS == 0
                parts[-1] = Text(before.text + ("" if torn else "\n") + part.text)
            else:
                parts.append(part)
    return tuple(parts)


def _continues(last: MessagePiece, piece: MessagePiece) -> bool:
    if last.album or piece.album:
        return last.album == piece.album
    if last.forwarded or piece.forwarded:
        return last.forwarded and piece.forwarded
    words = len(piece.message.parts) == 1 and isinstance(piece.message.parts[0], Text)
    command = piece.message.text.startswith(("/", "!"))
    return last.is_long and words and not command


def _key(message: InboundMessage) -> tuple[str, str, str]:
    return message.address.chat, message.address.thread, message.sender.id
