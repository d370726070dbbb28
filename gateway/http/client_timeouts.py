"""Timeouts for clients: for request headers, for the request body, and for reading the response.

A client that exceeds a timeout is disconnected. The route sees an ordinary disconnect, so a turn
that only this client follows ends the same way. If no route has answered yet, the client gets an
error response first; so does a client that does not send HTTP.
"""

import asyncio
import enum
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.http.errors import REQUEST_TIMEOUT, HttpFailure, unreadable_request

_MAX_HEADER_BYTES = 16 * 1024
_TOO_LARGE = 431


class CutReason(enum.StrEnum):
    """Reason of a disconnect, a label of the metrics."""

    SLOW_HEADERS = "slow_headers"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    TOO_MANY_WAITING = "too_many_waiting"


OnCut = Callable[[CutReason], None]
"""Called with the reason of a disconnect."""


class ClientTimeouts(msgspec.Struct, frozen=True):
    """Limits in seconds; progress restarts each of them except `headers_seconds`."""

    headers_seconds: float = 10.0
    """From the connection, or from the first byte of a later request, to the end of the headers."""
    body_seconds: float = 30.0
    """Without another piece of the body."""
    write_seconds: float = 30.0
    """Until the client has read the about 50 KB that make room for more."""
    max_waiting: int = 2_048
    """Connections that have not sent the headers of a request; one more closes the oldest."""


def protocol_factory(timeouts: ClientTimeouts, on_cut: OnCut) -> type[asyncio.Protocol]:
    """Return the protocol factory for uvicorn: HTTP/1.1 with client timeouts."""
    waiting: dict[_TimedConnection, None] = {}
    factory = partial(_TimedConnection, timeouts=timeouts, on_cut=on_cut, waiting=waiting)
    return cast("type[asyncio.Protocol]", factory)  # uvicorn only calls it


class _StrictParser(h11.Connection):
    """h11's parser, which refuses large headers and requests of ambiguous length."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, _MAX_HEADER_BYTES)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; raises `h11.RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check(event)
        return event

    def _check(self, request: h11.Request) -> None:
        # h11 limits only headers that did not arrive at once.
        size = sum(len(name) + len(value) + len(": \r\n") for name, value in request.headers)
        if size + len(request.target) > _MAX_HEADER_BYTES:
            msg = "the headers are too large"
            raise h11.RemoteProtocolError(msg, error_status_hint=_TOO_LARGE)
        # A proxy in front may believe the other header, and take the body for a second request.
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            msg = "the request has two lengths"
            raise h11.RemoteProtocolError(msg)


class _TimedConnection(H11Protocol):
    """uvicorn's h11 protocol plus timeouts for the client."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - handed through
        timeouts: ClientTimeouts,
        on_cut: OnCut,
        waiting: "dict[_TimedConnection, None]",
        **others: Any,  # noqa: ANN401 - handed through
    ) -> None:
        super().__init__(*args, **others)
        self._waiting = waiting  # all connections that wait for headers, the oldest first
        self.conn = _StrictParser()
        self._client_timeouts = timeouts
        self._on_cut = on_cut
        self._receive_timer: asyncio.TimerHandle | None = None
        self._reading_headers = False  # the receive timer runs for headers
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        self._start_receive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_receive_timer()
        self.resume_writing()
        super().connection_lost(exc)

    # --- receiving --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            self._cancel_receive_timer()
        else:
            self._start_receive_timer()

    def _start_receive_timer(self) -> None:
        """Restart the receive timer according to the state of the request."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._cancel_receive_timer()
            self._receive_timer = self.loop.call_later(
                self._client_timeouts.body_seconds, self._on_body_timeout
            )
        elif state is not h11.IDLE:
            self._cancel_receive_timer()
        elif not self._reading_headers:  # single bytes do not extend the time for headers
            self._cancel_receive_timer()
            self._reading_headers = True
            self._receive_timer = self.loop.call_later(
                self._client_timeouts.headers_seconds, self._cut_off, CutReason.SLOW_HEADERS
            )
            self._waiting[self] = None
            if len(self._waiting) > self._client_timeouts.max_waiting:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                oldest._cut_off(CutReason.TOO_MANY_WAITING)  # noqa: SLF001 - of the same class

    def _cancel_receive_timer(self) -> None:
        if self._receive_timer:
            self._receive_timer.cancel()
        self._receive_timer = None
        self._reading_headers = False
        self._waiting.pop(self, None)

    def _on_body_timeout(self) -> None:
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._start_receive_timer()  # the server is the one not reading
        else:
            self._cut_off(CutReason.SLOW_BODY)

    # --- sending ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Keep the write timer running, because the end of a response may still be unread."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._start_write_timer()

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self._client_timeouts.write_seconds, self._on_write_timeout
            )

    def _on_write_timeout(self) -> None:
        self._write_timer = None
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            self._cut_off(CutReason.SLOW_READER)

    def _cut_off(self, reason: CutReason) -> None:
        self._on_cut(reason)
        if reason is not CutReason.SLOW_READER and self._has_request():
            self._send_failure(REQUEST_TIMEOUT)
        self.transport.abort()

    # --- errors answered without a route ----------------------------------------------------------

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - adds nothing to the status
        """Answer bytes that are not HTTP; uvicorn calls this after an error of h11."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._send_failure(unreadable_request(hint))
        self.transport.close()

    def _has_request(self) -> bool:
        """Return True if the client has begun a request; an idle connection gets no answer."""
        received, _ = self.conn.trailing_data
        return bool(received) or self.conn.their_state is not h11.IDLE

    def _send_failure(self, failure: HttpFailure) -> None:
        """Answer instead of the route, unless the route has begun its response.

        Writes to the transport directly, because h11 refuses to send in some states after an error.
        """
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        if self.tasks and self.cycle:  # type: ignore[truthy-bool]  # None before the first request
            self.cycle.disconnected = True  # discards later output of the route
        body = failure.encode_body()
        closing = {"content-length": str(len(body)), "connection": "close"}
        status = HTTPStatus(failure.status)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        headers = failure.response_headers() | closing
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
