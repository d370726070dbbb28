"""`holdfast pair` and `holdfast send` with a running daemon and Telegram."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config.loader import read_environment
from sessions.values.clock import SystemClock
from tests.e2e.daemon import NO_FILE, Daemon
from tests.fakes import warm_start
from tests.fakes.telegram.faults import Fault
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

CHIEF, EVE, BOB = 1, 7, 8


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


class Machine:
    """A daemon on Telegram, and the command line beside it."""

    def __init__(self, daemon: Daemon, telegram: TelegramServer) -> None:
        self.daemon = daemon
        self.telegram = telegram

    async def run(self, *words: str) -> Ended:
        env = {**read_environment(), **NO_FILE, "HOLDFAST_HOME": str(self.daemon.home)}
        asked = await asyncio.to_thread(warm_start.run, *words, env=env, cwd=self.daemon.home)
        return Ended(asked.returncode, asked.stdout, asked.stderr)

    async def json(self, *words: str) -> Any:
        ended = await self.run(*words, "--json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    async def ask(self, person: int, name: str) -> None:
        """Have a person ask for access."""
        sender = {"id": person, "first_name": name, "is_bot": False}
        now = SystemClock().now() // 1000
        self.telegram.say(person, "hello", user=person, date=now, **{"from": sender})
        await self.telegram.shows(person, "with this code: ")


@contextlib.asynccontextmanager
async def machine(folder: Path) -> AsyncIterator[Machine]:
    async with serving() as telegram:
        settings = (
            f"platforms.telegram.base_url={telegram.url}",
            f'platforms.telegram.token="{TOKEN}"',
            f'access.admins=["telegram:{CHIEF}", "discord:5"]',
            'access.allow=["slack:T1/*"]',
        )
        async with Daemon(folder, *settings, warm=True) as daemon:
            yield Machine(daemon, telegram)
            await daemon.stop()


async def test_people_are_listed_and_approved_by_code_or_id(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        await here.ask(EVE, "Eve")
        await here.ask(BOB, "Bob")
        listed = {each["principal"]: each for each in await here.json("pair", "list")}
        assert [*listed] == ["telegram:7", "telegram:8", "telegram:1", "discord:5", "slack:T1/*"]
        eve = listed["telegram:7"]
        assert (eve["name"], eve["role"], eve["source"]) == ("Eve", None, "request")
        assert eve["state"].startswith("asks for access, ")
        assert listed["telegram:1"]["state"] == "admin, in the configuration"
        assert listed["slack:T1/*"]["state"] == "member, in the configuration"
        assert await here.json("pair", "approve", "telegram:7") == {
            "principal": "telegram:7",
            "name": "Eve",
        }
        await here.telegram.shows(EVE, "You now have access")
        code = here.telegram.screen(BOB)[-1].rpartition("code: ")[2].strip()
        said = await here.run("pair", "approve", code)
        assert said.out == "telegram:8 (Bob) now has access.\n"
        again = await here.run("pair", "approve", "telegram:7")
        assert again.code == 1
        assert again.err.count("\n") == 1
        assert "No open request has this code or id" in again.err
        listed = {each["principal"]: each for each in await here.json("pair", "list")}
        assert (listed["telegram:7"]["role"], listed["telegram:7"]["source"]) == (
            "member",
            "pairing",
        )
        shown = (await here.run("pair", "list")).out
        assert "telegram:8  Bob   member since 20" in shown
        assert await here.json("pair", "revoke", "telegram:7") == {"principal": "telegram:7"}


async def test_an_admin_approves_by_id_in_a_chat(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        await here.ask(EVE, "Eve")
        now = SystemClock().now() // 1000
        here.telegram.say(CHIEF, "/pair list", user=CHIEF, date=now)
        await here.telegram.shows(CHIEF, "telegram:7 Eve: asks for access", "admin, in the")
        here.telegram.say(CHIEF, "/pair approve telegram:7", user=CHIEF, date=now)
        await here.telegram.shows(CHIEF, "✅ Eve (telegram:7) now has access.")
        await here.telegram.shows(EVE, "You now have access")


# --- send ----------------------------------------------------------------------------------------


async def failure(here: Machine, *words: str) -> str:
    """Send a message that does not arrive; return the sentence."""
    ended = await here.run("send", *words)
    assert ended.code == 1, ended
    assert ended.out == ""
    assert ended.err.startswith("holdfast: ")
    assert ended.err.count("\n") == 1
    return ended.err.removeprefix("holdfast: ").rstrip()


async def test_a_message_that_is_not_sent_says_why(tmp_path: Path) -> None:
    async with machine(tmp_path) as here:
        assert (await here.json("send", "telegram:1", "hello"))["state"] == "sent"

        unknown = Fault(status=400, description="Bad Request: chat not found")
        here.telegram.fail("sendMessage", unknown, times=2)
        said = await failure(here, "telegram:99", "hello")
        assert said == "The message could not be sent to telegram:99: Chat not found."
        document = json.loads((await here.run("send", "telegram:98", "hello", "--json")).out)
        assert document["state"] == "dead"
        assert document["id"]
        assert "Chat not found" in document["error"]

        blocked = Fault(status=403, description="Forbidden: bot was blocked by the user")
        here.telegram.fail("sendMessage", blocked)
        assert "bot was blocked by the user" in await failure(here, "telegram:1001", "hello")

        said = await failure(here, "discord:5", "hello")
        assert said == "discord is not configured here. Configured: api, console, telegram, web."
        assert "'1001' is not the name of a chat" in await failure(here, "1001", "hello")

        here.telegram.fail("sendMessage", Fault(status=429, retry_after=600))
        said = await failure(here, "telegram:1002", "hello")
        assert "telegram accepts no messages in this chat for another 9 min" in said
        assert "It stays queued as " in said

        for method in ("getMe", "getUpdates"):
            here.telegram.fail(method, Fault(status=500), times=100_000)
        here.telegram.cut_polls(politely=False)
        await here.daemon.in_trouble("telegram")
        said = await failure(here, "telegram:1001", "hello")
        assert "telegram is not connected" in said
        assert "It stays queued as " in said
