"""Implementation of the platform contract for Discord."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp

from platforms.core.contract import File, Inbox, Op, Receipt, Surroundings
from platforms.core.errors import PlatformError, Rejected, Unavailable
from platforms.discord.capabilities import CAPABILITIES
from platforms.discord.config import DiscordConfig
from platforms.discord.connection import (
    HEARTBEAT_TIMEOUT_SECONDS,
    RECONNECT_TIMEOUT_SECONDS,
    REIDENTIFY_SECONDS,
    DiscordClient,
    close_client,
    open_session,
)
from platforms.discord.errors import translate_errors
from platforms.discord.receive import JOIN_SECONDS, DiscordReceiver
from platforms.discord.receiver_state import load_state
from platforms.discord.rooms import Payload
from platforms.discord.send import DiscordSender
from sessions.values.exceptions import first_error

_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 30.0
_GONE = {403, 404, 410}


class DiscordAdapter:
    """Adapter for one bot account; every `run` uses a new library client."""

    name = "discord"
    capabilities = CAPABILITIES

    def __init__(
        self,
        config: DiscordConfig,
        surroundings: Surroundings,
        *,
        heartbeat_timeout_seconds: float = HEARTBEAT_TIMEOUT_SECONDS,
        reconnect_timeout_seconds: float = RECONNECT_TIMEOUT_SECONDS,
        reidentify_seconds: float = REIDENTIFY_SECONDS,
        join_seconds: float = JOIN_SECONDS,
    ) -> None:
        self.account = surroundings.account
        self._config = config
        self._surroundings = surroundings
        self._heartbeat_timeout_seconds = heartbeat_timeout_seconds
        self._reconnect_timeout_seconds = reconnect_timeout_seconds
        self._reidentify_seconds = reidentify_seconds
        self._join_seconds = join_seconds
        self._sender = DiscordSender(surroundings.clock)
        self._receiver: DiscordReceiver | None = None  # while connected

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        receiver = self._receiver = DiscordReceiver(
            platform=self.name,
            surroundings=self._surroundings,
            state=await load_state(self._surroundings.shelf),
            inbox=inbox,
            ready=ready,
            sender=self._sender,
            require_mention=self._config.require_mention,
            join_seconds=self._join_seconds,
        )
        client = DiscordClient(
            self._surroundings.clock,
            receiver.on_frame,
            heartbeat_timeout_seconds=self._heartbeat_timeout_seconds,
            reidentify_seconds=self._reidentify_seconds,
        )
        try:
            await self._run_connection(client, receiver)
        except BaseExceptionGroup as group:
            task = asyncio.current_task()
            if task and task.cancelling():  # the group hides the cancellation
                raise asyncio.CancelledError from group
            raise first_error(group, prefer=PlatformError) from group
        finally:
            self._receiver = None
            await receiver.save()

    async def refresh_menu(self) -> None:
        """See `RefreshesMenu`; while not connected, the next connection does it."""
        if self._receiver:
            self._receiver.refresh_menu()

    async def _run_connection(self, client: DiscordClient, receiver: DiscordReceiver) -> None:
        token = self._config.token.reveal()
        session = open_session(client, token, self._config.base_url)
        async with session, asyncio.TaskGroup() as tasks:
            receiver.start(tasks, client)
            self._sender.client = client
            tasks.create_task(receiver.save_periodically(), name="discord marks")
            tasks.create_task(
                client.raise_when_lost(self._reconnect_timeout_seconds), name="discord lost"
            )
            tasks.create_task(client.stay_connected(), name="discord gateway")
            try:
                await asyncio.Event().wait()
            finally:
                self._sender.client = None
                # Closing also ends the library's loop if that swallowed a cancellation.
                await close_client(client)

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        return await self._sender.deliver(op)

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        source, _, url = file.ref.partition(" ")
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        with translate_errors():
            async with aiohttp.ClientSession(timeout=timeout) as session:
                response = await session.get(url)
                if response.status in _GONE:
                    response.release()
                    response = await session.get(await self._refresh_url(source, file))
                async with response:
                    if response.status >= 400:  # noqa: PLR2004 - HTTP
                        msg = f"{file.name} could not be downloaded ({response.status})"
                        raise (Unavailable if response.status >= 500 else Rejected)(msg)  # noqa: PLR2004
                    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                        yield chunk

    async def _refresh_url(self, source: str, file: File) -> str:
        """Return a fresh URL of an attachment by reading its message again.

        Attachment URLs expire after a day. Raises `Rejected` if the attachment no longer exists.
        """
        channel, message, attachment = source.split("/")
        client = self._sender.client
        if client:
            payload: Payload = dict(await client.http.get_message(int(channel), int(message)))
            for candidate in payload.get("attachments", ()):
                if str(candidate["id"]) == attachment:
                    return str(candidate["url"])
        msg = f"{file.name} no longer exists"
        raise Rejected(msg)
