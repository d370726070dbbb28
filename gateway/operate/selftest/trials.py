"""The trials of the self-test.

Every answer ends with the name of its question, so lost and duplicated answers can be counted at
the end.
"""

import asyncio
import sqlite3
import statistics
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count

import msgspec

from gateway.operate.selftest.chat_service import DUPLICATE_MARK, ChatFault, question_text
from gateway.operate.selftest.model_service import FILE_CONTENT
from gateway.operate.selftest.stage import SelfTestGateway

_ANSWER_SECONDS = 12.0
_STOP_SECONDS = 0.3

_BURST_SIZE, _KILLED_CHATS = 60, 20


class TrialResult(msgspec.Struct, frozen=True):
    """The result of a trial."""

    trial: str
    well: bool
    words: str


class TrialRunner:
    """All trials, run against one gateway."""

    def __init__(self, gateway: SelfTestGateway) -> None:
        self._gateway = gateway
        self._chat = gateway.chat
        self._model = gateway.model
        self._question_numbers = count(1)
        self._chat_ids = count(1001)
        self._questions: list[str] = []
        self._unanswerable: set[str] = set()  # questions that must stay unanswered

    async def run(self) -> AsyncIterator[TrialResult]:
        """Run the trials; yield their results."""
        await self._gateway.start()
        async with asyncio.TaskGroup() as group:
            together = [
                group.create_task(trial)
                for trial in (
                    self._burst(),
                    self._model_fails("cut", "the model's connection breaks mid-sentence"),
                    self._model_fails("limit", "the model's answer hits the token limit"),
                    self._model_fails("silent", "the model falls silent"),
                    self._truncated_tool_call(),
                    self._duplicate_delivery(),
                    self._send_fails(ChatFault.TOO_MANY, "the chat service rate-limits (429)"),
                    self._send_fails(ChatFault.BROKEN, "the chat service fails (500)"),
                    self._connection_lost_after_send(),
                )
            ]
        for task in together:
            yield task.result()
        yield await self._stop_command()
        yield await self._killed()
        yield await self._graceful_stop()
        yield self._answer_totals()
        yield self._database_integrity()

    # --- trials ---------------------------------------------------------------------------------

    async def _burst(self) -> TrialResult:
        asked = [self._ask("plain", next(self._chat_ids)) for _ in range(_BURST_SIZE)]
        well = await self._wait_for_answers(*asked)
        took = [
            self._chat.answer_seconds[name] for name in asked if name in self._chat.answer_seconds
        ]
        median = 1000 * statistics.median(took) if took else 0.0
        words = f"{len(took)} of {len(asked)} answered, median {median:.0f} ms"
        return TrialResult(f"{_BURST_SIZE} people write at the same time", well, words)

    async def _model_fails(self, kind: str, trial: str) -> TrialResult:
        person = next(self._chat_ids)
        name = self._ask(kind, person)
        well = await self._wait_for_answers(name)
        shown = [text for text in self._chat.visible_texts(person) if f"end-of-{name}" in text]
        whole = f"Well, here is all that there is to say: end-of-{name}."
        if kind != "silent" and shown != [whole]:
            return TrialResult(trial, well=False, words=f"the answer is incomplete: {shown}")
        tries = self._model.request_counts[name]
        words = f"answered completely, with {tries} model requests" if well else "not answered"
        return TrialResult(trial, well and tries > 1, words)

    async def _truncated_tool_call(self) -> TrialResult:
        person = next(self._chat_ids)
        name = self._ask("file", person)
        well = await self._wait_for_answers(name)
        file = self._gateway.home / "workspace" / f"telegram%3A{person}" / f"{name}.txt"
        written = await asyncio.to_thread(lambda: file.read_text() if file.exists() else "")
        words = "the truncated call did not run, the complete one ran once"
        if not well:
            words = "not answered"
        elif written != FILE_CONTENT:
            words = f"the file has {len(written)} of {len(FILE_CONTENT)} characters"
        return TrialResult("a tool call is truncated", well and written == FILE_CONTENT, words)

    async def _duplicate_delivery(self) -> TrialResult:
        person = next(self._chat_ids)
        name = self._ask("plain", person, twice=True)
        well = await self._wait_for_answers(name)
        return TrialResult(
            "a message is delivered twice", well, f"{self._answer_count(name)} answer"
        )

    async def _send_fails(self, fault: ChatFault, trial: str) -> TrialResult:
        person = next(self._chat_ids)
        self._chat.fail_next_message(person, fault)
        name = self._ask("plain", person)
        well = await self._wait_for_answers(name)
        early = self._chat.early_calls
        words = f"{self._answer_count(name)} answer, after {self._chat.answer_seconds.get(name, 0):.1f} s"
        if early:
            words = f"{early} calls came before the end of Retry-After"
        return TrialResult(trial, well and not early, words)

    async def _connection_lost_after_send(self) -> TrialResult:
        person = next(self._chat_ids)
        self._chat.fail_next_message(person, ChatFault.CUT_AFTER)
        name = self._ask("plain", person)
        well = await self._wait_for_answers(name)
        await self._chat.wait_until(
            lambda: len(self._chat.visible_texts(person)) > 1, _ANSWER_SECONDS / 4
        )
        copies = [text for text in self._chat.visible_texts(person) if f"end-of-{name}" in text]
        marked = [text for text in copies if DUPLICATE_MARK in text]
        well = well and len(copies) - len(marked) == 1 and len(marked) <= 1
        words = "1 answer; a copy is marked as a duplicate"
        if not well:
            words = f"{len(copies)} answers, {len(marked)} of them marked as duplicates"
        return TrialResult("the connection breaks after a message is sent", well, words)

    async def _stop_command(self) -> TrialResult:
        person = next(self._chat_ids)
        name = self._ask("hang", person)
        self._unanswerable.add(name)
        async with asyncio.timeout(_ANSWER_SECONDS):
            while name not in self._model.hanging_connections:
                self._model.changed.clear()
                await self._model.changed.wait()
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._chat.say(person, "/stop")
        stopped = await self._chat.wait_until(
            lambda: any("Stopped" in text for text in self._chat.visible_texts(person)),
            _ANSWER_SECONDS,
        )
        took = loop.time() - began
        words = f"stopped after {1000 * took:.0f} ms" if stopped else "not stopped"
        return TrialResult("/stop while the model hangs", stopped and took <= _STOP_SECONDS, words)

    async def _killed(self) -> TrialResult:
        trial = "the process is killed while busy (kill -9)"
        people = [next(self._chat_ids) for _ in range(_KILLED_CHATS)]
        running = {person: self._ask("slow", person) for person in people}
        waiting = [self._ask("plain", person) for person in people]
        began = await self._chat.wait_until(
            lambda: all(self._model.request_counts[name] for name in running.values()),
            _ANSWER_SECONDS,
        )
        await self._gateway.kill()
        interrupted = {
            person: name for person, name in running.items() if not self._answer_count(name)
        }
        self._unanswerable.update(interrupted.values())
        down = [self._ask("plain", next(self._chat_ids)) for _ in range(5)]
        await self._gateway.start()
        notified = await self._chat.wait_until(
            lambda: all(
                any("restarted" in text for text in self._chat.visible_texts(person))
                for person in interrupted
            ),
            _ANSWER_SECONDS,
        )
        well = began and notified and await self._wait_for_answers(*waiting, *down)
        words = (
            f"{len(interrupted)} interrupted people notified, "
            f"{sum(map(bool, map(self._answer_count, (*waiting, *down))))} of {len(waiting) + len(down)} "
            "waiting messages answered"
        )
        return TrialResult(trial, well and bool(interrupted), words)

    async def _graceful_stop(self) -> TrialResult:
        person = next(self._chat_ids)
        name = self._ask("slow", person)
        await self._chat.wait_until(lambda: bool(self._model.request_counts[name]), _ANSWER_SECONDS)
        code = await self._gateway.stop()
        well = code == 0 and self._answer_count(name) == 1
        words = "the running answer was finished first" if well else f"exit code {code}"
        return TrialResult("graceful stop (SIGTERM)", well, words)

    def _answer_totals(self) -> TrialResult:
        copies = self._chat.count_answers()
        asked = [name for name in self._questions if name not in self._unanswerable]
        missing = [name for name in asked if not copies[name]]
        twice = [name for name in asked if copies[name] > 1]
        words = f"{len(asked)} questions, {len(missing)} lost, {len(twice)} answered twice"
        return TrialResult("all questions", not missing and not twice, words)

    def _database_integrity(self) -> TrialResult:
        file = self._gateway.home / "holdfast.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            (result,) = connection.execute("PRAGMA integrity_check").fetchone()
        return TrialResult("the database afterwards", result == "ok", result)

    # --- asking ---------------------------------------------------------------------------------

    def _ask(self, kind: str, person: int, *, twice: bool = False) -> str:
        name = f"{kind}-{next(self._question_numbers)}"
        self._questions.append(name)
        self._chat.say(person, question_text(name), twice=twice)
        return name

    def _answer_count(self, name: str) -> int:
        return self._chat.count_answers()[name]

    async def _wait_for_answers(self, *names: str) -> bool:
        """Wait until all the named questions are answered."""
        return await self._chat.wait_until(
            lambda: self._chat.count_answers().keys() >= set(names), _ANSWER_SECONDS
        )
