"""Serves the application in the daemon's own loop."""

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

_SHUTDOWN_GRACE_SECONDS = 2.0  # seconds that open responses get at the end
_POLL_SECONDS = 0.005  # seconds between two looks whether they have ended
_MAX_UNSENT_BYTES = 65_536
"""Bytes of a connection that the kernel holds unsent; by itself it would take some megabytes.

What it takes from us we cannot tell from what was read, so a reader that has stopped would be
noticed late, and each would cost that much memory.
"""

_log = logging.getLogger(__name__)


class PortTaken(CannotStart):
    """The address cannot be listened on."""


class HttpServer:
    """Holds the port from `bind` on; a second daemon finds it taken at once.

    Connections made before `serve` wait in the socket's queue.
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
        self._on_cut = on_cut  # told why a client was cut off
        self._socket: socket.socket | None = None

    def bind(self, inherited_fd: int | None = None) -> None:
        """Take the port; raises `PortTaken` when that cannot be done.

        `handed` is a socket that the process before has left; where it listens at the wrong place
        it is closed.
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
        with contextlib.suppress(OSError, AttributeError):  # there are systems without it
            # Connections take it over from here.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        # Every connection inherits it. asyncio would set it too, but not on sockets of this making;
        # without it the end of each answer waits 40 ms for the client's system to confirm the rest.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = self._socket.getsockname()[1]

    def _adopt_socket(
        self, inherited_fd: int, family: socket.AddressFamily
    ) -> socket.socket | None:
        """A socket that was left, if it listens where this server is to."""
        try:
            left = socket.socket(fileno=inherited_fd)
        except OSError:
            return None
        host, port = left.getsockname()[:2] if left.family == family else ("", 0)
        try:
            wanted = {each[4][0] for each in socket.getaddrinfo(self._host, None, family)}
        except OSError:
            wanted = set()
        if host in wanted and self._port in {0, port}:
            return left
        left.close()
        return None

    @property
    def fileno(self) -> int | None:
        """The number of the socket; None when nothing is listened on."""
        return self._socket.fileno() if self._socket else None

    @property
    def port(self) -> int:
        """The port; when 0 was asked for, the real one from `bind` on."""
        return self._port

    @property
    def bound_host(self) -> str:
        """The address that is listened on, which a name such as `localhost` has led to."""
        return str(self._socket.getsockname()[0]) if self._socket else ""

    @property
    def is_local_only(self) -> bool:
        """Whether only programs of this machine can connect; known from `bind` on."""
        return is_loopback(self.bound_host)

    @property
    def url(self) -> str:
        """The address a person on this machine opens."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/"

    async def serve(self, app: ASGIApp) -> None:
        """Serve until cancelled; responses under way then get two seconds to end."""
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
        """Give the port back when it came to no `serve`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _DisconnectOnShutdown:
    """Tells every response under way that its reader has left, once serving ends.

    A stream would go on for ever otherwise; it ends the way it does when a page is closed.
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
        """Let nobody wait for a reader any longer."""
        self._disconnected = True
        for waiting in self._pending_receives:
            waiting.reschedule(0)


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers, which are the daemon's, and without its 100 ms ticks."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await asyncio.Event().wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, let responses under way end within the grace, then cut what is left."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(_SHUTDOWN_GRACE_SECONDS):
                while self.server_state.tasks or self.server_state.connections:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            _log.warning("Cut %d responses that did not end.", len(self.server_state.tasks))
            for task in self.server_state.tasks:
                task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the loop closes them in its next round


def _bind_error_message(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"Port {port} on {host} is already in use. "
                "Stop what uses it, or choose another port with --set http.port=NUMBER."
            )
        case errno.EACCES:
            return f"Port {port} on {host} needs more rights. Choose one above 1023 for http.port."
        case _:
            return (
                f"Cannot listen on {host} port {port}: {error.strerror or error}. Check http.host."
            )
