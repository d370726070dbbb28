"""Acknowledgement of buttons and slash commands; their real answers are ordinary messages."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from discord.http import Route

from platforms.core.errors import PlatformError
from platforms.discord import payloads
from platforms.discord.connection import DiscordClient, without_rate_limit
from platforms.discord.decode import COMMAND, COMPONENT
from platforms.discord.errors import translate_errors
from platforms.discord.persistence import retry_call
from platforms.discord.rooms import Payload

log = logging.getLogger(__name__)

INTERACTION_TYPES = frozenset({COMMAND, COMPONENT})
_ACKNOWLEDGE_PAUSES = (0.1, 0.5, 1.0)  # Discord's limit is 3 seconds
_FINISH_PAUSES = (0.5, 2.0, 5.0)
_NOT_STORED = "Sorry, I couldn't save this command. Please try again in a moment."


class Interactions:
    """Sender of the acknowledgements that Discord requires within 3 seconds."""

    def __init__(self, client: DiscordClient, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._tasks = tasks

    def acknowledge(self, interaction: Payload) -> "asyncio.Task[None]":
        """Start acknowledging an interaction; return the task."""
        is_command = interaction["type"] == COMMAND
        kind = payloads.DEFERRED_ANSWER if is_command else payloads.DEFERRED_UPDATE
        route = Route(
            "POST",
            "/interactions/{webhook_id}/{webhook_token}/callback",
            webhook_id=int(interaction["id"]),
            webhook_token=str(interaction["token"]),
        )
        call = self._send_response(
            route, _ACKNOWLEDGE_PAUSES, json=payloads.deferred_response(kind)
        )
        return self._tasks.create_task(call, name="discord interaction")

    def finish(
        self, interaction: Payload, acknowledgement: "asyncio.Task[None]", *, stored: bool
    ) -> None:
        """Remove the acknowledgement of a slash command, because its answer is a separate message.

        If the command was not stored, show an error in place of the acknowledgement.
        """
        if interaction["type"] == COMMAND:
            call = self._finish(interaction, acknowledgement, stored=stored)
            self._tasks.create_task(call, name="discord interaction")

    async def _finish(
        self, interaction: Payload, acknowledgement: "asyncio.Task[None]", *, stored: bool
    ) -> None:
        await acknowledgement
        route = Route(
            "DELETE" if stored else "PATCH",
            "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
            webhook_id=int(interaction["application_id"]),
            webhook_token=str(interaction["token"]),
        )
        await self._send_response(
            route, _FINISH_PAUSES, **({} if stored else {"json": {"content": _NOT_STORED}})
        )

    async def _send_response(
        self,
        route: Route,
        pauses: Sequence[float],
        **options: Any,  # noqa: ANN401 - the library's
    ) -> None:
        async def call() -> None:
            with without_rate_limit(), translate_errors():
                await self._client.http.request(route, **options)

        try:
            await retry_call(call, pauses)
        except PlatformError as error:
            log.info("discord: an interaction was not acknowledged: %s", error)
