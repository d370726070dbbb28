"""Turns in which a fallback model takes over."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from agent.events import TurnEnding
from tests.fakes.model_script import Script, calls, ok
from tests.unit.agent.turn_kit import OLD, READ_A, Play, lost_note

pytestmark = pytest.mark.quick


async def test_a_fallback_takes_over_with_one_notice(play: Play) -> None:
    stage = await play("S401")
    second = await stage.fallback(calls(READ_A), ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (TurnEnding.ANSWERED, "done", 3)
    assert stage.notices == ["N5"]
    assert stage.notice("N5") == {"a": "openai/scripted", "b": "openai/second"}
    assert {request.model for request in second.requests} == {"second"}
    assert len(stage.server.requests) == 1
    assert stage.journal.log[2] == "attempt 2 openai/second"


@pytest.mark.parametrize(
    ("scripts", "requests"),
    [
        pytest.param(["S401"], 1, id="key rejected"),
        pytest.param(["S403"], 1, id="access forbidden"),
        pytest.param(["S402"], 1, id="out of credit"),
        pytest.param(
            ['S429"You exceeded your current quota, please check your plan and billing details."'],
            1,
            id="quota used up",
        ),
        pytest.param(["S400"], 1, id="request rejected"),
        pytest.param(["S422"], 1, id="request unprocessable"),
        pytest.param(["S404"], 1, id="model unknown"),
        pytest.param(['H T"I cannot" F content_filter D'], 1, id="declined after a text"),
        pytest.param(['S503:{"retry-after":"3600"}'], 1, id="unavailable for an hour"),
        pytest.param(["H F content_filter D"], 1, id="declined"),
        pytest.param(['S429:{"retry-after":"61"}'], 1, id="long retry-after"),
        pytest.param(["S500"] * 3, 3, id="server errors"),
        pytest.param(["H RST"] * 3, 3, id="dropped connections"),
        pytest.param(["H HANG"] * 2, 2, id="silence"),
        pytest.param(["H F stop D"] * 2, 2, id="empty answers"),
    ],
)
async def test_a_failing_primary_switches_to_the_fallback(
    play: Play, scripts: list[str], requests: int
) -> None:
    stage = await play(*scripts)
    await stage.fallback(ok("done"))
    done = await stage.run()
    assert done.text.endswith("done")
    assert done.attempts == requests + 1
    assert stage.notices == ["N5"]


async def test_every_target_gets_the_same_retry_budget(play: Play) -> None:
    stage = await play(*["H RST"] * 3)
    await stage.fallback("H RST", "H RST", ok("done"))
    assert (await stage.run()).attempts == 6


async def test_the_last_cause_is_reported_when_no_target_is_left(play: Play) -> None:
    stage = await play(*["H RST"] * 3)
    await stage.fallback("S402")
    await stage.fallback("S401")
    done = await stage.run()
    assert (done.ending, done.attempts) == (TurnEnding.FAILED, 5)
    assert "key" in done.cause
    assert done.tell_operator
    assert stage.notices == ["N5", "N5"]


async def test_the_fallback_continues_the_visible_text(play: Play) -> None:
    stage = await play('H T"The quick brown " F length D', "S401")
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "high"}
    second = await stage.fallback('H T"The quick brown fox." F stop D')
    done = await stage.run()
    assert done.text == stage.shown == "The quick brown fox."
    (request,) = second.requests
    assert request.max_tokens is None  # the raised limit of the primary does not carry over
    assert request.messages[-2]["content"] == "The quick brown "


@pytest.mark.parametrize(
    ("declined", "answer", "text"),
    [
        pytest.param("I cannot", "done", "I cannot\n\ndone", id="a refusal"),
        pytest.param("Sorry, no. ", "Sure.", "Sorry, no. \n\nSure.", id="a whole sentence"),
        pytest.param(
            "Take two eggs and some", "two eggs and some flour.", "Take two eggs and some flour.",
            id="half an answer",
        ),
        pytest.param("```sh\nls", "pwd", "```sh\nls\npwd", id="a code block"),
        pytest.param("你好", "世界", "你好\n\n世界", id="letters without case"),
    ],
)  # fmt: skip
async def test_text_before_a_refusal_and_the_answer_of_the_fallback_do_not_run_together(
    play: Play, declined: str, answer: str, text: str
) -> None:
    stage = await play(f"H T{json.dumps(declined)} F content_filter D")
    stage.settings = {"reasoning_effort": "none"}  # otherwise the text would not be prefilled
    second = await stage.fallback(ok(answer))
    done = await stage.run()
    assert done.text == stage.shown == text
    (request,) = second.requests
    assert [each["role"] for each in request.messages[-2:]] == ["assistant", "user"]
    assert "declined" in request.messages[-1]["content"]


async def test_adjusted_limits_do_not_carry_over_to_the_fallback(play: Play) -> None:
    stage = await play('H R"hm" F length D', 'S400"Streaming is not supported"', "S401")
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "high"}
    second = await stage.fallback(ok("done"))
    stage.target()
    settings = msgspec.structs.replace(
        stage.target(1).settings, max_output_tokens=70, reasoning_effort="high"
    )
    stage.targets[1] = msgspec.structs.replace(stage.target(1), settings=settings)
    await stage.run()
    (request,) = second.requests
    assert request.max_tokens == 70
    assert (request.body["reasoning_effort"], request.stream) == ("high", True)


async def test_the_fallback_is_told_about_lost_calls(play: Play) -> None:
    stage = await play(*[lost_note(3000)] * 3)
    second = await stage.fallback(ok("done"))
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 4)
    assert "`note` (cut off after 3,009 bytes" in second.requests[0].last_user_text
    assert "came from another model" in second.requests[0].last_user_text
    assert "Another model" not in stage.asked(3)


async def test_the_fallback_is_not_told_about_the_switch_if_nothing_was_lost(
    play: Play,
) -> None:
    stage = await play("S401")
    second = await stage.fallback(ok("done"))
    await stage.run()
    assert second.requests[0].last_user_text == "go"


async def test_reasoning_is_not_sent_to_another_model(play: Play) -> None:
    stage = await play('H R"deep" C(0,c1,read,{"path":"a"}) F tool_calls D', "S401")
    second = await stage.fallback(ok("done"))
    await stage.run()
    assert "deep" not in second.requests[0].raw.decode()


async def test_a_target_with_an_open_breaker_is_skipped_at_once(play: Play) -> None:
    stage = await play(ok("never asked"))
    await stage.fallback(calls(READ_A), ok("done"))
    for _ in range(2):
        stage.learned().breaker.record_stall(stage.clock.monotonic())
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 2)
    assert stage.server.requests == []
    assert stage.notices == ["N5"]


async def test_a_turn_stays_with_the_model_that_answers(play: Play) -> None:
    """The primary is tried again in the next turn."""
    stage = await play(ok("the first is back"))

    def later(body: dict[str, Any]) -> Script:
        stage.clock.ahead = 120.0
        return ok("done") if body["messages"][-1]["role"] == "tool" else calls(READ_A)

    await stage.fallback(later)
    for _ in range(2):
        stage.learned().breaker.record_stall(stage.clock.monotonic())
    assert (await stage.run()).text == "done"
    assert stage.notices == ["N5"]
    assert (await stage.run()).text == "the first is back"


async def test_two_stalls_open_the_breaker_for_all_turns(play: Play) -> None:
    stage = await play(*["H HANG"] * 2)
    await stage.fallback(ok("done"))
    await stage.run()
    assert stage.learned().breaker.open_until is not None
    assert stage.learned(1).breaker.open_until is None


async def test_an_answer_closes_the_breaker_again(play: Play) -> None:
    stage = await play("H HANG", ok("done"))
    await stage.run()
    stage.learned().breaker.record_stall(stage.clock.monotonic())
    assert stage.learned().breaker.open_until is None


async def test_a_cancelled_probe_frees_the_probe(play: Play) -> None:
    stage = await play('H T"abc" HANG')
    await stage.fallback(ok("done"))
    breaker = stage.learned().breaker
    for _ in range(2):
        breaker.record_stall(stage.clock.monotonic())
    stage.clock.ahead = 120.0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.text_shown.wait()
        task.cancel()
    assert breaker.allows_request(stage.clock.monotonic())


async def test_a_probe_cancelled_before_its_request_frees_the_probe(
    play: Play,
) -> None:
    stage = await play("H HANG")  # the summary request precedes the step's request
    stage.settings = {"context_window": 2000}
    breaker = stage.learned().breaker
    for _ in range(2):
        breaker.record_stall(stage.clock.monotonic())
    stage.clock.ahead = 120.0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run(*OLD))
        async with asyncio.timeout(5):
            await stage.server.request(1)
        task.cancel()
    assert breaker.allows_request(stage.clock.monotonic())
