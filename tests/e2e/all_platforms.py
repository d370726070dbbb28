"""All three platforms at once, for one gateway."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.e2e.chat_users import ChatUsers, chat_users, whole
from tests.e2e.daemon import Daemon
from tests.fakes.door import Door, door
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock

PLATFORMS = ("telegram", "discord", "slack")


class ThreePlatforms:
    """People on all three platforms, each platform behind a door."""

    def __init__(self, people: dict[str, ChatUsers], doors: dict[str, Door]) -> None:
        self.people = people
        self.doors = doors

    def tables(self) -> dict[str, dict[str, Any]]:
        return {
            name: {**people.config(), "base_url": self.doors[name].url}
            for name, people in self.people.items()
        }

    async def answered(self, *names: str, number: int = 0, seconds: float = 10.0) -> None:
        """Let people on these platforms ask, and wait until each is answered."""
        for name in names:
            await self.people[name].say(number, f"question {number}")
        for name in names:
            await self._is_answered(self.people[name], number, seconds)

    async def _is_answered(self, people: ChatUsers, number: int, seconds: float) -> None:
        await people.until(lambda: whole(number) in people.shown(number), seconds)


@contextlib.asynccontextmanager
async def three_platforms(
    size: int = 2, *, together: bool = False, quick: bool = False, judged: bool = True
) -> AsyncIterator[ThreePlatforms]:
    """Open all platforms; they have nothing to complain about at the end.

    Unless they are not to judge: on a busy machine the clock of a test stands still while another
    process goes on, which then seems to hurry.
    """
    async with contextlib.AsyncExitStack() as stack:
        people: dict[str, ChatUsers] = {}
        doors: dict[str, Door] = {}
        for name in PLATFORMS:
            given = clock() if quick else None
            opened = chat_users(name, size, together=together, clock=given)
            made = await stack.enter_async_context(opened)
            people[name] = made
            doors[name] = await stack.enter_async_context(door(made.config()["base_url"]))
        yield ThreePlatforms(people, doors)
        for each in people.values() if judged else ():
            complaints = each.complaints()
            assert not complaints, f"{each.platform}: {complaints}"


def daemon_in(place: ThreePlatforms, home: Path, model: ModelServer, *more: str) -> Daemon:
    """The daemon on all of them; not started yet."""
    sets = [
        f"platforms.{name}.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for name, table in place.tables().items()
        for key, value in table.items()
    ]
    allowed = ", ".join(f'"{name}:*"' for name in PLATFORMS)
    return Daemon(
        home,
        "model.name=scripted",
        "gateway.stale_after=3650d",
        "limits.messages_per_minute=10000",
        f"model.base_url={model.url}",
        f"access.allow=[{allowed}]",
        *sets,
        *more,
        env={"OPENAI_API_KEY": "sk-none"},
    )
