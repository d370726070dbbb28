"""Cuts a recorded answer of each protocol after every byte, in three ways, and plays the turn.

The loop, the attempt, the SDK and our readers are the real ones; only the socket is missing: bytes
come out of memory, and a silence passes at once in a world whose clock jumps. The next request is
answered by a model that goes on from what the request shows it.

`python -m tests.faults.cuts` plays every byte; with the tests a part of them is played.
"""

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import anthropic
import httpx2
import msgspec
import openai

from agent.attempt import AttemptResult
from agent.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    ReasoningReplaced,
    StepDone,
    TextDelta,
    TextReplaced,
    TurnDone,
    TurnEnding,
)
from agent.loop import run_turn
from agent.model.learned import LearnedTargets
from agent.model.usage import UsageEstimate
from agent.providers.anthropic.messages import AnthropicProvider
from agent.providers.openai.service import OpenAICompatibleProvider
from agent.providers.registry import Target, build_provider
from agent.providers.transport.connections import ClientPool
from agent.settings import Timeouts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.tools.drafts import DraftStore
from agent.tools.registry import ToolRegistry
from agent.turn import TurnLimits, TurnResources, TurnTask
from sessions.records import Attachment, Message, ToolCall
from tests.fakes.agent_kit import WORKSPACE, settings_for
from tests.fakes.cooperative import Answer, Call, cooperative, pieces_of
from tests.fakes.dialects.requests import Asked, read_request
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.histories import check_history
from tests.fakes.model_script import body_of
from tests.unit.delivery.simulation import World

How = Literal["EOF", "RST", "HANG"]
HOW: tuple[How, ...] = ("EOF", "RST", "HANG")
Subject = Literal["calls", "text"]
SUBJECTS: tuple[Subject, ...] = ("calls", "text")

_HEADERS = {"content-type": "text/event-stream"}
_LONGEST_SILENCE = 200.0  # virtual seconds: the longest gap, and some
_QUICK = 10.0  # virtual seconds that a cut may cost which is seen at once

BEFORE = 'First I look, then I pay: 👩\u200d🚀 "quoted\\" — naïve.\n\n'
AFTER = 'Paid 💶 100. The note says {"rent"} \\ and that is it.'
PROSE = (
    "The quick brown fox — «le renard» — jumps over 13 lazy dogs 🐕\u200d🦺, and so on.\n\n"
    '- one `item` of a "list"\n- another \\ one\n\n日本語の文章も少し。 The end 👩\u200d👩\u200d👧.'
)


def plan(subject: Subject, number: int = 0) -> tuple[Answer, ...]:
    """What the model means to say; the number tells one such turn from another."""
    if subject == "text":
        return (Answer(PROSE, "Short."),)
    look = Call("c1", "look", f'{{"path": "notes/\\u00e4\\ud83d\\ude80 {number}.md"}}')
    note = '"rent \\"May\\" \\ud83d\\udcb6 \\\\ {1}\\n"'
    transfer = Call("c2", "transfer", f'{{"amount": {number}, "note": {note}}}')
    return Answer(BEFORE, 'Let me think… 🤔 "first".', (look, transfer)), Answer(AFTER)


def effects_of(subject: Subject, number: int = 0) -> list[str]:
    """What its tools are to do, in this order and once."""
    if subject == "text":
        return []
    return [f"look notes/ä🚀 {number}.md", f'transfer {number} rent "May" 💶 \\ {{1}}\n']


def tools_of(did: Callable[[str], None]) -> tuple[Tool, ...]:
    """The tools of the plan: one that only reads, and one that must not run twice."""

    @tool(risk=Risk.READ, parallel=True, label="path")
    async def look(_context: ToolContext, path: str) -> str:
        """Look at a file."""
        did(f"look {path}")
        return f"content of {path}"

    @tool(risk=Risk.WRITE, label="amount")
    async def transfer(_context: ToolContext, amount: int, note: str) -> str:
        """Transfer money."""
        did(f"transfer {amount} {note}")
        return f"transferred {amount}"

    return look, transfer


PIECES = pieces_of(11)


class Cut(msgspec.Struct, frozen=True):
    """Where an answer breaks off, and how; `after` None: before there is a response at all."""

    after: int | None
    how: How


class Break:
    """What a broken answer sends: some bytes, and then its end."""

    def __init__(self, body: bytes, how: How, chance: random.Random) -> None:
        self._body = body
        self._how = how
        self._chance = chance

    async def __aiter__(self) -> AsyncIterator[bytes]:
        at = 0
        while at < len(self._body):
            size = self._chance.choice((1, 2, 50, 1000, 100_000))
            yield self._body[at : at + size]
            at += size
        await fail(self._how)


class Streamed(httpx2.AsyncByteStream):
    """The body of a response, out of memory."""

    def __init__(self, source: Break) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._source:
            yield piece

    async def aclose(self) -> None:
        pass


