"""Kills the daemon at chosen and at random points of a turn, and checks that nothing is done twice.

`python -m tests.faults.journal_kills --kills 20 --seed 1` is the long form: every point in each mode
on each protocol, then the random ones. With the tests each point takes another protocol, and the
random ones are few.
"""

import argparse
import asyncio
import contextlib
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from sessions.records import Message, Turn
from tests.e2e.daemon import Daemon, Page, Row, answers
from tests.e2e.gateway_kit import opened
from tests.fakes import bank
from tests.fakes.agent_kit import settings_for
from tests.fakes.cooperative import Answer, Call, pieces_of, rest_of, script_of
from tests.fakes.dialects.requests import Asked, read_request
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.distribution import write_distribution
from tests.fakes.histories import check_history
from tests.fakes.model_script import Script, Step, Wait
from tests.fakes.model_server import ModelServer

Mode = Literal["resume", "suspend"]
MODES: tuple[Mode, ...] = ("resume", "suspend")

TOLD = "I was restarted while working on"
PATIENCE = 15.0

STORY = "abc, and then comes the rest of it."
BEGUN = "Paying now."
PAID = "All is paid."
UNSURE = "I do not know whether all was paid."

Meanwhile = Callable[[Asked], Script | None]


class Model:
    """Makes the payments it is asked for, once each, or tells a story; goes on where it was cut.

    `meanwhile` sees each request first; where it gives a script, that is the answer.
    """

    def __init__(self, protocol: ProtocolName) -> None:
        self.protocol = protocol
        self.meanwhile: Meanwhile | None = None
        self.insists = False  # asks once more for what may have been paid
        self.delay = 0.0  # seconds between its words

    def __call__(self, body: dict[str, Any]) -> Script:
        asked = read_request(self.protocol, msgspec.json.encode(body))
        script = self.meanwhile(asked) if self.meanwhile else None
        return script or self._slowly(script_of(self._answer(asked), pieces_of(5)))

    def _slowly(self, script: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(each for step in script for each in (step, Wait(self.delay)))

    def _answer(self, asked: Asked) -> Answer:
        if asked.messages[0]["content"].startswith("tell"):
            return rest_of_story(asked)
        results = results_in(asked)
        wanted = amounts_in(asked)
        missing = [amount for amount in wanted if self._is_missing(results.get(amount, []))]
        if missing:
            calls = (
                Call(f"c{len(asked.messages)}_{amount}", "pay", f'{{"amount": {amount}}}')
                for amount in missing
            )
            return Answer("" if results else BEGUN, calls=tuple(calls))
        unsure = any("paid" not in result for amount in wanted for result in results[amount][-1:])
        return Answer(UNSURE if unsure else PAID)

    def _is_missing(self, results: list[str]) -> bool:
        if self.insists and len(results) == 1 and results[0].startswith("UNKNOWN"):
            return True
        return all(result.startswith("Not run") for result in results)


def rest_of_story(asked: Asked) -> Answer:
    told = [each["content"] for each in asked.messages if each["role"] == "assistant"]
    if "verbatim" in asked.last_user_text:
        return rest_of([Answer(STORY)], asked)
    return Answer(STORY[len("".join(told)) :])


def amounts_in(asked: Asked) -> list[int]:
    """What the user wants to be paid: the first line says it."""
    return [int(each) for each in re.findall(r"\d+", asked.messages[0]["content"].split("\n")[0])]


def results_in(asked: Asked) -> dict[int, list[str]]:
    """What the model was told of each amount, in order."""
    amounts = {
        call["id"]: int(re.findall(r"\d+", call["arguments"])[0])
        for each in asked.messages
        for call in each["tool_calls"]
    }
    found: dict[int, list[str]] = {}
    for each in asked.messages:
        if each["role"] == "tool":
            found.setdefault(amounts[each["tool_call_id"]], []).append(each["content"])
    return found


class Site:
    """A folder with another distribution in it, whose tools the daemon finds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_distribution(folder, "bank", "[holdfast.tools]\npay = holdfast_bank:pay\n")
        shutil.copy(bank.__file__, folder / "holdfast_bank.py")

    def switch(self, moment: str) -> None:
        """Have the process end itself at this moment."""
        (self.folder / f"kill-{moment}").touch()

    @property
    def effects(self) -> Counter[str]:
        """What was done, and how often."""
        log = self.folder / bank.EFFECTS
        return Counter(log.read_text().splitlines() if log.exists() else ())


class Scene:
    """A daemon with a bank and a model, and the page in front of it."""

    def __init__(self, daemon: Daemon, page: Page, server: ModelServer, model: Model) -> None:
        self.daemon = daemon
        self.page = page
        self.server = server
        self.model = model
        self.chat = "chat-1"
        self._sent = 0

    async def say(self, words: str) -> None:
        self._sent += 1
        assert await self.page.send(self.chat, words, f"message-{self._sent:04d}") == 202

    async def shows(self, *texts: str) -> list[Row]:
        """Wait until each of these is a part of something that the chat shows."""

        def enough(rows: list[Row]) -> bool:
            return all(any(text in row["text"] for row in rows) for text in texts)

        return await self.page.until(self.chat, enough)

    async def ended(self) -> list[Row]:
        """Wait until the model has said its last word, and nothing is under way."""
        last = (PAID, UNSURE, STORY, STORY.removeprefix("abc"))
        rows = await self.page.until(
            self.chat, lambda rows: any(text.endswith(last) for text in answers(rows))
        )
        await self.until("SELECT count(*) FROM turns WHERE state = 'running'", 0)
        return rows

    def kill(self) -> None:
        """Now, in the middle of whatever it does."""
        self.daemon.signal(signal.SIGKILL)

    async def dies(self) -> None:
        """Wait for the kill that somebody else carries out."""
        assert await self.daemon.ended() == -signal.SIGKILL

    async def take_up(self, *told: str) -> None:
        """What a user does who is told of an interruption."""
        await self.shows(TOLD, *told)
        await self.say("/resume")
        await self.shows("↩️ Back")
        await self.say("continue")

    def read(self, query: str, *values: str) -> list[Any]:
        """Ask the database, whoever else has it open."""
        path = self.daemon.home / "holdfast.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened_:
            return [value for (value,) in opened_.execute(query, values)]

    async def until(self, query: str, wanted: object) -> None:
        """Wait until the first row of a query is as wanted."""
        async with asyncio.timeout(PATIENCE):
            while self.read(query)[:1] != [wanted]:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.001)

    async def stop(self) -> tuple[list[Message], list[Turn]]:
        """Stop it, which shows that it lived; gives the history of the chat, and its turns."""
        assert await self.daemon.stop() == 0
        async with opened(self.daemon.home) as store:
            (session,) = await store.sessions.list(key=f"web:{self.chat}")
            history = list(await store.sessions.history(session.id))
            turns = list(await store.turns.of_session(session.id))
        check_history(history)
        return history, turns


@contextlib.asynccontextmanager
async def staged(
    home: Path, site: Site, mode: Mode, protocol: ProtocolName = "chat"
) -> AsyncIterator[Scene]:
    """Start all of it."""
    model = Model(protocol)
    async with ModelServer(model) as server:
        settings = settings_for(protocol, server.url)
        daemon = Daemon(
            home,
            f"model.provider={settings.provider}",
            "model.name=scripted",
            f"model.base_url={settings.base_url}",
            f"sessions.on_interrupted={mode}",
            env={"OPENAI_API_KEY": "sk-none", "ANTHROPIC_API_KEY": "sk-none"}
            | {"PYTHONPATH": str(site.folder)},
            warm=True,
        )
        async with daemon, Page(daemon) as page:
            yield Scene(daemon, page, server, model)


# --- every point -------------------------------------------------------------------------------

POINTS = Path(__file__).parents[1] / "e2e" / "test_journal_kills.py"


class EveryProtocol:
    """Has each of the tests run on all protocols, not on the one that is its turn."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "protocol" in metafunc.fixturenames:
            metafunc.parametrize("protocol", PROTOCOLS)


def kill_at_every_point() -> int:
    """Write a line for each case and a total; gives 0 when all went well."""
    form = ["--verbose", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider"]
    form += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # we have imported much by now
    return pytest.main([str(POINTS), *form, "-k", "not random"], plugins=[EveryProtocol()])


# --- at random ---------------------------------------------------------------------------------


async def kill_at_random(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill it that many times, each time in the middle of two payments; returns what was counted."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    counted: Counter[str] = Counter()
    site = Site(folder / "site")
    async with staged(folder / "home", site, "suspend") as scene:
        scene.model.delay = 0.004
        *others, _ = scene.daemon.settings
        for number in range(kills):
            scene.chat = f"chat-{number}"
            amounts = 2 * number + 1, 2 * number + 2
            after, mode = chance.uniform(0, 0.2), chance.choice(MODES)
            try:
                await scene.say("pay {} and {}".format(*amounts))
                await asyncio.sleep(after)  # the random moment itself
                await scene.daemon.kill()
                scene.daemon.settings = (*others, f"sessions.on_interrupted={mode}")
                counted[await _pick_up(scene, mode)] += 1
                counted[_checked(scene, site, amounts)] += 1
            except (AssertionError, TimeoutError) as error:
                error.add_note(f"seed {seed}, kill {number} after {after:.3f} s, {mode}")
                raise
        assert await scene.daemon.stop() == 0
    return dict(counted)


async def _pick_up(scene: Scene, mode: Mode) -> str:
    """Start again, and see the turn to its end; tells what it was when the process died."""
    query = "SELECT count(*) FROM turns WHERE state = 'running' AND key = ?"
    running = scene.read(query, f"web:{scene.chat}") == [1]
    scene.daemon.forget_crashes()
    await scene.daemon.start()
    if running and mode == "suspend":
        await scene.take_up()
    await scene.ended()
    return "running" if running else "not running"


def _checked(scene: Scene, site: Site, amounts: tuple[int, int]) -> str:
    """Nothing paid twice, and nobody told of a payment that was not made."""
    effects = site.effects
    assert max(effects.values()) == 1, effects
    asked = scene.server.requests[-1].asked
    results = results_in(asked)
    unsure = False
    for amount in amounts:
        paid = f"paid {amount}" in results[amount]
        unsure = unsure or not paid
        assert effects[f"pay {amount}"] == 1 or not paid, f"{amount} was not paid"
        assert paid or results[amount][-1].startswith("UNKNOWN")
    return "unsure" if unsure else "sure"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    if kill_at_every_point() != 0:
        sys.exit("not every point was survived")
    with tempfile.TemporaryDirectory() as folder:
        counted = asyncio.run(kill_at_random(Path(folder), chosen.kills, chosen.seed))
    sys.stdout.write(", ".join(f"{n} {name}" for name, n in counted.items()) + "\n")


if __name__ == "__main__":
    main()
