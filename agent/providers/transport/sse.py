"""Sans-IO: parser for server-sent events; bytes in, events out.

Bytes may be split anywhere. Lines may end in LF, CRLF or CR; a byte order mark, a missing space
after the colon and data over several lines are accepted. Data stays bytes, so a character may be
split over two reads.
"""

import msgspec

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Limit for one event, because a stream without line ends must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True):
    """One event; `name` is empty for an event without the field `event`."""

    name: str
    data: bytes


class SseComment(msgspec.Struct, frozen=True):
    """A comment, or an event without data, which only shows that the connection is alive."""


class EventTooLong(ValueError):
    """An event exceeds `MAX_EVENT_BYTES`."""


_COMMENT = SseComment()


class SseReader:
    """A parser for one stream."""

    def __init__(self) -> None:
        self._pending_line: list[bytes] = []  # an incomplete line
        self._size = 0  # of the pending line and the data below
        self._at_start = True
        self._name = ""
        self._data: list[bytes] = []
        self._has_field = False  # the current event has at least one field

    def feed(self, received: bytes) -> list[SseEvent | SseComment]:
        """Return the events completed by these bytes; raises `EventTooLong`."""
        self._size += len(received)
        if self._size > MAX_EVENT_BYTES:
            msg = f"an event in the stream is longer than {MAX_EVENT_BYTES} bytes"
            raise EventTooLong(msg)
        if b"\n" not in received and b"\r" not in received and not self._ends_with_cr():
            self._pending_line.append(received)
            return []
        self._pending_line.append(received)
        lines = b"".join(self._pending_line).splitlines(keepends=True)
        # The LF of a line that ends in CRLF may arrive with the next read.
        unfinished = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        self._pending_line = [unfinished] if unfinished else []
        events = self._read_lines(lines)
        self._size = len(unfinished) + sum(map(len, self._data))
        return events

    def close(self) -> list[SseEvent | SseComment]:
        """Return the last event if the stream ended without the blank line after it."""
        rest = b"".join(self._pending_line)
        self._pending_line = []
        events = self._read_lines([rest] if rest else [])
        events += self._read_lines([b""])
        return events

    def _ends_with_cr(self) -> bool:
        return bool(self._pending_line) and self._pending_line[-1].endswith(b"\r")

    def _read_lines(self, lines: list[bytes]) -> list[SseEvent | SseComment]:
        events: list[SseEvent | SseComment] = []
        for raw in lines:
            line = raw.rstrip(b"\r\n")
            if self._at_start:
                line = line.removeprefix(_BOM)
                self._at_start = False
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._has_field = True
            elif not line:
                if self._has_field:
                    events.append(self._take_event())
            elif line.startswith(b":"):
                events.append(_COMMENT)
            else:
                self._read_field(line)
        return events

    def _read_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        self._has_field = True
        if field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(b"")

    def _take_event(self) -> SseEvent | SseComment:
        name, data = self._name, self._data
        self._name, self._data, self._has_field = "", [], False
        return SseEvent(name, b"\n".join(data)) if data else _COMMENT
