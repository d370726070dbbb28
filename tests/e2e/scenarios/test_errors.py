"""Errors reported inside an answer or as a status, overflow, repetition and exhausted reasoning."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import AgentSettings
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import UNHURRIED, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Event, Raw, Script, Text, call_delta, calls, steps
from tests.fakes.model_server import ModelServer

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


# --- inside an answer ----------------------------------------------------------------------------


BEGUN = "The quick brown "
PLAIN = (*steps("H"), Raw(b"event: error\ndata: upstream went away\n\n"))
WRAPPED = Event(b'{"error":{"message":"Network connection lost."}}')
INVALID = Event(b'{"error_type":"invalid_request","error_message":"tools: bad schema"}')


async def test_a_plain_text_error_before_the_answer_is_retried(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", PLAIN, OK) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.shown() == ["done"]
        assert [m["content"] for m in scene.asked(2)] == ["go"]
        await scene.check()


RECOVERABLE: dict[str, Script] = {
    "plain text": (*steps("H"), Text(BEGUN), *PLAIN[1:]),
    "network": (*steps("H"), Text(BEGUN), WRAPPED),
    "as the answer's end": (
        *steps("H"),
        Text(BEGUN),
        Event(b'{"choices":[{"delta":{},"finish_reason":"network_error"}]}'),
    ),
    "not JSON": (*steps("H"), Text(BEGUN), Raw(b"data: oops\n\n")),
}


@pytest.mark.parametrize("script", RECOVERABLE.values(), ids=RECOVERABLE)
async def test_a_text_followed_by_an_error_is_continued(tmp_path: Path, script: Script) -> None:
    rest = 'H T"The quick brown fox jumps." F stop D'
    async with stage(tmp_path, "chat", script, rest) as scene:
        await scene.go()
        assert scene.shown() == ["The quick brown fox jumps."]
        assert await scene.history() == ["U:go", "A:The quick brown fox jumps."]
        asked = scene.asked(2)[-1]["content"]
        assert "network" in asked
        assert len(scene.requests) == 2
        await scene.check()


@each_protocol
async def test_an_overload_error_inside_an_answer_is_recovered(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = f'H T"{BEGUN}" E529"Overloaded"'
    async with stage(tmp_path, protocol, script, 'H T"fox jumps." F stop D') as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:The quick brown fox jumps."]
        await scene.check()


async def test_a_rejected_request_is_not_retried_and_its_message_is_reported(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "chat", (*steps("H"), INVALID)) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert "tools: bad schema" in scene.shown()[0]
        assert len(scene.requests) == 1
        assert await scene.history() == ["U:go"]
        await scene.check()


async def test_a_rejected_request_switches_to_the_fallback(tmp_path: Path) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, "chat", (*steps("H"), INVALID), fallbacks=[f1]) as scene,
    ):
        await scene.go()
        assert (len(scene.requests), len(f1.requests)) == (1, 1)
        assert scene.shown() == ["done"]
        await scene.check()


@each_protocol
async def test_an_unknown_error_is_tried_once_and_reported(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = 'H E400"The moon is in the wrong house."'
    async with stage(tmp_path, protocol, script) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 1
        assert "The moon is in the wrong house." in scene.shown()[0]
        await scene.check()


@each_protocol
async def test_a_filter_error_inside_an_answer_keeps_the_text_and_ends_the_turn(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = f'H T"{BEGUN}" E400"Flagged: this violates our content policy."'
    async with stage(tmp_path, protocol, script) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        text, notice = scene.shown()
        assert text == BEGUN.strip()
        assert "The model declined: Flagged" in notice
        assert await scene.history() == ["U:go", f"A!:{BEGUN}"]
        assert len(scene.requests) == 1
        await scene.check()


async def test_an_error_after_the_end_of_an_answer_is_ignored(tmp_path: Path) -> None:
    script = (*steps('H T"all" F stop'), WRAPPED)
    async with stage(tmp_path, "chat", script) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:all"]
        assert len(scene.requests) == 1
        await scene.check()


async def test_an_upstream_error_relayed_as_text_is_not_an_answer(tmp_path: Path) -> None:
    said = '{"error":{"message":"upstream connect error"}}'
    chunk = {"choices": [{"delta": {"content": said}, "finish_reason": "error"}]}
    script = (*steps("H"), Event(msgspec.json.encode(chunk)))
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.go()
        assert scene.shown() == ["done"]
        assert await scene.history() == ["U:go", "A:done"]
        await scene.check()


# --- waits ---------------------------------------------------------------------------------------


DATE = "Wed, 18 Nov 2026 16:00:0"
WAITS = {
    "seconds": ('S429:{"retry-after":"0.4"}', 0.4),
    "milliseconds": ('S429:{"retry-after-ms":"400"}', 0.4),
    "a date": (f'S429:{{"retry-after":"{DATE}1 GMT","date":"{DATE}0 GMT"}}', 1.0),
    "in words": ('S429"Rate limit reached. Please try again in 400ms."', 0.4),
}


@pytest.mark.parametrize(("script", "wait"), WAITS.values(), ids=WAITS)
async def test_retry_after_is_honored(tmp_path: Path, script: str, wait: float) -> None:
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.go()
        waited = scene.requests[1].at - scene.requests[0].at
        assert wait - 0.02 < waited < wait + 0.25
        assert scene.told.ids == ["N6"]
        assert scene.told.notices[0][1] == f"⏱ openai rate limit, retrying in {round(wait)}s"
        assert await scene.history() == ["U:go", "A:done"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize("status", ["429", "503", "529"])
async def test_retry_after_is_honored_for_every_status(
    tmp_path: Path, protocol: ProtocolName, status: str
) -> None:
    script = f'S{status}:{{"retry-after-ms":"300"}}'
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        waited = scene.requests[1].at - scene.requests[0].at
        assert 0.28 < waited < 0.55
        assert set(scene.told.ids) == {"N6" if status == "429" else "N2"}
        await scene.check()


async def test_a_retry_after_of_more_than_ten_minutes_ends_the_turn(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'S429:{"retry-after":"601"}') as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert "limits the rate" in scene.shown()[0]
        assert len(scene.requests) == 1
        await scene.check()


async def test_a_persistent_rate_limit_ends_the_turn(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", *['S429:{"retry-after-ms":"20"}'] * 3) as scene:
        await scene.go()
        assert len(scene.requests) == 3
        assert "limits the rate" in scene.shown()[0]
        assert await scene.history() == ["U:go"]
        await scene.check()


@pytest.mark.parametrize("status", ["408", "500", "502", "503", "504", "520", "529"])
async def test_a_short_outage_is_retried_without_a_notice(tmp_path: Path, status: str) -> None:
    scripts = (f"S{status}", f"S{status}", OK)
    async with stage(tmp_path, "chat", *scripts, timeouts=UNHURRIED) as scene:
        turn = await scene.go()
        assert turn.attempts == 3
        assert scene.shown() == ["done"]
        assert scene.told.ids == []
        assert await scene.history() == ["U:go", "A:done"]
        await scene.check()


# --- overflow ------------------------------------------------------------------------------------


FULL = "This model's maximum context length is 1500 tokens. Your messages have 2600 tokens."
OLD = "words of an old answer that nobody needs any more. " * 40


def _talk(*then: Script) -> Sequence[Script]:
    """Run two turns that fill the context window, then the turn under test."""
    long = f'H T"{OLD}" F stop U D'
    return (long, long, *then)


SUMMARY = 'H T"They talked about words." F stop U D'


@each_protocol
async def test_a_conversation_that_is_too_long_is_compacted_and_continues(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    scripts = _talk(f'S400"{FULL}"', SUMMARY, OK)
    async with stage(tmp_path, protocol, *scripts) as scene:
        await scene.go("one")
        await scene.go("two")
        turn = await scene.go("three")
        assert turn.state is TurnState.DONE
        assert "N12" in scene.told.ids
        assert scene.shown()[-1] == "done"
        *_, refused, asked, answered = scene.requests
        assert len(answered.raw) < len(refused.raw)
        assert asked.tools == {}
        assert "memory of an assistant" in asked.system
        first = answered.messages[0]["content"]
        assert "They talked about words." in first
        assert answered.messages[-1]["content"].endswith("three")
        assert (await scene.history())[-2:] == ["U:three", "A:done"]
        assert all("They talked about" not in row for row in await scene.history())
        await scene.check()


async def test_a_summary_is_used_in_later_turns(tmp_path: Path) -> None:
    scripts = _talk(f'S400"{FULL}"', SUMMARY, OK, OK)
    async with stage(tmp_path, "chat", *scripts) as scene:
        await scene.go("one")
        await scene.go("two")
        await scene.go("three")
        await scene.go("four")
        last = scene.asked(6)
        assert "They talked about words." in last[0]["content"]
        assert OLD not in last[0]["content"]
        assert last[-1]["content"] == "four"
        await scene.check()


async def test_an_overflow_inside_an_answer_keeps_the_text(tmp_path: Path) -> None:
    script = f'H T"{BEGUN}" E400"{FULL}"'
    scripts = _talk(script, SUMMARY, 'H T"The quick brown fox jumps." F stop D')
    async with stage(tmp_path, "chat", *scripts) as scene:
        await scene.go("one")
        await scene.go("two")
        await scene.go("three")
        assert "N12" in scene.told.ids
        assert scene.shown()[-1] == "The quick brown fox jumps."
        assert (await scene.history())[-1] == "A:The quick brown fox jumps."
        assert scene.asked(5)[-2]["content"].rstrip() == BEGUN.rstrip()
        await scene.check()


async def test_compaction_works_without_a_summary_from_the_model(tmp_path: Path) -> None:
    scripts = _talk(f'S400"{FULL}"', "S500", OK)
    async with stage(tmp_path, "chat", *scripts) as scene:
        await scene.go("one")
        await scene.go("two")
        turn = await scene.go("three")
        assert turn.state is TurnState.DONE
        assert scene.shown()[-1] == "done"
        assert OLD not in scene.asked(5)[0]["content"]
        await scene.check()


async def test_a_single_message_that_is_too_long_ends_the_turn_with_its_cause(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "chat", f'S400"{FULL}"') as scene:
        turn = await scene.go("word " * 2000)
        assert turn.state is TurnState.FAILED
        assert "too long" in scene.shown()[-1]
        assert scene.shown()[-1].endswith(" /new starts a new conversation.")
        assert len(scene.requests) == 1
        await scene.check()


async def test_a_conversation_is_compacted_at_most_three_times(tmp_path: Path) -> None:
    summaries = 0

    def model(body: dict[str, Any]) -> Script:
        nonlocal summaries
        said = str(body["messages"][0]["content"])
        if "memory of an assistant" in said:
            summaries += 1
            return SUMMARY
        last = body["messages"][-1]["content"]
        return f'S400"{FULL}"' if "please" in last else f'H T"{OLD}" F stop U D'

    async with stage(tmp_path, "chat", model) as scene:
        for number in range(6):
            await scene.go(f"question {number}")
        turn = await scene.go("please")
        assert turn.state is TurnState.FAILED
        assert summaries <= 3
        assert "too long" in scene.shown()[-1]
        assert len(scene.requests) <= 6 + 3 + 4
        await scene.check()


async def test_a_rejected_output_limit_is_lowered_without_compaction(
    tmp_path: Path,
) -> None:
    refused = (
        'S400"max_tokens is too large: 9000. This model supports at most 4096 completion tokens."'
    )
    async with stage(tmp_path, "chat", refused, OK, OK, model={"max_output_tokens": 9000}) as scene:
        await scene.go()
        assert [request.max_tokens for request in scene.requests] == [9000, 4096]
        assert scene.requests[0].messages == scene.requests[1].messages
        assert "N12" not in scene.told.ids
        await scene.check()


# --- repetition ----------------------------------------------------------------------------------


PARAGRAPH = "The committee met again and, once more, came to the very same conclusion as before. "


async def test_a_repeating_text_is_stopped_and_the_repetition_removed(
    tmp_path: Path,
) -> None:
    loop = (*steps('H T"Dear all, here is the report. "'), Text(PARAGRAPH * 250), *steps("HANG"))
    rest = 'H T"Dear all, here is the report. It is short." F stop U D'
    async with stage(tmp_path, "chat", loop, rest) as scene:
        turn = await scene.go()
        assert turn.attempts == 2
        row = (await scene.rows())[1]
        assert row.content == "Dear all, here is the report. It is short."
        assert scene.shown() == [row.content]
        assert PARAGRAPH not in str(scene.asked(2))
        assert "repeat" in scene.asked(2)[-1]["content"]
        assert scene.requests[0].left
        await scene.check()


async def test_a_model_that_keeps_repeating_itself_is_given_up_after_one_retry(
    tmp_path: Path,
) -> None:
    loop = (*steps("H"), Text(PARAGRAPH * 250), *steps("HANG"))
    async with stage(tmp_path, "chat", loop, loop) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 2
        assert "repeating itself" in scene.shown()[-1]
        assert await scene.history() == ["U:go"]
        assert all(PARAGRAPH * 2 not in text for text in scene.shown())
        await scene.check()


async def test_repeating_reasoning_is_stopped(tmp_path: Path) -> None:
    thought = f"R{json.dumps(PARAGRAPH * 250)}"
    agent = AgentSettings(show_reasoning=True)
    async with stage(tmp_path, "chat", f"H {thought} HANG", OK, agent=agent) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.requests[1].body["reasoning_effort"] == "low"
        assert all(PARAGRAPH * 2 not in text for text in scene.shown())
        await scene.check()


async def test_repeating_arguments_are_stopped_and_not_kept(tmp_path: Path) -> None:
    begun = '{"path":"a","content":"' + PARAGRAPH * 250
    loop = (*steps("H"), call_delta(0, "c1", "write_file", begun), *steps("HANG"))
    small = calls(("c2", "write_file", '{"path":"a","content":"short"}'))
    async with stage(tmp_path, "chat", loop, small, OK) as scene:
        await scene.go()
        asked = scene.asked(2)[-1]["content"]
        assert "`write_file`" in asked
        assert PARAGRAPH not in asked
        assert "draft" not in asked
        assert (scene.workspace / "a").read_text() == "short"
        await scene.check()


# --- reasoning -----------------------------------------------------------------------------------


@each_protocol
async def test_reasoning_cut_twice_is_retried_with_less_effort(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    broken = 'H R"hmm" RST'
    async with stage(
        tmp_path,
        protocol,
        broken,
        broken,
        OK,
        model={"reasoning_effort": "high", "max_output_tokens": 60_000},
    ) as scene:
        await scene.go()
        efforts = [_effort(request.body) for request in scene.requests]
        assert efforts[0] == efforts[1] != efforts[2]
        assert scene.shown() == ["done"]
        assert await scene.history() == ["U:go", "A:done"]
        await scene.check()


def _effort(body: dict[str, Any]) -> object:
    """Return the requested reasoning effort in the format of the protocol."""
    return (
        body.get("reasoning_effort")
        or body.get("reasoning")
        or (body.get("thinking"), body.get("output_config"))
    )


async def test_think_tags_are_not_shown(tmp_path: Path) -> None:
    script = 'H T"<th" T"ink>it is 6 x 7</thi" T"nk>The answer is 42." F stop U D'
    async with stage(tmp_path, "chat", script, agent=AgentSettings(show_reasoning=True)) as scene:
        await scene.go()
        thoughts, answer = scene.shown()
        assert "it is 6 x 7" in thoughts
        assert answer == "The answer is 42."
        assert await scene.history() == ["U:go", "A:The answer is 42."]
        await scene.check()


async def test_an_unclosed_think_tag_at_a_cut_is_reasoning(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'H T"<think>it is 6 x" RST', OK) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:done"]
        assert [m["content"] for m in scene.asked(2)] == ["go"]
        assert scene.shown() == ["done"]
        await scene.check()
