"""Streams of the API: many at once, stalled readers, and tools between texts."""

from pathlib import Path

import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from tests.bench.api_streams import Load, measure
from tests.bench.contestants import Cores
from tests.e2e.api_kit import finish_of, named, served, text_of
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import calls, ok
from tests.fakes.model_server import ModelServer

PROGRESS = "hermes.tool.progress"


@pytest.mark.timeout(60)
async def test_fifty_streams_with_ten_silent_and_ten_unread(
    tmp_path: Path,
) -> None:
    """A short form of `tests.bench.api_streams`, limited to checks independent of machine load."""
    load = Load(
        speaking=30, silent=10, stalled=10, interval=0.05, seconds=4, keepalive=2.0, judged=False
    )
    outcome = await measure(load, tmp_path, Cores())
    assert outcome.broken() == []  # includes threads and memory
    assert outcome.turns == {"done": 40, "stopped (left)": 10}
    assert outcome.service.left == 10
    assert len(outcome.delays) == load.speaking * load.times
    assert outcome.keepalives["silent"] >= load.silent
    assert "50 streams (10 silent, 10 with readers that take nothing)" in outcome.words()


async def test_stream_stays_open_across_several_tools(tmp_path: Path) -> None:
    """The stream does not end where the text pauses for a tool."""
    shop = Workshop()
    scripts = (
        'H T"One." C(0,c1,read,{"path":"a"}) F tool_calls U D',
        'H T"Two." C(0,c2,read,{"path":"b"}) C(1,c3,pay,{"amount":3}) F tool_calls U D',
        ok("Three."),
    )
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
    assert text_of(found) == "One.\n\nTwo.\n\nThree."
    assert finish_of(found) == ["stop"]
    assert [event.data for event in found].count("[DONE]") == 1
    assert found[-1].data == "[DONE]"


async def test_each_tool_has_exactly_two_events_in_order(tmp_path: Path) -> None:
    """Three tools, two of which run concurrently."""
    shop = Workshop()
    scripts = (
        calls(("c1", "read", '{"path":"a"}'), ("c2", "read", '{"path":"b"}')),
        calls(("c3", "pay", '{"amount":3}')),
        ok("done"),
    )
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        told = named(await api.wire.stream("go"), PROGRESS)
    by_id = {
        call: [event for event in told if event["toolCallId"] == call]
        for call in ("c1", "c2", "c3")
    }
    assert sum(map(len, by_id.values())) == len(told) == 6
    for call, (running, completed) in by_id.items():
        name = "pay" if call == "c3" else "read"
        assert running.keys() == {"tool", "emoji", "label", "toolCallId", "status", *CHUNK}
        done = {"tool": name, "toolCallId": call, "status": "completed"}
        assert completed == done | {key: running[key] for key in CHUNK}
        assert (running["tool"], running["status"]) == (name, "running")
    assert [event["toolCallId"] for event in told][-2:] == ["c3", "c3"]


CHUNK = ("id", "object", "created", "model", "choices")


def hidden() -> Tool:
    @tool(risk=Risk.READ)
    async def _peek(_context: ToolContext) -> str:
        """Look."""
        return "seen"

    return _peek


async def test_tool_with_a_leading_underscore_has_no_events(tmp_path: Path) -> None:
    scripts = (calls(("c1", "_peek", "{}")), ok("done"))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=(hidden(),)) as api,
    ):
        found = await api.wire.stream("go")
        (row,) = [each for each in await api.kit.asked(2) if each["role"] == "tool"]
    assert row["content"] == "seen"  # the tool ran
    assert named(found, PROGRESS) == []
    assert text_of(found) == "done"


async def test_call_that_never_ran_has_no_completed_event(tmp_path: Path) -> None:
    """A tool that does not exist has no `running` and so no `completed` event."""
    shop = Workshop()
    scripts = (
        calls(("c1", "nonexistent", "{}"), ("c2", "read", '{"path":"a"}')),
        ok("done"),
    )
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
    told = [(event["toolCallId"], event["status"]) for event in named(found, PROGRESS)]
    assert told == [("c2", "running"), ("c2", "completed")]
    assert text_of(found) == "done"


async def test_tool_timeout_is_completed_and_the_stream_continues(
    tmp_path: Path,
) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "slow", "{}")), ok("It took too long."))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
        (row,) = [each for each in await api.kit.asked(2) if each["role"] == "tool"]
    assert "timed out" in row["content"]
    told = [(event["toolCallId"], event["status"]) for event in named(found, PROGRESS)]
    assert told == [("c1", "running"), ("c1", "completed")]
    assert text_of(found) == "It took too long."
