"""Models that announce an action without making the call, on three protocols."""

from pathlib import Path

import pytest

from agent.settings import AgentSettings
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import UNHURRIED, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, calls

OK = 'H T"done" F stop U D EOF'
PROMISE = "Let me read the file:"
PROMISED = f'H T"{PROMISE}" F stop U D EOF'
READ = calls(("c1", "read", '{"path":"a"}'))
PAY = calls(("c2", "pay", '{"amount":5}'))
KNOWN = {"name": "llama3.1:8b"}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@each_protocol
async def test_an_announced_call_is_requested_and_the_answer_is_one_row(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(
        tmp_path, protocol, PROMISED, READ, OK, model=KNOWN, timeouts=UNHURRIED
    ) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert scene.desk.ran == ["read a"]
        assert await scene.history() == ["U:go", f"A{{read}}:{PROMISE}", "T:content of a", "A:done"]
        *before, promise, asked = scene.asked(2)
        assert [each["content"] for each in before] == ["go"]
        assert (promise["role"], promise["content"]) == ("assistant", PROMISE)
        assert asked["role"] == "user"
        assert "no tool was called" in asked["content"]
        assert b"no tool was called" not in scene.requests[2].raw
        assert scene.told.ids == []
        assert scene.shown() == [f"{PROMISE}\n\ndone"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize(
    ("second", "text"),
    [
        ("It says 4.", f"{PROMISE}\n\nIt says 4."),
        (PROMISE, PROMISE),
        ("Checking it now…", f"{PROMISE}\n\nChecking it now…"),
    ],
    ids=["answer", "same announcement", "other announcement"],
)
async def test_a_second_announcement_ends_the_turn(
    tmp_path: Path, protocol: ProtocolName, second: str, text: str
) -> None:
    then = f'H T"{second}" F stop U D EOF'
    async with stage(tmp_path, protocol, PROMISED, then, model=KNOWN) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert await scene.history() == ["U:go", f"A:{text}"]
        assert scene.shown() == [text]
        assert len(scene.requests) == 2
        await scene.check()


async def test_an_announced_call_is_requested_once_per_turn(tmp_path: Path) -> None:
    scripts = (PROMISED, READ, PROMISED, PROMISED, OK)
    async with stage(tmp_path, "chat", *scripts, model=KNOWN) as scene:
        await scene.go()
        assert len(scene.requests) == 3
        await scene.go("and now")
        assert len(scene.requests) == 5
        assert (await scene.history())[-1] == f"A:{PROMISE}\n\ndone"
        await scene.check()


ANSWERS: dict[str, tuple[Script, dict[str, str]]] = {
    "of a model that is not known for it": (PROMISED, {}),
    "a question": ('H T"I will read the file. Which one?" F stop U D EOF', KNOWN),
    "a plain answer": ('H T"The file says 4." F stop U D EOF', KNOWN),
    "on a condition": ('H T"I will read it once you upload it." F stop U D EOF', KNOWN),
}


@pytest.mark.parametrize(("script", "model"), ANSWERS.values(), ids=ANSWERS)
async def test_an_ordinary_text_is_the_answer(
    tmp_path: Path, script: Script, model: dict[str, str]
) -> None:
    async with stage(tmp_path, "chat", script, model=model) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert len(scene.requests) == 1
        await scene.check()


@each_protocol
async def test_an_announcement_is_the_answer_when_no_tools_are_offered(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    # All steps are used up: the last request asks for a summary and offers no tools.
    async with stage(
        tmp_path, protocol, READ, PROMISED, model=KNOWN, agent=AgentSettings(max_steps=1)
    ) as scene:
        await scene.go()
        assert len(scene.requests) == 2
        assert (await scene.history())[-1] == f"A:{PROMISE}"
        await scene.check()


@each_protocol
async def test_a_cut_after_the_announcement_is_recovered(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    scripts = (PROMISED, "H RST", READ, OK)
    async with stage(tmp_path, protocol, *scripts, model=KNOWN) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert "no tool was called" in scene.asked(3)[-1]["content"]
        assert await scene.history() == ["U:go", f"A{{read}}:{PROMISE}", "T:content of a", "A:done"]
        await scene.check()


async def test_a_call_repeated_after_an_announcement_runs_again(tmp_path: Path) -> None:
    """No call was lost, so an identical call is intended."""
    again = calls(("c3", "pay", '{"amount":5}'))
    async with stage(tmp_path, "chat", PAY, PROMISED, again, OK, model=KNOWN) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 5", "pay 5"]
        await scene.check()


async def test_text_on_an_append_only_platform_only_grows(tmp_path: Path) -> None:
    pieces = " ".join(f'T"{piece} "' for piece in PROMISE.split())
    promised = f"H {pieces} F stop U D EOF"
    said = f'H {pieces} T"It" T" says 4." F stop U D EOF'
    async with stage(tmp_path, "chat", promised, said, model=KNOWN) as scene:
        await scene.go()
        assert scene.shown() == [f"{PROMISE} It says 4."]
        await scene.check()
