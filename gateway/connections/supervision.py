"""Keeps one platform's connection alive, and knows how it stands."""

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

CONNECT_TIMEOUT_SECONDS = 15.0
"""Within this a platform must be connected: a library may wait for minutes on a line that is dead."""


class ConnectionState(enum.StrEnum):
    """How a platform's connection stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"


class SupervisedAdapter:
    """One adapter, started again with growing pauses whenever it fails."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        on_connected: Callable[[Adapter], None],
        on_disconnected: Callable[[Adapter], None],
        on_change: Callable[[], None] = lambda: None,
        randomness: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        connect_seconds: float = CONNECT_TIMEOUT_SECONDS,
    ) -> None:
        self.adapter = adapter
        self.state = ConnectionState.CONNECTING
        self.error = ""
        self._warning = ""  # while it is connected
        self.first_attempt_done = asyncio.Event()
        """Set once it was connected, or could not be, for the first time."""
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_change = on_change  # it stands otherwise than before
        self._randomness = randomness
        self._sleep = sleep
        self._connect_seconds = connect_seconds
        self._connect_deadline: asyncio.Timeout | None = None  # until it is connected

    @property
    def status_text(self) -> str:
        """How it stands, in words for a person."""
        if self.error:
            return self.error
        if self.state is ConnectionState.CONNECTING:
            return "connecting, no answer so far"
        return self.state.value

    @property
    def name(self) -> str:
        """How logs and `/readyz` call it."""
        return connection_name(self.adapter.name, self.adapter.account)

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence; empty when it works and nothing disturbs it."""
        if self.state is not ConnectionState.CONNECTED:
            return self.status_text
        return self._warning

    def set_warning(self, text: str) -> None:
        """Something is wrong that does not break the connection; an empty text: it is over."""
        if text == self._warning:
            return
        if text:
            log.warning("%s: %s", self.name, text)
        else:
            log.info("%s: this is over: %s", self.name, self._warning)
        self._warning = text
        self._on_change()

    async def run(self, inbox: Inbox) -> None:
        """Keep it running until cancelled, or until its credentials turn out not to work."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            least = 0.0  # what the platform itself asks us to wait
            try:
                await self._run_once(inbox)
                self.error = "its connection ended"
            except Unauthorized as error:
                log.error("%s: %s; it stays off until the next start", self.name, error)  # noqa: TRY400 - the operator needs the sentence, not a traceback
                self.state, self.error = ConnectionState.REFUSED, str(error)
                self._on_change()
                return
            except PlatformError as error:
                self.error = str(error)
                if isinstance(error, Unavailable) and error.retry_after:
                    least = error.retry_after
            except Exception as error:
                log.exception("%s broke", self.name)
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
                raise asyncio.CancelledError  # an error in that very moment took its place
            if was_connected:
                pause = FIRST_PAUSE_SECONDS
            log.warning(
                "%s: %s; trying again in about %.0f s", self.name, self.error, max(least, pause)
            )
            await self._sleep(max(least, pause * (0.75 + self._randomness() / 2)))
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    def on_credentials_refused(self) -> None:
        """What was to be delivered was turned away: the credentials do not work any more."""
        self.state, self.error = ConnectionState.REFUSED, "it does not accept our credentials"
        log.error(
            "%s: %s; nothing is delivered there until it connects again", self.name, self.error
        )
        self._on_change()

    async def _run_once(self, inbox: Inbox) -> None:
        """Run it once; it has so long to connect, and then as long as it likes."""
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
