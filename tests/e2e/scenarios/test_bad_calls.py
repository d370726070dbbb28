"""Complete calls that cannot run unchanged, and the execution of tools."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.settings import AgentSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import CHAT, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, calls, steps

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
READ = calls(("c1", "read", '{"path":"a"}'))


def results(rows: list[str]) -> list[str]:
    return [row.removeprefix("T:") for row in rows if row.startswith("T:")]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["raed", "reed", "reads"])
async def test_a_misspelt_tool_name_runs_nothing(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path, "chat", calls(("c1", name, '{"path":"a"}')), OK) as scene:
        await scene.go()
        assert scene.desk.ran == []
        (result,) = results(await scene.history())
        assert f"there is no tool {name!r}. The nearest names are: read" in result
        assert scene.asked(2)[1]["tool_calls"][0]["name"] == name
        await scene.check()


@pytest.mark.parametrize("name", ["READ", "Read"])
async def test_letter_case_of_a_tool_name_is_repaired(tmp_path: Path, name: str) -> None:
    async with stage(tmp_path, "chat", calls(("c1", name, '{"path":"a"}')), OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["read a"]
        assert await scene.history() == ["U:go", "A{read}", "T:content of a", "A:done"]
        assert scene.asked(2)[1]["tool_calls"][0]["name"] == "read"
        await scene.check()


@each_protocol
async def test_an_unknown_tool_name_is_answered_with_the_nearest_names(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = calls(("c1", "zzz", '{"path":"a"}'), ("c2", "read", '{"path":"b"}'))
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        unknown, known = results(await scene.history())
        assert "there is no tool 'zzz'" in unknown
        assert "read" in unknown
        assert known == "content of b"
        assert scene.desk.ran == ["read b"]
        assert scene.shown() == ["done"]
        await scene.check()


async def test_a_call_without_a_name_is_answered_without_a_list_of_tools(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", calls(("c1", "", '{"path":"a"}')), OK) as scene:
        await scene.go()
        (result,) = results(await scene.history())
        assert result == "Nothing has run: the call has no tool name."
        assert scene.desk.ran == []
        assert scene.shown() == ["done"]
        await scene.check()


# --- arguments -----------------------------------------------------------------------------------


REPAIRED = {
    "a comma too many": ('{"path": "a",}', "read a"),
    "a code fence": ('```json\n{"path": "a"}\n```', "read a"),
    "a line break in a text": ('{"path": "a\nb"}', "read a\nb"),
}


@pytest.mark.parametrize(("arguments", "effect"), REPAIRED.values(), ids=REPAIRED)
async def test_unambiguous_json_mistakes_are_repaired(
    tmp_path: Path, arguments: str, effect: str
) -> None:
    async with stage(tmp_path, "chat", calls(("c1", "read", arguments)), OK) as scene:
        await scene.go()
        assert scene.desk.ran == [effect]
        assert len(scene.requests) == 2
        sent = scene.asked(2)[1]["tool_calls"][0]["arguments"]
        assert isinstance(json.loads(sent), dict)
        await scene.check()


@pytest.mark.parametrize("arguments", ['{"amount": 5, "x}', '{"amount": }', '["amount", 5]'])
@each_protocol
async def test_unreadable_arguments_are_answered_with_the_error_position(
    tmp_path: Path, protocol: ProtocolName, arguments: str
) -> None:
    script = calls(("c1", "pay", arguments))
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        assert scene.desk.ran == []
        (result,) = results(await scene.history())
        assert "pay has NOT run, its arguments cannot be read" in result
        assert "(byte " in result or "not a JSON object" in result
        assert scene.shown() == ["done"]
        assert "N4" not in scene.told.ids
        assert len(scene.requests) == 2
        await scene.check(readable=False)


UNFIT = ['{"amount": "much"}', "{}", '{"amount": 1, "other": 2}', '{"amount": 1.5}']


@pytest.mark.parametrize("arguments", UNFIT)
async def test_arguments_that_violate_the_schema_do_not_run(tmp_path: Path, arguments: str) -> None:
    async with stage(tmp_path, "chat", calls(("c1", "pay", arguments)), OK) as scene:
        await scene.go()
        assert scene.desk.ran == []
        (result,) = results(await scene.history())
        assert "pay has NOT run, its arguments do not fit" in result
        await scene.check()


async def test_three_answers_in_a_row_without_a_runnable_call_end_the_turn(
    tmp_path: Path,
) -> None:
    bad = [calls((f"c{number}", "pay", '{"amount": }')) for number in range(4)]
    async with stage(tmp_path, "chat", *bad) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 3
        assert "cannot be run" in scene.shown()[-1]
        assert scene.desk.ran == []
        await scene.check(readable=False)


async def test_a_runnable_call_resets_the_count_of_refused_answers(tmp_path: Path) -> None:
    bad = [calls((f"c{number}", "pay", '{"amount": }')) for number in range(4)]
    async with stage(tmp_path, "chat", *bad[:2], READ, *bad[2:], OK) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert scene.desk.ran == ["read a"]
        await scene.check(readable=False)


# --- repeated calls ------------------------------------------------------------------------------


@each_protocol
async def test_duplicate_calls_in_one_answer_run_once(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = calls(("c1", "pay", '{"amount":5}'), ("c2", "pay", '{ "amount": 5 }'))
    async with stage(tmp_path, protocol, script, OK) as scene:
        turn = await scene.go()
        assert scene.desk.ran == ["pay 5"]
        assert results(await scene.history()) == ["paid 5", "paid 5"]
        assert len(await scene.tool_runs(turn)) == 1
        await scene.check()


async def test_the_same_call_with_the_same_result_is_refused_after_five_runs(
    tmp_path: Path,
) -> None:
    again = [calls((f"c{number}", "read", '{"path":"a"}')) for number in range(6)]
    async with stage(tmp_path, "chat", *again, OK) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert scene.desk.ran == ["read a"] * 5
        said = results(await scene.history())
        assert said[0] == "content of a"
        assert "same result 2 times" in said[1]
        assert "read has NOT run" in said[5]
        assert scene.shown() == ["done"]
        await scene.check()


def failing() -> tuple[Tool, list[int]]:
    tried: list[int] = []

    @tool(risk=Risk.READ)
    async def flaky(_context: ToolContext, n: int) -> str:
        """Fail."""
        tried.append(n)
        msg = "no luck"
        raise RuntimeError(msg)

    return flaky, tried


async def test_a_tool_error_becomes_the_result_and_the_turn_continues(tmp_path: Path) -> None:
    flaky, tried = failing()
    async with stage(
        tmp_path, "chat", calls(("c1", "flaky", '{"n":1}')), OK, tools=(flaky,)
    ) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert tried == [1]
        assert results(await scene.history()) == ["flaky failed: RuntimeError: no luck"]
        (run,) = await scene.tool_runs(turn)
        assert run.ok is False
        await scene.check()


async def test_a_tool_that_keeps_failing_is_warned_about_and_then_halted(tmp_path: Path) -> None:
    flaky, tried = failing()
    again = [calls((f"c{n}", "flaky", json.dumps({"n": n}))) for n in range(9)]
    async with stage(tmp_path, "chat", *again, OK, tools=(flaky,)) as scene:
        await scene.go()
        assert tried == list(range(8))
        said = results(await scene.history())
        assert "failed 3 times in a row" in said[2]
        assert "is disabled for the rest of this turn" in said[8]
        await scene.check()


# --- the step limit ------------------------------------------------------------------------------


@each_protocol
async def test_a_turn_that_used_all_its_steps_ends_with_a_summary(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    more = calls(("c2", "read", '{"path":"b"}'))
    last = 'H T"So far: a and b." C(0,c3,pay,{"amount":5}) F tool_calls U D EOF'
    agent = AgentSettings(max_steps=2)
    async with stage(tmp_path, protocol, READ, more, last, agent=agent) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert scene.desk.ran == ["read a", "read b"]
        if protocol == "anthropic":  # requires tool definitions if the history has calls
            assert scene.requests[2].body["tool_choice"] == {"type": "none"}
        else:
            assert scene.requests[2].tools == {}
        assert "used all your steps" in scene.asked(3)[-1]["content"]
        assert (await scene.history())[-1] == "A:So far: a and b."
        assert scene.shown()[-1].endswith("So far: a and b.")
        await scene.check()


async def test_a_turn_out_of_steps_without_a_summary_ends_with_its_cause(tmp_path: Path) -> None:
    agent = AgentSettings(max_steps=1)
    script = calls(("c2", "read", '{"path":"b"}'))
    async with stage(tmp_path, "chat", READ, script, script, agent=agent) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert "all its steps" in scene.shown()[-1]
        assert "read a" in scene.shown()[-1]
        assert scene.desk.ran == ["read a"]
        await scene.check()


# --- running -------------------------------------------------------------------------------------


def meeting(parties: int) -> Tool:
    """Return a tool that completes only if it runs concurrently with others."""
    barrier = asyncio.Barrier(parties)

    @tool(risk=Risk.READ, parallel=True)
    async def meet(_context: ToolContext, who: str) -> str:
        """Wait for the other calls."""
        async with asyncio.timeout(2):
            await barrier.wait()
        return f"met {who}"

    return meet


async def test_parallel_calls_run_concurrently_with_results_in_order(tmp_path: Path) -> None:
    script = calls(*((f"c{n}", "meet", json.dumps({"who": str(n)})) for n in range(3)))
    async with stage(tmp_path, "chat", script, OK, tools=(meeting(3),)) as scene:
        await scene.go()
        assert results(await scene.history()) == ["met 0", "met 1", "met 2"]
        await scene.check()


async def test_one_failing_call_does_not_cancel_its_siblings(tmp_path: Path) -> None:
    flaky, _ = failing()
    script = calls(("c1", "flaky", '{"n":1}'), ("c2", "read", '{"path":"a"}'))
    async with stage(tmp_path, "chat", script, OK, tools=(flaky,)) as scene:
        await scene.go()
        failed, read = results(await scene.history())
        assert failed.startswith("flaky failed")
        assert read == "content of a"
        await scene.check()


@each_protocol
async def test_a_tool_timeout_cancels_the_call_and_reports_an_unknown_effect(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = calls(("c1", "sleepy", '{"s":30}'), ("c2", "pay", '{"amount":5}'))
    agent = AgentSettings(tool_timeout=0.1)
    async with stage(tmp_path, protocol, script, OK, agent=agent) as scene:
        turn = await scene.go()
        assert scene.desk.cancelled == 1
        late, paid = results(await scene.history())
        assert late == "UNKNOWN: sleepy timed out after 0.1 s; its effect is unknown."
        assert paid == "paid 5"
        assert scene.shown() == ["done"]
        assert [run.ok for run in await scene.tool_runs(turn)] == [False, True]
        await scene.check()


def talking() -> Tool:
    @tool(risk=Risk.READ)
    async def talk(_context: ToolContext, size: int) -> str:
        """Say a lot."""
        return "".join(f"{number:07} " for number in range(size // 8))

    return talk


async def test_a_long_result_is_spilled_to_a_readable_file(tmp_path: Path) -> None:
    scene_calls = calls(("c1", "talk", '{"size":20000}'))
    options = {"context_window": 10_000}
    async with stage(tmp_path, "chat", scene_calls, OK, tools=(talking(),), model=options) as scene:
        await scene.go()
        (result,) = results(await scene.history())
        assert len(result) < 2500
        assert "20,000 characters" in result
        assert result.endswith("0002499 ")
        kept = scene.workspace / ".holdfast" / "results" / "c1.txt"
        assert ".holdfast/results/c1.txt" in result
        assert "read_file" in result
        assert len(kept.read_text()) == 20_000
        await scene.check()


async def test_a_spilled_result_can_be_read_further(tmp_path: Path) -> None:
    more = calls(("c2", "read_file", '{"path":".holdfast/results/c1.txt","limit":5}'))
    options = {"context_window": 10_000}
    first = calls(("c1", "talk", '{"size":20000}'))
    async with stage(tmp_path, "chat", first, more, OK, tools=(talking(),), model=options) as scene:
        await scene.go()
        assert "0000001" in results(await scene.history())[1]
        assert "has NOT run" not in results(await scene.history())[1]
        await scene.check()


def keyed() -> tuple[Tool, list[str]]:
    keys: list[str] = []

    @tool(risk=Risk.WRITE)
    async def post(context: ToolContext, text: str) -> str:
        """Post a text."""
        keys.append(context.idempotency_key)
        return f"posted {text}"

    return post, keys


async def test_every_call_has_its_own_idempotency_key(tmp_path: Path) -> None:
    post, keys = keyed()
    script = calls(("c1", "post", '{"text":"x"}'), ("c2", "post", '{"text":"y"}'))
    async with stage(tmp_path, "chat", script, OK, script, OK, tools=(post,)) as scene:
        first = await scene.go()
        second = await scene.go()
        assert len(keys) == len(set(keys)) == 4
        assert [key.endswith(":c1") for key in keys[:2]] == [True, False]
        assert all(first.id in key and first.session_id in key for key in keys[:2])
        assert all(second.id in key for key in keys[2:])
        await scene.check()


def journal_of(order: list[str], look: Callable[[], list[str]]) -> Tool:
    @tool(risk=Risk.WRITE)
    async def witness(_context: ToolContext) -> str:
        """See what is written down at this moment."""
        order.extend(look())
        return "seen"

    return witness


async def test_a_call_is_journalled_before_it_takes_effect(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415 - reads the database file directly

    seen: list[str] = []

    def look() -> list[str]:
        with sqlite3.connect(f"file:{tmp_path / 'holdfast.db'}?mode=ro", uri=True) as database:
            return [str(row) for row in database.execute(TOOL_RUNS)]

    async with stage(
        tmp_path, "chat", calls(("c1", "witness", "{}")), OK, tools=(journal_of(seen, look),)
    ) as scene:
        await scene.go()
        assert seen == ["('c1', None)"]
        await scene.check()


TOOL_RUNS = "SELECT call_id, finished_at FROM tool_runs"


@each_protocol
async def test_reasoning_is_replayed_with_the_tool_results(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    thinking: Script = (
        *steps('H R"let me think"'),
        *steps('C(0,c1,read,{"path":"a"}) F tool_calls U D EOF'),
    )
    options = {"reasoning_effort": "high", "name": "deepseek-reasoner"}
    if protocol != "chat":
        options.pop("name")
    async with stage(tmp_path, protocol, thinking, OK, model=options) as scene:
        await scene.go()
        sent = scene.requests[1].raw
        wanted = {"chat": b"let me think", "anthropic": b"signature", "responses": b"sealed-0"}
        assert wanted[protocol] in sent
        await scene.check()


async def test_a_late_result_is_reported_and_journalled_but_not_sent_to_the_model(
    tmp_path: Path,
) -> None:
    @tool(risk=Risk.WRITE, timeout=0.05)
    async def tardy(_context: ToolContext) -> str:
        """Finish although the time is up."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    async with stage(tmp_path, "chat", calls(("c1", "tardy", "{}")), OK, tools=(tardy,)) as scene:
        turn = await scene.go()
        await scene.kit.screen.shows(
            CHAT, "tardy finished after I had stopped waiting", "done after all"
        )
        (result,) = results(await scene.history())
        assert result.startswith("UNKNOWN: tardy timed out")
        assert b"done after all" not in scene.requests[1].raw
        (run,) = await scene.tool_runs(turn)
        assert (run.ok, run.result) == (True, "done after all")
        await scene.check()
