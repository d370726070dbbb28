"""The daemon as a process: signals, kills, and the cost of a start and of conversations."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon, Page, answers, notices
from tests.fakes.model_server import ModelServer, always
from tests.faults.kills import kill_again_and_again

START_CPU_SECONDS = 1.0
MOST_MEGABYTES = 90
NOISE = 1.6  # CPU time grows with contention on shared machines


def openai(model: ModelServer) -> tuple[str, ...]:
    return ("model.provider=openai", "model.name=scripted", f"model.base_url={model.url}")


KEY = {"OPENAI_API_KEY": "sk-none"}


@pytest.mark.timeout(120)
async def test_random_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    counted = await kill_again_and_again(tmp_path, kills=3, seed=3, warm=True)
    assert counted["kills"] == 3
    assert counted["running"] > 0, "no kill hit a running turn: this proves nothing"


async def test_first_signal_drains_and_second_skips_the_drain(tmp_path: Path) -> None:
    async with ModelServer(always('H T"so far " HANG')) as model:
        daemon = Daemon(tmp_path, *openai(model), "gateway.drain_seconds=60", env=KEY)
        async with daemon, Page(daemon) as page:
            await page.send("chat-1", "long work", "message-1")
            await page.until("chat-1", lambda rows: len(rows) == 1)
            async with asyncio.timeout(10):
                await model.request(1)
            daemon.signal(signal.SIGTERM)
            await daemon.logs("waiting up to 60 s")
            assert await page.send("chat-1", "still there?", "message-2") == 202
            await page.until("chat-1", lambda rows: any("restarting" in t for t in notices(rows)))
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == 0
        async with daemon, Page(daemon) as page:
            rows = await page.until("chat-1", lambda rows: len(notices(rows)) == 3)
            told = [text for text in notices(rows) if "I was restarted while" in text]
            assert len(told) == 1
            assert answers(rows)[0] == "so far "


async def test_second_daemon_on_the_same_state_is_refused_in_one_line(tmp_path: Path) -> None:
    async with Daemon(tmp_path, warm=True) as first:
        second = Daemon(tmp_path, warm=True)
        with pytest.raises(AssertionError, match="it ended instead of starting"):
            await second.start()
        assert await second.ended() == 1
        configuration, problem = second.said
        assert "configuration: " in configuration
        assert str(first.pid) in problem


async def test_warm_start_and_memory_of_a_hundred_conversations(
    tmp_path: Path,
) -> None:
    async with Daemon(tmp_path):
        pass
    async with Daemon(tmp_path) as daemon, Page(daemon) as page:
        spent = _cpu_seconds(daemon.pid)
        assert spent < START_CPU_SECONDS * NOISE, f"{spent:.2f} s of CPU until ready"
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(_converse(page, f"chat-{number:03d}"))
        used = _resident_megabytes(daemon.pid)
        assert used < MOST_MEGABYTES, f"{used:.0f} MB after 100 conversations"


async def _converse(page: Page, chat: str) -> None:
    assert await page.send(chat, "hello", f"{chat}-message") == 202
    await page.until(chat, lambda rows: len(answers(rows)) == 1)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_message_sent_during_downtime_is_answered_once_after_its_repeat(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    async with daemon, Page(daemon) as page:
        await daemon.kill()
        assert await page.send("chat-1", "anybody?", "message-1") == 0
        began = time.monotonic()
        await daemon.start()
        assert time.monotonic() - began < 15
        for status in (202, 200):  # the second request repeats the same message
            assert await page.send("chat-1", "anybody?", "message-1") == status
        rows = await page.until("chat-1", lambda rows: len(answers(rows)) == 1)
        assert [row["text"] for row in rows if row["author"] == "user"] == ["anybody?"]
