"""Asks Discord for what its events do not say."""

import asyncio
import logging
from typing import Any

from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from platforms.discord.connection import DiscordClient
from platforms.discord.decode import membership_of
from platforms.discord.errors import translate_errors
from platforms.discord.rooms import ChannelDirectory, DiscordChannel, Payload, parse_channel
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

PAGE_SIZE = 100
LOOKUP_TIMEOUT_SECONDS = 2.0
_HISTORY_PAUSES = (0.2, 1.0)
"""Seconds that somebody's message may wait for what only makes it better understood."""

_MEMBER_CACHE_SECONDS = 300.0
_PARTIAL_CACHE_SECONDS = 15.0
_MAX_SERVERS_ASKED = 10
_MAX_CACHED_PEOPLE = 1_000


class DiscordLookup:
    """One connection's questions; answers that last are remembered."""

    def __init__(self, client: DiscordClient, clock: Clock, rooms: ChannelDirectory) -> None:
        self._client = client
        self._clock = clock
        self._channels = rooms
        self._memberships: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def history(
        self,
        channel: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = PAGE_SIZE,
    ) -> list[Payload]:
        """Read messages, the oldest first, waiting as long as Discord wants.

        A failure that may pass is no reason to give up the whole connection.
        """
        pauses = iter(_HISTORY_PAUSES)
        while True:
            try:
                with translate_errors():
                    found: list[Any] = list(
                        await self._client.http.logs_from(
                            int(channel), limit, before=before, after=after
                        )
                    )
            except (Unavailable, Unconfirmed) as error:
                told = error.retry_after if isinstance(error, Unavailable) else None
                pause = next(pauses, None) if told is None else told
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return sorted(found, key=lambda message: int(message["id"]))

    async def channel(
        self, channel_id: str, guild: str, payload: Payload | None = None
    ) -> DiscordChannel:
        """Find out whether a channel is a thread; asks only about unknown ones."""
        found = self._channels.find(channel_id, guild)
        if found:
            return found
        if not payload or "type" not in payload:
            try:
                with translate_errors():
                    payload = dict(await self._client.http.get_channel(int(channel_id)))
            except PlatformError as error:
                log.info("nothing is known of the channel %s: %s", channel_id, error)
                return DiscordChannel(guild)  # is asked for again next time
        found = parse_channel(payload, guild)
        self._channels.put(channel_id, found)
        return found

    async def member(self, guild: str, person: str) -> Payload | None:
        """What somebody is in a server; None when that cannot be known."""
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                with translate_errors():
                    return dict(await self._client.http.get_member(int(guild), int(person)))
        except (PlatformError, TimeoutError):
            return None

    async def memberships(self, person: str, guilds: list[str]) -> tuple[str, ...]:
        """What somebody is in our servers: in private Discord does not say it."""
        now = self._clock.monotonic()
        known = self._memberships.get(person)
        if known and now < known[0]:
            return known[1]
        found: list[str] = []
        good_for = _MEMBER_CACHE_SECONDS
        try:
            async with asyncio.timeout(
                LOOKUP_TIMEOUT_SECONDS
            ):  # over all: their message waits for it
                for guild in guilds[:_MAX_SERVERS_ASKED]:
                    if member := await self.member(guild, person):
                        found += membership_of(guild, member)
        except TimeoutError:
            log.warning("Discord takes too long to say in which servers %s is", person)
            good_for = _PARTIAL_CACHE_SECONDS
        if len(self._memberships) >= _MAX_CACHED_PEOPLE:
            self._memberships.clear()
        self._memberships[person] = (now + good_for, tuple(found))
        return tuple(found)
