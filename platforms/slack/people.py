"""Who somebody is: the stable id, and whether the workspace vouches for a full member."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import msgspec

from platforms.core.contract import Sender, Shelf
from platforms.core.errors import Rejected, Unavailable
from platforms.slack.calls import Json, SlackClient

_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 1.5
"""Seconds; Slack wants an event to be acknowledged within 3."""

CACHE_SECONDS = 600.0
"""A member who was made a guest is one to us after this time, too."""

_MAX_USERS = 2_000
_USER_KEY = "person {}"


class SlackUser(msgspec.Struct, frozen=True, kw_only=True):
    """What Slack says of a user."""

    name: str
    team: str
    full: bool
    is_bot: bool
    at: int  # when Slack said so, in milliseconds since 1970


class UserDirectory:
    """Asks Slack about users, and remembers for a while, over a restart, too.

    Slack answers a hundred such questions a minute: after one restart and another, people who write
    at the same time would have to wait for who they are.
    """

    def __init__(self, calls: SlackClient, shelf: Shelf) -> None:
        self._calls = calls
        self._shelf = shelf
        self._users: OrderedDict[str, SlackUser] = OrderedDict()
        self.names: Mapping[str, str] = _UserNames(self._users)

    async def sender(self, user: str, team: str, home: str, *, is_bot: bool) -> Sender:
        """Tell who a user is; `home` is our workspace, `team` what the event says of theirs.

        Raises `Unavailable` when Slack cannot say it now and nothing is remembered: somebody must
        not be taken for a stranger because of that.
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
        if user.startswith("B"):  # a bot of the old kind, which is no user
            return None
        now = self._calls.clock.now()
        known = self._users.get(user) or await self._load_stored(user)
        if known and 0 <= now - known.at < CACHE_SECONDS * 1000:
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
        """Ask Slack, and soon once more: a message that waits for this would come again late."""
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
    """The names of those who are known, by user."""

    def __init__(self, known: Mapping[str, SlackUser]) -> None:
        self._users = known

    def __getitem__(self, user: str) -> str:
        return self._users[user].name

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)
