"""An inbox that keeps what adapters hear, as the gateway's store would."""

import asyncio
from collections.abc import Callable

from platforms.core.contract import Accepted, Inbound, InboundMessage

PATIENCE = 12.0


class Inbox:
    """Takes each event once; can be slow, and can be broken."""

    def __init__(self) -> None:
        self.events: list[Inbound] = []
        self.deliveries = 0  # also of what was there already
        self.fails = 0  # of the next events
        self.may_store = asyncio.Event()
        self.may_store.set()
        self._changed = asyncio.Condition()

    async def __call__(self, event: Inbound) -> Accepted:
        await self.may_store.wait()
        if self.fails:
            self.fails -= 1
            msg = "the disk is full"
            raise OSError(msg)
        known = {(each.address.chat, each.id) for each in self.events}
        new = (event.address.chat, event.id) not in known
        if new:
            self.events.append(event)
        self.deliveries += 1
        async with self._changed:
            self._changed.notify_all()
        return self.judged(event) if new else Accepted.DUPLICATE

    def judged(self, event: Inbound) -> Accepted:
        """What the gateway says of something new."""
        return Accepted.STORED

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until something is so; looked at whenever something comes in."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(enough)

    async def wait(self, number: int) -> list[Inbound]:
        """Wait until so many events are stored."""
        await self.until(lambda: len(self.events) >= number)
        return self.events

    async def texts(self, number: int) -> list[str]:
        """The words of all messages, once so many events are stored."""
        await self.wait(number)
        return self.said

    async def messages(self, number: int) -> list[InboundMessage]:
        """Those of so many events that are messages meant for us."""
        await self.wait(number)
        return [each for each in self._messages if each.addressed]

    @property
    def said(self) -> list[str]:
        """The words of all messages so far."""
        return [each.text for each in self._messages]

    def message(self, number: int = -1) -> InboundMessage:
        """One of the messages so far."""
        return self._messages[number]

    @property
    def _messages(self) -> list[InboundMessage]:
        return [each for each in self.events if isinstance(each, InboundMessage)]
