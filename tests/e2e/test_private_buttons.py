"""An approval that an admin answers by a button in a private chat, on each platform.

The gateway addresses an admin by user id; the answer comes from the private chat that the platform
opened for this id.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import Struct

from gateway.access.settings import AccessSettings
from gateway.runner import GatewayRunner
from gateway.settings import GatewaySettings, Settings
from platforms.core.registry import find_platform
from platforms.discord import DiscordConfig
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from tests.e2e.test_approval_requests import Machine, calling
from tests.fakes.discord.server import TOKEN, discord_server
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_server import ModelServer
from tests.fakes.quick_time import clock_here
from tests.fakes.slack.kit import config_for, slack_server
from tests.fakes.telegram.kit import config
from tests.fakes.telegram.server import serving

pytestmark = pytest.mark.quick

PATIENCE = 10.0


@dataclass
class Side:
    """The people's side of a platform: a member and an admin, each in a private chat."""

    platform: str
    config: Struct
    member: str
    admin: str
    say: Callable[[str], Awaitable[object]]
    """Send a message as the member."""
    press: Callable[[str], Awaitable[object]]
    """Press a button under the admin's last message, as the admin."""
    screens: Callable[[], tuple[list[str], list[str]]]
    """Return the texts in the member's chat and in the admin's chat."""
    until: Callable[[Callable[[], bool]], Awaitable[None]]

    async def show(self, member: str, admin: str) -> None:
        """Wait until both chats show their text."""

        def shown() -> bool:
            seen = self.screens()
            return all(
                any(words in text for text in texts)
                for words, texts in zip((member, admin), seen, strict=True)
            )

        await self.until(shown)


@contextlib.asynccontextmanager
async def telegram() -> AsyncIterator[Side]:
    async with serving() as server:

        async def say(text: str) -> None:
            server.say(1001, text, date=int(time.time()))  # noqa: TID251 - the gateway uses the machine's clock

        async def press(label: str) -> None:
            last = server.messages(1009)[-1]
            (action,) = (each for each in last.actions if each.startswith(label))
            server.press(1009, last, action, user=1009)

        yield Side(
            "telegram",
            config(server),
            "1001",
            "1009",
            say,
            press,
            lambda: (server.screen(1001), server.screen(1009)),
            server.until,
        )
        assert server.complaints() == []


@contextlib.asynccontextmanager
async def discord() -> AsyncIterator[Side]:
    async with discord_server() as server:
        ann, chief = server.world.user("Ann"), server.world.user("Chief")
        ours, theirs = server.world.direct(ann), server.world.direct(chief)
        labels = {"approve": "Allow", "deny": "Deny"}
        yield Side(
            "discord",
            DiscordConfig(token=Secret(TOKEN), base_url=server.url),
            ann["id"],
            chief["id"],
            lambda text: server.say(ours, ann, text),
            lambda action: server.press(theirs, chief, labels[action]),
            lambda: (server.screen(ours), server.screen(theirs)),
            server.until,
        )


@contextlib.asynccontextmanager
async def slack() -> AsyncIterator[Side]:
    async with slack_server() as server:
        server.workspace.add_user("U9", "Chief")
        labels = {"approve": "Allow", "deny": "Deny"}

        async def press(action: str) -> None:
            last = server.workspace.ours("D9")[-1]
            await server.press("D9", last.ts, labels[action], user="U9")

        yield Side(
            "slack",
            config_for(server),
            "T1/U1",
            "T1/U9",
            lambda text: server.say("D1", text),
            press,
            lambda: (server.workspace.screen("D1"), server.workspace.screen("D9")),
            server.until,
        )


@contextlib.asynccontextmanager
async def gateway(
    home: Path, side: Side, model: ModelServer, machine: Machine
) -> AsyncIterator[None]:
    settings = Settings(
        gateway=GatewaySettings(drain_seconds=0, stale_after=Duration(10**9)),
        model=scripted_model(model),
        access=AccessSettings(
            allow=(f"{side.platform}:{side.member}",), admins=(f"{side.platform}:{side.admin}",)
        ),
        platforms={side.platform: side.config},
    )
    runner = GatewayRunner(
        settings,
        home,
        specs={side.platform: find_platform(side.platform)},
        serve_http=False,
        tools=(machine.tool,),
        clock=clock_here(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        async with asyncio.timeout(PATIENCE):
            await runner.ready.wait()
        try:
            yield
        finally:
            runner.stopping.set()
            runner.skip_drain.set()


@pytest.mark.parametrize(
    ("action", "told", "runs"),
    [
        pytest.param("approve", "✅ Allowed by {}.", ["make tea"], id="allowed"),
        pytest.param("deny", "🚫 Denied by {}.", [], id="denied"),
    ],
)
@pytest.mark.parametrize("platform", [telegram, discord, slack])
async def test_an_admin_answers_a_members_approval_in_a_private_chat(
    tmp_path: Path,
    platform: Callable[[], AbstractAsyncContextManager[Side]],
    action: str,
    told: str,
    runs: list[str],
) -> None:
    machine = Machine()
    async with (
        platform() as side,
        ModelServer(calling()) as model,
        gateway(tmp_path, side, model, machine),
    ):
        await side.say("tea, please")
        asks = f"May I use **run** for {side.platform}:{side.member}"
        await side.show("An admin has to answer", asks)
        assert machine.ran == []
        await side.press(action)
        words = told.format(f"{side.platform}:{side.admin}")
        await side.show("echo: tea, please", words)
        await side.show(words, words)
        assert machine.ran == runs
        _, admin = side.screens()
        assert len(admin) == 1


@pytest.mark.parametrize("platform", [telegram, discord, slack])
async def test_an_answer_follows_a_status_line_that_used_up_the_chats_budget(
    tmp_path: Path, platform: Callable[[], AbstractAsyncContextManager[Side]]
) -> None:
    """On Discord the final edit waits for the budget of the chat."""
    async with (
        platform() as side,
        ModelServer(calling()) as model,
        gateway(tmp_path, side, model, Machine()),
    ):
        await side.say("tea, please")
        await side.show("🔐 Waiting for an answer", "May I use")
        await side.press("approve")
        await side.show("echo: tea, please", "✅ Allowed by")
        member, _ = side.screens()
        assert len(member) == 2
