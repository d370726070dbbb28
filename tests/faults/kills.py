"""Kills the daemon at random moments while conversations send, and checks what became of it all.

`python -m tests.faults.kills --kills 100 --seed 1` is the long form; a short one runs with the tests.
"""

import argparse
import asyncio
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.e2e.daemon import Daemon, Page, Row, answers, notices
from tests.fakes.model_server import ModelServer, echo

CONVERSATIONS = 20
TOLD = "I was restarted while working on"
MARK = "may be a duplicate"


class Journal(msgspec.Struct):
    """What the dead process left, read from its database."""

    running: dict[str, str]  # requests of the turns that were running, by conversation
    waiting: list[str]


class Sender:
    """One conversation: sends, remembers what was accepted, checks what it got."""

    def __init__(self, number: int, page: Page, chance: random.Random) -> None:
        self.chat = f"talk-{number:02d}"
        self.page = page
        self.chance = chance
        self.count = 0
        self.accepted: list[str] = []
        self.unsure: list[tuple[str, str]] = []  # posted, and the connection broke
        self.interrupted: set[str] = set()  # what the journal showed as running at a kill

    async def chatter(self, until: asyncio.Event) -> None:
        while not until.is_set():
            self.count += 1
            text = f"{self.chat} says {self.count}"
            await self.post(text, f"{self.chat}-{self.count:08d}")
            if self.chance.random() < 0.7:  # else the next one comes while this is answered
                await self.wait_for_quiet(until)

    async def post(self, text: str, id_: str) -> None:
        status = await self.page.send(self.chat, text, id_)
        if status in {200, 202}:
            self.accepted.append(text)
        else:
            self.unsure.append((text, id_))

    async def post_again(self) -> None:
        """As the page does after a lost response: the same id, so it is one message."""
        unsure, self.unsure = self.unsure, []
        for text, id_ in unsure:
            await self.post(text, id_)
        assert not self.unsure

    async def wait_for_quiet(self, until: asyncio.Event) -> None:
        wanted = [f"echo: {text}" for text in self.accepted[-1:]]
        try:
            await self.page.until(
                self.chat, lambda rows: until.is_set() or set(wanted) <= set(answers(rows))
            )
        except (AssertionError, OSError):
            if not until.is_set():
                raise
        except Exception:  # noqa: BLE001 - the daemon was killed under the stream
            return

    async def settled(self, journal: Journal) -> None:
        """Everything accepted is answered, or was told of and is answered by a retry."""
        running = journal.running.get(f"web:{self.chat}")
        if running:
            self.interrupted.add(running)
        told = [f"“{running}”"] if running else []
        wanted = [text for text in self.accepted if text != running]

        def enough(rows: list[Row]) -> bool:
            got = set(answers(rows))
            said = [text for text in notices(rows) if TOLD in text]
            return all(f"echo: {text}" in got for text in wanted) and all(
                any(name in text for text in said) for name in told
            )

        rows = await self.page.until(self.chat, enough)
        if running and f"echo: {running}" not in answers(rows):
            await self.retry(rows, running)
        rows = await self.page.until(
            self.chat, lambda rows: {f"echo: {t}" for t in self.accepted} <= set(answers(rows))
        )
        self.check(rows)

    async def retry(self, rows: list[Row], running: str) -> None:
        """By the command where the interrupted session is the last one, else by its button."""
        notice = next(row for row in rows if TOLD in row["text"] and f"“{running}”" in row["text"])
        later = [row for row in rows if row["seq"] > notice["seq"] and row["author"] == "user"]
        fresh = any("New conversation" in row["text"] for row in rows if row["seq"] > notice["seq"])
        self.count += 1
        id_ = f"{self.chat}-{self.count:08d}"
        if later or fresh:
            action = next(b["action"] for b in notice["buttons"] if b["action"].startswith("retry"))
            assert await self.page.press(self.chat, action, id_) == 202
        else:
            assert await self.page.send(self.chat, "/retry", id_) == 202

    def check(self, rows: list[Row]) -> None:
        whole = {f"echo: {text}" for text in self.accepted}  # others are parts that a kill left
        double = [text for text, n in Counter(answers(rows)).items() if n > 1 and text in whole]
        assert not double, f"answered twice in {self.chat}: {double}"
        assert not [row for row in rows if MARK in row["text"]], "marked as a duplicate"
        tellings = Counter(
            match[1]
            for text in notices(rows)
            if TOLD in text and (match := re.search("“(.*?)”", text))
        )
        assert tellings == Counter(self.interrupted), (tellings, self.interrupted)
        users = Counter(row["text"] for row in rows if row["author"] == "user")
        assert all(n == 1 for text, n in users.items() if text != "/retry"), f"taken twice: {users}"


def autopsy(path: Path) -> Journal:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        running = dict(
            connection.execute("SELECT key, request FROM turns WHERE state = 'running'").fetchall()
        )
        waiting = [
            key for (key,) in connection.execute("SELECT key FROM inbox WHERE state = 'waiting'")
        ]
    connection.close()
    return Journal(running, waiting)


def newly_suspended(path: Path, since: int) -> set[str]:
    with sqlite3.connect(path) as connection:
        found = {
            key
            for (key,) in connection.execute(
                "SELECT key FROM sessions WHERE reason = 'crash' AND updated_at >= ?", (since,)
            )
        }
    connection.close()
    return found


async def kill_again_and_again(
    home: Path, kills: int, seed: int, *, warm: bool = False
) -> dict[str, int]:
    """Run the whole thing; returns what was counted."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    counted: Counter[str] = Counter()
    async with ModelServer(echo(0.01)) as model:
        daemon = Daemon(
            home,
            "model.provider=openai",
            "model.name=scripted",
            f"model.base_url={model.url}",
            env={"OPENAI_API_KEY": "sk-none"},
            warm=warm,
        )
        async with daemon, Page(daemon) as page:
            senders = [Sender(number, page, chance) for number in range(CONVERSATIONS)]
            for _ in range(kills):
                stop = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    for sender in senders:
                        group.create_task(sender.chatter(stop))
                    await asyncio.sleep(chance.uniform(0.02, 0.8))  # the random moment itself
                    stop.set()
                    await daemon.kill()
                journal = autopsy(daemon.home / "holdfast.db")
                counted["running"] += len(journal.running)
                counted["waiting"] += len(journal.waiting)
                since = time.time_ns() // 1_000_000
                daemon.forget_crashes()
                await daemon.start()
                suspended = newly_suspended(daemon.home / "holdfast.db", since)
                assert suspended == set(journal.running), (suspended, journal.running)
                for sender in senders:
                    await sender.post_again()
                async with asyncio.TaskGroup() as group:
                    for sender in senders:
                        group.create_task(sender.settled(journal))
                counted["kills"] += 1
            counted["messages"] = sum(len(sender.accepted) for sender in senders)
            assert await daemon.stop() == 0
        after = autopsy(daemon.home / "holdfast.db")
        assert not after.running
        assert not after.waiting
    return dict(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        counted = asyncio.run(kill_again_and_again(Path(home), chosen.kills, chosen.seed))
    sys.stdout.write(", ".join(f"{n} {name}" for name, n in counted.items()) + "\n")


if __name__ == "__main__":
    main()
