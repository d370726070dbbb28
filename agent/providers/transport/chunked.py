"""Sans-IO: takes a body out of the chunks in which HTTP/1.1 sends it.

Only plain chunks are its business: what is anything else, the last one too, is left to the HTTP
client, which knows what to make of it.
"""

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_LONGEST_SIZE = 17
_END = b"\r\n"


class Chunks:
    """Reads chunk after chunk, from the first byte of a body."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        """What is not a plain chunk, with all that follows it; None while there are only those."""
        self._left = 0  # of the chunk that has begun
        self._ends = False  # the end of that chunk is due
        self._held = b""

    def feed(self, received: bytes) -> bytes:
        """Take bytes, and give what of the body is in them."""
        data = self._held + received if self._held else received
        self._held = b""
        found: list[bytes] = []
        place = 0
        while True:
            if self._left:
                part = data[place : place + self._left]
                place += len(part)
                self._left -= len(part)
                found.append(part)
                if self._left:
                    break
                self._ends = True
            if self._ends and data.startswith(_END, place):
                place += len(_END)
                self._ends = False
            size = None if self._ends else _SIZE.match(data, place)
            if size is None or not int(size[1], 16):
                self._stop(data[place:], last=size is not None)
                break
            self._left = int(size[1], 16)
            place = size.end()
        return found[0] if len(found) == 1 else b"".join(found)

    def _stop(self, data: bytes, *, last: bool) -> None:
        """Wait for more, or leave it to the client when more would not make a chunk of it."""
        if self._ends:
            if _END.startswith(data):
                self._held = data
            else:
                self.rest = _END + data  # the client takes no blank line for a size
        elif last or b"\n" in data or len(data) >= _LONGEST_SIZE:
            self.rest = data
        else:
            self._held = data
