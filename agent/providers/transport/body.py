"""Sans-IO: reader for the body of a response, the same for all protocols."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from agent import errors
from agent.model.contract import Chunk, DoneChunk, PingChunk, WholeChunk
from agent.providers.classify import classify_stream_error, parse_service_error
from agent.providers.transport.sse import (
    MAX_EVENT_BYTES,
    EventTooLong,
    SseComment,
    SseEvent,
    SseReader,
)

DONE = DoneChunk()
PING = PingChunk()
BEAT = PingChunk(beat=True)

T = TypeVar("T")
_NON_EVENT_STARTS = (b"{", b"[", b"<")
"""First bytes of a body that is no event stream: JSON or an HTML page."""


class BodyReader:
    """Converts the body of one response to chunks; the body is an event stream or a JSON document.

    `read_event` converts one event, and a JSON document as a single unnamed event.
    """

    def __init__(self, read_event: Callable[[SseEvent | SseComment], Iterable[Chunk]]) -> None:
        self.done = False  # the protocol's end marker has arrived
        self._read_event = read_event
        self._events = SseReader()
        self._json_pieces: list[bytes] | None = None
        self._size = 0
        self._has_begun = False

    def feed(self, received: bytes) -> Iterator[Chunk]:
        """Yield the chunks completed by these bytes, up to the first error, which is raised."""
        if not self._has_begun:
            first = received.lstrip(b"\xef\xbb\xbf \r\n\t")[:1]
            self._has_begun = bool(first)
            self._json_pieces = [] if first in _NON_EVENT_STARTS else None
        if self._json_pieces is not None:
            self._keep_piece(self._json_pieces, received)
            yield PING
            return
        for event in self._events.feed(received):
            for chunk in self._read_event(event):
                self.done = self.done or chunk is DONE
                yield chunk
            if self.done:
                return

    def close(self) -> Iterator[Chunk]:
        """Yield the chunks left at the end of the body."""
        if self._json_pieces is not None:
            raw = b"".join(self._json_pieces).removeprefix(b"\xef\xbb\xbf").strip()
            if raw.startswith(b"["):  # some services wrap their errors in a list
                raise classify_stream_error(parse_service_error(_decode_list(raw)))
            yield WholeChunk()
            ended = False
            for chunk in self._read_event(SseEvent("", raw)):
                ended = ended or chunk is DONE
                yield chunk
            if not ended:
                yield DONE
        for event in self._events.close():
            # The last event may be incomplete.
            if isinstance(event, SseEvent) and _is_readable(event):
                yield from self._read_event(event)

    def _keep_piece(self, pieces: list[bytes], received: bytes) -> None:
        self._size += len(received)
        if self._size > MAX_EVENT_BYTES:
            msg = f"the response is longer than {MAX_EVENT_BYTES} bytes"
            raise EventTooLong(msg)
        pieces.append(received)


def read_json(data: bytes, type: type[T]) -> T:  # noqa: A002 - as msgspec names it
    """Decode JSON that is invalid in a known way: unpaired surrogates, control characters or NaN.

    Raises `msgspec.DecodeError` for anything else than JSON, `msgspec.ValidationError` for JSON
    that does not fit the type.
    """
    try:
        decoded = json.loads(data, strict=False)
    except ValueError:
        msg = "not JSON"
        raise msgspec.DecodeError(msg) from None
    return msgspec.convert(_replace_surrogates(decoded), type)


def read_event(event: SseEvent, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decode an event; return None for JSON that does not fit the type, such as `null`.

    Raises a `ProviderError` for an event that is not JSON.
    """
    try:
        return decoder.decode(event.data)
    except msgspec.ValidationError:
        return None
    except ValueError:
        pass
    try:
        return read_json(event.data, decoder.type)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        raise unreadable_event_error(event) from None


def unreadable_event_error(event: SseEvent) -> errors.ProviderError:
    """Build the error for an event that cannot be decoded."""
    if event.name == "error":
        return classify_stream_error(parse_service_error(event.data))
    shown = event.data[:80].decode("utf-8", "replace")
    return errors.ConnectionLost(f"the model service sent something unreadable: {shown!r}")


def _decode_list(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return raw


def _is_readable(event: SseEvent) -> bool:
    if event.name == "error" or event.data.strip() == b"[DONE]":
        return True
    try:
        json.loads(event.data, strict=False)
    except ValueError:
        return False
    return True


def _replace_surrogates(value: object) -> object:
    """Replace unpaired surrogates, because they cannot be encoded as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {name: _replace_surrogates(item) for name, item in value.items()}
    return value
