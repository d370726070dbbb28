"""Answers buttons and slash commands in time; what they ask for is answered by messages."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from discord.http import Route

from platforms.core.errors import PlatformError
from platforms.discord import payloads
from platforms.discord.connection import Client, unpaced
from platforms.discord.decode import COMMAND, COMPONENT
from platforms.discord.errors import mapped
from platforms.discord.persistence import persist
from platforms.discord.rooms import Payload

log = logging.getLogger(__name__)

KINDS = frozenset({COMMAND, COMPONENT})
_SIGN_PAUSES = (0.1, 0.5, 1.0)  # Discord waits for 3 seconds
_SETTLE_PAUSES = (0.5, 2.0, 5.0)
_NOT_STORED = "This could not be stored. Please try again in a moment."


class Interactions:
    """Gives the sign that Discord wants within 3 seconds, and takes it away afterwards."""

    def __init__(self, client: Client, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._tasks = tasks

    def sign(self, interaction: Payload) -> "asyncio.Task[None]":
        """Say at once that it has arrived."""
        is_command = interaction["type"] == COMMAND
        kind = payloads.DEFERRED_ANSWER if is_command else payloads.DEFERRED_CHANGE
        route = Route(
            "POST",
            "/interactions/{webhook_id}/{webhook_token}/callback",
            webhook_id=int(interaction["id"]),
            webhook_token=str(interaction["token"]),
        )
        call = self._quietly(route, _SIGN_PAUSES, json=payloads.deferred(kind))
        return self._tasks.create_task(call, name="discord interaction")

    def settle(self, interaction: Payload, signed: "asyncio.Task[None]", *, stored: bool) -> None:
        """Take a command's sign away again: the answer is a message of its own, seen by all."""
        if interaction["type"] == COMMAND:
            call = self._settle(interaction, signed, stored=stored)
            self._tasks.create_task(call, name="discord interaction")

    async def _settle(
        self, interaction: Payload, signed: "asyncio.Task[None]", *, stored: bool
    ) -> None:
        await signed
        route = Route(
            "DELETE" if stored else "PATCH",
            "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
            webhook_id=int(interaction["application_id"]),
            webhook_token=str(interaction["token"]),
        )
        await self._quietly(
            route, _SETTLE_PAUSES, **({} if stored else {"json": {"content": _NOT_STORED}})
        )

    async def _quietly(
        self,
        route: Route,
        pauses: Sequence[float],
        **options: Any,  # noqa: ANN401 - the library's
    ) -> None:
        async def call() -> None:
            with unpaced(), mapped():
                await self._client.http.request(route, **options)

        try:
            await persist(call, pauses)
        except PlatformError as error:
            log.info("an interaction was not acknowledged: %s", error)
