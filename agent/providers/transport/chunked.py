"""Sans-IO: decoder for the chunked transfer coding of HTTP/1.1.

The decoder handles plain chunks only. Everything else, such as chunk extensions, the last chunk and
trailers, is left to the HTTP client.
"""

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_MAX_SIZE_LINE = 17
_CRLF = b"\r\n"


class ChunkedDecoder:
    """A decoder for one body, from its first byte."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        """Bytes from the first part that is not a plain chunk; None as long as all parts are."""
        self._remaining_bytes = 0  # in the current chunk
        self._end_due = False  # the CRLF after the current chunk is still missing
        self._pending = b""

    def feed(self, received: bytes) -> bytes:
        """Return the part of the body that is in these bytes."""
        data = self._pending + received if self._pending else received
        self._pending = b""
        parts: list[bytes] = []
        place = 0
        while True:
            if self._remaining_bytes:
                part = data[place : place + self._remaining_bytes]
                place += len(part)
                self._remaining_bytes -= len(part)
                parts.append(part)
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
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _wait_or_stop(self, data: bytes, *, last: bool) -> None:
        """Keep an incomplete chunk header; set `rest` for data that cannot become a plain chunk."""
        if self._end_due:
            if _CRLF.startswith(data):
                self._pending = data
            else:
                self.rest = _CRLF + data  # the client rejects the blank line
        elif last or b"\n" in data or len(data) >= _MAX_SIZE_LINE:
            self.rest = data
        else:
            self._pending = data