async def fail(how: How) -> None:
    match how:
        case "EOF":
            return
        case "RST":
            msg = "Connection reset by peer"
            raise httpx2.ReadError(msg)
        case "HANG":
            await asyncio.Event().wait()


class Line(httpx2.AsyncBaseTransport):
    """The way to the model: every request is answered by `reply`, and may be cut."""

    def __init__(self, protocol: ProtocolName) -> None:
        self.protocol = protocol
        self.reply: Callable[[Asked], bytes] = lambda _: b""
        self.cuts: list[Cut] = []
        self.chance = random.Random(0)  # noqa: S311 - to be repeated
        self.asked: list[Asked] = []

    def begin(self, reply: Callable[[Asked], bytes], cuts: Iterable[Cut], seed: int) -> None:
        self.reply, self.cuts, self.asked = reply, list(cuts), []
        self.chance = random.Random(seed)  # noqa: S311 - to be repeated

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked = read_request(self.protocol, await request.aread())
        self.asked.append(asked)
        body = self.reply(asked)
        cut = self.cuts.pop(0) if self.cuts else Cut(len(body), "EOF")
        if cut.after is None:
            await fail("RST" if cut.how == "EOF" else cut.how)
        source = Break(body[: cut.after], cut.how, self.chance)
        return httpx2.Response(200, headers=_HEADERS, stream=Streamed(source))


def target_on(line: Line, timeouts: Timeouts) -> Target:
    """A real provider whose SDK uses that line."""
    settings = settings_for(line.protocol, "http://model.test/v1", timeouts)
    provider = build_provider(settings)
    http = httpx2.AsyncClient(transport=line)
    if isinstance(provider, AnthropicProvider):
        claude = anthropic.AsyncAnthropic(
            api_key="none", base_url="http://model.test", max_retries=0, http_client=http
        )
        claude._platform = "Linux"  # else it is found out in a thread, which this clock cannot see
        provider._clients = ClientPool(lambda: claude)
    else:
        assert isinstance(provider, OpenAICompatibleProvider)
        client = openai.AsyncOpenAI(
            api_key="none", base_url="http://model.test/v1", max_retries=0, http_client=http
        )
        client._platform = "Linux"
        provider._clients._pool = ClientPool(lambda: client)
    return Target(provider, "scripted", settings)


class Journal:
    """What a turn wrote down and did, in one list; also its tools."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.effects: list[str] = []
        self.rows: list[Message] = []
        self.verdicts: list[str] = []
        self.shown: list[str] = [""]  # text of each step
        self.replaced = 0
        self.thoughts = ""
        self.notices: list[str] = []

    async def attempt_started(
        self, number: int, target: str, need: Callable[[], UsageEstimate]
    ) -> None:
        assert number == len(self.verdicts) + 1

    async def attempt_ended(self, number: int, result: AttemptResult) -> None:
        self.verdicts.append(result.verdict_name)

    async def step_done(self, message: Message) -> None:
        self.rows.append(message)

    async def tool_started(self, call: ToolCall, risk: Risk, attempt: int) -> None:
        self.log.append(("started", call.id))
        named = {each.id: each for row in self.rows for each in row.tool_calls}
        assert named[call.id] == call, "what runs is not what the history says"

    async def tool_finished(
        self, call: ToolCall, ok: bool, result: str, files: tuple[Attachment, ...]
    ) -> None:
        assert ok, result
        self.log.append(("finished", call.id))
        self.rows.append(Message("tool", result, tool_call_id=call.id, files=files))

    async def compacted(self, keep: int, summary: str) -> None:
        msg = "nothing here is long enough to be compacted"
        raise AssertionError(msg)

    def emit(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(said):
                self.shown[-1] += said
            case TextReplaced(said):
                self.shown[-1] = said
                self.replaced += 1
            case StepDone():
                self.shown.append("")
            case ReasoningDelta(said):
                self.thoughts += said
            case ReasoningReplaced(said):
                self.thoughts = said
            case Notice(name):
                self.notices.append(name)
            case _:
                pass

    def did(self, what: str) -> None:
        assert self.log, "an effect before anything was written down"
        assert self.log[-1][0] == "started", "an effect that was not written down before"
        self.effects.append(what)


class Played(msgspec.Struct, frozen=True):
    """One turn, and how long it took on the world's clock."""

    done: TurnDone
    journal: Journal
    seconds: float
    asked: list[Asked]


