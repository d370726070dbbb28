"""Whole turns against scripted model servers: steps, notices and endings."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from agent.answer.reasoning_blocks import ReasoningBlocks, decode_reasoning
from agent.events import Notice, StepDone, TextDelta, ToolStarted, TurnDone, TurnEnding, VerdictName
from agent.model.usage import Usage
from agent.settings import PriceSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from agent.turn import TurnLimits
from sessions.records import Message, ToolCall
from sessions.values.notices import NoticeId
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import always
from tests.unit.agent.turn_kit import CLOCKS, GO, OLD, PAY, READ_A, TOO_LONG, Play, note

pytestmark = pytest.mark.quick

# --- turns without failures -------------------------------------------------------------------


async def test_a_plain_answer_ends_the_turn(play: Play) -> None:
    stage = await play('H T"Hel" T"lo" F stop U D')
    done = await stage.run()
    assert done == TurnDone(
        ending=TurnEnding.ANSWERED,
        text="Hello",
        message=Message("assistant", "Hello"),
        attempts=1,
        usage=Usage(10, 5),
        last_verdict=VerdictName.COMPLETE,
    )
    assert stage.events == [TextDelta("Hel"), TextDelta("lo")]
    assert stage.journal.log == ["attempt 1 openai/scripted", "attempt 1 complete"]
    assert stage.journal.rows == []
    assert stage.sent(1) == [
        {"role": "system", "content": "Be kind.\n\n[Note.]"},
        {"role": "user", "content": "go"},
    ]
    assert set(stage.offered(1)) == {tool.name for tool in (*stage.shop.tools(), note)}


async def test_target_settings_are_sent_with_the_request(play: Play) -> None:
    stage = await play(ok("done"))
    stage.settings = {"max_output_tokens": 50, "temperature": 0.1, "reasoning_effort": "low"}
    await stage.run()
    body = stage.server.requests[0].body
    assert stage.server.requests[0].max_tokens == 50
    assert (body["model"], body["temperature"], body["stream"]) == ("scripted", 0.1, True)
    assert body["reasoning_effort"] == "low"


async def test_the_summary_precedes_the_history(play: Play) -> None:
    stage = await play(ok("done"))
    stage.task = {"summary": "They like tea."}
    await stage.run(Message("user", "a"), Message("assistant", "b"), GO)
    assert [message["role"] for message in stage.sent(1)[1:]] == ["user", "assistant", "user"]
    assert "They like tea." in stage.sent(1)[1]["content"]


async def test_tools_run_between_steps_and_their_rows_are_replayed_unchanged(play: Play) -> None:
    stage = await play(
        'H T"Let me see." C(0,c1,read,{"path": "a"}) C(1,c2,pay,{"amount":5}) F tool_calls U D',
        ok("done"),
    )
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (TurnEnding.ANSWERED, "done", 2)
    assert done.tools_run == ("read a", "pay 5")
    assert done.usage == Usage(20, 10)
    assert done.message == Message("assistant", "done")
    assert stage.journal.log == [
        "attempt 1 openai/scripted",
        "attempt 1 complete",
        "step",
        "started c1 read",
        "finished c1 ok",
        "started c2 write",
        "finished c2 ok",
        "attempt 2 openai/scripted",
        "attempt 2 complete",
    ]
    first, *results = stage.journal.rows
    assert first.content == "Let me see."
    assert [call.arguments for call in first.tool_calls] == ['{"path": "a"}', '{"amount":5}']
    assert [row.content for row in results] == ["content of a", "paid 5"]
    assert stage.shop.keys == ["s1:t1:c2"]
    roles = [message["role"] for message in stage.sent(2)]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert stage.sent(2)[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "a"}'
    kinds = [type(event) for event in stage.events]
    assert kinds.index(StepDone) < kinds.index(ToolStarted)


async def test_the_journal_records_the_attempt_of_each_call_and_request_hashes(
    play: Play,
) -> None:
    stage = await play("S500", calls(READ_A), "H RST", calls(PAY), ok("done"))
    await stage.run()
    assert stage.journal.brought == {"c1": 2, "c2": 4}
    hashes = [each.request_hash for each in stage.journal.attempts if each]
    assert hashes[0] == hashes[1]  # identical requests
    assert hashes[2] == hashes[3]
    assert len(set(hashes)) == 3
    assert {len(each) for each in hashes} == {32}


async def test_reasoning_is_stored_with_the_answer(play: Play) -> None:
    stage = await play(
        'H R"look first" C(0,c1,read,{"path":"a"}) F tool_calls D', 'H R"seen" T"done" F stop D'
    )
    done = await stage.run()
    assert done.message is not None
    thoughts = [
        decode_reasoning(r.reasoning, "openai/scripted")
        for r in (stage.journal.rows[0], done.message)
    ]
    assert thoughts == [
        ReasoningBlocks("openai/scripted", "look first"),
        ReasoningBlocks("openai/scripted", "seen"),
    ]


async def test_a_configured_price_sets_the_cost_of_the_turn(play: Play) -> None:
    stage = await play(calls(READ_A), ok("done"))
    stage.settings = {"price": PriceSettings(input=1.0, output=2.0)}
    done = await stage.run()
    assert done.usage.cost == pytest.approx((20 * 1.0 + 10 * 2.0) / 1_000_000)


async def test_steers_reach_the_model_after_the_next_tool_result(play: Play) -> None:
    stage = await play(calls(READ_A), ok("done"))
    stage.steered = [(Message("user", "and hurry"),)]
    await stage.run()
    assert [message["role"] for message in stage.sent(2)][-2:] == ["tool", "user"]
    assert stage.asked(2) == "and hurry"


async def test_calls_without_an_id_get_a_unique_id(play: Play) -> None:
    stage = await play(
        'H C(0,-,read,{"path":"a"}) F tool_calls D',
        'H C(0,-,read,{"path":"b"}) F tool_calls D',
        ok("done"),
    )
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["call_t1_1_0", "call_t1_2_0"]


async def test_a_call_id_from_the_history_is_not_reused(play: Play) -> None:
    stage = await play(calls(READ_A), calls(READ_A), ok("done"))
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["c1", "c1_2"]


async def test_three_steps_without_a_runnable_call_end_the_turn(play: Play) -> None:
    stage = await play(always(calls(("", "zzz", "{}"))))
    done = await stage.run()
    assert (done.ending, done.attempts) == (TurnEnding.FAILED, 3)
    assert "tool calls that cannot be run" in done.cause
    assert done.message is None


async def test_a_runnable_call_resets_the_count_of_refused_steps(play: Play) -> None:
    wrong = calls(("", "zzz", "{}"))
    stage = await play(wrong, wrong, calls(READ_A), wrong, ok("done"))
    assert (await stage.run()).text == "done"


# --- the step limit ---------------------------------------------------------------------------


async def test_the_last_step_requests_a_summary_without_tools(play: Play) -> None:
    def insatiable(body: dict[str, Any]) -> Script:
        if "tools" not in body:
            return ok("this is how far I came")
        return calls(("", "read", f'{{"path":"{len(body["messages"])}"}}'))

    stage = await play(insatiable)
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (
        TurnEnding.ANSWERED,
        "this is how far I came",
        6,
    )
    assert len(stage.shop.effects) == 5
    assert "used all your steps" in stage.asked(6)
    assert all("used all your steps" not in row.content for row in stage.journal.rows)


@pytest.mark.parametrize(
    ("last", "ending", "words"),
    [
        (calls(READ_A), TurnEnding.FAILED, "used all its steps"),
        ('H T"so far" C(0,c9,read,{"path":"z"}) F tool_calls D', TurnEnding.ANSWERED, ""),
        ("S400", TurnEnding.FAILED, "refused"),
    ],
)
async def test_calls_in_the_final_summary_are_ignored(
    play: Play, last: Script, ending: TurnEnding, words: str
) -> None:
    stage = await play(calls(READ_A), last)
    stage.limits = TurnLimits(max_steps=1)
    done = await stage.run()
    assert done.ending is ending
    assert words in done.cause
    assert stage.shop.effects == ["read a"]


# --- notices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["", 'T"abc "'])
async def test_a_short_recovery_emits_no_notice(play: Play, shown: str) -> None:
    stage = await play(f"H {shown} RST", ok("done"))
    await stage.run()
    assert stage.notices == []


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("", Notice(NoticeId.RECONNECTING, {"provider": "openai"})),
        ('T"abc "', Notice(NoticeId.ANSWER_CONTINUES, {})),
    ],
)
async def test_a_long_recovery_emits_one_notice(play: Play, shown: str, told: Notice) -> None:
    stage = await play(f"H {shown} RST", 'W.3 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.6)}
    done = await stage.run()
    assert done.text.endswith("done")
    assert [event for event in stage.events if isinstance(event, Notice)] == [told]
    assert stage.events.index(told) == (1 if shown else 0)  # before the rest of the text


async def test_a_silence_notice_contains_the_remaining_time(play: Play) -> None:
    stage = await play('W.25 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.2)}
    await stage.run()
    assert stage.events[0] == Notice(NoticeId.NO_OUTPUT, {"model": "scripted", "n": 0, "d": 0})


async def test_a_rate_limit_wait_emits_a_notice(play: Play) -> None:
    stage = await play('S429:{"retry-after":"0.01"}', ok("done"))
    await stage.run()
    assert stage.events[0] == Notice(NoticeId.RATE_LIMITED, {"provider": "openai", "n": 0})


async def test_a_slow_compaction_emits_no_retry_notice(play: Play) -> None:
    stage = await play(TOO_LONG, 'W.3 H T"An old story." F stop D', 'W.3 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=1.2)}
    await stage.run(*OLD)
    assert stage.notices == ["N12"]


async def test_a_target_switch_cancels_the_retry_notice(play: Play) -> None:
    stage = await play("S401")
    await stage.fallback('W.4 H T"done" F stop D')
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, notice_after=0.6)}
    await stage.run()
    assert stage.notices == ["N5"]


# --- budgets ----------------------------------------------------------------------------------


@tool(risk=Risk.EXEC)
async def launch(_context: ToolContext) -> str:
    """Start it."""
    return "gone"


async def test_time_spent_on_approval_does_not_count_as_time_without_progress(play: Play) -> None:
    stage = await play(calls(("c1", "launch", "{}")), "H RST", ok("done"))
    stage.more_tools = (launch,)

    async def no_after_a_while(_tool: Tool, _call: ToolCall) -> str:
        stage.clock.ahead += 1700.0
        return "denied."

    stage.approve = no_after_a_while
    done = await stage.run()
    assert (done.ending, done.text) == (TurnEnding.ANSWERED, "done")


async def test_completed_tools_reset_the_compaction_limit(play: Play) -> None:
    full = 'S400"This model\'s maximum context length is 100000 tokens."'
    rounds = [
        script
        for number in range(4)
        for script in (
            full,
            ok(f"Story {number}."),
            calls((f"c{number}", "read", json.dumps({"path": f"part {number}"}))),
        )
    ]
    stage = await play(*rounds, ok("done"))
    stage.limits = TurnLimits(max_steps=9)
    old = [
        Message(role, "words of old " * 200) for _ in range(15) for role in ("user", "assistant")
    ]
    done = await stage.run(*old, GO)
    assert (done.ending, done.text) == (TurnEnding.ANSWERED, "done")
    assert len(stage.journal.summaries) == 4


# --- cancellation -----------------------------------------------------------------------------


async def test_cancelling_the_turn_closes_the_connection(play: Play) -> None:
    stage = await play('H T"abc" T"def" HANG')
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.text_shown.wait()
            received = await stage.server.request(1)
        told = loop.time()
        task.cancel()
    async with asyncio.timeout(5):
        await received.closed.wait()
    assert task.cancelled()
    assert received.closed_at is not None
    assert received.closed_at - told < 0.1
    assert stage.shown.startswith("abc")
    assert stage.journal.verdicts == ["open"]
    assert len(stage.server.requests) == 1


async def test_cancelling_the_turn_cancels_the_running_tool(play: Play) -> None:
    stage = await play(calls(("c1", "sleepy", "{}")))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.shop.entered.wait()
        task.cancel()
    assert task.cancelled()
    assert stage.shop.ended == ["cancelled"]
    assert stage.journal.log[-1] == "started c1 write"


@pytest.mark.parametrize(
    ("script", "notice"),
    [
        (
            'S429:{"retry-after":"50"}',
            Notice(NoticeId.RATE_LIMITED, {"provider": "openai", "n": 50}),
        ),
        (
            'S503:{"retry-after":"50"}',
            Notice(NoticeId.RECONNECTING, {"provider": "openai"}),
        ),
    ],
)
async def test_a_long_wait_emits_a_notice_and_can_be_cancelled(
    play: Play, script: str, notice: Notice
) -> None:
    stage = await play(script)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.told.wait()
        task.cancel()
    assert task.cancelled()
    assert stage.events == [notice]
    assert len(stage.server.requests) == 1


async def test_a_turn_cancelled_during_a_wait_emits_no_further_events(play: Play) -> None:
    stage = await play("S500")
    stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, backoff=0.1, notice_after=0.9)}
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stage.run())
        async with asyncio.timeout(5):
            await stage.journal.judged.wait()
        loop.call_later(0.02, task.cancel)
    later = asyncio.Event()
    loop.call_later(0.3, later.set)
    async with asyncio.timeout(5):
        await later.wait()
    assert task.cancelled()
    assert stage.notices == []
