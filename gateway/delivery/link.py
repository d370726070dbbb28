"""One adapter as the lanes see it: an op in, what came of it out, within a deadline."""

import asyncio
import logging
from collections.abc import Callable

from gateway.delivery.pacing import Account
from platforms.core.contract import Adapter, Draft, Op, Receipt, Typing
from platforms.core.errors import PlatformError, Unconfirmed

log = logging.getLogger(__name__)

DRAFT_DEADLINE = 10.0
TYPING_DEADLINE = 2.0


class Crashed(Unconfirmed):
    """The adapter failed with an error that it should not raise."""


Outcome = Receipt | PlatformError

Noted = Callable[[str, Op, Outcome], None]
"""Told what came of each op, and on which platform."""


class Link:
    """The way to one platform under one account."""

    def __init__(
        self,
        adapter: Adapter,
        on_refused: Callable[[Adapter], None],
        noted: Noted = lambda *_: None,
        now: float = 0.0,
    ) -> None:
        self.adapter = adapter
        can = adapter.capabilities
        self.account = (
            Account(can.account_burst, can.account_per_second, now) if can.account_burst else None
        )
        self.up = False  # connected
        self._on_refused = on_refused
        self._noted = noted

    def refused(self) -> None:
        """The platform does not accept our credentials any more: wait until it is connected."""
        if self.up:
            self.up = False
            log.error("%s does not accept our credentials any more", self.adapter.name)
            self._on_refused(self.adapter)

    async def deliver(self, op: Op, deadline: float) -> Outcome:
        """Have an op carried out, and say what came of it; raises nothing."""
        outcome = await self._outcome(op, deadline)
        self._noted(self.adapter.name, op, outcome)
        return outcome

    async def _outcome(self, op: Op, deadline: float) -> Outcome:
        if isinstance(op, Typing):
            deadline = min(deadline, TYPING_DEADLINE)
        elif isinstance(op, Draft):
            deadline = min(deadline, DRAFT_DEADLINE)
        try:
            async with asyncio.timeout(deadline):
                return await self.adapter.deliver(op)
        except PlatformError as error:
            return error
        except TimeoutError:
            return Unconfirmed(f"{self.adapter.name} did not answer within {deadline:g} s")
        except Exception as error:
            # The adapter's own mistake ends here: it must not take other chats down with it.
            log.exception("%s failed over %s", self.adapter.name, op.op)
            return Crashed(f"the adapter failed: {type(error).__name__}")
