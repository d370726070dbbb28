"""Answers that only the sender of a slash command sees, sent through the command's interaction."""

import asyncio
from collections import OrderedDict
from typing import Any

from discord.http import Route

from platforms.core.contract import Post, Receipt
from platforms.core.errors import Rejected, Unauthorized
from platforms.discord import payloads
from platforms.discord.connection import DiscordClient, without_rate_limit
from platforms.discord.decode import command_id
from platforms.discord.errors import translate_errors
from platforms.discord.format import render
from platforms.discord.rooms import Payload

_ANSWER_SECONDS = 60.0
"""Seconds after which a command without an answer no longer shows that the bot is thinking."""

_MAX_COMMANDS = 1_000
_EXPIRED = {10015, 50027}  # unknown webhook, invalid webhook token


class TokenExpired(Rejected):
    """Discord accepts no more answers to a command."""


class PrivateCommand:
    """A slash command with a private answer; Discord accepts answers for 15 minutes."""

    def __init__(self, interaction: Payload, acknowledgement: "asyncio.Task[None]") -> None:
        self._application = int(interaction["application_id"])
        self._token = str(interaction["token"])
        self._acknowledgement = acknowledgement
        self._first_op = ""  # op that replaced the acknowledgement
        self._answered = asyncio.Event()

    def route(self, method: str, place: str) -> Route:
        """Return the route of a call about the answers."""
        return Route(
            method,
            "/webhooks/{webhook_id}/{webhook_token}" + place,
            webhook_id=self._application,
            webhook_token=self._token,
        )

    async def answer(self, client: DiscordClient, op: Post) -> Receipt:
        """Send one part of the answer: the first replaces the acknowledgement, others follow."""
        await asyncio.wait({self._acknowledgement})
        payload = payloads.private_payload(render(op.text), op.buttons)
        is_first = not self._answered.is_set() or self._first_op == op.op
        route = self.route("PATCH", "/messages/@original") if is_first else self.route("POST", "")
        if is_first:
            self._first_op = op.op
            self._answered.set()
        message = await _request(client, route, json=payload)
        return Receipt(str(message["id"]))

    async def wait_answered(self) -> bool:
        """Wait for an answer; return False, and expect no first one any more, if none comes soon."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._answered.wait()
        except TimeoutError:
            self._answered.set()
            return False
        return True


async def _request(client: DiscordClient, route: Route, **options: Any) -> Payload:  # noqa: ANN401 - the library's
    try:
        with without_rate_limit(), translate_errors():
            return dict(await client.http.request(route, **options))
    except Unauthorized as error:  # the command's token has expired
        raise TokenExpired(str(error)) from error
    except Rejected as error:
        if error.code in _EXPIRED:
            raise TokenExpired(str(error)) from error
        raise


class PrivateCommands:
    """Commands that wait for private answers, by id; a restart forgets them."""

    def __init__(self) -> None:
        self._commands: OrderedDict[str, PrivateCommand] = OrderedDict()

    def add(self, interaction: Payload, acknowledgement: "asyncio.Task[None]") -> PrivateCommand:
        """Remember a command."""
        command = PrivateCommand(interaction, acknowledgement)
        self._commands[command_id(interaction)] = command
        if len(self._commands) > _MAX_COMMANDS:
            self._commands.popitem(last=False)
        return command

    def find(self, id_: str) -> PrivateCommand | None:
        """Return a command by the id of its message; None for other ids."""
        return self._commands.get(id_)
