"""User directory: stable ids, names, and whether a user is a full member of the workspace."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

import msgspec

from platforms.core.contract import Sender, Shelf
from platforms.core.errors import Rejected, Unavailable
from platforms.slack.calls import Json, SlackClient

_LOOKUP_SECONDS = 0.8
"""Longest time for which an event waits for a lookup; Slack expects its receipt within 3 s."""

_QUICK_RETRY_SECONDS = 0.2
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.5, 60.0
"""Pauses between lookups in the background, unless Slack names another one."""

_CACHE_SECONDS = 600.0
"""Time after which a change of membership, such as from member to guest, takes effect here."""

_MAX_USERS = 2_000
_USER_PREFIX = "person "
_KEEP_MS = 90 * 86_400_000
"""Time after the last lookup for which a profile is stored."""
_CLEANUP_SECONDS = 86_400.0


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
    several restarts in a row. Receiving does not depend on a lookup: one that fails is repeated in
    the background, and meanwhile the last known profile counts.
    """

    def __init__(self, calls: SlackClient, shelf: Shelf) -> None:
        self._calls = calls
        self._shelf = shelf
        self._users: OrderedDict[str, SlackUser] = OrderedDict()
        self._failed: OrderedDict[str, None] = OrderedDict()  # users to look up again
        self._has_failed = asyncio.Event()
        self.names: Mapping[str, str] = _UserNames(self._users)

    async def sender(self, user: str, team: str, home: str, *, is_bot: bool) -> Sender:
        """Return the sender for a user; `home` is our workspace, `team` the one the event names.

        When the lookup fails, the last known profile counts; without one the memberships of the
        sender are unknown, so that a member is never treated as a stranger.
        """
        is_unknown = False
        try:
            person = await self._find_user(user)
        except Unavailable:
            person, is_unknown = None, team in {"", home}
        where = team or (person.team if person else "") or home
        if person is None:
            return Sender(f"{where}/{user}", is_bot=is_bot, memberships_unknown=is_unknown)
        full = person.full and person.team == where == home
        return Sender(
            f"{where}/{user}",
            person.name,
            is_bot=is_bot or person.is_bot,
            memberships=(f"{home}/*",) if full else (),
        )

    async def look_up_failed(self, on_known: Callable[[], None]) -> None:
        """Repeat failed lookups until cancelled; call `on_known` after each that was answered."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            await self._has_failed.wait()
            user = next(iter(self._failed))
            try:
                await self._look_up(user)
            except Unavailable as error:
                self._failed.pop(user, None)
                self._note_failed(user)  # last, so that one user does not delay the others
                wait = pause if error.retry_after is None else error.retry_after
                await asyncio.sleep(min(wait, _MAX_RETRY_SECONDS))
                pause = min(pause * 2, _MAX_RETRY_SECONDS)
                continue
            except Rejected:
                pass  # the next event asks again, and is decided without a profile
            pause = _FIRST_RETRY_SECONDS
            self._failed.pop(user, None)
            if not self._failed:
                self._has_failed.clear()
            on_known()

    async def delete_old(self) -> None:
        """Delete the stored profiles of people who stay away, every day until cancelled."""
        while True:
            oldest = self._calls.clock.now() - _KEEP_MS
            for name, value in (await self._shelf.read_all()).items():
                if name.startswith(_USER_PREFIX) and _lookup_time(value) < oldest:
                    await self._shelf.delete(name)
            await asyncio.sleep(_CLEANUP_SECONDS)

    async def _find_user(self, user: str) -> SlackUser | None:
        if user.startswith("B"):  # a bot without a user account
            return None
        known = self._users.get(user) or await self._load_stored(user)
        if known and 0 <= self._calls.clock.now() - known.at < _CACHE_SECONDS * 1000:
            return known
        try:
            return await self._look_up_quickly(user)
        except Unavailable:
            self._note_failed(user)
            if known:
                return known
            raise
        except Rejected:
            return None

    async def _look_up_quickly(self, user: str) -> SlackUser:
        """Look a user up while an event waits, with one quick retry."""
        if user in self._failed:
            msg = "Slack did not answer an earlier lookup of this user."
            raise Unavailable(msg)
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                try:
                    return await self._look_up(user)
                except Unavailable as error:
                    if error.retry_after is not None:
                        raise
                await asyncio.sleep(_QUICK_RETRY_SECONDS)
                return await self._look_up(user)
        except TimeoutError as error:
            msg = "Slack did not answer users.info."
            raise Unavailable(msg) from error

    async def _look_up(self, user: str) -> SlackUser:
        answer = await self._calls.read("users.info", user=user)
        person = _parse_user(answer.get("user") or {}, self._calls.clock.now())
        self._remember(user, person)
        await self._shelf.put(_USER_PREFIX + user, msgspec.json.encode(person).decode())
        return person

    def _note_failed(self, user: str) -> None:
        self._failed[user] = None
        if len(self._failed) > _MAX_USERS:
            self._failed.popitem(last=False)
        self._has_failed.set()

    async def _load_stored(self, user: str) -> SlackUser | None:
        kept = await self._shelf.get(_USER_PREFIX + user)
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


def _lookup_time(stored: str) -> int:
    """Return the time of the lookup; 0 for a profile that cannot be read."""
    try:
        return msgspec.json.decode(stored, type=SlackUser).at
    except msgspec.DecodeError:
        return 0


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
