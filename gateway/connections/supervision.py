"""Keeps one platform connected, and tracks the state of the connection."""

import asyncio
import enum
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.inbound.routing import connection_name
from platforms.core.contract import Adapter, Inbox
from platforms.core.errors import PlatformError, Unauthorized, Unavailable

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0

_CONNECT_TIMEOUT_SECONDS = 15.0
"""Time limit for connecting, because a library may wait minutes on a dead connection."""


class ConnectionState(enum.StrEnum):
    """State of a platform's connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"


class SupervisedAdapter:
    """One adapter, restarted with growing pauses after failures."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        on_connected: Callable[[Adapter], None],
        on_disconnected: Callable[[Adapter], None],
        on_change: Callable[[], None] = lambda: None,
        randomness: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect_seconds: float = _CONNECT_TIMEOUT_SECONDS,
    ) -> None:
        self.adapter = adapter
        self.state = ConnectionState.CONNECTING
        self.error = ""
        self._warning = ""  # a problem of a working connection
        self.first_attempt_done = asyncio.Event()
        """Set after the first attempt to connect has succeeded or failed."""
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_change = on_change  # called after the state has changed
        self._randomness = randomness
        self._sleep = sleep
        self._connect_seconds = connect_seconds
        self._connect_deadline: asyncio.Timeout | None = None  # None once connected

    @property
    def status_text(self) -> str:
        """State of the connection, for people."""
        if self.error:
            return self.error
        if self.state is ConnectionState.CONNECTING:
            return "connecting, no answer so far"
        return self.state.value

    @property
    def name(self) -> str:
        """Name of the connection in logs and `/readyz`."""
        return connection_name(self.adapter.name, self.adapter.account)

    @property
    def problem(self) -> str:
        """The problem in one sentence; empty if there is none."""
        if self.state is not ConnectionState.CONNECTED:
            return self.status_text
        return self._warning

    def set_warning(self, text: str) -> None:
        """Set a problem that does not break the connection; an empty text clears it."""
        if text == self._warning:
            return
        if text:
            log.warning("%s: %s", self.name, text)
        else:
            log.info("%s: resolved: %s", self.name, self._warning)
        self._warning = text
        self._on_change()

    async def run(self, inbox: Inbox) -> None:
        """Keep the adapter running until cancelled or until the credentials are refused."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            least = 0.0  # seconds requested by the platform
            try:
                await self._run_once(inbox)
                self.error = "its connection ended"
            except Unauthorized as error:
                if self.state is ConnectionState.REFUSED:  # a delivery has reported the reason
                    log.error("%s: disconnected until the next start", self.name)  # noqa: TRY400 - see below
                else:
                    log.error("%s: %s; disconnected until the next start", self.name, error)  # noqa: TRY400 - the operator needs the sentence, not a traceback
                self.state, self.error = ConnectionState.REFUSED, str(error)
                self._on_change()
                return
            except PlatformError as error:
                self.error = str(error)
                if isinstance(error, Unavailable) and error.retry_after:
                    least = error.retry_after
            except Exception as error:
                log.exception("%s: unexpected error in the adapter", self.name)
                self.error = f"an error in its adapter ({type(error).__name__})"
            finally:
                was_connected = self.state is ConnectionState.CONNECTED
                if self.state is not ConnectionState.REFUSED:
                    self.state = ConnectionState.CONNECTING
                self._warning = ""
                self._on_disconnected(self.adapter)
                self.first_attempt_done.set()
                self._on_change()
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # the adapter's error has replaced the cancellation
            if was_connected:
                pause = FIRST_PAUSE_SECONDS
            log.warning(
                "%s: %s; reconnecting in about %.0f s", self.name, self.error, max(least, pause)
            )
            await self._sleep(max(least, pause * (0.75 + self._randomness() / 2)))
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    def on_credentials_refused(self, error: Unauthorized) -> None:
        """Record that the platform refused the credentials during a delivery."""
        self.state, self.error = ConnectionState.REFUSED, str(error)
        log.error("%s: %s; delivery is paused until it connects again", self.name, self.error)
        self._on_change()

    async def _run_once(self, inbox: Inbox) -> None:
        """Run the adapter once; the time limit applies to connecting only."""
        deadline = self._connect_deadline = asyncio.timeout(self._connect_seconds)
        try:
            async with deadline:
                await self.adapter.run(inbox, self._on_ready)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            msg = f"no answer within {self._connect_seconds:g} s"
            raise Unavailable(msg) from error
        finally:
            self._connect_deadline = None

    def _on_ready(self) -> None:
        if self._connect_deadline and not self._connect_deadline.expired():
            self._connect_deadline.reschedule(None)
        if self.state is not ConnectionState.CONNECTED:
            log.info("%s is connected", self.name)
        self.state, self.error = ConnectionState.CONNECTED, ""
        self._on_connected(self.adapter)
        self.first_attempt_done.set()
        self._on_change()
