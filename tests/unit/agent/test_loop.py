"""Whole turns, against a scripted model server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.events import AgentEvent, Ending, Notice, StepDone, TextDelta, ToolStarted, TurnDone
from agent.loop import TurnLimits, TurnTask, run_turn
from agent.providers.registry import Target
from agent.tools.registry import ToolRegistry
from sessions.records import Message
from tests.fakes.agent_kit import WORKSPACE, LoopClock, MemoryJournal, Workshop, openai_target
from tests.fakes.model_script import Script, body_of, calls, cut, ok
from tests.fakes.model_server import Handler, ModelServer, always

GO = Message("user", "go")


class Stage:
    """One turn: what it was given, what it told, what it wrote down."""

    def __init__(self, *scripts: Script | Handler) -> None:
        self.server = ModelServer(*scripts)
        self.shop = Workshop()
        self.journal = MemoryJournal()
        self.events: list[AgentEvent] = []
        self.steered: list[tuple[Message, ...]] = []
        self.limits = TurnLimits(max_steps=5, tool_timeout=1.0)
        self.text_shown = asyncio.Event()
        self.told = asyncio.Event()
        self.target: Target | None = None

    async def run(self, *history: Message) -> TurnDone:
        self.target = self.target or openai_target(self.server.url)
        task = TurnTask(
            turn_id="t1",
            session_id="s1",
            system="Be kind.",
            history=history or (GO,),
            workspace=WORKSPACE,
            notes=("Note.",),
        )
        async with asyncio.timeout(10):
            return await run_turn(
                task,
                target=self.target,
                tools=ToolRegistry(self.shop.tools()),
                journal=self.journal,
                clock=LoopClock(),
                emit=self._emit,
                steers=self._steers,
                limits=self.limits,
                randomness=lambda: 1.0,
            )

    def _emit(self, event: AgentEvent) -> None:
        self.events.append(event)
        if isinstance(event, TextDelta):
            self.text_shown.set()
        if isinstance(event, Notice):
            self.told.set()

    async def _steers(self) -> tuple[Message, ...]:
        return self.steered.pop(0) if self.steered else ()

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def notices(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, Notice)]

    def sent(self, number: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.server.requests[number - 1].body["messages"]
        return messages


class Play:
    """Makes stages, and closes what they opened."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    async def __call__(self, *scripts: Script | Handler) -> Stage:
        stage = Stage(*scripts)
        await stage.server.__aenter__()
        self.stages.append(stage)
        return stage


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    stages = Play()
    yield stages
    for stage in stages.stages:
        if stage.target is not None:
            await stage.target.provider.aclose()
        await stage.server.__aexit__(None, None, None)


READ_A = ("c1", "read", '{"path":"a"}')
PAY = ("c2", "pay", '{"amount":5}')


async def test_a_plain_answer_ends_the_turn(play: Play) -> None:
    stage = await play('H T"Hel" T"lo" F stop U D')
    done = await stage.run()
    assert done == TurnDone(
        Ending.ANSWERED,
        "Hello",
        message=Message("assistant", "Hello"),
        tries=1,
        input_tokens=10,
        output_tokens=5,
    )
    assert stage.events == [TextDelta("Hel"), TextDelta("lo")]
    assert stage.journal.log == ["attempt 1 openai/scripted", "attempt 1 complete"]
    assert stage.journal.rows == []
    assert stage.sent(1) == [
        {"role": "system", "content": "Be kind.\n\n[Note.]"},
        {"role": "user", "content": "go"},
    ]
    assert {tool["function"]["name"] for tool in stage.server.requests[0].body["tools"]} == {
        tool.name for tool in stage.shop.tools()
    }


