"""Text answers that stall, are cut, never end or end unusually, on three protocols."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import AgentSettings
from platforms.core.contract import Live, Repeat
from sessions.records import TurnState
from tests.e2e.gateway_kit import Screen
from tests.e2e.scenarios.scenario_kit import SCALED, UNHURRIED, Judged, Stage, now, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@each_protocol
async def test_a_complete_answer_is_shown_unchanged(tmp_path: Path, protocol: ProtocolName) -> None:
    async with stage(tmp_path, protocol, 'H T"Hel" T"lo" F stop U D') as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert scene.shown() == ["Hello"]
        assert await scene.history() == ["U:go", "A:Hello"]
        assert scene.told.ids == []
        assert len(scene.requests) == 1
        spent = await scene._store.spending.totals(turn_id=turn.id)
        assert (spent.input_tokens, spent.output_tokens) == (10, 5)
        await scene.check()


@each_protocol
@pytest.mark.parametrize("silence", ["HANG", "H HANG"], ids=["no headers", "headers only"])
async def test_a_model_without_a_first_token_is_asked_again(
    tmp_path: Path, protocol: ProtocolName, silence: str
) -> None:
    async with stage(tmp_path, protocol, silence, OK) as scene:
        began = now()
        await scene.go()
        assert now() - began < 2.5
        assert "N1" in scene.told.ids
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.shown() == ["done"]
        waited = scene.requests[1].at - scene.requests[0].at
        assert 0.6 < waited < 1.25
        await scene.check()


@each_protocol
@pytest.mark.parametrize("sign", ["P", "B"], ids=["pings", "empty deltas"])
async def test_pings_and_empty_events_do_not_keep_a_dead_answer_alive(
    tmp_path: Path, protocol: ProtocolName, sign: str
) -> None:
    async with stage(tmp_path, protocol, f"H [{sign} W.05]*", OK) as scene:
        await scene.go()
        assert "N2" in scene.told.ids
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.requests[1].at - scene.requests[0].at < 1.25
        await scene.check()


DRIPS = [
    ('H [T"x" W.45]*', {}, 5.0),
    ('H [T"x" W.45]*', {"min_rate": 5.0}, 2.3),
    ('H [T"x" W.025]*', {}, 5.0),
]


@pytest.mark.parametrize(
    ("script", "clocks", "ends"), DRIPS, ids=["lifetime", "too slow", "endless"]
)
async def test_a_dripping_or_endless_answer_is_cut_and_continued(
    tmp_path: Path, script: str, clocks: dict[str, float], ends: float
) -> None:
    timeouts = msgspec.structs.replace(SCALED, **clocks)
    rest = 'W.1 H T" end." F stop D'
    async with stage(tmp_path, "chat", script, rest, timeouts=timeouts) as scene:
        await scene.go()
        lived = scene.requests[1].at - scene.requests[0].at
        assert ends - 0.35 <= lived <= ends + 0.45
        assert scene.told.ids[-1] == "N3"
        user, answer = await scene.rows()
        assert user.content == "go"
        assert answer.content.endswith("x end.")
        assert answer.content.removesuffix(" end.") == "x" * (len(answer.content) - 5)
        assert scene.shown() == [answer.content]
        await scene.check()


@each_protocol
@pytest.mark.parametrize(
    "rest", ["fox jumps.", "The quick brown fox jumps."], ids=["no overlap", "overlap"]
)
@pytest.mark.parametrize("ending", ["RST", "EOF"])
async def test_a_cut_text_is_joined_exactly(
    tmp_path: Path, protocol: ProtocolName, rest: str, ending: str
) -> None:
    cut, whole = f'H T"The quick brown " {ending}', f'H T"{rest}" F stop D'
    options: dict[str, Any] = {"max_output_tokens": 900}
    async with stage(tmp_path, protocol, cut, whole, model=options, timeouts=UNHURRIED) as scene:
        turn = await scene.go()
        assert scene.shown() == ["The quick brown fox jumps."]
        assert await scene.history() == ["U:go", "A:The quick brown fox jumps."]
        *before, shown, asked = scene.asked(2)
        assert [each["content"] for each in before] == ["go"]
        assert (shown["role"], shown["content"].rstrip()) == ("assistant", "The quick brown")
        assert asked["role"] == "user"
        assert "The quick brown " in asked["content"]
        assert "network" in asked["content"]
        assert "length limit" not in asked["content"]
        first, second = scene.requests
        assert first.tools == second.tools
        assert first.max_tokens == second.max_tokens == 900
        assert turn.attempts == 2
        broken, going_on = await scene.judged()
        assert (broken.verdict, broken.phase, broken.received) == ("cut", "text", 16)
        assert bool(broken.cause) == (ending == "RST")
        assert going_on == Judged("complete", "", len(rest), "")
        assert scene.told.ids == []
        await scene.check()


@each_protocol
async def test_the_usage_of_all_requests_is_summed(tmp_path: Path, protocol: ProtocolName) -> None:
    scripts = ('H T"The quick brown " F length U(3) D', 'H T"fox jumps." F stop U(4) D')
    async with stage(tmp_path, protocol, *scripts) as scene:
        turn = await scene.go()
        assert turn.attempts == 2
        spent = await scene._store.spending.totals(turn_id=turn.id)
        assert (spent.input_tokens, spent.output_tokens) == (20, 7)
        await scene.check()


LONG = (
    "A seam is the place where two pieces of cloth meet. "
    "It is sewn from the wrong side, so that nobody sees the thread. "
) * 5 + "What holds it together is the expla"


@each_protocol
async def test_an_overlap_at_the_seam_is_not_shown_twice(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    whole = LONG + "nation is X."
    scripts = (f'H T"{LONG}" EOF', f'H T"{whole[len(LONG) - 60 :]}" F stop D')
    async with stage(tmp_path, protocol, *scripts) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", f"A:{whole}"]
        assert "explanation" in scene.shown()[0]
        await scene.check()


@each_protocol
async def test_a_restarted_answer_is_not_shown_twice(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    whole = LONG + "nation is X."
    async with stage(tmp_path, protocol, f'H T"{LONG}" RST', f'H T"{whole}" F stop D') as scene:
        await scene.go()
        assert await scene.history() == ["U:go", f"A:{whole}"]
        await scene.check()


SOFT = [
    ('H T"ok" D', "chat"),
    ('H T"ok" U EOF', "chat"),
    ('H T"ok" J{"choices":[],"lastOne":true} EOF', "chat"),
    ('H T"ok" D', "anthropic"),
]


@pytest.mark.parametrize(
    ("script", "protocol"), SOFT, ids=["done", "usage", "lastOne", "message_stop"]
)
async def test_an_answer_may_end_without_a_finish_reason(
    tmp_path: Path, script: Script, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, script) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:ok"]
        assert scene.told.ids == []
        assert len(scene.requests) == 1
        await scene.check()


async def test_calls_may_end_without_a_finish_reason(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'H C(0,c1,read,{"path":"a"}) D', OK) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A{read}", "T:content of a", "A:done"]
        await scene.check()


async def test_a_service_that_omits_end_markers_is_learned(tmp_path: Path) -> None:
    def repeats(_: object) -> Script:
        return 'H T"all of it" EOF'

    async with stage(tmp_path, "chat", repeats) as scene:
        for turn in (1, 2, 3):
            await scene.go(f"question {turn}")
        turns = await scene.turns()
        assert [turn.attempts for turn in turns] == [2, 2, 1]
        assert scene.shown() == ["all of it"] * 3
        await scene.check()


@each_protocol
@pytest.mark.parametrize("ending", ["RST", "EOF", "HANG"])
async def test_a_failure_after_the_finish_reason_is_ignored(
    tmp_path: Path, protocol: ProtocolName, ending: str
) -> None:
    async with stage(tmp_path, protocol, f'H T"all" F stop W.01 {ending}') as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:all"]
        assert len(scene.requests) == 1
        await scene.check()


@each_protocol
async def test_a_call_with_a_finish_reason_runs_despite_a_later_failure(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = 'H C(0,c1,pay,{"amount":3}) F tool_calls W.01 RST'
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 3"]
        assert await scene.history() == ["U:go", "A{pay}", "T:paid 3", "A:done"]
        await scene.check()


@each_protocol
async def test_cuts_without_progress_end_the_turn(tmp_path: Path, protocol: ProtocolName) -> None:
    async with stage(tmp_path, protocol, 'H T"half" RST', "H RST", "H RST") as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        text, notice = scene.shown()
        assert text == "half"
        assert "connection drops" in notice
        assert await scene.history() == ["U:go", "A!:half"]
        assert len(scene.requests) == 3
        await scene.check()


ANEW = "Once upon a time there was a king who had three sons, and "
OTHERWISE = "Once upon a time there was a king who had three sons, but not for long: they left. "


def fixed() -> Screen:
    """Return a screen on which sent text cannot be edited."""
    return Screen(live=Live.STREAM, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)


@each_protocol
async def test_an_ignored_restart_is_followed_by_another_continuation(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    old = ANEW + "the youngest of them was very old and very wise. " * 3
    scripts = (f'H T"{old}" RST', f'H T"{OTHERWISE}" F stop D', 'H T"The end." F stop D')
    async with stage(tmp_path, protocol, *scripts, screen=fixed()) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert await scene.history() == ["U:go", f"A:{old}The end."]
        assert scene.shown() == [f"{old}The end."]
        assert scene.asked(3) == scene.asked(2)
        await scene.check()


@each_protocol
async def test_an_incomplete_answer_is_not_reported_as_complete(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    old = ANEW + "the youngest of them was very old and very wise. " * 3
    scripts = (f'H T"{old}" RST', *[f'H T"{OTHERWISE}" F stop D'] * 2)
    async with stage(tmp_path, protocol, *scripts, screen=fixed()) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 3
        text, notice = scene.shown()
        assert text == old.strip()
        assert "started its answer over" in notice
        assert await scene.history() == ["U:go", f"A!:{old}"]
        await scene.check()


async def test_eight_cuts_with_progress_still_give_the_whole_answer(tmp_path: Path) -> None:
    parts = [f"{number}:" + "abcdefghij" * 30 for number in range(9)]
    cuts = [f'H T"{part}" RST' for part in parts[:-1]]
    async with stage(tmp_path, "chat", *cuts, f'H T"{parts[-1]}" F stop D') as scene:
        turn = await scene.go()
        assert turn.attempts == 9
        answer = (await scene.rows())[1]
        for part in parts:
            assert answer.content.count(part) == 1
        await scene.check()


@each_protocol
async def test_cut_reasoning_restarts_and_is_shown_once(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    scripts = ('H R"think one" RST', 'H R"think two" T"42" F stop D')
    async with show_reasoning(tmp_path, protocol, *scripts) as scene:
        await scene.go()
        thoughts, answer = scene.shown()
        assert "think two" in thoughts
        assert "think one" not in thoughts
        assert answer == "42"
        row = (await scene.rows())[1]
        assert row.content == "42"
        assert b"think two" in (row.reasoning or b"")
        assert b"think one" not in (row.reasoning or b"")
        assert [each["content"] for each in scene.asked(2)] == ["go"]
        await scene.check()


def show_reasoning(
    tmp_path: Path, protocol: ProtocolName, *scripts: Script
) -> AbstractAsyncContextManager[Stage]:
    return stage(tmp_path, protocol, *scripts, agent=AgentSettings(show_reasoning=True))


@each_protocol
async def test_a_text_that_hits_the_output_limit_twice_is_complete(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    text = "".join(f"{number} apples, " for number in range(120))
    one, two, three = text[:500], text[500:900], text[900:]
    scripts = (
        f'H T"{one}" F length U D',
        f'H T"{two}" F length U D',
        f'H T"{three}" F stop U D',
    )
    async with stage(tmp_path, protocol, *scripts, model={"max_output_tokens": 100}) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", f"A:{text}"]
        caps = [request.max_tokens or 0 for request in scene.requests]
        assert caps == [100, 200, 400]
        for number in (2, 3):
            asked = scene.asked(number)[-1]["content"]
            assert "output length limit" in asked
            assert "network" not in asked
        await scene.check()


async def test_a_capped_empty_answer_is_not_treated_as_exhausted_reasoning(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "chat", *["H F length U D"] * 3) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 3
        (notice,) = scene.shown()
        assert "output limit" in notice
        assert await scene.history() == ["U:go"]
        await scene.check()


THOUGHTS = [
    "<think>so</think>",
    "<THINKING why='x'>so</THINKING>",
    "<reasoning>so",
    "<REASONING_SCRATCHPAD>so</REASONING_SCRATCHPAD>",
]


@pytest.mark.parametrize(
    "script",
    ['H R"so" F length U D', *(f'H T"{text}" F length U D' for text in THOUGHTS)],
    ids=["reasoning", "think", "thinking", "reasoning tag", "scratchpad"],
)
async def test_exhausted_reasoning_is_retried_once_with_less_effort(
    tmp_path: Path, script: str
) -> None:
    async with stage(tmp_path, "chat", script, script, model={"max_output_tokens": 64}) as scene:
        await scene.go()
        assert len(scene.requests) == 2
        assert scene.requests[1].max_tokens == 128
        assert scene.requests[1].body["reasoning_effort"] == "low"
        (notice,) = scene.shown()
        assert "whole output on reasoning" in notice
        assert "/reasoning low" in notice
        assert await scene.history() == ["U:go"]
        await scene.check()


async def test_a_model_with_prefill_support_continues_without_a_prompt(
    tmp_path: Path,
) -> None:
    scripts = ('H T"The quick brown " RST', 'H T" fox jumps." F stop D')
    name = "claude-sonnet-4-5"
    async with stage(tmp_path, "anthropic", *scripts, model={"name": name}) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:The quick brown fox jumps."]
        assert [each["content"] for each in scene.asked(2)] == ["go", "The quick brown"]
        await scene.check()
