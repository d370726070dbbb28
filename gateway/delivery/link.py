"""One adapter as the lanes see it: an op in, what came of it out, within a deadline."""

import asyncio
import logging
from collections.abc import Callable

from gateway.delivery.pacing import AccountBudget
from platforms.core.contract import Adapter, Draft, Op, Receipt, Typing
from platforms.core.errors import PlatformError, Unconfirmed

log = logging.getLogger(__name__)

DRAFT_DEADLINE_SECONDS = 10.0
TYPING_DEADLINE_SECONDS = 2.0


class Crashed(Unconfirmed):
    """The adapter failed with an error that it should not raise."""


DeliveryOutcome = Receipt | PlatformError

OnDelivered = Callable[[str, Op, DeliveryOutcome], None]
"""Told what came of each op, and on which platform."""


class AdapterLink:
    """The way to one platform under one account."""

    def __init__(
        self,
        adapter: Adapter,
        on_refused: Callable[[Adapter], None],
        on_delivered: OnDelivered = lambda *_: None,
        now: float = 0.0,
    ) -> None:
        self.adapter = adapter
        can = adapter.capabilities
        self.account_budget = (
            AccountBudget(can.account_burst, can.account_per_second, now)
            if can.account_burst
            else None
        )
        self.is_connected = False  # connected
        self._on_refused = on_refused
        self._on_delivered = on_delivered

    def on_credentials_refused(self) -> None:
        """The platform does not accept our credentials any more: wait until it is connected."""
        if self.is_connected:
            self.is_connected = False
            log.error("%s does not accept our credentials any more", self.adapter.name)
            self._on_refused(self.adapter)

    async def deliver(self, op: Op, deadline_seconds: float) -> DeliveryOutcome:
        """Have an op carried out, and say what came of it; raises nothing."""
        outcome = await self._carry_out(op, deadline_seconds)
        self._on_delivered(self.adapter.name, op, outcome)
        return outcome

    async def _carry_out(self, op: Op, deadline_seconds: float) -> DeliveryOutcome:
        if isinstance(op, Typing):
            deadline_seconds = min(deadline_seconds, TYPING_DEADLINE_SECONDS)
        elif isinstance(op, Draft):
            deadline_seconds = min(deadline_seconds, DRAFT_DEADLINE_SECONDS)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self.adapter.deliver(op)
        except PlatformError as error:
            return error
        except TimeoutError:
            return Unconfirmed(f"{self.adapter.name} did not answer within {deadline_seconds:g} s")
        except Exception as error:
            # The adapter's own mistake ends here: it must not take other chats down with it.
            log.exception("%s failed over %s", self.adapter.name, op.op)
            return Crashed(f"the adapter failed: {type(error).__name__}")