async def test_tools_run_between_steps_and_their_rows_go_back_exactly(play: Play) -> None:
    stage = await play(
        'H T"Let me see." C(0,c1,read,{"path": "a"}) C(1,c2,pay,{"amount":5}) F tool_calls U D',
        ok("done"),
    )
    done = await stage.run()
    assert (done.ending, done.text, done.tries, done.tools) == (
        Ending.ANSWERED,
        "done",
        2,
        ("read", "pay"),
    )
    assert (done.input_tokens, done.output_tokens) == (20, 10)
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
    assert [message["role"] for message in stage.sent(2)] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert stage.sent(2)[2]["tool_calls"][0]["function"]["arguments"] == '{"path": "a"}'
    kinds = [type(event) for event in stage.events]
    assert kinds.index(StepDone) < kinds.index(ToolStarted)


async def test_steering_reaches_the_model_after_the_next_tool_result(play: Play) -> None:
    stage = await play(calls(READ_A), ok("done"))
    stage.steered = [(Message("user", "and hurry"),)]
    await stage.run()
    assert [message["role"] for message in stage.sent(2)][-2:] == ["tool", "user"]
    assert stage.sent(2)[-1]["content"] == "and hurry"


async def test_calls_without_an_id_get_one_that_no_other_call_has(play: Play) -> None:
    stage = await play(
        'H C(0,-,read,{"path":"a"}) F tool_calls D',
        'H C(0,-,read,{"path":"b"}) F tool_calls D',
        ok("done"),
    )
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["call_t1_1_0", "call_t1_2_0"]


async def test_an_id_that_the_history_holds_is_not_used_again(play: Play) -> None:
    stage = await play(calls(READ_A), calls(READ_A), ok("done"))
    await stage.run()
    ids = [row.tool_call_id for row in stage.journal.rows if row.role == "tool"]
    assert ids == ["c1", "c1_2"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("RST", id="reset before headers"),
        pytest.param("H RST", id="reset after headers"),
        pytest.param("H EOF", id="empty body"),
        pytest.param('H R"hm" RST', id="reset while thinking"),
        pytest.param("H C(0,c1,pay,'{\"amount\": 1') RST", id="half a call"),
        pytest.param('H C(0,c1,pay,{"amount":1}) EOF', id="a call that nothing proves"),
        pytest.param("H C(0,c1,pay,-) EOF", id="only a name"),
        pytest.param("S500", id="server error"),
        pytest.param('S429:{"retry-after":"0.01"}', id="slow down"),
        pytest.param("H F stop D", id="empty answer"),
        pytest.param("H HANG", id="silence"),
    ],
)
async def test_trouble_before_any_text_is_tried_again_and_nothing_runs(
    play: Play, first: str
) -> None:
    stage = await play(first, ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "done", 2)
    assert stage.shop.effects == []
    assert stage.journal.rows == []
    assert stage.server.requests[0].body == stage.server.requests[1].body


async def test_after_two_repeats_the_turn_ends_with_the_cause(play: Play) -> None:
    stage = await play(always("H RST"))
    done = await stage.run()
    assert (done.ending, done.text, done.message, done.tries) == (Ending.FAILED, "", None, 3)
    assert "broke off" in done.cause
    assert stage.journal.verdicts == ["cut", "cut", "cut"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("S400", "refused the request (scripted error)"),
        ("S401", "key"),
        ("S402", "account"),
        ('S429:{"retry-after":"61"}', "slow down"),
        ('H J{"error":{"message":"x","code":"context_length_exceeded"}}', "too long"),
    ],
)
async def test_what_would_fail_again_is_not_tried_again(
    play: Play, script: str, words: str
) -> None:
    stage = await play(script)
    done = await stage.run()
    assert (done.ending, done.tries) == (Ending.FAILED, 1)
    assert words in done.cause


