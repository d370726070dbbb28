"""User directory: stable ids, names, and whether a user is a full member of the workspace."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import msgspec

from platforms.core.contract import Sender, Shelf
from platforms.core.errors import Rejected, Unavailable
from platforms.slack.calls import Json, SlackClient

_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 1.5
"""Pauses before a second lookup; Slack expects an acknowledgement within 3 s."""

_CACHE_SECONDS = 600.0
"""Time after which a change of membership, such as from member to guest, takes effect here."""

_MAX_USERS = 2_000
_USER_KEY = "person {}"


class SlackUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user as Slack describes them."""

    name: str
    team: str
    full: bool
    is_bot: bool
    at: int  # time of the lookup, in milliseconds since 1970


class UserDirectory:
    """Cached lookups of users, kept across restarts.

    Slack allows a hundred lookups a minute; without the stored ones, people would wait after
    several restarts in a row.
    """

    def __init__(self, calls: SlackClient, shelf: Shelf) -> None:
        self._calls = calls
        self._shelf = shelf
        self._users: OrderedDict[str, SlackUser] = OrderedDict()
        self.names: Mapping[str, str] = _UserNames(self._users)

    async def sender(self, user: str, team: str, home: str, *, is_bot: bool) -> Sender:
        """Return the sender for a user; `home` is our workspace, `team` the one the event names.

        Raises `Unavailable` when the lookup fails and none is cached, so that a known person is
        never treated as a stranger.
        """
        person = await self._find_user(user)
        where = team or (person.team if person else "") or home
        if person is None:
            return Sender(f"{where}/{user}", is_bot=is_bot)
        full = person.full and person.team == home
        return Sender(
            f"{where}/{user}",
            person.name,
            is_bot=is_bot or person.is_bot,
            memberships=(f"{home}/*",) if full else (),
        )

    async def _find_user(self, user: str) -> SlackUser | None:
        if user.startswith("B"):  # a bot without a user account
            return None
        now = self._calls.clock.now()
        known = self._users.get(user) or await self._load_stored(user)
        if known and 0 <= now - known.at < _CACHE_SECONDS * 1000:
            return known
        try:
            answer = await self._fetch_user(user)
        except Unavailable:
            if known:
                return known
            raise
        except Rejected:
            return None
        person = _parse_user(answer.get("user") or {}, now)
        self._remember(user, person)
        await self._shelf.put(_USER_KEY.format(user), msgspec.json.encode(person).decode())
        return person

    async def _load_stored(self, user: str) -> SlackUser | None:
        kept = await self._shelf.get(_USER_KEY.format(user))
        if kept is None:
            return None
        person = msgspec.json.decode(kept, type=SlackUser)
        self._remember(user, person)
        return person

    def _remember(self, user: str, person: SlackUser) -> None:
        self._users[user] = person
        self._users.move_to_end(user)
        if len(self._users) > _MAX_USERS:
            self._users.popitem(last=False)

    async def _fetch_user(self, user: str) -> Json:
        """Look a user up, with one quick retry; a redelivery by Slack would take longer."""
        try:
            return await self._calls.read("users.info", user=user)
        except Unavailable as error:
            pause = _RETRY_SECONDS if error.retry_after is None else error.retry_after
            if pause > _MAX_RETRY_SECONDS:
                raise
        await asyncio.sleep(pause)
        return await self._calls.read("users.info", user=user)


def _parse_user(user: Json, now: int) -> SlackUser:
    profile = user.get("profile") or {}
    name = profile.get("display_name") or user.get("real_name") or profile.get("real_name")
    limited = ("is_restricted", "is_ultra_restricted", "is_stranger", "deleted", "is_bot")
    return SlackUser(
        name=str(name or user.get("name") or ""),
        team=str(user.get("team_id") or ""),
        full=not any(user.get(key) for key in limited),
        is_bot=bool(user.get("is_bot")),
        at=now,
    )


class _UserNames(Mapping[str, str]):
    """Names of the cached users, by user id."""

    def __init__(self, known: Mapping[str, SlackUser]) -> None:
        self._users = known

    def __getitem__(self, user: str) -> str:
        return self._users[user].name

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)
