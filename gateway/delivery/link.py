"""One adapter as used by the lanes: deadlines, and every error as an outcome."""

import asyncio
import logging
from collections.abc import Callable

from gateway.delivery.pacing import AccountBudget
from platforms.core.contract import Adapter, Draft, Op, Receipt, Typing
from platforms.core.errors import PlatformError, Unauthorized, Unconfirmed

log = logging.getLogger(__name__)

_DRAFT_DEADLINE_SECONDS = 10.0
_TYPING_DEADLINE_SECONDS = 2.0


class Crashed(Unconfirmed):
    """The adapter raised an unexpected error."""


DeliveryOutcome = Receipt | PlatformError

OnDelivered = Callable[[str, Op, DeliveryOutcome], None]
"""Receives the platform, op and outcome of every delivery."""


class AdapterLink:
    """Connection to one account of a platform."""

    def __init__(
        self,
        adapter: Adapter,
        on_refused: Callable[[Adapter, Unauthorized], None],
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
        self.is_connected = False
        self._on_refused = on_refused
        self._on_delivered = on_delivered

    def on_credentials_refused(self, error: Unauthorized) -> None:
        """Mark the platform as disconnected until credentials are accepted again."""
        if self.is_connected:
            self.is_connected = False
            self._on_refused(self.adapter, error)

    async def deliver(self, op: Op, deadline_seconds: float) -> DeliveryOutcome:
        """Carry out an op within a deadline; return the receipt or error, and never raise."""
        outcome = await self._carry_out(op, deadline_seconds)
        self._on_delivered(self.adapter.name, op, outcome)
        return outcome

    async def _carry_out(self, op: Op, deadline_seconds: float) -> DeliveryOutcome:
        if isinstance(op, Typing):
            deadline_seconds = min(deadline_seconds, _TYPING_DEADLINE_SECONDS)
        elif isinstance(op, Draft):
            deadline_seconds = min(deadline_seconds, _DRAFT_DEADLINE_SECONDS)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self.adapter.deliver(op)
        except PlatformError as error:
            return error
        except TimeoutError:
            return Unconfirmed(f"{self.adapter.name} did not answer within {deadline_seconds:g} s")
        except Exception as error:
            # A bug of one adapter must not stop the delivery to other chats.
            log.exception("%s: unexpected error while delivering %s", self.adapter.name, op.op)
            return Crashed(f"the adapter failed: {type(error).__name__}")
