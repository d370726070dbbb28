"""What is asked beside the conversation: models, costs, a summary, a question on the side."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.announcer import Announcer
from gateway.choices import Choices
from gateway.commands.contract import Call, Outcome, Tell
from gateway.delivery.outbox import Delivery
from gateway.models import Models
from sessions.events import State
from sessions.store import SessionStore
from sessions.values.clock import Clock


class Asides:
    """See `gateway.commands.contract.Asides`."""

    def __init__(
        self,
        *,
        store: SessionStore,
        clock: Clock,
        models: Models,
        choices: Choices,
        announcer: Announcer,
        delivery: Delivery,
        look: Callable[[str], Awaitable[State]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._tasks = tasks

    async def model(self, call: Call) -> Outcome:
        """Show or switch the model."""
        return Tell("not_now")

    async def reasoning(self, call: Call) -> Outcome:
        """Show or set how long the model may think."""
        return Tell("not_now")

    async def usage(self, call: Call) -> Outcome:
        """Show what was used."""
        return Tell("not_now")

    async def compact(self, call: Call) -> Outcome:
        """Put a summary in place of what was said."""
        return Tell("not_now")

    async def btw(self, call: Call) -> Outcome:
        """Answer a question that the conversation does not learn of."""
        return Tell("not_now")