@pytest.mark.parametrize(
    ("script", "text", "words"),
    [
        ('H T"The quick " RST', "The quick ", "broke off"),
        ('H T"The quick " HANG', "The quick ", "stopped sending"),
        ('H T"The quick " F length D', "The quick ", "output limit"),
        ('H T"I will not." F content_filter D', "I will not.", "declined"),
        ('H T"Paying. " C(0,c1,pay,\'{"amount": 1\') RST', "Paying. ", "broke off"),
    ],
)
async def test_what_was_shown_is_kept_and_not_asked_for_again(
    play: Play, script: str, text: str, words: str
) -> None:
    stage = await play(script)
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.FAILED, text, 1)
    assert stage.shown == text
    assert words in done.cause
    assert done.message == Message("assistant", text, interrupted=done.cause)
    assert stage.shop.effects == []


async def test_a_wait_that_the_service_asked_for_is_told(play: Play) -> None:
    stage = await play('S429:{"retry-after":"0.01"}', ok("done"))
    await stage.run()
    assert stage.events[0] == Notice("N6", {"provider": "openai", "n": 0})


async def test_a_short_recovery_is_not_worth_a_word(play: Play) -> None:
    stage = await play("H RST", ok("done"))
    await stage.run()
    assert stage.notices == []


async def test_the_last_step_asks_for_a_summary_without_tools(play: Play) -> None:
    def insatiable(body: dict[str, Any]) -> Script:
        if "tools" not in body:
            return ok("this is how far I came")
        return calls(("", "read", f'{{"path":"{len(body["messages"])}"}}'))

    stage = await play(insatiable)
    done = await stage.run()
    assert (done.ending, done.text, done.tries) == (Ending.ANSWERED, "this is how far I came", 6)
    assert len(stage.shop.effects) == 5
    assert "used all your steps" in stage.sent(6)[-1]["content"]
    assert all("used all your steps" not in row.content for row in stage.journal.rows)


@pytest.mark.parametrize(
    ("last", "ending", "words"),
    [
        (calls(READ_A), Ending.FAILED, "used up all its steps"),
        ('H T"so far" C(0,c9,read,{"path":"z"}) F tool_calls D', Ending.ANSWERED, ""),
        ("S400", Ending.FAILED, "refused"),
    ],
)
async def test_calls_in_the_summary_do_not_count(
    play: Play, last: Script, ending: Ending, words: str
) -> None:
    stage = await play(calls(READ_A), last)
    stage.limits = TurnLimits(max_steps=1)
    done = await stage.run()
    assert done.ending is ending
    assert words in done.cause
    assert stage.shop.effects == ["read a"]


async def test_every_cut_of_an_answer_with_a_payment_pays_at_most_once(play: Play) -> None:
    whole = 'H T"ok" C(0,c1,pay,{"amount":5}) F tool_calls U D'
    length = len(body_of(whole))
    for after in range(0, length, 11):
        for ending in ("RST", "EOF"):
            stage = await play(cut(whole, after, ending), *[ok("done")] * 3)
            done = await stage.run()
            assert stage.shop.effects in ([], ["pay 5"]), (after, ending)
            assert done.text or done.cause


async def test_stopping_closes_the_connection_and_keeps_the_visible_text(play: Play) -> None:
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
    assert stage.journal.kept == stage.shown
    assert stage.shown.startswith("abc")
    assert stage.journal.verdicts == ["open"]
    assert len(stage.server.requests) == 1


async def test_stopping_while_a_tool_runs_cancels_it(play: Play) -> None:
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
        ('S429:{"retry-after":"50"}', Notice("N6", {"provider": "openai", "n": 50})),
        ('S503:{"retry-after":"50"}', Notice("N2", {"provider": "openai", "k": 1, "max": 2})),
    ],
)
async def test_a_long_wait_is_told_and_can_be_stopped(
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


async def test_long_text_is_kept_while_it_grows(play: Play) -> None:
    kept: list[str] = []

    class Keeping(MemoryJournal):
        def checkpoint(self, text: str) -> None:
            kept.append(text)

    stage = await play(("H " + 'T"' + "x" * 600 + '" ') + ('T"' + "y" * 600 + '" ') + "F stop D")
    stage.journal = Keeping()
    await stage.run()
    assert kept == ["x" * 600 + "y" * 600]
