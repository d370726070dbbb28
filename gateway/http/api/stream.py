"""A turn as an HTTP response: streamed as events, or sent whole at the end."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from gateway.http.api.endings import INTERRUPTED, AnswerOutcome, outcome_of, redact_outcome
from gateway.http.api.failures import HttpFailure
from gateway.http.api.pieces import AnswerPiece, PieceBuilder
from gateway.http.api.requests import TurnSubscription
from gateway.http.messages_errors import failure_for_path
from gateway.observe.redact import Redactor
from gateway.turns.feed_events import FeedEnd, FeedEvent, FeedNotice, FeedOutcome, join_text
from gateway.turns.feeds import FeedReader
from sessions.values.clock import Clock

KEEPALIVE_COMMENT = b": keepalive\n\n"
_WARNING = "request.warning"  # id of notices about the request itself
SESSION_STATE_HEADER = "x-session-state"
_UNBUFFERED = {"x-accel-buffering": "no"}  # nginx would hold the output back
_EVENT_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    **_UNBUFFERED,
}
_CONTINUED_LATER = {FeedOutcome.INTERRUPTED, FeedOutcome.NOT_STARTED}
_JSON_HEADERS = {"content-type": "application/json", "cache-control": "no-store"}


class AnswerEncoder(Protocol):
    """Encoder of one answer in the format of an endpoint."""

    failures_are_errors: bool
    """True if an answer that broke off after some text has an error status, unless streamed."""

    def encode_start(self) -> bytes:
        """Encode the first event of an answer."""
        ...

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode a piece of the answer."""
        ...

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events."""
        ...

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        ...


class Keepalive(msgspec.Struct, frozen=True, kw_only=True):
    """Times after which the connection of a waiting client gets a sign of life."""

    idle_seconds: float  # after the last write
    headers_after: float = 0.0
    """Seconds until an answer that is not streamed sends its headers; 0: only with the answer."""


class AnswerResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An ASGI response that lasts until the turn ends or the client disconnects."""

    subscription: TurnSubscription
    encoder: AnswerEncoder
    clock: Clock
    keepalive: Keepalive
    stream: bool
    redactor: Redactor
    warnings: tuple[str, ...] = ()  # about parts of the request that have no effect
    in_background: bool = False
    """True if the turn continues without the client, also after a restart.

    Then every reader gets the same events, one for each piece, and a restart is not the end.
    """
    with_reasoning: bool = False  # the client gets the reasoning of the model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; `gateway.http.client_timeouts` disconnects a client that stops reading."""
        with self.subscription, self.subscription.feed.subscribe() as reading:
            async with asyncio.TaskGroup() as group:
                writer = _ResponseWriter(self, send, scope.get("path", ""))
                beside = [group.create_task(_wait_for_disconnect(receive, reading))]
                if self.stream or self.keepalive.headers_after:
                    beside.append(group.create_task(writer.keep_alive(reading)))
                await (writer.write_stream(reading) if self.stream else writer.write_whole(reading))
                for task in beside:
                    task.cancel()


