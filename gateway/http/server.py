"""The HTTP server: uvicorn embedded in the daemon's event loop."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import CannotStart
from gateway.http.client_timeouts import ClientTimeouts, OnCut, protocol_factory
from sessions.values.loopback import is_loopback, normalize_host

_SHUTDOWN_GRACE_SECONDS = 2.0  # for responses in progress at shutdown
_POLL_SECONDS = 0.005
_MAX_UNSENT_BYTES = 65_536
"""Limit on unsent bytes per connection in the kernel, which would otherwise buffer megabytes.

The server cannot tell buffered bytes from bytes that the client has read. With large buffers a
stalled reader would be noticed late and would cost that much memory.
"""

_log = logging.getLogger(__name__)


class PortTaken(CannotStart):
    """The daemon cannot listen on the configured address."""


class HttpServer:
    """HTTP server that holds its port from `bind` on, so that a second daemon fails immediately.

    Connections made before `serve` wait in the socket's backlog.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeouts: ClientTimeouts | None = None,
        on_cut: OnCut = lambda _: None,
    ) -> None:
        self._host = normalize_host(host)
        self._port = port
        self._timeouts = timeouts or ClientTimeouts()
        self._on_cut = on_cut
        self._socket: socket.socket | None = None

    def bind(self, inherited_fd: int | None = None) -> None:
        """Listen on the port; raises `PortTaken` if that fails.

        `inherited_fd` is the listening socket of the previous process; a socket that listens on
        another address is closed.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = (
            self._adopt_socket(inherited_fd, family) if inherited_fd is not None else None
        )
        try:
            if self._socket is None:
                self._socket = socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise PortTaken(_bind_error_message(error, self._host, self._port)) from error
        self._socket.settimeout(0)
        # Accepted connections inherit both options.
        with contextlib.suppress(OSError, AttributeError):  # not every system has the option
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        # asyncio does not set TCP_NODELAY on a socket that it did not create. Without the option the
        # end of each response waits 40 ms for the client's delayed ACK.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = self._socket.getsockname()[1]

    def _adopt_socket(
        self, inherited_fd: int, family: socket.AddressFamily
    ) -> socket.socket | None:
        """Return the inherited socket if it listens on the configured address."""
        try:
            inherited = socket.socket(fileno=inherited_fd)
        except OSError:
            return None
        host, port = inherited.getsockname()[:2] if inherited.family == family else ("", 0)
        try:
            wanted = {info[4][0] for info in socket.getaddrinfo(self._host, None, family)}
        except OSError:
            wanted = set()
        if host in wanted and self._port in {0, port}:
            return inherited
        inherited.close()
        return None

    @property
    def fileno(self) -> int | None:
        """The file descriptor of the listening socket; None before `bind` and after the end."""
        return self._socket.fileno() if self._socket else None

    @property
    def port(self) -> int:
        """The port; if 0 is configured, the real port from `bind` on."""
        return self._port

    @property
    def bound_host(self) -> str:
        """The IP address of the listening socket, resolved from a name such as `localhost`."""
        return str(self._socket.getsockname()[0]) if self._socket else ""

    @property
    def is_local_only(self) -> bool:
        """True if only programs on this machine can connect; valid from `bind` on."""
        return is_loopback(self.bound_host)

    @property
    def url(self) -> str:
        """The address to open in a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/"

    async def serve(self, app: ASGIApp) -> None:
        """Serve until cancelled; responses in progress then get two seconds to finish."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None  # noqa: S101 - bound above
        receiving = _DisconnectOnShutdown(app)
        server = _EmbeddedServer(
            uvicorn.Config(
                receiving,
                http=protocol_factory(self._timeouts, self._on_cut),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
            )
        )
        listening = self._socket
        try:
            await server.serve(sockets=[listening])
        finally:
            self._socket = None
            receiving.disconnect_all()
            if server.started:
                await server.shutdown(sockets=[listening])
            listening.close()

    def close(self) -> None:
        """Release the port if `serve` was never called."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _DisconnectOnShutdown:
    """ASGI wrapper that reports a client disconnect to every open response at shutdown.

    Streams have no end of their own; this way they end as they do when a page is closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pending_receives: set[asyncio.Timeout] = set()
        self._disconnected = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            try:
                async with asyncio.timeout(0 if self._disconnected else None) as waiting:
                    self._pending_receives.add(waiting)
                    try:
                        return await receive()
                    finally:
                        self._pending_receives.discard(waiting)
            except TimeoutError:
                return {"type": "http.disconnect"}

        await self._app(scope, receiving, send)

    def disconnect_all(self) -> None:
        """Wake every pending `receive` with a disconnect."""
        self._disconnected = True
        for waiting in self._pending_receives:
            waiting.reschedule(0)


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers (the daemon has its own) and its 100 ms ticks."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await asyncio.Event().wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, wait for responses within the grace period, then cancel the rest."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(_SHUTDOWN_GRACE_SECONDS):
                while self.server_state.tasks or self.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            _log.warning(
                "cancelled HTTP responses that did not end within %g s: %d",
                _SHUTDOWN_GRACE_SECONDS,
                len(self.server_state.tasks),
            )
            for task in self.server_state.tasks:
                task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # aborted transports close in the next loop iteration


def _bind_error_message(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"Port {port} on {host} is already in use. "
                "Stop the program that uses it, or choose another port: --set http.port=NUMBER."
            )
        case errno.EACCES:
            return f"Port {port} on {host} needs more privileges. Set http.port to one above 1023."
        case _:
            return (
                f"Cannot listen on {host} port {port}: {error.strerror or error}. Check http.host."
            )
