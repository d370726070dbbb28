"""Disk failures of a real daemon: they are reported, nothing is lost, and the daemon recovers."""

import contextlib
import resource
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.store_kit import damage, damage_tables
from tests.e2e.daemon import Daemon, Page, Row, answers
from tests.e2e.gateway_kit import talkative
from tests.e2e.test_disk_full import empty, fill, small_disk
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

KEY = {"OPENAI_API_KEY": "sk-none"}


def settings(model: ModelServer) -> tuple[str, ...]:
    return (
        "model.provider=openai",
        "model.name=scripted",
        f"model.base_url={model.url}",
        "gateway.disk_low=0",
        "gateway.drain_seconds=0",
    )


async def until_answered(page: Page, chat: str, *texts: str) -> None:
    rows = await page.until(chat, lambda rows: set(texts) <= set(answers(rows)))
    assert sorted(answers(rows)) == sorted(texts)


@pytest.mark.parametrize("how", ["the disk is full", "no file may grow"])
async def test_accepted_messages_are_answered_once_after_a_full_disk(
    tmp_path: Path, how: str
) -> None:
    def slow(body: dict[str, Any]) -> Script:
        return 'H W1.5 T"at last" F stop D' if last_user_text(body) == "long" else talkative(body)

    with small_disk(tmp_path / "state") as home:
        async with (
            ModelServer(slow) as model,
            Daemon(home, *settings(model), env=KEY, warm=True) as daemon,
            Page(daemon) as page,
        ):
            assert await page.send("chat-one", "long", "message-1") == 202
            await model.request(1)
            if how == "the disk is full":
                fill(home)
            else:
                resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            trouble = await daemon.in_trouble("store: ")
            assert str(home / "holdfast.db") in trouble
            assert await page.send("chat-two", "not now", "message-2") == 503
            # The answer is complete by now but cannot be stored.
            await model.requests[0].answered.wait()
            if how == "the disk is full":
                empty(home)
            else:
                unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, unlimited)
            await daemon.well()
            await until_answered(page, "chat-one", "at last")
            assert await page.send("chat-two", "not now", "message-2") in {200, 202}
            await until_answered(page, "chat-two", "echo: not now")


async def test_read_only_state_folder_is_reported_and_recovers(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "state") as home:
        async with ModelServer(talkative) as model:
            async with (
                Daemon(home, *settings(model), env=KEY, warm=True) as daemon,
                Page(daemon) as page,
            ):
                assert await page.send("chat-one", "before", "message-1") == 202
                await until_answered(page, "chat-one", "echo: before")
            remount(home, "ro")
            with pytest.raises(AssertionError) as refused:
                await daemon.start()
            assert await daemon.ended() == 1
            said = str(refused.value).partition("starting:\n")[2].splitlines()[-1]
            assert str(home) in said
            assert "Read-only file system" in said
            assert "Traceback" not in str(refused.value)
            remount(home, "rw")
            async with daemon, Page(daemon) as page:
                await until_answered(page, "chat-one", "echo: before")


async def test_damaged_database_page_is_reported_and_isolated(tmp_path: Path) -> None:
    def brief(body: dict[str, Any]) -> Script:
        """Only the request is long, not the answer."""
        return 'H T"noted" F stop D' if "mark" in last_user_text(body) else talkative(body)

    async with ModelServer(brief) as model:
        daemon = Daemon(tmp_path, *settings(model), env=KEY, warm=True)
        async with daemon, Page(daemon) as page:
            for number in range(4):
                # Neither the first nor the last page of a row: this breaks the link to the next page.
                text = f"{'x' * 5_000} mark {number} {'x' * 13_000}"
                assert await page.send(f"chat-{number}", text, f"message-{number}") == 202
                await until_answered(page, f"chat-{number}", "noted")
            await daemon.stop()
        damage(tmp_path / "holdfast.db", b"mark 2")
        assert "The database is damaged" in await daemon.run("db", "check")
        async with daemon, Page(daemon) as page:
            assert await page.send("chat-2", "go on", "another-2") == 202
            assert "damaged; restore a backup" in await daemon.in_trouble("store: ")
            for number in (0, 1, 3):
                chat = f"chat-{number}"
                assert await page.send(chat, "go on", f"another-{number}") == 202
                await page.until(chat, lambda rows: "echo: go on" in answers(rows))
            await daemon.logs("it is damaged; restore a backup")
            told = await said(page, "notice", 1)
            assert "conversation is damaged; a new conversation works" in told[0]
            for count in (2, 3):  # the first one undoes the last message
                assert await page.send("chat-2", "/undo", f"undo-number-{count}") == 202
                told = await said(page, "notice", count)
            assert "/new starts a new conversation" in told[2]
            assert await page.send("chat-2", "/new", "new-chat-2") == 202
            assert await page.send("chat-2", "here again", "after-chat-2") == 202
            assert await said(page, "answer", 2) == ["noted", "echo: here again"]
            assert await daemon.stop() == 0


@pytest.mark.parametrize(
    "broken", [("messages",), ("messages", "turns")], ids=["the history", "the turn as well"]
)
async def test_an_answer_whose_turn_cannot_be_stored_is_shown_with_a_notice(
    tmp_path: Path, broken: tuple[str, ...]
) -> None:
    def model_answer(body: dict[str, Any]) -> Script:
        if "first" in last_user_text(body):
            damage_tables(tmp_path / "holdfast.db", *broken)
            return 'H T"This is " T"the answer." F stop D'
        return talkative(body)

    async with ModelServer(model_answer) as model:
        daemon = Daemon(tmp_path, *settings(model), env=KEY, warm=True)
        async with daemon, Page(daemon) as page:
            assert await page.send("chat-2", "first", "message-1") == 202
            assert await said(page, "answer", 1) == ["This is the answer."]
            (told,) = await said(page, "notice", 1)
            assert "I couldn't save my last answer" in told
            assert await page.send("chat-2", "second", "message-2") == 202
            told = (await said(page, "notice", 2))[1]
            assert "damaged" in told
            if "turns" not in broken:
                assert await daemon.run("sessions", "list", "--json")
                with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as database:
                    states = database.execute("SELECT state FROM turns ORDER BY id").fetchall()
                assert states[0] == ("failed",)


async def said(page: Page, author: str, count: int) -> list[str]:
    """Return the texts of an author that the damaged conversation still shows."""

    def texts(rows: list[Row]) -> list[str]:
        return [row["text"] for row in rows if row["author"] == author]

    return texts(await page.until("chat-2", lambda rows: len(texts(rows)) >= count))


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
