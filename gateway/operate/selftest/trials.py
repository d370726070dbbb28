"""What is tried, and what must come of it.

Every trial asks questions whose answers end in the question's own name, so at the end it can be
counted what is missing and what is there twice.
"""

import asyncio
import sqlite3
import statistics
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count

import msgspec

from gateway.operate.selftest.chat_service import MARK, Fault, question
from gateway.operate.selftest.model_service import FILE
from gateway.operate.selftest.stage import Stage

ANSWER_SECONDS = 12.0
STOP_SECONDS = 0.3

_MANY, _PEOPLE = 60, 20


class Found(msgspec.Struct, frozen=True):
    """What came of a trial."""

    trial: str
    well: bool
    words: str


class Trials:
    """All of them, on one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chat = stage.chat
        self._model = stage.model
        self._numbers = count(1)
        self._people = count(1001)
        self._asked: list[str] = []
        self._told: set[str] = set()  # questions whose answer is not to come

    async def run(self) -> AsyncIterator[Found]:
        """Try one after the other."""
        await self._stage.start()
        async with asyncio.TaskGroup() as group:
            together = [
                group.create_task(trial)
                for trial in (
                    self._many_at_once(),
                    self._model_breaks("cut", "the model's connection breaks in mid-sentence"),
                    self._model_breaks("limit", "the model's answer meets its limit"),
                    self._model_breaks("silent", "the model falls silent"),
                    self._half_a_call(),
                    self._twice_delivered(),
                    self._refused(Fault.TOO_MANY, "the chat service says: too many (429)"),
                    self._refused(Fault.BROKEN, "the chat service fails (500)"),
                    self._cut_after(),
                )
            ]
        for each in together:
            yield each.result()
        yield await self._stop()
        yield await self._killed()
        yield await self._stopped()
        yield self._counted()
        yield self._sound()

    # --- trials ---------------------------------------------------------------------------------

    async def _many_at_once(self) -> Found:
        asked = [self._ask("plain", next(self._people)) for _ in range(_MANY)]
        well = await self._answered(*asked)
        took = [self._chat.seconds[name] for name in asked if name in self._chat.seconds]
        median = 1000 * statistics.median(took) if took else 0.0
        words = f"{len(took)} of {len(asked)} answered, half of them within {median:.0f} ms"
        return Found(f"{_MANY} people write at once", well, words)

    async def _model_breaks(self, kind: str, trial: str) -> Found:
        person = next(self._people)
        name = self._ask(kind, person)
        well = await self._answered(name)
        shown = [text for text in self._chat.shown(person) if f"end-of-{name}" in text]
        whole = f"Well, here is all that there is to say: end-of-{name}."
        if kind != "silent" and shown != [whole]:
            return Found(trial, well=False, words=f"the answer is not whole: {shown}")
        tries = self._model.tries[name]
        words = f"answered whole, by {tries} requests to the model" if well else "not answered"
        return Found(trial, well and tries > 1, words)

    async def _half_a_call(self) -> Found:
        person = next(self._people)
        name = self._ask("file", person)
        well = await self._answered(name)
        file = self._stage.home / "workspace" / f"telegram%3A{person}" / f"{name}.txt"
        written = await asyncio.to_thread(lambda: file.read_text() if file.exists() else "")
        words = "the half call did not run, the whole one did, once"
        if not well:
            words = "not answered"
        elif written != FILE:
            words = f"the file holds {len(written)} of {len(FILE)} characters"
        return Found("a tool call breaks off in the middle", well and written == FILE, words)

    async def _twice_delivered(self) -> Found:
        person = next(self._people)
        name = self._ask("plain", person, twice=True)
        well = await self._answered(name)
        return Found("a message is delivered twice", well, f"{self._copies(name)} answer")

    async def _refused(self, fault: Fault, trial: str) -> Found:
        person = next(self._people)
        self._chat.goes_wrong(person, fault)
        name = self._ask("plain", person)
        well = await self._answered(name)
        early = self._chat.too_early
        words = f"{self._copies(name)} answer, after {self._chat.seconds.get(name, 0):.1f} s"
        if early:
            words = f"{early} calls came before the wait was over"
        return Found(trial, well and not early, words)

    async def _cut_after(self) -> Found:
        person = next(self._people)
        self._chat.goes_wrong(person, Fault.CUT_AFTER)
        name = self._ask("plain", person)
        well = await self._answered(name)
        await self._chat.until(lambda: len(self._chat.shown(person)) > 1, ANSWER_SECONDS / 4)
        copies = [text for text in self._chat.shown(person) if f"end-of-{name}" in text]
        marked = [text for text in copies if MARK in text]
        well = well and len(copies) - len(marked) == 1 and len(marked) <= 1
        words = "1 answer, unmarked; a copy says that it is one"
        if not well:
            words = f"{len(copies)} answers, {len(marked)} of them marked as copies"
        return Found("the line breaks after a message was sent", well, words)

    async def _stop(self) -> Found:
        person = next(self._people)
        name = self._ask("hang", person)
        self._told.add(name)
        async with asyncio.timeout(ANSWER_SECONDS):
            while name not in self._model.hanging:
                self._model.changed.clear()
                await self._model.changed.wait()
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._chat.say(person, "/stop")
        stopped = await self._chat.until(
            lambda: any("Stopped" in text for text in self._chat.shown(person)), ANSWER_SECONDS
        )
        took = loop.time() - began
        words = f"stopped after {1000 * took:.0f} ms" if stopped else "not stopped"
        return Found("/stop while the model hangs", stopped and took <= STOP_SECONDS, words)

    async def _killed(self) -> Found:
        trial = "killed in the middle of everything (kill -9)"
        people = [next(self._people) for _ in range(_PEOPLE)]
        running = {person: self._ask("slow", person) for person in people}
        waiting = [self._ask("plain", person) for person in people]
        began = await self._chat.until(
            lambda: all(self._model.tries[name] for name in running.values()), ANSWER_SECONDS
        )
        await self._stage.kill()
        interrupted = {person: name for person, name in running.items() if not self._copies(name)}
        self._told.update(interrupted.values())
        down = [self._ask("plain", next(self._people)) for _ in range(5)]
        await self._stage.start()
        told = await self._chat.until(
            lambda: all(
                any("restarted" in text for text in self._chat.shown(person))
                for person in interrupted
            ),
            ANSWER_SECONDS,
        )
        well = began and told and await self._answered(*waiting, *down)
        words = (
            f"{len(interrupted)} interrupted people were told, "
            f"{sum(map(bool, map(self._copies, (*waiting, *down))))} of {len(waiting) + len(down)} "
            "waiting messages answered"
        )
        return Found(trial, well and bool(interrupted), words)

    async def _stopped(self) -> Found:
        person = next(self._people)
        name = self._ask("slow", person)
        await self._chat.until(lambda: bool(self._model.tries[name]), ANSWER_SECONDS)
        code = await self._stage.stop()
        well = code == 0 and self._copies(name) == 1
        words = "it finished its answer first" if well else f"exit code {code}"
        return Found("stopped in order (SIGTERM)", well, words)

    def _counted(self) -> Found:
        copies = self._chat.answers()
        asked = [name for name in self._asked if name not in self._told]
        missing = [name for name in asked if not copies[name]]
        twice = [name for name in asked if copies[name] > 1]
        words = f"{len(asked)} questions, {len(missing)} lost, {len(twice)} answered twice"
        return Found("all together", not missing and not twice, words)

    def _sound(self) -> Found:
        file = self._stage.home / "holdfast.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            (said,) = connection.execute("PRAGMA integrity_check").fetchone()
        return Found("the database afterwards", said == "ok", said)

    # --- asking ---------------------------------------------------------------------------------

    def _ask(self, kind: str, person: int, *, twice: bool = False) -> str:
        name = f"{kind}-{next(self._numbers)}"
        self._asked.append(name)
        self._chat.say(person, question(name), twice=twice)
        return name

    def _copies(self, name: str) -> int:
        return self._chat.answers()[name]

    async def _answered(self, *names: str) -> bool:
        """Wait until all are answered."""
        return await self._chat.until(
            lambda: self._chat.answers().keys() >= set(names), ANSWER_SECONDS
        )
