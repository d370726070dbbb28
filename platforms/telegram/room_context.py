"""Sans-IO: recent room messages, used as context for a message addressed to the bot.

The last few messages stay in memory only and are used once, because messages that are not
addressed to the bot must not be stored.
"""

from collections import OrderedDict, deque

import msgspec

from platforms.core.contract import InboundMessage, Quote

_MAX_MESSAGES = 20
_MAX_CHARACTERS = 500
_MAX_ROOMS = 200


class RoomContext:
    """Recent messages of each room that were not addressed to the bot."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[tuple[str, str], deque[Quote]] = OrderedDict()

    def add_context(self, message: InboundMessage) -> InboundMessage:
        """Attach the room's recent messages to an addressed message; remember any other message."""
        if message.direct:
            return message
        room = (message.address.chat, message.address.thread)
        if message.addressed:
            context = tuple(self._rooms.pop(room, ()))
            return msgspec.structs.replace(message, context=context) if context else message
        recent = self._rooms.setdefault(room, deque(maxlen=_MAX_MESSAGES))
        self._rooms.move_to_end(room)
        if text := message.text[:_MAX_CHARACTERS]:
            recent.append(Quote(message.sender.name or message.sender.id, text, message.id))
        while len(self._rooms) > _MAX_ROOMS:
            self._rooms.popitem(last=False)
        return message
