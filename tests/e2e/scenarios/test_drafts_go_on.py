"""Files whose calls are cut off repeatedly: drafts complete them without the user's help."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import Stage, stage
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, call_delta, calls, ok, steps

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)

TEXT = "".join(f"{number}: a line of some length, with «quotes» and 👋\n" for number in range(150))


class Author:
    """Model whose answers are all cut off after a fixed number of characters of a file."""

    def __init__(self, size: int, ending: str) -> None:
        self.target: Path | None = None
        self.seen_early = False
        self.asked = 0
        self._size = size
        self._ending = ending

    def __call__(self, body: dict[str, Any]) -> Script:
        self.asked += 1
        self.seen_early = self.seen_early or (self.target is not None and self.target.exists())
        said = last_user_text(body)
        draft = re.search(r"kept as draft (d[0-9a-f]{6})", said)
        if draft is None:
            return self._cut("write_file", {"path": "long.txt"}, TEXT)
        tail = said.partition("The draft ends with:\n«")[2].partition("»\nContinue with")[0]
        at = TEXT.index(tail) + len(tail)
        rest = TEXT[at:]
        given = {"draft_id": draft[1], "final": len(rest) <= self._size}
        if not given["final"]:
            return self._cut("write_file_continue", given, rest)
        return calls(
            (f"c{self.asked}", "write_file_continue", json.dumps({**given, "content": rest}))
        )

    def _cut(self, name: str, given: dict[str, Any], content: str) -> Script:
        whole = json.dumps({**given, "content": content}, ensure_ascii=False)
        begun = call_delta(0, f"c{self.asked}", name, whole[: self._size])
        return (*steps("H"), begun, *steps(self._ending))


class Finishing:
    """Author that reports completion once the file exists."""

    def __init__(self, author: Author) -> None:
        self._author = author

    def __call__(self, body: dict[str, Any]) -> Script:
        said = json.dumps(body)
        return ok("done") if "Written." in said else self._author(body)


def short(rows: list[str]) -> list[str]:
    return [row.partition(":")[0] for row in rows]


@each_protocol
@pytest.mark.parametrize("ending", ["EOF", "RST", "F length U D"], ids=["end", "reset", "limit"])
async def test_a_long_file_is_assembled_from_many_cut_answers(
    tmp_path: Path, protocol: ProtocolName, ending: str
) -> None:
    author = Author(1800, ending)
    async with stage(tmp_path, protocol, Finishing(author)) as scene:
        author.target = scene.workspace / "long.txt"
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert author.target.read_text() == TEXT
        assert not author.seen_early
        assert author.asked > 4
        assert short(await scene.history()) == ["U", "A{write_file_continue}", "T", "A"]
        assert scene.shown() == ["done"]
        assert {"N4", "N13"} & set(scene.told.ids)
        assert [path.name for path in scene.workspace.iterdir() if path.name[0] != "."] == [
            "long.txt"
        ]
        await scene.check()


async def test_an_unfinished_draft_is_named_when_the_turn_ends(tmp_path: Path) -> None:
    begun = '{"path":"long.txt","content":"' + "some words of the file. " * 100
    cut = (*steps("H"), call_delta(0, "c1", "write_file", begun), *steps("RST"))
    async with stage(tmp_path, "chat", cut, "S401") as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        (notice,) = scene.shown()
        assert re.search(
            r"Kept for a day as a draft: long\.txt \(2,400 characters, d\w{6}\)", notice
        )
        assert not (scene.workspace / "long.txt").exists()
        await scene.check()


async def _again(scene: Stage) -> str:
    """Send the word `continue`, which must not loop."""
    await scene.go("continue")
    return scene.shown()[-1]


async def test_continue_after_a_failed_turn_includes_the_failed_request(tmp_path: Path) -> None:
    begun = '{"path":"long.txt","content":"' + "some words of the file. " * 100
    cut = (*steps("H"), call_delta(0, "c1", "write_file", begun), *steps("RST"))
    small = calls(("c2", "write_file", '{"path":"long.txt","content":"short"}'))
    async with stage(tmp_path, "chat", cut, "S401", small, ok("done")) as scene:
        await scene.go("write the file")
        assert "done" in await _again(scene)
        assert (scene.workspace / "long.txt").read_text() == "short"
        assert short(await scene.history()) == ["U", "U", "A{write_file}", "T", "A"]
        (asked,) = scene.asked(3)
        assert asked["content"] == "write the file\n\ncontinue"
        await scene.check()
