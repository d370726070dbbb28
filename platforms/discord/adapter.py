"""Discord as the gateway knows it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp

from platforms.core.contract import (
    Capabilities,
    File,
    Inbox,
    Live,
    Op,
    Receipt,
    Repeat,
    Surroundings,
    Unit,
)
from platforms.core.errors import PlatformError, Rejected, Unavailable
from platforms.discord import DiscordConfig
from platforms.discord.authors import read_authors
from platforms.discord.connection import (
    DEAF_SECONDS,
    LOST_SECONDS,
    REIDENTIFY_SECONDS,
    Client,
    logged_in,
    shut,
)
from platforms.discord.errors import mapped
from platforms.discord.format import LIMIT, ROOM
from platforms.discord.payloads import MOST_BUTTONS
from platforms.discord.read_marks import read_marks
from platforms.discord.receive import AUTHORS, JOIN_SECONDS, SEEN, Hearing
from platforms.discord.rooms import Payload
from platforms.discord.send import LARGEST_FILE, NONCE_SECONDS, Speaker

CAPABILITIES = Capabilities(
    text_limit=LIMIT - ROOM,
    unit=Unit.CHARACTERS,
    live=Live.EDIT,
    repeat=Repeat.NONCE,
    live_interval=1.2,
    burst=5,
    per_second=1.0,
    threads_apart=True,  # a thread is a channel
    account_burst=4,  # with what grows back, less than fifty in any second
    account_per_second=40.0,
    typing_interval=8.0,  # Discord shows it for 10
    buttons=MOST_BUTTONS,
    reactions=True,
    files=LARGEST_FILE,
    caption_limit=LIMIT,
    repeat_seconds=NONCE_SECONDS,
)

_CHUNK = 64 * 1024
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 30.0
_GONE = {403, 404, 410}


class DiscordAdapter:
    """One bot account; a new library client for every connection."""

    name = "discord"
    capabilities = CAPABILITIES

    def __init__(
        self,
        config: DiscordConfig,
        surroundings: Surroundings,
        *,
        deaf_seconds: float = DEAF_SECONDS,
        lost_seconds: float = LOST_SECONDS,
        reidentify_seconds: float = REIDENTIFY_SECONDS,
        join_seconds: float = JOIN_SECONDS,
    ) -> None:
        self.account = surroundings.account
        self._config = config
        self._surroundings = surroundings
        self._deaf_seconds = deaf_seconds
        self._lost_seconds = lost_seconds
        self._reidentify_seconds = reidentify_seconds
        self._join_seconds = join_seconds
        self._speaker = Speaker(surroundings.clock)

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        hearing = Hearing(
            platform=self.name,
            surroundings=self._surroundings,
            marks=read_marks(await self._surroundings.shelf.get(SEEN)),
            authors=read_authors(await self._surroundings.shelf.get(AUTHORS)),
            inbox=inbox,
            ready=ready,
            saw=self._speaker.saw,
            require_mention=self._config.require_mention,
            join_seconds=self._join_seconds,
        )
        client = Client(
            self._surroundings.clock,
            hearing.hear,
            deaf_seconds=self._deaf_seconds,
            reidentify_seconds=self._reidentify_seconds,
        )
        try:
            await self._live(client, hearing)
        except BaseExceptionGroup as group:
            task = asyncio.current_task()
            if task and task.cancelling():  # a group of errors hides that we were told to end
                raise asyncio.CancelledError from group
            raise _worst(group) from group
        finally:
            await hearing.save()

    async def _live(self, client: Client, hearing: Hearing) -> None:
        token = self._config.token.reveal()
        connected = logged_in(client, token, self._config.base_url)
        async with connected, asyncio.TaskGroup() as tasks:
            hearing.open(tasks, client)
            self._speaker.client = client
            tasks.create_task(hearing.keep_marks(), name="discord marks")
            tasks.create_task(client.give_up_when_lost(self._lost_seconds), name="discord lost")
            tasks.create_task(client.stay_connected(), name="discord gateway")
            try:
                await asyncio.Event().wait()
            finally:
                self._speaker.client = None
                await shut(client)  # ends the library's loop even if it missed a cancellation

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        return await self._speaker.deliver(op)

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        place, _, url = file.ref.partition(" ")
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        with mapped():
            async with aiohttp.ClientSession(timeout=timeout) as session:
                response = await session.get(url)
                if response.status in _GONE:
                    response.release()
                    response = await session.get(await self._new_address(place, file))
                async with response:
                    if response.status >= 400:  # noqa: PLR2004 - HTTP
                        msg = f"{file.name} cannot be fetched ({response.status})"
                        raise (Unavailable if response.status >= 500 else Rejected)(msg)  # noqa: PLR2004
                    async for chunk in response.content.iter_chunked(_CHUNK):
                        yield chunk

    async def _new_address(self, place: str, file: File) -> str:
        """The address of an attachment is good for a day; its message gives another one."""
        channel, message, attachment = place.split("/")
        client = self._speaker.client
        if client:
            found: Payload = dict(await client.http.get_message(int(channel), int(message)))
            for each in found.get("attachments", ()):
                if str(each["id"]) == attachment:
                    return str(each["url"])
        msg = f"{file.name} is not there any more"
        raise Rejected(msg)


def _worst(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended everything; others only followed from it."""
    found = [
        _worst(error) if isinstance(error, BaseExceptionGroup) else error
        for error in group.exceptions
    ]
    ours = [error for error in found if isinstance(error, PlatformError)]
    return (ours or found)[0]
