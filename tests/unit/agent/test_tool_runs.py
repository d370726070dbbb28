import asyncio
import logging

import pytest

from agent.events import AgentEvent, ToolFinished, ToolStarted
from agent.slots import StepCall, shape_of
from agent.tools import run
from agent.tools.contract import Tool
from agent.tools.registry import ToolRegistry
from agent.tools.run import Approve, ToolRunner
from sessions.records import ToolCall
from tests.fakes.agent_kit import WORKSPACE, LoopClock, MemoryJournal, Workshop


class Bench:
    def __init__(self, approve: Approve | None = None) -> None:
        self.shop = Workshop()
        self.journal = MemoryJournal()
        self.events: list[AgentEvent] = []
        self.runner = ToolRunner(
            ToolRegistry(self.shop.tools()),
            self.journal,
            self.events.append,
            clock=LoopClock(),
            workspace=WORKSPACE,
            key="s:t",
            approve=approve,
        )

    async def run(self, *calls: tuple[str, str, str]) -> list[str]:
        made = [StepCall(i, name, args, shape_of(args), sealed=True) for i, name, args in calls]
        async with asyncio.timeout(5):
            rows = await self.runner.run(made)
        assert [row.tool_call_id for row in rows] == [call_id for call_id, _, _ in calls]
        assert list(rows) == self.journal.rows
        return [row.content for row in rows]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_call_is_written_down_before_and_after_its_effect(bench: Bench) -> None:
    assert await bench.run(("c1", "pay", '{"amount":5}')) == ["paid 5"]
    assert bench.journal.log == ["started c1 write", "finished c1 ok"]
    assert bench.shop.effects == ["pay 5"]
    assert bench.shop.keys == ["s:t:c1"]
    assert bench.events == [
        ToolStarted("c1", "pay", "5", "💶"),
        ToolFinished("c1", "pay", ok=True),
    ]
    assert bench.runner.ran == ["pay"]


async def test_a_tool_whose_start_cannot_be_written_down_does_not_run(bench: Bench) -> None:
    bench.journal.refuses_tools = True
    with pytest.raises(OSError, match="disk full"):
        await bench.run(("c1", "pay", '{"amount":5}'))
    assert bench.shop.effects == []
    assert bench.events == []


async def test_a_refused_call_never_starts_but_has_its_result(bench: Bench) -> None:
    (said,) = await bench.run(("c1", "pay", '{"amount":'))
    assert "NOT run" in said
    assert bench.journal.log == ["finished c1 failed"]
    assert bench.events == []


async def test_neighbours_that_only_read_run_side_by_side_in_the_order_of_the_calls(
    bench: Bench,
) -> None:
    calls = [(f"c{n}", "read", f'{{"path":"{n}"}}') for n in range(10)]
    assert await bench.run(*calls) == [f"content of {n}" for n in range(10)]
    assert bench.shop.at_once == run.MOST_AT_ONCE
    assert [line for line in bench.journal.log if line.startswith("finished")] == [
        f"finished c{n} ok" for n in range(10)
    ]


async def test_a_call_with_effects_waits_for_those_before_it_and_holds_up_those_after(
    bench: Bench,
) -> None:
    await bench.run(
        ("c1", "read", '{"path":"a"}'),
        ("c2", "pay", '{"amount":1}'),
        ("c3", "read", '{"path":"b"}'),
    )
    assert bench.shop.effects == ["read a", "pay 1", "read b"]
    assert bench.shop.at_once == 1


async def test_the_same_call_twice_in_one_answer_runs_once_and_both_get_the_result(
    bench: Bench,
) -> None:
    said = await bench.run(("c1", "pay", '{"amount":5}'), ("c2", "pay", '{"amount":5}'))
    assert said == ["paid 5", "paid 5"]
    assert bench.shop.effects == ["pay 5"]
    assert bench.journal.log == ["started c1 write", "finished c1 ok", "finished c2 ok"]


