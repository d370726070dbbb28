"""How long a client may take: to say what it wants, to send it, and to take what is sent to it.

A client that takes too long is cut off. To the route that answers it, it has left like any other,
so a turn that was for it alone ends the same way. Where no route has answered yet it is told why,
as is a client whose bytes are no HTTP.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.http.errors import REQUEST_TIMEOUT, HttpFailure, unreadable_request

OnCut = Callable[[str], None]
"""Told why a connection was cut: `slow_headers`, `slow_body` or `slow_reader`."""


class ClientTimeouts(msgspec.Struct, frozen=True):
    """Seconds; each span begins anew when the client gets on, except for `headers`."""

    headers_seconds: float = (
        10.0  # from the connection, or the first byte, to the end of the headers
    )
    body_seconds: float = 30.0  # without any more of a body
    write_seconds: float = 30.0  # for the about 50 KB that make room for more


def protocol_factory(timeouts: ClientTimeouts, on_cut: OnCut) -> type[asyncio.Protocol]:
    """Give what speaks HTTP on each connection."""
    made = partial(_TimedConnection, timeouts=timeouts, on_cut=on_cut)
    return cast("type[asyncio.Protocol]", made)  # it is only ever called


class _TimedConnection(H11Protocol):
    """uvicorn's own, with an eye on the clock."""

    def __init__(self, *args: Any, timeouts: ClientTimeouts, on_cut: OnCut, **others: Any) -> None:  # noqa: ANN401 - handed through
        super().__init__(*args, **others)
        self._client_timeouts = timeouts
        self._on_cut = on_cut
        self._receive_timer: asyncio.TimerHandle | None = None  # until something must have come
        self._reading_headers = False  # these are headers
        self._write_timer: asyncio.TimerHandle | None = None  # until something must have been taken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        self._start_receive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_receive_timer()
        self.resume_writing()
        super().connection_lost(exc)

    # --- what it sends ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            self._cancel_receive_timer()
        else:
            self._start_receive_timer()

    def _start_receive_timer(self) -> None:
        """Look how far the request has come, and set the clock for the next piece of it."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._cancel_receive_timer()
            self._receive_timer = self.loop.call_later(
                self._client_timeouts.body_seconds, self._on_body_timeout
            )
        elif state is not h11.IDLE:
            self._cancel_receive_timer()
        elif (
            not self._reading_headers
        ):  # a client that sends a byte now and then gets no further span
            self._cancel_receive_timer()
            self._reading_headers = True
            self._receive_timer = self.loop.call_later(
                self._client_timeouts.headers_seconds, self._cut_off, "slow_headers"
            )

    def _cancel_receive_timer(self) -> None:
        if self._receive_timer:
            self._receive_timer.cancel()
        self._receive_timer = None
        self._reading_headers = False

    def _on_body_timeout(self) -> None:
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._start_receive_timer()  # it is we who do not read
        else:
            self._cut_off("slow_body")

    # --- what it takes ----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """The last piece may still lie here, and with it the connection."""
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
            self._cut_off("slow_reader")

    def _cut_off(self, reason: str) -> None:
        self._on_cut(reason)
        if reason != "slow_reader" and self._has_request():
            self._send_failure(REQUEST_TIMEOUT)
        self.transport.abort()

    # --- what no route answers --------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - says nothing that the status does not
        """What came is no HTTP; uvicorn asks for this where h11 has raised."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._send_failure(unreadable_request(hint))
        self.transport.close()

    def _has_request(self) -> bool:
        """Whether there is a request at all: a connection without one wants no answer."""
        received, _ = self.conn.trailing_data
        return bool(received) or self.conn.their_state is not h11.IDLE

    def _send_failure(self, failure: HttpFailure) -> None:
        """Answer in the route's place, unless it has begun to.

        Not by way of h11, which answers nothing any more in some of the states after an error.
        """
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        if self.tasks and self.cycle:  # type: ignore[truthy-bool]  # None before the first request
            self.cycle.disconnected = True  # whatever it still wants to say has no place here
        body = failure.encode_body()
        ends = {"content-length": str(len(body)), "connection": "close"}
        status = HTTPStatus(failure.status)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in (failure.response_headers() | ends).items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
