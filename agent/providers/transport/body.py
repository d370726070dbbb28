"""Sans-IO: reads the body of an answer, whatever protocol its events speak."""

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


class BodyReader:
    """Reads the body of one answer: a stream of events, or one piece of JSON all the same.

    `read` turns an event into chunks; a piece of JSON is given to it as one event without a name.
    """

    def __init__(self, read_event: Callable[[SseEvent | SseComment], Iterable[Chunk]]) -> None:
        self.done = False  # the wire's own end mark came: nothing of interest follows
        self._read_event = read_event
        self._events = SseReader()
        self._json_pieces: list[bytes] | None = None
        self._size = 0
        self._has_begun = False

    def feed(self, received: bytes) -> Iterator[Chunk]:
        """Take bytes; what stands before an error is given before it is raised."""
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
        """The body is over."""
        if self._json_pieces is not None:
            raw = b"".join(self._json_pieces).removeprefix(b"\xef\xbb\xbf").strip()
            if raw.startswith(b"["):  # never an answer; some services wrap their errors so
                raise classify_stream_error(parse_service_error(_decode_list(raw)))
            yield WholeChunk()
            ended = False
            for chunk in self._read_event(SseEvent("", raw)):
                ended = ended or chunk is DONE
                yield chunk
            if not ended:
                yield DONE
        for event in self._events.close():
            # The last event may be a torn one.
            if isinstance(event, SseEvent) and _is_readable(event):
                yield from self._read_event(event)

    def _keep_piece(self, whole: list[bytes], received: bytes) -> None:
        self._size += len(received)
        if self._size > MAX_EVENT_BYTES:
            msg = f"an answer in one piece is longer than {MAX_EVENT_BYTES} bytes"
            raise EventTooLong(msg)
        whole.append(received)


_NON_EVENT_STARTS = (b"{", b"[", b"<")
"""What no event begins with: JSON, or a page for people."""


def read_json(data: bytes, type: type[T]) -> T:  # noqa: A002 - as msgspec names it
    """Decode an event that strict JSON cannot: half of a character, or NaN as a number.

    Raises `msgspec.DecodeError` if it is no JSON at all, `msgspec.ValidationError` if it has
    another shape.
    """
    try:
        decoded = json.loads(data, strict=False)
    except ValueError:
        msg = "no JSON"
        raise msgspec.DecodeError(msg) from None
    return msgspec.convert(_replace_surrogates(decoded), type)


def read_event(event: SseEvent, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decode an event; None for JSON of a shape that has nothing for us, such as `null`.

    Raises the `ProviderError` that the event is when it is no JSON.
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
    """Say what an event was that could not be read."""
    if event.name == "error":
        return classify_stream_error(parse_service_error(event.data))
    said = event.data[:80].decode("utf-8", "replace")
    return errors.ConnectionLost(f"the model service sent something unreadable: {said!r}")


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
    """Replace halves of characters, which no text of ours may hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {name: _replace_surrogates(each) for name, each in value.items()}
    return value
