"""Keeps one platform's connection alive, and knows how it stands."""

import asyncio
import enum
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.inbound.routing import name_of
from platforms.core.contract import Adapter, Inbox
from platforms.core.errors import PlatformError, Unauthorized, Unavailable

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

CONNECT_SECONDS = 15.0
"""Within this a platform must be connected: a library may wait for minutes on a line that is dead."""


class Standing(enum.StrEnum):
    """How a platform's connection stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"


class Supervised:
    """One adapter, started again with growing pauses whenever it fails."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        connected: Callable[[Adapter], None],
        disconnected: Callable[[Adapter], None],
        changed: Callable[[], None] = lambda: None,
        randomness: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        patience: float = CONNECT_SECONDS,
    ) -> None:
        self.adapter = adapter
        self.standing = Standing.CONNECTING
        self.trouble = ""
        self._complaint = ""  # while it is connected
        self.tried = asyncio.Event()
        """Set once it was connected, or could not be, for the first time."""
        self._connected = connected
        self._disconnected = disconnected
        self._changed = changed  # it stands otherwise than before
        self._randomness = randomness
        self._sleep = sleep
        self._patience = patience
        self._deadline: asyncio.Timeout | None = None  # until it is connected

    @property
    def report(self) -> str:
        """How it stands, in words for a person."""
        if self.trouble:
            return self.trouble
        if self.standing is Standing.CONNECTING:
            return "connecting, no answer so far"
        return self.standing.value

    @property
    def name(self) -> str:
        """How logs and `/readyz` call it."""
        return name_of(self.adapter.name, self.adapter.account)

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence; empty when it works and nothing disturbs it."""
        if self.standing is not Standing.CONNECTED:
            return self.report
        return self._complaint

    def complains(self, text: str) -> None:
        """Something is wrong that does not break the connection; an empty text: it is over."""
        if text == self._complaint:
            return
        if text:
            log.warning("%s: %s", self.name, text)
        else:
            log.info("%s: this is over: %s", self.name, self._complaint)
        self._complaint = text
        self._changed()

    async def run(self, inbox: Inbox) -> None:
        """Keep it running until cancelled, or until its credentials turn out not to work."""
        pause = FIRST_PAUSE
        while True:
            least = 0.0  # what the platform itself asks us to wait
            try:
                await self._run(inbox)
                self.trouble = "its connection ended"
            except Unauthorized as error:
                log.error("%s: %s; it stays off until the next start", self.name, error)  # noqa: TRY400 - the operator needs the sentence, not a traceback
                self.standing, self.trouble = Standing.REFUSED, str(error)
                self._changed()
                return
            except PlatformError as error:
                self.trouble = str(error)
                if isinstance(error, Unavailable) and error.retry_after:
                    least = error.retry_after
            except Exception as error:
                log.exception("%s broke", self.name)
                self.trouble = f"an error in its adapter ({type(error).__name__})"
            finally:
                was_connected = self.standing is Standing.CONNECTED
                if self.standing is not Standing.REFUSED:
                    self.standing = Standing.CONNECTING
                self._complaint = ""
                self._disconnected(self.adapter)
                self.tried.set()
                self._changed()
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # an error in that very moment took its place
            if was_connected:
                pause = FIRST_PAUSE
            log.warning(
                "%s: %s; trying again in about %.0f s", self.name, self.trouble, max(least, pause)
            )
            await self._sleep(max(least, pause * (0.75 + self._randomness() / 2)))
            pause = min(pause * 2, LONGEST_PAUSE)

    def refused(self) -> None:
        """What was to be delivered was turned away: the credentials do not work any more."""
        self.standing, self.trouble = Standing.REFUSED, "it does not accept our credentials"
        log.error(
            "%s: %s; nothing is delivered there until it connects again", self.name, self.trouble
        )
        self._changed()

    async def _run(self, inbox: Inbox) -> None:
        """Run it once; it has so long to connect, and then as long as it likes."""
        deadline = self._deadline = asyncio.timeout(self._patience)
        try:
            async with deadline:
                await self.adapter.run(inbox, self._ready)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            msg = f"no answer within {self._patience:g} s"
            raise Unavailable(msg) from error
        finally:
            self._deadline = None

    def _ready(self) -> None:
        if self._deadline and not self._deadline.expired():
            self._deadline.reschedule(None)
        if self.standing is not Standing.CONNECTED:
            log.info("%s is connected", self.name)
        self.standing, self.trouble = Standing.CONNECTED, ""
        self._connected(self.adapter)
        self.tried.set()
        self._changed()
