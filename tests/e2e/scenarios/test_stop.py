"""/stop in every phase of a turn, on three protocols, and steering."""

from pathlib import Path

import msgspec
import pytest

from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import AT_ONCE, CHAT, SCALED, Stage, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import calls

OK = 'H T"done" F stop U D EOF'
SLEEP = calls(("c1", "sleepy", '{"s":30}'))
NAP = calls(("c1", "sleepy", '{"s":0.15}'))
PATIENT = msgspec.structs.replace(SCALED, backoff=20.0)
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


async def stopped_then_fresh(scene: Stage, requests: int) -> None:
    """Send /stop; assert that all work ends and that the next message starts a new session."""
    assert await scene.stop() <= AT_ONCE
    turn = await scene.ends()
    assert turn.state not in {TurnState.DONE, TurnState.RUNNING}
    assert len(scene.requests) == requests
    before = await scene.sessions()
    again = await scene.go("and now this")
    assert again.state is TurnState.DONE
    assert len(scene.requests) == requests + 1
    assert len(await scene.sessions()) == len(before) + 1
    assert await scene.history() == ["U:and now this", "A:done"]
    assert [each["content"] for each in scene.asked(requests + 1)] == ["and now this"]
    told = [text for text in scene.shown() if text.startswith(("⏹", "🆕"))]
    assert [text[0] for text in told] == ["⏹", "🆕"]
    assert "returns to this one" in told[0]
    await scene.check()


@each_protocol
async def test_stop_during_a_stalled_text_keeps_the_text(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, 'H T"abc" HANG', OK) as scene:
        await scene.say()
        await scene.kit.screen.shows(CHAT, "abc")
        await stopped_then_fresh(scene, 1)
        assert await scene.history(back=1) == ["U:go", "A!:abc"]
        assert scene.shown()[0] == "abc"
        assert scene.requests[0].left


@each_protocol
async def test_stop_during_a_backoff_prevents_the_retry(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, "S500", OK, timeouts=PATIENT) as scene:
        await scene.say()
        await scene.told_of("N2")
        await stopped_then_fresh(scene, 1)
        assert await scene.history(back=1) == ["U:go"]


@each_protocol
async def test_stop_cancels_a_running_tool_and_reports_it(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, SLEEP, OK) as scene:
        await scene.say()
        await scene.desk.begun.wait()
        await stopped_then_fresh(scene, 1)
        assert scene.desk.cancelled == 1
        user, call, result = await scene.history(back=1)
        assert (user, call) == ("U:go", "A{sleepy}")
        assert "may have taken effect" in result
        notice = next(text for text in scene.shown() if text.startswith("⏹"))
        assert "sleepy was running and may have taken effect" in notice


@each_protocol
@pytest.mark.parametrize("silence", ["HANG", "H HANG"], ids=["no headers", "headers only"])
async def test_stop_before_the_first_token_leaves_no_history(
    tmp_path: Path, protocol: ProtocolName, silence: str
) -> None:
    async with stage(tmp_path, protocol, silence, OK) as scene:
        await scene.say()
        await scene.kit.model.request(1)
        await stopped_then_fresh(scene, 1)
        assert await scene.history(back=1) == ["U:go"]


async def test_calls_not_started_at_the_stop_never_run(tmp_path: Path) -> None:
    script = calls(("c1", "sleepy", '{"s":30}'), ("c2", "pay", '{"amount":9}'))
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.say()
        await scene.desk.begun.wait()
        assert await scene.stop() <= AT_ONCE
        await scene.ends()
        assert scene.desk.ran == ["sleepy 30"]
        _, _, cut, never = await scene.history()
        assert "may have taken effect" in cut
        assert "Not run" in never
        await scene.check()


async def test_stop_during_a_rate_limit_wait_takes_effect_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'S429:{"retry-after":"90"}', OK) as scene:
        await scene.say()
        assert "90s" in await scene.told_of("N6")
        await stopped_then_fresh(scene, 1)


async def test_stop_during_compaction_takes_effect(
    tmp_path: Path,
) -> None:
    long = 'H T"' + "words of an old answer. " * 100 + '" F stop U D'
    full = 'S400"This model\'s maximum context length is 1500 tokens."'
    async with stage(tmp_path, "chat", long, long, full, "H HANG", OK) as scene:
        await scene.go("one")
        await scene.go("two")
        await scene.say("three")
        await scene.kit.model.request(4)
        assert await scene.stop() <= AT_ONCE
        await scene.ends(3)
        assert len(scene.requests) == 4
        await scene.check()


async def test_a_second_stop_finds_no_active_task(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'H T"abc" HANG', OK) as scene:
        await scene.say()
        await scene.kit.screen.shows(CHAT, "abc")
        await scene.stop()
        await scene.ends()
        await scene.say("/stop")
        await scene.kit.screen.shows(CHAT, "No active task to stop.")
        assert len(await scene.sessions()) == 1
        await scene.check()


async def test_a_steer_is_kept_when_the_next_answer_is_cut(
    tmp_path: Path,
) -> None:
    scripts = (NAP, 'H T"The answer is " RST', 'H T"The answer is 42." F stop D')
    async with stage(tmp_path, "chat", *scripts) as scene:
        await scene.say()
        await scene.desk.begun.wait()
        await scene.say("/steer and in short")
        await scene.ends()
        assert await scene.history() == [
            "U:go",
            "A{sleepy}",
            "T:awake",
            "U:and in short",
            "A:The answer is 42.",
        ]
        for number in (2, 3):
            said = [each["content"] for each in scene.asked(number) if each["role"] == "user"]
            assert said[:2] == ["go", "and in short"]
        assert scene.shown()[-1].endswith("The answer is 42.")
        await scene.check()


async def test_stop_does_not_wait_for_a_service_that_keeps_sending(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'H [T"x" W.005]*', OK) as scene:
        await scene.say()
        await scene.kit.screen.shows(CHAT, "xxx")
        assert await scene.stop() <= AT_ONCE
        await scene.requests[0].closed.wait()
        turn = await scene.ends()
        assert turn.state is TurnState.STOPPED
        _, row = await scene.rows()
        assert scene.shown()[0] == row.content
        await scene.check()
