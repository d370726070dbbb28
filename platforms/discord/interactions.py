"""Acknowledgement of buttons and slash commands; their real answers are ordinary messages."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from discord.http import Route

from platforms.core.errors import PlatformError
from platforms.core.retry import retry_call
from platforms.discord import payloads
from platforms.discord.connection import DiscordClient, without_rate_limit
from platforms.discord.decode import COMMAND, COMPONENT, command_id
from platforms.discord.errors import translate_errors
from platforms.discord.private_answers import PrivateCommands
from platforms.discord.rooms import Payload
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

INTERACTION_TYPES = frozenset({COMMAND, COMPONENT})
_ACKNOWLEDGE_PAUSES = (0.1, 0.5, 1.0)  # Discord's limit is 3 seconds
_FINISH_PAUSES = (0.5, 2.0, 5.0)
_NOT_STORED = "Sorry, I couldn't save this command. Please try again in a moment."


class Interactions:
    """Sender of the acknowledgements that Discord requires within 3 seconds."""

    def __init__(
        self,
        client: DiscordClient,
        tasks: asyncio.TaskGroup,
        private_commands: PrivateCommands,
        private_words: frozenset[str],
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._private_commands = private_commands
        self._private_words = private_words  # commands whose answers only their senders see

    def acknowledge(self, interaction: Payload) -> "asyncio.Task[None] | None":
        """Start acknowledging an interaction; return the task, or None if the connection ends."""
        is_command = interaction["type"] == COMMAND
        if is_command:
            int(interaction["application_id"])  # `finish` needs it
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
        acknowledgement = start_task(self._tasks, call, name="discord interaction")
        if acknowledgement and self._is_private(interaction):
            self._private_commands.add(interaction, acknowledgement)
        return acknowledgement

    def _is_private(self, interaction: Payload) -> bool:
        """Return True for a command in a server whose answer only its sender sees."""
        is_command = interaction["type"] == COMMAND and bool(interaction.get("guild_id"))
        return is_command and str(interaction["data"].get("name")) in self._private_words

    def finish(
        self,
        interaction: Payload,
        acknowledgement: "asyncio.Task[None]",
        *,
        stored: bool,
        answered: bool,
    ) -> None:
        """Remove the acknowledgement of a slash command, because its answer is a separate message.

        A private answer replaces the acknowledgement; it is removed if none comes soon. `answered`
        means that an answer may come. If the command was not stored, show an error instead.
        """
        if interaction["type"] == COMMAND:
            wait = answered and self._is_private(interaction)
            call = self._finish(interaction, acknowledgement, stored=stored, wait=wait)
            start_task(self._tasks, call, name="discord interaction")

    async def _finish(
        self,
        interaction: Payload,
        acknowledgement: "asyncio.Task[None]",
        *,
        stored: bool,
        wait: bool,
    ) -> None:
        await acknowledgement
        command = self._private_commands.find(command_id(interaction)) if wait else None
        if command and await command.wait_answered():
            return
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
