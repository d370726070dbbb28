"""A long file over a line that cuts every answer after about eight kilobytes, wherever that is.

`python -m tests.faults.long_file --seeds 50` is the long form; a few seeds run with the tests.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.settings import Timeouts
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import SCALED, Stage, stage
from tests.fakes.cooperative import Answer, Call, rest_of, script_of
from tests.fakes.dialects.requests import read_request
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.histories import check_history
from tests.fakes.model_script import ENDINGS, Head, Raw, Script, body_of
from tests.fakes.watch import Watch

SIZE = 60 * 1024  # bytes of the file
CUT_AFTER = (7_000, 9_000)  # bytes of an answer
WAYS = ("EOF", "FIN", "RST", "HANG")
PATIENCE = 60.0
DONE = "It is written."

CLOCKS: Timeouts = msgspec.structs.replace(
    SCALED, first_token=2.0, gap_text=0.3, gap_tool=0.3, gap_reasoning=0.3, lifetime=30.0
)

_PARTS = (
    *("naïve", "façade", "“quoted”", '"plain"', "back\\slash", "tab\there", "日本語", "Привет"),
    *(
        "👩\u200d🚀",
        "🏳️\u200d🌈",
        "👍🏽",
        "🐕\u200d🦺",
        "\U0001d4b3",
        "\u2028",
        "\x7f",
        "{json: [1, 2]}",
        "</script>",
    ),
    *("\\n", "\\ud83d", "\\\\", "'", "`code`", "$x", "word", "another", "line", "text"),
)


class Model:
    """Wants to write one file for each conversation; every long answer breaks off."""

    def __init__(self, protocol: ProtocolName, seed: int) -> None:
        self.protocol = protocol
        self.content = content_of(seed)
        self.plan = plan_of(seed, self.content)
        self.answers = 0
        self.broken = 0
        self.begun = 0  # times it said all of the file
        self._chance = random.Random(f"model {seed}")  # noqa: S311 - to be repeated
        self._plain = bool(seed // 2 % 2)  # characters as they are, not as escapes

    def __call__(self, body: dict[str, Any]) -> Script:
        self.answers += 1
        asked = read_request(self.protocol, msgspec.json.encode(body))
        rest = rest_of(self.plan, asked)
        self.begun += rest == self.plan[0]
        whole = body_of(script_of(rest, self._pieces), self.protocol)
        if self._plain:
            whole = unescaped(whole)
        after = self._chance.randint(*CUT_AFTER)
        if len(whole) <= after:
            return Head(bare=True), Raw(whole)
        self.broken += 1
        return Head(bare=True), Raw(whole[:after]), ENDINGS[self._chance.choice(WAYS)]

    def _pieces(self, said: str) -> Sequence[str]:
        pieces = []
        at = 0
        while at < len(said):
            size = self._chance.choice((1, 3, 40, 200, 600))
            pieces.append(said[at : at + size])
            at += size
        return pieces


def content_of(seed: int) -> str:
    """A text of exactly the size, no two hundred characters of which occur twice."""
    chance = random.Random(f"content {seed}")  # noqa: S311 - to be repeated
    lines: list[str] = []
    size = number = 0
    while size < SIZE:
        number += 1
        words = chance.choices(_PARTS, k=chance.randint(0, 12))
        line = f"{number}: {' '.join(words)} {chance.randrange(10**6)}\n"
        lines.append(line)
        size += len(line.encode())
    whole = "".join(lines).encode()[:SIZE].decode(errors="ignore")
    return whole + "." * (SIZE - len(whole.encode()))


def plan_of(seed: int, content: str) -> tuple[Answer, ...]:
    fields = {"path": name_of(seed), "content": content}
    arguments = json.dumps(fields, ensure_ascii=bool(seed % 2))
    return Answer(calls=(Call("c1", "write_file", arguments),)), Answer(DONE)


def name_of(seed: int) -> str:
    return f"long-{seed}.md"


def unescaped(body: bytes) -> bytes:
    """The same events, with every character written as it is."""
    mark = b"data: "
    return b"\n".join(
        mark + json.dumps(json.loads(line.removeprefix(mark)), ensure_ascii=False).encode()
        if line.startswith(mark + b"{")
        else line
        for line in body.split(b"\n")
    )


async def write_long_files(home: Path, protocol: ProtocolName, seeds: Sequence[int]) -> list[str]:
    """Have one gateway write a file for each seed; says what it took."""
    models = {seed: Model(protocol, seed) for seed in seeds}

    def reply(body: dict[str, Any]) -> Script:
        asked = read_request(protocol, msgspec.json.encode(body))
        found = re.match(r"write file (\d+)", asked.messages[0]["content"])
        assert found, asked.messages[0]
        return models[int(found[1])](body)

    async with stage(home, protocol, reply, timeouts=CLOCKS) as scene:
        scene.workspace.mkdir(parents=True)
        with Watch(scene.workspace) as watch:
            async with asyncio.TaskGroup() as group:
                for seed in seeds:
                    group.create_task(scene.say(f"write file {seed}", f"chat-{seed}"))
            for seed, model in models.items():
                try:
                    await check(scene, watch, seed, model)
                except (AssertionError, TimeoutError) as error:
                    error.add_note(f"{protocol}, seed {seed}, {model.answers} answers")
                    raise
    return [f"seed {seed}: {model.broken} of {model.answers} cut" for seed, model in models.items()]


async def check(scene: Stage, watch: Watch, seed: int, model: Model) -> None:
    """The file to the byte, put into its place once; one row with the call that finished it."""
    chat, name = f"chat-{seed}", name_of(seed)
    turn = await scene.ends(chat=chat, seconds=PATIENCE)
    assert turn.state is TurnState.DONE, turn.cause
    assert model.broken >= 5, "it was hardly cut: this proves nothing"
    assert model.begun == 1, "it had to begin anew"
    assert (scene.workspace / name).read_bytes() == model.content.encode()
    assert watch.of(name) == ["moved here"]
    rows = await scene.rows(chat)
    check_history(rows)
    assert [row.role for row in rows] == ["user", "assistant", "tool", "assistant"]
    (call,) = rows[1].tool_calls
    given = json.loads(call.arguments)
    assert (call.name, given["final"]) == ("write_file_continue", True)
    assert model.content.endswith(given["content"])
    assert rows[3].content == DONE
    assert scene.shown(chat) == [DONE]
    assert turn.attempts == model.answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    everything = range(chosen.first, chosen.first + chosen.seeds)
    for protocol in PROTOCOLS:
        began = time.monotonic()
        said: list[str] = []
        seeds = [seed for seed in everything if PROTOCOLS[seed % 3] == protocol]
        for at in range(0, len(seeds), 4):
            with tempfile.TemporaryDirectory() as home:
                said += asyncio.run(write_long_files(Path(home), protocol, seeds[at : at + 4]))
        seconds = time.monotonic() - began
        sys.stdout.write("\n".join((f"{protocol}, {seconds:.0f} s", *said, "")))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
