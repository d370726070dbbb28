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

from gateway.http.errors import TOO_SLOW, Failure, unreadable

Cut = Callable[[str], None]
"""Told why a connection was cut: `slow_headers`, `slow_body` or `slow_reader`."""


class Patience(msgspec.Struct, frozen=True):
    """Seconds; each span begins anew when the client gets on, except for `headers`."""

    headers: float = 10.0  # from the connection, or the first byte, to the end of the headers
    body: float = 30.0  # without any more of a body
    reader: float = 30.0  # for the about 50 KB that make room for more


def patient(patience: Patience, cut: Cut) -> type[asyncio.Protocol]:
    """Give what speaks HTTP on each connection."""
    made = partial(_Connection, patience=patience, cut=cut)
    return cast("type[asyncio.Protocol]", made)  # it is only ever called


class _Connection(H11Protocol):
    """uvicorn's own, with an eye on the clock."""

    def __init__(self, *args: Any, patience: Patience, cut: Cut, **others: Any) -> None:  # noqa: ANN401 - handed through
        super().__init__(*args, **others)
        self._patience = patience
        self._cut = cut
        self._sends: asyncio.TimerHandle | None = None  # until something must have come
        self._begins = False  # these are headers
        self._takes: asyncio.TimerHandle | None = None  # until something must have been taken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.resume_writing()
        super().connection_lost(exc)

    # --- what it sends ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            self._expect_nothing()
        else:
            self._expect()

    def _expect(self) -> None:
        """Look how far the request has come, and set the clock for the next piece of it."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._expect_nothing()
            self._sends = self.loop.call_later(self._patience.body, self._nothing_came)
        elif state is not h11.IDLE:
            self._expect_nothing()
        elif not self._begins:  # a client that sends a byte now and then gets no further span
            self._expect_nothing()
            self._begins = True
            self._sends = self.loop.call_later(self._patience.headers, self._end, "slow_headers")

    def _expect_nothing(self) -> None:
        if self._sends:
            self._sends.cancel()
        self._sends = None
        self._begins = False

    def _nothing_came(self) -> None:
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._expect()  # it is we who do not read
        else:
            self._end("slow_body")

    # --- what it takes ----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._must_take()

    def resume_writing(self) -> None:
        if self._takes:
            self._takes.cancel()
            self._takes = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """The last piece may still lie here, and with it the connection."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._must_take()

    def _must_take(self) -> None:
        if self._takes is None:
            self._takes = self.loop.call_later(self._patience.reader, self._nothing_taken)

    def _nothing_taken(self) -> None:
        self._takes = None
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            self._end("slow_reader")

    def _end(self, why: str) -> None:
        self._cut(why)
        if why != "slow_reader" and self._something_came():
            self._refuse(TOO_SLOW)
        self.transport.abort()

    # --- what no route answers --------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - says nothing that the status does not
        """What came is no HTTP; uvicorn asks for this where h11 has raised."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(unreadable(hint))
        self.transport.close()

    def _something_came(self) -> bool:
        """Whether there is a request at all: a connection without one wants no answer."""
        received, _ = self.conn.trailing_data
        return bool(received) or self.conn.their_state is not h11.IDLE

    def _refuse(self, failure: Failure) -> None:
        """Answer in the route's place, unless it has begun to.

        Not by way of h11, which answers nothing any more in some of the states after an error.
        """
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        if self.tasks and self.cycle:  # type: ignore[truthy-bool]  # None before the first request
            self.cycle.disconnected = True  # whatever it still wants to say has no place here
        body = failure.body()
        ends = {"content-length": str(len(body)), "connection": "close"}
        status = HTTPStatus(failure.status)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in (failure.headers() | ends).items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
