"""Sans-IO: reads a stream of server-sent events; bytes in, events out.

Feed what the socket gave, however it was split, and take the events that it completed. Line ends
may be LF, CRLF or CR; a byte order mark, a missing space after the colon and data over several
lines are all accepted. Data stays bytes: a character that was split over two reads is no concern.
"""

import msgspec

LONGEST_EVENT = 32 * 1024 * 1024
"""Bytes that one event may have; a stream that never ends a line must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True):
    """One event; `name` is empty unless the stream gave one."""

    name: str
    data: bytes


class SseComment(msgspec.Struct, frozen=True):
    """A sign of life without content: a comment, or an event without data."""


class EventTooLong(ValueError):
    """One event is longer than any honest one."""


_COMMENT = SseComment()


class SseReader:
    """Reads one stream.

    `feed` gives what became complete, `close` the last event if the blank line after it is missing.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []  # a line that has not ended yet
        self._size = 0  # of the pending line and of the data below
        self._first = True
        self._name = ""
        self._data: list[bytes] = []
        self._begun = False  # the present event has a field at all

    def feed(self, received: bytes) -> list[SseEvent | SseComment]:
        """Take bytes; raises `EventTooLong`."""
        self._size += len(received)
        if self._size > LONGEST_EVENT:
            msg = f"an event of the stream is longer than {LONGEST_EVENT} bytes"
            raise EventTooLong(msg)
        if b"\n" not in received and b"\r" not in received and not self._after_return():
            self._pending.append(received)
            return []
        self._pending.append(received)
        lines = b"".join(self._pending).splitlines(keepends=True)
        # A line that ends in CR may go on with LF in the next read.
        unfinished = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        self._pending = [unfinished] if unfinished else []
        events = self._lines(lines)
        self._size = len(unfinished) + sum(map(len, self._data))
        return events

    def close(self) -> list[SseEvent | SseComment]:
        """The stream is over."""
        rest = b"".join(self._pending)
        self._pending = []
        events = self._lines([rest] if rest else [])
        events += self._lines([b""])
        return events

    def _after_return(self) -> bool:
        return bool(self._pending) and self._pending[-1].endswith(b"\r")

    def _lines(self, lines: list[bytes]) -> list[SseEvent | SseComment]:
        events: list[SseEvent | SseComment] = []
        for raw in lines:
            line = raw.rstrip(b"\r\n")
            if self._first:
                line = line.removeprefix(_BOM)
                self._first = False
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._begun = True
            elif not line:
                if self._begun:
                    events.append(self._event())
            elif line.startswith(b":"):
                events.append(_COMMENT)
            else:
                self._field(line)
        return events

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        self._begun = True
        if field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(b"")

    def _event(self) -> SseEvent | SseComment:
        name, data = self._name, self._data
        self._name, self._data, self._begun = "", [], False
        return SseEvent(name, b"\n".join(data)) if data else _COMMENT