class Player:
    """Plays turns on one line, one after the other."""

    def __init__(self, world: World, protocol: ProtocolName, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._line = Line(protocol)
        self._target = target_on(self._line, Timeouts())

    async def play(self, answers: Sequence[Answer], *cuts: Cut, seed: int = 0) -> Played:
        def reply(asked: Asked) -> bytes:
            return body_of(cooperative(answers, asked, PIECES), self._line.protocol)

        self._line.begin(reply, cuts, seed)
        journal, began = Journal(), self._world.monotonic()
        task = TurnTask(
            turn_id="t1",
            session_id="s1",
            system="Be kind.",
            history=(Message("user", "go"),),
            workspace=WORKSPACE,
        )
        async with asyncio.timeout(7200):  # of the world's seconds
            done = await run_turn(
                task,
                TurnResources(
                    targets=[self._target],
                    tools=ToolRegistry(tools_of(journal.did)),
                    journal=journal,
                    clock=self._world,
                    emit=journal.emit,
                    fetch_steers=_nobody,
                    learned_targets=LearnedTargets(),
                    drafts=DraftStore(self._folder, self._world),
                    limits=TurnLimits(max_steps=10),
                    randomness=lambda: 1.0,
                ),
            )
        return Played(done, journal, self._world.monotonic() - began, self._line.asked)


async def _nobody() -> tuple[Message, ...]:
    return ()


def check(played: Played, subject: Subject, *cuts: Cut) -> None:
    """Everything that must hold after a turn, wherever its first answers were cut."""
    answers, journal, done = plan(subject), played.journal, played.done
    assert done.ending is TurnEnding.ANSWERED, done
    # Side effects: whole, in their order, once.
    assert journal.effects == effects_of(subject)
    assert [kind for kind, _ in journal.log] == ["started", "finished"] * len(effects_of(subject))
    assert [id_ for _, id_ in journal.log[::2]] == [id_ for _, id_ in journal.log[1::2]]
    # The text: what was meant, once, and never taken back.
    assert journal.replaced == 0
    assert "".join(journal.shown) == "".join(each.text for each in answers)
    assert done.text == journal.shown[-1] == answers[-1].text
    # The history: what was said and what ran, to the byte.
    rows = [Message("user", "go"), *journal.rows]
    if done.message:
        rows.append(done.message)
    check_history(rows)
    assert "".join(row.content for row in rows if row.role == "assistant") == "".join(
        each.text for each in answers
    )
    made = [(call.name, call.arguments) for row in rows for call in row.tool_calls]
    assert made == [(call.name, call.arguments) for each in answers for call in each.calls]
    assert rows[-1] == Message("assistant", answers[-1].text, reasoning=rows[-1].reasoning)
    # Few requests, little time, and no word of failure.
    assert done.attempts == len(journal.verdicts) == len(played.asked)
    assert done.attempts <= len(answers) + len(cuts)
    silences = sum(cut.how == "HANG" for cut in cuts)
    assert played.seconds <= silences * _LONGEST_SILENCE + len(cuts) * _QUICK
    assert set(journal.notices) <= {"N1", "N2", "N3", "N4"}
    assert journal.thoughts in ("", answers[0].reasoning)


def recorded(protocol: ProtocolName, subject: Subject, number: int = 0) -> bytes:
    """The first answer of a plan, as the wire has it."""
    nothing = Asked("", [{"role": "user", "content": "go", "tool_calls": []}], {}, None)
    return body_of(cooperative(plan(subject, number), nothing, PIECES), protocol)


def every_cut(protocol: ProtocolName, subject: Subject) -> Iterator[Cut]:
    """All cuts of an answer."""
    for after in (None, *range(len(recorded(protocol, subject)) + 1)):
        yield from (Cut(after, how) for how in HOW)


def play_all(protocol: ProtocolName, subject: Subject, several: Iterable[tuple[Cut, ...]]) -> int:
    """Play a turn for each of these; tells how many there were."""
    played = 0
    with tempfile.TemporaryDirectory() as folder:
        world = World()
        with asyncio.Runner(loop_factory=lambda: world) as runner:
            player = Player(world, protocol, Path(folder))
            for seed, cuts in enumerate(several):
                try:
                    check(runner.run(player.play(plan(subject), *cuts, seed=seed)), subject, *cuts)
                except Exception as error:
                    error.add_note(f"{protocol}, {subject}: cut {cuts}, seed {seed}")
                    raise
                played += 1
    return played


def _every_byte(of: tuple[ProtocolName, Subject]) -> str:
    protocol, subject = of
    began = time.monotonic()
    played = play_all(protocol, subject, ((cut,) for cut in every_cut(protocol, subject)))
    return f"{protocol}, {subject}: {played} cuts in {time.monotonic() - began:.0f} s\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS, help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    chosen = parser.parse_args()
    protocols = [chosen.protocol] if chosen.protocol else PROTOCOLS
    work = [(protocol, subject) for protocol in protocols for subject in SUBJECTS]
    with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
        for line in pool.imap(_every_byte, work):
            sys.stdout.write(line)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
