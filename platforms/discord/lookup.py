"""REST lookups of history, channels and members, which gateway events do not include."""

import asyncio
import contextlib
import logging
from typing import Any

from platforms.core.errors import (
    PlatformError,
    Rejected,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from platforms.discord.connection import DiscordClient
from platforms.discord.decode import membership_of
from platforms.discord.errors import translate_errors
from platforms.discord.rooms import ChannelDirectory, DiscordChannel, Payload, parse_channel
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

PAGE_SIZE = 100
LOOKUP_TIMEOUT_SECONDS = 2.0
"""Longest time that a message waits for an optional lookup."""

_HISTORY_PAUSES = (0.2, 1.0)

_MEMBER_CACHE_SECONDS = 300.0
PARTIAL_CACHE_SECONDS = 15.0
"""Time after which memberships that Discord did not tell are looked up again."""

_MAX_SERVERS_ASKED = 10
_MAX_CACHED_PEOPLE = 1_000


class DiscordLookup:
    """Lookups over one connection, with caches for channels and memberships.

    A lookup that fails for another reason than a refused token has a result that says so.
    `Unauthorized` is raised: it ends the adapter, which reports the token once.
    """

    def __init__(self, client: DiscordClient, clock: Clock, rooms: ChannelDirectory) -> None:
        self._client = client
        self._clock = clock
        self._channels = rooms
        self._memberships: dict[str, tuple[float, tuple[str, ...] | None]] = {}

    async def history(
        self,
        channel: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = PAGE_SIZE,
    ) -> list[Payload]:
        """Return messages, oldest first, waiting out rate limits.

        Transient failures are retried, because otherwise they would end the whole connection.
        """
        pauses = iter(_HISTORY_PAUSES)
        while True:
            try:
                with translate_errors():
                    page: list[Any] = list(
                        await self._client.http.logs_from(
                            int(channel), limit, before=before, after=after
                        )
                    )
            except (Unavailable, Unconfirmed) as error:
                retry_after = error.retry_after if isinstance(error, Unavailable) else None
                pause = next(pauses, None) if retry_after is None else retry_after
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return sorted(page, key=lambda message: int(message["id"]))

    async def channel(
        self, channel_id: str, guild: str, payload: Payload | None = None
    ) -> DiscordChannel:
        """Return a channel's place in its server; asks Discord only about unknown channels."""
        known = self._channels.find(channel_id, guild)
        if known:
            return known
        if not payload or "type" not in payload:
            try:
                with translate_errors():
                    payload = dict(await self._client.http.get_channel(int(channel_id)))
            except Unauthorized:
                raise
            except PlatformError as error:
                log.info("discord: channel %s could not be looked up: %s", channel_id, error)
                return DiscordChannel(guild)  # not cached, so the next message asks again
        channel = parse_channel(payload, guild)
        self._channels.put(channel_id, channel)
        return channel

    async def member(self, guild: str, person: str) -> Payload | None:
        """Return a person's member object in a server; None if unknown."""
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                return await self._fetch_member(guild, person)
        except Unauthorized:
            raise
        except (PlatformError, TimeoutError):
            return None

    async def _fetch_member(self, guild: str, person: str) -> Payload:
        with translate_errors():
            return dict(await self._client.http.get_member(int(guild), int(person)))

    async def memberships(self, person: str, guilds: list[str]) -> tuple[str, ...] | None:
        """Return a person's memberships in the bot's servers, which private messages do not name.

        If Discord does not tell all of them, the last known ones count; None if there are none.
        """
        now = self._clock.monotonic()
        known = self._memberships.get(person)
        if known and now < known[0]:
            return known[1]
        found: list[str] = []
        memberships: tuple[str, ...] | None
        lifetime = _MEMBER_CACHE_SECONDS
        try:
            # One limit for all servers, because the person's message waits meanwhile.
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                for guild in guilds[:_MAX_SERVERS_ASKED]:
                    with contextlib.suppress(Rejected):  # not a member
                        found += membership_of(guild, await self._fetch_member(guild, person))
            memberships = tuple(found)
        except Unauthorized:
            raise
        except (PlatformError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            log.warning("discord: the servers of user %s are not known: %s", person, reason)
            lifetime = PARTIAL_CACHE_SECONDS
            memberships = known[1] if known else None
        if len(self._memberships) >= _MAX_CACHED_PEOPLE:
            self._memberships.clear()
        self._memberships[person] = (now + lifetime, memberships)
        return memberships
