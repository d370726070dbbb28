"""Answers cut at sixty positions per protocol, all served by one gateway."""

import asyncio
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.turns.answer import join_step_texts
from sessions.records import Message, TurnState
from tests.e2e.scenarios.scenario_kit import SCALED, Stage, stage
from tests.fakes.cooperative import Answer, cooperative
from tests.fakes.dialects.requests import read_request
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.histories import check_history
from tests.fakes.model_script import Script, cut
from tests.faults.cuts import PIECES, Subject, effects_of, plan, recorded, tools_of

CUTS = 60
AT_ONCE = 10
WAYS = ("EOF", "FIN", "RST", "HANG")
NOTICES = {"N1", "N2", "N3", "N4"}
QUICK = msgspec.structs.replace(
    SCALED, first_token=0.6, gap_text=0.4, gap_tool=0.4, gap_reasoning=0.4
)


class Model:
    """Model that cuts the first answer to each question and then continues it."""

    def __init__(self, protocol: ProtocolName, seed: int) -> None:
        self._protocol = protocol
        self._chance = random.Random(f"{protocol} {seed}")  # noqa: S311 - deterministic
        self.cuts = {number: self._somewhere(number) for number in range(CUTS)}
        self.asked: Counter[int] = Counter()

    def _somewhere(self, number: int) -> tuple[int, str]:
        size = len(recorded(self._protocol, subject_of(number), number))
        return self._chance.randrange(size + 1), WAYS[number % len(WAYS)]

    def __call__(self, body: dict[str, Any]) -> Script:
        asked = read_request(self._protocol, msgspec.json.encode(body))
        number = number_in(asked.messages[0]["content"])
        self.asked[number] += 1
        script = cooperative(plan(subject_of(number), number), asked, PIECES)
        if self.asked[number] > 1:
            return script
        after, how = self.cuts[number]
        return cut(script, after, how, self._protocol)


def subject_of(number: int) -> Subject:
    return "text" if number % 3 == 0 else "calls"


def number_in(text: str) -> int:
    found = re.match(r"go (\d+)", text)
    assert found, text
    return int(found[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_sixty_cut_answers_are_all_completed_exactly_once(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    model = Model(protocol, seed=1)
    did: list[str] = []
    async with stage(
        tmp_path, protocol, model, timeouts=QUICK, tools=tools_of(did.append)
    ) as scene:
        for first in range(0, CUTS, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    group.create_task(scene.say(f"go {number}", f"chat-{number}"))
            for number in numbers:
                try:
                    turn = await scene.ends(chat=f"chat-{number}")
                    assert turn.state is TurnState.DONE, turn.cause
                    assert turn.attempts <= 4  # one to spare on a busy machine
                    await check(scene, number)
                except (AssertionError, TimeoutError) as error:
                    error.add_note(f"{protocol}, seed 1, cut {number}: {model.cuts[number]}")
                    raise
        wanted = [each for number in range(CUTS) for each in effects_of(subject_of(number), number)]
        assert Counter(did) == Counter(wanted)
        assert set(scene.told.ids) <= NOTICES
        assert scene.kit.screen.violations() == []


async def check(scene: Stage, number: int) -> None:
    """Assert that the text is shown once and the history is as if nothing had been cut."""
    chat, subject = f"chat-{number}", subject_of(number)
    answers = plan(subject, number)
    assert scene.shown(chat) == [join_step_texts(each.text for each in answers)]
    rows = await scene.rows(chat)
    check_history(rows)
    assert rows[0] == Message("user", f"go {number}", sender=rows[0].sender)
    assert text_of(rows) == "".join(each.text for each in answers)
    assert rows[-1].content == answers[-1].text
    made = [(call.name, call.arguments) for row in rows for call in row.tool_calls]
    assert made == calls_of(answers)
    results = [row.content for row in rows if row.role == "tool"]
    assert [result.partition(" ")[0] for result in results] == ["content", "transferred"][
        : len(made)
    ]


def text_of(rows: list[Message]) -> str:
    return "".join(row.content for row in rows if row.role == "assistant")


def calls_of(answers: tuple[Answer, ...]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for each in answers for call in each.calls]
