"""Sans-IO: what was said in a room before somebody turned to us.

Kept in memory alone, a little of it, and given away once: what was not meant for us is stored
nowhere.
"""

from collections import OrderedDict, deque

import msgspec

from platforms.core.contract import InboundMessage, Quote

MAX_MESSAGES = 20
MAX_CHARACTERS = 500
MAX_ROOMS = 200


class RoomContext:
    """The last words of each room."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[tuple[str, str], deque[Quote]] = OrderedDict()

    def add_context(self, message: InboundMessage) -> InboundMessage:
        """Note what was said to others; give what is meant for us together with that."""
        if message.direct:
            return message
        place = (message.address.chat, message.address.thread)
        if message.addressed:
            before = tuple(self._rooms.pop(place, ()))
            return msgspec.structs.replace(message, context=before) if before else message
        said = self._rooms.setdefault(place, deque(maxlen=MAX_MESSAGES))
        self._rooms.move_to_end(place)
        if text := message.text[:MAX_CHARACTERS]:
            said.append(Quote(message.sender.name or message.sender.id, text, message.id))
        while len(self._rooms) > MAX_ROOMS:
            self._rooms.popitem(last=False)
        return message
