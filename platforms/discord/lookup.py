"""Asks Discord for what its events do not say."""

import asyncio
import logging
from typing import Any

from platforms.core.errors import PlatformError, Unavailable, Unconfirmed
from platforms.discord.connection import Client
from platforms.discord.decode import membership_of
from platforms.discord.errors import mapped
from platforms.discord.rooms import Payload, Room, Rooms, room_of
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

PAGE = 100
LOOK_SECONDS = 2.0
_HISTORY_PAUSES = (0.2, 1.0)
"""Seconds that somebody's message may wait for what only makes it better understood."""

_MEMBER_SECONDS = 300.0
_UNSURE_SECONDS = 15.0
_MOST_SERVERS_ASKED = 10
_MOST_PEOPLE = 1_000


class Lookup:
    """One connection's questions; answers that last are remembered."""

    def __init__(self, client: Client, clock: Clock, rooms: Rooms) -> None:
        self._client = client
        self._clock = clock
        self._rooms = rooms
        self._memberships: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def history(
        self,
        channel: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> list[Payload]:
        """Read messages, the oldest first, waiting as long as Discord wants.

        A failure that may pass is no reason to give up the whole connection.
        """
        pauses = iter(_HISTORY_PAUSES)
        while True:
            try:
                with mapped():
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

    async def room(self, channel: str, guild: str, told: Payload | None = None) -> Room:
        """Find out whether a channel is a thread; asks only about unknown ones."""
        found = self._rooms.find(channel, guild)
        if found:
            return found
        if not told or "type" not in told:
            try:
                with mapped():
                    told = dict(await self._client.http.get_channel(int(channel)))
            except PlatformError as error:
                log.info("nothing is known of the channel %s: %s", channel, error)
                return Room(guild)  # is asked for again next time
        found = room_of(told, guild)
        self._rooms.put(channel, found)
        return found

    async def member(self, guild: str, person: str) -> Payload | None:
        """What somebody is in a server; None when that cannot be known."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                with mapped():
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
        good_for = _MEMBER_SECONDS
        try:
            async with asyncio.timeout(LOOK_SECONDS):  # over all: their message waits for it
                for guild in guilds[:_MOST_SERVERS_ASKED]:
                    if member := await self.member(guild, person):
                        found += membership_of(guild, member)
        except TimeoutError:
            log.warning("Discord takes too long to say in which servers %s is", person)
            good_for = _UNSURE_SECONDS
        if len(self._memberships) >= _MOST_PEOPLE:
            self._memberships.clear()
        self._memberships[person] = (now + good_for, tuple(found))
        return tuple(found)
