"""Restarts of a real process: no message is lost, a stop wins, crashes lead to safe mode."""

import asyncio
import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

from tests.e2e.all_platforms import daemon_in, three_platforms
from tests.e2e.chat_users import ChatUsers
from tests.e2e.daemon import Daemon, Page, answers, notices
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

OWNER = 9
TALKERS = 3
HANGS, CHIEF = 3, 4  # numbers of people on a platform
PAUSE = 0.3  # seconds between two messages
MAX_MESSAGES = 15  # messages per platform; more would exceed its rate limit
BACK = "✅ Back after"


def a_daemon(home: Path, model: ModelServer, telegram: TelegramServer, *sets: str) -> Daemon:
    return Daemon(
        home,
        "model.provider=openai",
        "model.name=scripted",
        f"model.base_url={model.url}",
        f"platforms.telegram.base_url={telegram.url}",
        'access.allow=["telegram:*"]',
        f'access.admins=["telegram:{OWNER}"]',
        "gateway.stale_after=3650d",  # the clock of the fake server stands still
        "gateway.queue_limit=10000",
        "limits.messages_per_minute=10000",
        *sets,
        env={"OPENAI_API_KEY": "sk-none", "TELEGRAM_BOT_TOKEN": TOKEN},
        warm=True,
    )


def shown(telegram: TelegramServer, chat: int, words: str) -> int:
    return sum(words in each for each in telegram.screen(chat))


