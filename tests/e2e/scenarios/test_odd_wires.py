"""Unusual streams, field names and finish reasons of services."""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from agent.settings import AgentSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from tests.e2e.scenarios.scenario_kit import SCALED, UNHURRIED, now, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import (
    Event,
    Head,
    Raw,
    Script,
    Step,
    Wait,
    body_of,
    calls,
    steps,
)

OK = 'H T"done" F stop U D EOF'
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def raw(*pieces: bytes) -> Script:
    """Return a script that sends exactly these bytes, one piece at a time."""
    said: list[Step] = [Head(bare=True)]
    for piece in pieces:
        said += [Raw(piece), Wait(0.005)]
    return said


def chunk(delta: dict[str, Any], finish: object = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def event(fields: object) -> Event:
    return Event(json.dumps(fields).encode())


# --- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["chat", "anthropic"])
async def test_nothing_is_awaited_after_the_end_marker(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with stage(tmp_path, protocol, 'H T"all" F stop U D HANG', OK) as scene:
        began = now()
        await scene.go()
        assert now() - began < 0.6
        assert await scene.history() == ["U:go", "A:all"]
        await scene.requests[0].closed.wait()
        await scene.go()
        assert scene.shown() == ["all", "done"]
        await scene.check()


# --- field values --------------------------------------------------------------------------------


async def test_reasoning_is_shown_apart_from_the_answer_and_not_stored(tmp_path: Path) -> None:
    script = (*steps("H"), event(chunk({"reasoning": "6 x 7"})), *steps('T"42" F stop D'))
    agent = AgentSettings(show_reasoning=True)
    async with stage(tmp_path, "chat", script, agent=agent) as scene:
        await scene.go()
        thoughts, answer = scene.shown()
        assert "6 x 7" in thoughts
        assert answer == "42"
        assert await scene.history() == ["U:go", "A:42"]
        await scene.check()


async def test_reasoning_details_are_merged_and_replayed(tmp_path: Path) -> None:
    pieces = [
        {"type": "reasoning.text", "index": 0, "text": "6 x "},
        {"type": "reasoning.text", "index": 0, "text": "7", "signature": "signed"},
    ]
    said = [event(chunk({"reasoning_details": [piece]})) for piece in pieces]
    script = (*steps("H"), *said, *steps('C(0,c1,read,{"path":"a"}) F tool_calls D'))
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.go()
        sent = next(m for m in scene.requests[1].body["messages"] if m.get("tool_calls"))
        (details,) = sent["reasoning_details"]
        assert details["text"] == "6 x 7"
        assert details["signature"] == "signed"
        assert all("6 x 7" not in text for text in scene.shown())
        await scene.check()


# --- without streaming ---------------------------------------------------------------------------


NO_STREAM = 'S400"Streaming is not supported for this model."'


@each_protocol
async def test_a_service_that_cannot_stream_is_remembered(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    call = 'H C(0,c1,pay,{"amount":3}) F tool_calls U D'
    scripts = (NO_STREAM, call, OK, OK)
    async with stage(tmp_path, protocol, *scripts, timeouts=UNHURRIED) as scene:
        first = await scene.go()
        await scene.go("more")
        assert [request.stream for request in scene.requests] == [True, False, False, False]
        assert scene.desk.ran == ["pay 3"]
        assert first.attempts == 3
        assert scene.told.ids == []
        assert (await scene.history())[-2:] == ["U:more", "A:done"]
        await scene.check()


@each_protocol
async def test_an_unstreamed_answer_is_accepted(tmp_path: Path, protocol: ProtocolName) -> None:
    body = body_of('H T"done" F stop U D', protocol, stream=False)
    async with stage(tmp_path, protocol, raw(body), OK) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:done"]
        assert len(scene.requests) == 1
        await scene.check()


@each_protocol
async def test_streaming_is_not_requested_again_after_an_unstreamed_answer(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    body = body_of('H T"done" F stop U D', protocol, stream=False)
    async with stage(tmp_path, protocol, raw(body), OK) as scene:
        await scene.go()
        await scene.go()
        assert [request.stream for request in scene.requests] == [True, False]
        await scene.check()


@each_protocol
async def test_a_truncated_unstreamed_answer_is_rejected(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    body = body_of('H T"done" F stop U D', protocol, stream=False)
    async with stage(tmp_path, protocol, raw(body[: len(body) // 2]), OK) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.shown() == ["done"]
        assert len(scene.requests) == 2
        await scene.check()


async def test_a_service_without_stream_options_is_retried_without_them(
    tmp_path: Path,
) -> None:
    refused = 'S400"Unrecognized request argument supplied: stream_options"'
    async with stage(tmp_path, "chat", refused, OK, OK) as scene:
        first = await scene.go()
        second = await scene.go()
        sent = ["stream_options" in request.body for request in scene.requests]
        assert sent == [True, False, False]
        assert (first.attempts, second.attempts) == (1, 1)
        assert scene.told.ids == []
        await scene.check()


def strict() -> Tool:
    """Return a tool whose schema has a pattern, as MCP tools may have."""

    @tool(risk=Risk.READ)
    async def find(_context: ToolContext, code: Annotated[str, Meta(pattern="^[a-z]+$")]) -> str:
        """Find something."""
        return f"found {code}"

    return find


@each_protocol
async def test_a_schema_that_the_service_rejects_is_simplified(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    refused = 'S400"Failed to initialize samplers: failed to parse grammar"'
    wrong, right = (calls(("c1", "find", f'{{"code":"{code}"}}')) for code in ("7", "seven"))
    async with stage(tmp_path, protocol, refused, wrong, right, OK, tools=(strict(),)) as scene:
        turn = await scene.go()
        assert turn.attempts == 3
        patterns = [request.raw.count(b'pattern":"^[a-z]+$') for request in scene.requests]
        assert patterns == [1, 0, 0, 0]
        refusal, found = (row.content for row in await scene.rows() if row.role == "tool")
        assert "find has NOT run, its arguments do not fit" in refusal
        assert found == "found seven"
        assert scene.told.ids == []
        await scene.check()


# --- sealed calls --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["anthropic", "responses"])
async def test_a_call_with_an_end_marker_runs_although_the_answer_is_cut(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    script = 'H C(0,c1,pay,{"amount":3}) T"And " RST'
    async with stage(tmp_path, protocol, script, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 3"]
        assert len(scene.requests) == 2
        assert [row for row in await scene.history() if row.startswith("T:")] == ["T:paid 3"]
        await scene.check()


async def test_text_after_a_call_does_not_seal_it(tmp_path: Path) -> None:
    again = 'H C(0,c2,pay,{"amount":3}) F tool_calls U D'
    script = 'H C(0,c1,pay,{"amount":3}) T"And " RST'
    async with stage(tmp_path, "chat", script, again, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 3"]
        ids = [call.id for row in await scene.rows() for call in row.tool_calls]
        assert ids == ["c2"]
        await scene.check()


def _stated(pieces: str, stated: str) -> Script:
    """Return a script whose argument deltas and final arguments may differ."""
    item = {"id": "fc_0", "type": "function_call", "call_id": "c1", "name": "pay"}
    place = {"item_id": "fc_0", "output_index": 0}
    whole = {**item, "arguments": stated, "status": "completed"}
    return (
        *steps("H"),
        event(
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**item, "arguments": ""},
            }
        ),
        event({"type": "response.function_call_arguments.delta", **place, "delta": pieces}),
        event({"type": "response.function_call_arguments.done", **place, "arguments": stated}),
        event({"type": "response.output_item.done", "output_index": 0, "item": whole}),
        event(
            {"type": "response.completed", "response": {"status": "completed", "output": [whole]}}
        ),
    )


@pytest.mark.parametrize(
    ("pieces", "stated", "ran"),
    [
        ('{"amount": 1', '{"amount": 100}', ["pay 100"]),
        ('{"amount": 100}', '{"amount": 1', ["pay 100"]),
        ('{"amount": 1}', '{"amount": 2}', []),
    ],
    ids=["final is longer", "final is a prefix", "contradiction"],
)
async def test_both_statements_of_a_call_must_agree(
    tmp_path: Path, pieces: str, stated: str, ran: list[str]
) -> None:
    async with stage(tmp_path, "responses", _stated(pieces, stated), OK, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ran
        assert scene.shown()[-1].endswith("done")
        await scene.check(readable=bool(ran))


# --- continuation --------------------------------------------------------------------------------


async def test_a_model_with_prefill_support_is_given_only_the_text(tmp_path: Path) -> None:
    cut, rest = 'H T"The quick brown" RST', 'H T" fox jumps." F stop U D'
    options = {"name": "claude-3-5-sonnet-20241022"}
    async with stage(tmp_path, "anthropic", cut, rest, model=options) as scene:
        await scene.go()
        assert [m["role"] for m in scene.asked(2)] == ["user", "assistant"]
        assert scene.asked(2)[1]["content"] == "The quick brown"
        assert scene.shown() == ["The quick brown fox jumps."]
        assert await scene.history() == ["U:go", "A:The quick brown fox jumps."]
        await scene.check()


async def test_a_slow_stream_with_progress_does_not_time_out(tmp_path: Path) -> None:
    slow = 'H [R"x" W.2]*4 [T"y" W.3]*4 F stop U D'
    timeouts = msgspec.structs.replace(SCALED, first_token=0.5, gap_text=0.5, gap_reasoning=0.5)
    async with stage(tmp_path, "chat", slow, timeouts=timeouts) as scene:
        await scene.go()
        assert scene.shown() == ["yyyy"]
        assert len(scene.requests) == 1
        await scene.check()