async def test_one_that_fails_says_so_and_its_neighbours_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    said = await bench.run(("c1", "broken", "{}"), ("c2", "pay", '{"amount":1}'))
    assert said == ["broken failed: RuntimeError: no luck", "paid 1"]
    assert bench.journal.log[1] == "finished c1 failed"
    assert "tool broken failed" in caplog.text


async def test_one_that_takes_too_long_is_cancelled_and_its_effect_called_unknown(
    bench: Bench,
) -> None:
    (said,) = await bench.run(("c1", "slow", "{}"))
    assert "given up after 0.05 s" in said
    assert "effect is unknown" in said
    assert bench.shop.ended == ["cancelled"]
    assert bench.journal.log == ["started c1 write", "finished c1 failed"]


async def test_one_that_does_not_end_when_told_is_left_behind_and_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GRACE", 0.05)
    with caplog.at_level(logging.WARNING):
        (said,) = await bench.run(("c1", "stubborn", "{}"))
    assert "given up" in said
    assert "stubborn does not end although it was cancelled" in caplog.text
    assert len(run._let_go) == 1
    bench.shop.release.set()
    async with asyncio.timeout(5):
        await asyncio.wait(run._let_go)
    await asyncio.sleep(0)  # its farewell is a callback of the loop
    assert not run._let_go


async def test_stopping_cancels_what_runs_at_once_and_starts_nothing_more(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "sleepy", "{}"), ("c2", "pay", '{"amount":1}')))
        async with asyncio.timeout(5):
            await bench.shop.entered.wait()
        task.cancel()
    assert task.cancelled()
    assert bench.shop.ended == ["cancelled"]
    assert bench.shop.effects == []
    assert bench.journal.log == ["started c1 write"]


async def test_stopping_does_not_wait_for_a_tool_that_does_not_end(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "stubborn", "{}")))
        async with asyncio.timeout(5):
            await bench.shop.entered.wait()
        told = loop.time()
        task.cancel()
    assert task.cancelled()
    assert loop.time() - told < 0.3
    bench.shop.release.set()
    async with asyncio.timeout(5):
        await asyncio.wait(set(run._let_go))


async def test_a_tool_that_cancels_itself_does_not_take_the_turn_with_it(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.run(("c1", "sleepy", "{}")))
        async with asyncio.timeout(5):
            await bench.shop.entered.wait()
        (inner,) = (t for t in asyncio.all_tasks() if t.get_name() == "tool sleepy")
        inner.cancel()
    assert "broke off by itself" in task.result()[0]


async def test_long_results_are_cut_with_a_word_about_it(bench: Bench) -> None:
    said = await bench.run(*((f"c{n}", "long", f'{{"size":{150_000 + n}}}') for n in range(3)))
    assert [len(text) // 1000 for text in said] == [100, 100, 0]
    assert said[0].endswith("[50000 more characters were left out]")
    assert said[2].endswith("characters were left out]")


async def test_what_needs_approval_does_not_run_where_nobody_can_give_it(bench: Bench) -> None:
    (said,) = await bench.run(("c1", "shell", '{"command":"ls"}'))
    assert "NOT run" in said
    assert "approval" in said
    assert bench.shop.effects == []
    assert bench.journal.log == ["finished c1 failed"]


async def test_an_approver_decides_about_the_exact_call() -> None:
    asked: list[ToolCall] = []

    async def approve(_tool: Tool, call: ToolCall) -> str | None:
        asked.append(call)
        return None if "ls" in call.arguments else "nobody allowed it."

    bench = Bench(approve)
    said = await bench.run(("c1", "shell", '{"command":"ls"}'), ("c2", "shell", '{"command":"rm"}'))
    assert said == ["ran", "shell has NOT run: nobody allowed it."]
    assert bench.shop.effects == ["shell ls"]
    assert [call.arguments for call in asked] == ['{"command":"ls"}', '{"command":"rm"}']