async def test_three_early_crashes_cause_safe_mode_until_a_restart(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, serving() as telegram:
        daemon = a_daemon(tmp_path, model, telegram)
        for _ in range(3):
            async with daemon:
                await daemon.kill()
        async with daemon:
            await telegram.until(lambda: shown(telegram, OWNER, "🛟 Safe mode") == 1, 20)
            standing = await daemon.standing()
            assert (standing["status"], standing["ready"]) == (200, True)
            assert "Safe mode after 3 crashes" in (await status_of(daemon))["safe_mode"]
            telegram.say(1001, "hello")
            await telegram.until(lambda: shown(telegram, 1001, "echo: hello") == 1, 20)
            assert "tools" not in model.requests[-1].body

            printed = await daemon.run("service", "restart")
            assert printed.startswith("Restarting.\nBack after"), printed
            await telegram.until(lambda: shown(telegram, OWNER, "Safe mode is over") == 1, 20)
            telegram.say(1001, "again")
            await telegram.until(lambda: shown(telegram, 1001, "echo: again") == 1, 20)
            assert model.requests[-1].body["tools"]
            assert (await status_of(daemon))["safe_mode"] is None
        assert any("error" in line and "Safe mode after 3" in line for line in daemon.said)


async def test_failing_check_prevents_the_restart_and_a_stop_wins(tmp_path: Path) -> None:
    config, home = tmp_path / "holdfast.toml", tmp_path / "home"
    config.write_text("[gateway]\n")
    async with ModelServer(talkative) as model, serving() as telegram:
        daemon = a_daemon(home, model, telegram)
        daemon.env["HOLDFAST_CONFIG"] = str(config)
        async with daemon, Page(daemon) as page:
            await page.send("chat-1", "hang here", "message-1")
            await page.until("chat-1", lambda rows: len(rows) == 1)
            async with asyncio.timeout(10):
                await model.request(1)

            config.write_text("[gateway]\ndrain_secnds = 3\n")
            printed = await daemon.run("service", "restart")
            assert printed.startswith("Running now, interrupted unless finished in time: 1 task.")
            assert "  · web:chat-1: “hang here” (under 1 min)\n" in printed
            assert "holdfast: Not restarted, and nothing was interrupted: " in printed
            assert "drain_secnds" in printed
            config.write_text("[gateway]\n")

            version = schema_version(home)
            schema_version(home, "from_the_future")
            telegram.say(OWNER, "/restart", user=OWNER)
            await telegram.until(lambda: shown(telegram, OWNER, "⛔ I did not restart") == 1, 20)
            newer = "was written by a newer version of Holdfast (from_the_future"
            assert shown(telegram, OWNER, newer) == 1
            schema_version(home, version)
            assert (await daemon.standing())["ready"]

            async with asyncio.TaskGroup() as group:
                restart = group.create_task(daemon.run("service", "restart"))
                await daemon.in_trouble("gateway: restarting")
                daemon.signal(signal.SIGTERM)
                await daemon.in_trouble("gateway: stopping")
            assert "Not restarted: Holdfast was told to stop, and is stopping." in restart.result()
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
        assert "starts anew" not in "".join(daemon.said)
        async with daemon, Page(daemon) as page:
            rows = await page.until("chat-1", lambda rows: len(notices(rows)) == 1)
            assert "I was restarted while working on" in notices(rows)[0]


def schema_version(home: Path, change: str = "") -> str:
    """Return the schema version of the database; with `change`, set another one."""
    connection: Any = sqlite3.connect(home / "holdfast.db", timeout=20)
    try:
        found = str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
        if change:
            connection.execute("UPDATE alembic_version SET version_num = ?", (change,))
            connection.commit()
        return found
    finally:
        connection.close()


async def talk(people: ChatUsers, name: str, over: asyncio.Event) -> int:
    """Send messages from several people in turn; return their number."""
    number = 0
    while not over.is_set() and number < MAX_MESSAGES:
        await people.say(number % TALKERS, f"{name} {number}.")
        number += 1
        await asyncio.sleep(PAUSE)
    return number


async def talk_on_page(page: Page, over: asyncio.Event) -> int:
    number = 0
    while not over.is_set() and number < MAX_MESSAGES:
        # Like the page: sent again under the same id until the daemon has accepted it.
        while await page.send("chat-1", f"page {number}.", f"message-{number}") not in {200, 202}:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(PAUSE)
        number += 1
        await asyncio.sleep(PAUSE)
    return number


async def test_messages_during_a_restart_are_answered_once_on_every_platform(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, three_platforms(TALKERS + 2, judged=False) as place:
        daemon = daemon_in(place, tmp_path, model)
        telegram = place.people["telegram"]
        more = ("gateway.queue_limit=10000", "gateway.drain_seconds=0.5")
        daemon.settings = (*daemon.settings, *more, f'access.admins=["telegram:{1001 + CHIEF}"]')
        async with daemon, Page(daemon) as page:
            pid, port = daemon.pid, daemon.port
            await telegram.say(HANGS, "hang here")
            async with asyncio.timeout(10):
                await model.request(1)
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                talks = {
                    name: group.create_task(talk(people, name, over))
                    for name, people in place.people.items()
                }
                on_page = group.create_task(talk_on_page(page, over))
                await telegram.say(CHIEF, "/restart")
                await telegram.until(lambda: bool(said(telegram, CHIEF, BACK)), 40)
                over.set()
            status = await status_of(daemon)
            assert (status["pid"], status["state"]) == (pid, "running")
            assert str(port) in status["url"]
            for name, people in place.people.items():
                for number in range(talks[name].result()):
                    who, words = number % TALKERS, f"echo: {name} {number}."
                    await people.until(lambda: bool(said(people, who, words)), 30)  # noqa: B023 - awaited here
                    assert len(said(people, who, words)) == 1, words
            wanted = [f"echo: page {number}." for number in range(on_page.result())]
            rows = await page.until("chat-1", lambda rows: len(answers(rows)) >= len(wanted))
            assert sorted(answers(rows)) == sorted(wanted)
        (asked,) = said(telegram, CHIEF, "🔄 Restarting.")
        assert "finishing first, for 0 s" not in asked
        (back,) = said(telegram, CHIEF, BACK)
        assert f"telegram:{1001 + HANGS}: “hang here” (under 1 min)" in back
        assert len(said(telegram, HANGS, "♻️ I was restarted while working on “hang here”")) == 1


def said(people: ChatUsers, number: int, words: str) -> list[str]:
    return [each for each in people.shown(number) if words in each]


async def status_of(daemon: Daemon) -> Any:
    """Return the status as a command prints it, which also waits for a daemon that is starting."""
    return json.loads(await daemon.run("status", "--json"))