class _ResponseWriter:
    """Writer of one response.

    The headers are sent with the first content, because before that the response can still become
    an error.
    """

    def __init__(self, answer: AnswerResponse, send: Send, path: str) -> None:
        self._path = path
        self._encoder = answer.encoder
        self._clock = answer.clock
        self._idle_limit = answer.keepalive.idle_seconds
        if not answer.stream:
            self._idle_limit = answer.keepalive.headers_after
        self._keepalive = answer.keepalive
        state = answer.subscription.session_state
        self._extra_headers = {SESSION_STATE_HEADER: state} if state else {}
        self._send = send
        self._stream = answer.stream
        self._role = answer.subscription.entry.decision
        self._redactor = answer.redactor
        self._warnings = answer.warnings
        self._piece_builder = PieceBuilder(answer.redactor, with_reasoning=answer.with_reasoning)
        self._in_background = answer.in_background
        self._headers_sent = self._start_encoded = False
        self._last_write_at = answer.clock.monotonic()

    async def write_stream(self, reading: FeedReader) -> None:
        """Write events until the end, and a keepalive comment after each idle period."""
        while not reading.is_cancelled:
            news = await reading.read()
            events = self._encode_events(news)
            if news and isinstance(news[-1], FeedEnd):
                if self._in_background and news[-1].outcome in _CONTINUED_LATER:
                    break
                await self._write_end(events, self._outcome(news[-1]))
                return
            if events:
                await self._write(events)
            elif self._idle_seconds >= self._idle_limit:
                # The comment commits the status 200, so the start event can go out too.
                await self._write(KEEPALIVE_COMMENT + self._encode_start())
        await self._abort()

    async def keep_alive(self, reading: FeedReader) -> None:
        """Wake the writer when a keepalive is due; one timer per response, not one per write."""
        while True:
            left = self._idle_limit - self._idle_seconds
            if left <= 0:
                reading.wake()
                left = self._keepalive.idle_seconds
            await asyncio.sleep(left)

    @property
    def _idle_seconds(self) -> float:
        """Seconds since the last write."""
        return self._clock.monotonic() - self._last_write_at

    async def write_whole(self, reading: FeedReader) -> None:
        """Wait for the end, then write the answer; a long wait is filled with white space."""
        while not reading.is_cancelled:
            news = await reading.read()
            self._read_pieces(news)
            if news and isinstance(news[-1], FeedEnd):
                outcome = self._outcome(news[-1])
                text = self._piece_builder.text
                has_shape = text or self._headers_sent  # a failed response without text, too
                if outcome.failure and (not has_shape or self._encoder.failures_are_errors):
                    await self._send_failure(_with_partial(outcome.failure, text))
                else:
                    whole = replace(outcome, reasoning=self._piece_builder.reasoning)
                    body = self._encoder.encode_answer(text, whole)
                    await self._send_response(200, _JSON_HEADERS | self._extra_headers, body)
                return
            if self._keepalive.headers_after and self._idle_seconds >= self._idle_limit:
                await self._write_blank()
        await self._abort()

    async def _write_blank(self) -> None:
        """Send white space, which may precede JSON; the first one commits the status 200."""
        if not self._headers_sent:
            self._headers_sent = True
            self._idle_limit = self._keepalive.idle_seconds
            headers = _JSON_HEADERS | _UNBUFFERED | self._extra_headers
            await self._send(_start_message(200, headers))
        await self._send({"type": "http.response.body", "body": b"\n", "more_body": True})
        self._last_write_at = self._clock.monotonic()

    async def _abort(self) -> None:
        """End the response; the client may still be connected, because a shutdown cancels too."""
        if self._headers_sent and self._stream:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self._send_failure(INTERRUPTED)

    def _outcome(self, end: FeedEnd) -> AnswerOutcome:
        return redact_outcome(outcome_of(end, self._role), self._redactor.redact)

    def _encode_events(self, news: Iterable[FeedEvent | FeedEnd]) -> bytes:
        pieces = self._read_pieces(news)
        if not pieces:
            return b""
        beginning = self._encode_start()  # before the pieces: encoders number their events
        return beginning + b"".join(map(self._encoder.encode_piece, pieces))

    def _encode_start(self) -> bytes:
        if self._start_encoded:
            return b""
        self._start_encoded = True
        notices = (FeedNotice(_WARNING, text) for text in self._warnings)
        return self._encoder.encode_start() + b"".join(map(self._encoder.encode_piece, notices))

    def _read_pieces(self, news: Iterable[FeedEvent | FeedEnd]) -> list[AnswerPiece]:
        found: list[AnswerPiece] = []
        for each in news if self._in_background else join_text(news):
            found.extend(
                self._piece_builder.finish()
                if isinstance(each, FeedEnd)
                else self._piece_builder.add(each)
            )
        return found

    async def _write_end(self, events: bytes, outcome: AnswerOutcome) -> None:
        if outcome.failure and not (self._headers_sent or events):
            await self._send_failure(outcome.failure)
            return
        last = events + self._encode_start() + self._encoder.encode_end(outcome)
        await self._write(last, more=False)

    async def _write(self, content: bytes, *, more: bool = True) -> None:
        if not self._headers_sent:
            self._headers_sent = True
            await self._send(_start_message(200, _EVENT_STREAM_HEADERS | self._extra_headers))
        await self._send({"type": "http.response.body", "body": content, "more_body": more})
        self._last_write_at = self._clock.monotonic()

    async def _send_failure(self, failure: HttpFailure) -> None:
        failure = failure_for_path(self._path, failure)
        await self._send_response(
            failure.status, failure.response_headers() | self._extra_headers, failure.encode_body()
        )

    async def _send_response(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if not self._headers_sent:
            await self._send(_start_message(status, headers | {"content-length": str(len(body))}))
        await self._send({"type": "http.response.body", "body": body})


def _with_partial(failure: HttpFailure, text: str) -> HttpFailure:
    """Return the failure of an answer that broke off after this text."""
    if not text:
        return failure
    return replace(failure, status=502, partial=text, retryable=False, retry_advised=False)


def _start_message(status: int, headers: dict[str, str]) -> Message:
    written = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": written}


async def _wait_for_disconnect(receive: Receive, reading: FeedReader) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
        reading.cancel()
    finally:
        # The traceback of a cancellation keeps this frame until the next garbage collection.
        del receive, reading
