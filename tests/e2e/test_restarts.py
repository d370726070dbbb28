"""The process itself restarts: nothing said meanwhile is lost, a stop wins, crashes make it careful."""

import asyncio
import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

from tests.e2e.daemon import Daemon, Page, answers, notices
from tests.e2e.house import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram.server import TOKEN, TelegramServer, serving

CHIEF, HANGS = 9, 1009
CHATS = (1001, 1002, 1003)
PACE = 0.05  # seconds between two who say something
BACK = "✅ Back after"


def a_daemon(home: Path, model: ModelServer, telegram: TelegramServer, *sets: str) -> Daemon:
    return Daemon(
        home,
        "model.provider=openai",
        "model.name=scripted",
        f"model.base_url={model.url}",
        f"platforms.telegram.base_url={telegram.url}",
        'access.allow=["telegram:*"]',
        f'access.admins=["telegram:{CHIEF}"]',
        "gateway.stale_after=3650d",  # the server's clock stands still somewhere
        "gateway.queue_limit=10000",
        "limits.messages_per_minute=10000",
        *sets,
        env={"OPENAI_API_KEY": "sk-none", "TELEGRAM_BOT_TOKEN": TOKEN},
    )


async def say_on(page: Page, telegram: TelegramServer, over: asyncio.Event) -> int:
    """Let people on both platforms say something again and again; gives how often."""
    number = 0
    while not over.is_set() or number < 10:
        telegram.say(CHATS[number % 3], f"telegram {number}.")
        # As the page does: said again under the same id until somebody has taken it in.
        while await page.send("chat-1", f"page {number}.", f"message-{number}") not in {200, 202}:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(PACE)
        number += 1
        await asyncio.sleep(PACE)
    return number


async def test_what_is_said_through_a_restart_is_answered_once(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        serving() as telegram,
        a_daemon(tmp_path, model, telegram, "gateway.drain_seconds=1") as daemon,
        Page(daemon) as page,
    ):
        pid, port = daemon.pid, daemon.port
        telegram.say(HANGS, "hang here", user=HANGS)
        async with asyncio.timeout(10):
            await model.request(1)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            saying = group.create_task(say_on(page, telegram, over))
            telegram.say(CHIEF, "/restart", user=CHIEF)
            await telegram.until(lambda: shown(telegram, CHIEF, "🔄 Restarting.") == 1, 20)
            await telegram.until(lambda: shown(telegram, CHIEF, BACK) == 1, 40)
            over.set()
        said = saying.result()
        status = json.loads(await daemon.run("status", "--json"))
        assert (status["pid"], status["state"]) == (pid, "running")
        assert str(port) in status["url"]

        for number in range(said):
            chat, words = CHATS[number % 3], f"echo: telegram {number}."
            await telegram.until(lambda: shown(telegram, chat, words) > 0, 20)  # noqa: B023 - awaited here
            assert shown(telegram, chat, words) == 1
        rows = await page.until("chat-1", lambda rows: len(answers(rows)) >= said)
        assert sorted(answers(rows)) == sorted(f"echo: page {number}." for number in range(said))
        assert shown(telegram, HANGS, "♻️ I was restarted while working on “hang here”") == 1
        (told,) = [each for each in telegram.screen(CHIEF) if BACK in each]
        assert f"1 task was interrupted.\n· telegram:{HANGS}: “hang here”" in told


def shown(telegram: TelegramServer, chat: int, words: str) -> int:
    return sum(words in each for each in telegram.screen(chat))


async def test_three_quick_crashes_make_it_careful_until_somebody_restarts_it(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, serving() as telegram:
        daemon = a_daemon(tmp_path, model, telegram)
        for _ in range(3):
            async with daemon:
                await daemon.kill()
        async with daemon:
            await telegram.until(lambda: shown(telegram, CHIEF, "🛟 Safe mode") == 1, 20)
            standing = await daemon.standing()
            assert (standing["status"], standing["ready"]) == (200, True)
            assert "Safe mode after 3 crashes" in await daemon.run("status")
            telegram.say(1001, "hello")
            await telegram.until(lambda: shown(telegram, 1001, "echo: hello") == 1, 20)
            assert "tools" not in model.requests[-1].body

            said = await daemon.run("service", "restart")
            assert said.startswith("Restarting.\nBack after"), said
            await telegram.until(lambda: shown(telegram, CHIEF, "Safe mode is over") == 1, 20)
            telegram.say(1001, "again")
            await telegram.until(lambda: shown(telegram, 1001, "echo: again") == 1, 20)
            assert model.requests[-1].body["tools"]
            assert "Safe mode" not in await daemon.run("status")
        assert any("error" in line and "Safe mode after 3" in line for line in daemon.said)


async def test_what_could_not_start_is_not_restarted_and_a_stop_wins(tmp_path: Path) -> None:
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
            said = await daemon.run("service", "restart")
            assert said.startswith("Running now, and interrupted unless finished in time: 1 task.")
            assert "  · web:chat-1: “hang here” (0 min)\n" in said
            assert "holdfast: Not restarted, and nothing was interrupted: " in said
            assert "drain_secnds" in said
            config.write_text("[gateway]\n")

            version = of_database(home)
            of_database(home, "from_the_future")
            said = await daemon.run("service", "restart", "--yes")
            assert "was written by a newer version of Holdfast (from_the_future" in said
            telegram.say(CHIEF, "/restart", user=CHIEF)
            await telegram.until(lambda: shown(telegram, CHIEF, "⛔ Not restarted") == 1, 20)
            of_database(home, version)
            said = await daemon.run("service", "restart", "--when-idle", "0")
            assert "Not restarted: there was no moment without a running task (1 task now)" in said
            assert (await daemon.standing())["ready"]

            async with asyncio.TaskGroup() as group:
                restart = group.create_task(daemon.run("service", "restart"))
                await page.until("chat-1", lambda rows: len(rows) == 1)
                await daemon.in_trouble("gateway: restarting")
                daemon.signal(signal.SIGTERM)
                await daemon.in_trouble("gateway: stopping")
            assert "It was told to stop meanwhile, and stops instead." in restart.result()
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
        assert "starts anew" not in "".join(daemon.said)
        async with daemon, Page(daemon) as page:
            rows = await page.until("chat-1", lambda rows: len(notices(rows)) == 1)
            assert "I was restarted while working on" in notices(rows)[0]


def of_database(home: Path, change: str = "") -> str:
    """The version of its form; another one when one is given."""
    connection: Any = sqlite3.connect(home / "holdfast.db", timeout=20)
    try:
        found = str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
        if change:
            connection.execute("UPDATE alembic_version SET version_num = ?", (change,))
            connection.commit()
        return found
    finally:
        connection.close()
