"""Sans-IO: takes a body out of the chunks in which HTTP/1.1 sends it.

Only plain chunks are its business: what is anything else, the last one too, is left to the HTTP
client, which knows what to make of it.
"""

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_MAX_SIZE_LINE = 17
_CRLF = b"\r\n"


class ChunkedDecoder:
    """Reads chunk after chunk, from the first byte of a body."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        """What is not a plain chunk, with all that follows it; None while there are only those."""
        self._remaining_bytes = 0  # of the chunk that has begun
        self._end_due = False  # the end of that chunk is due
        self._pending = b""

    def feed(self, received: bytes) -> bytes:
        """Take bytes, and give what of the body is in them."""
        data = self._pending + received if self._pending else received
        self._pending = b""
        found: list[bytes] = []
        place = 0
        while True:
            if self._remaining_bytes:
                part = data[place : place + self._remaining_bytes]
                place += len(part)
                self._remaining_bytes -= len(part)
                found.append(part)
                if self._remaining_bytes:
                    break
                self._end_due = True
            if self._end_due and data.startswith(_CRLF, place):
                place += len(_CRLF)
                self._end_due = False
            size = None if self._end_due else _SIZE.match(data, place)
            if size is None or not int(size[1], 16):
                self._wait_or_stop(data[place:], last=size is not None)
                break
            self._remaining_bytes = int(size[1], 16)
            place = size.end()
        return found[0] if len(found) == 1 else b"".join(found)

    def _wait_or_stop(self, data: bytes, *, last: bool) -> None:
        """Wait for more, or leave it to the client when more would not make a chunk of it."""
        if self._end_due:
            if _CRLF.startswith(data):
                self._pending = data
            else:
                self.rest = _CRLF + data  # the client takes no blank line for a size
        elif last or b"\n" in data or len(data) >= _MAX_SIZE_LINE:
            self.rest = data
        else:
            self._pending = data
