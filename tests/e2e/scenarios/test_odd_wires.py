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
from sessions.records import TurnState
from tests.e2e.scenarios.stage import SCALED, UNHURRIED, now, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import (
    Event,
    Head,
    Raw,
    Script,
    Step,
    Text,
    Wait,
    body_of,
    calls,
    steps,
)

OK = 'H T"done" F stop U D EOF'
GREETING = "Hello, wörld 👋!"
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


BODIES: dict[ProtocolName, bytes] = {
    protocol: body_of((Head(), Text(GREETING), *steps("F stop U D")), protocol)
    for protocol in PROTOCOLS
}
SHAPES = {
    "carriage returns": lambda body: body.replace(b"\n", b"\r\n"),
    "no space after the colon": lambda body: body.replace(b"data: ", b"data:"),
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "comments everywhere": lambda body: b": hi\n\n" + body.replace(b"\n\n", b"\n\n:\n\n"),
    "null in between": lambda body: body.replace(b"\n\n", b"\n\ndata: null\n\n", 1),
    "empty records in between": lambda body: body.replace(b"\n\n", b"\n\ndata: {}\n\n", 1),
    "no blank line at the end": lambda body: body.rstrip(b"\n"),
}


@each_protocol
@pytest.mark.parametrize("shape", SHAPES)
async def test_equivalent_sse_encodings_give_the_same_answer(
    tmp_path: Path, protocol: ProtocolName, shape: str
) -> None:
    async with stage(tmp_path, protocol, raw(SHAPES[shape](BODIES[protocol]))) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", f"A:{GREETING}"]
        assert scene.shown() == [GREETING]
        assert len(scene.requests) == 1
        await scene.check()


@each_protocol
async def test_multibyte_characters_may_be_split_between_reads(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    body = BODIES[protocol].replace(
        json.dumps(GREETING).encode(), json.dumps(GREETING, ensure_ascii=False).encode()
    )
    assert "👋".encode() in body
    cuts = [body.index("👋".encode()) + 2, body.index("ö".encode()) + 1]
    pieces = [body[: min(cuts)], body[min(cuts) : max(cuts)], body[max(cuts) :]]
    async with stage(tmp_path, protocol, raw(*pieces)) as scene:
        await scene.go()
        assert scene.shown() == [GREETING]
        await scene.check()


async def test_the_last_event_counts_without_its_blank_line(tmp_path: Path) -> None:
    body = body_of('H T"all" F stop').rstrip(b"\n")
    async with stage(tmp_path, "chat", raw(body)) as scene:
        await scene.go()
        assert scene.shown() == ["all"]
        assert len(scene.requests) == 1
        await scene.check()


async def test_an_event_may_be_very_long(tmp_path: Path) -> None:
    book = "".join(f"line {number}\n" for number in range(90_000))
    script = (
        *steps("H"),
        Text("short. "),
        event(chunk({}, padding=book)),
        *steps('T"end" F stop D'),
    )
    async with stage(tmp_path, "chat", script) as scene:
        await scene.go()
        assert scene.shown() == ["short. end"]
        await scene.check()


async def test_multi_line_data_is_one_event(tmp_path: Path) -> None:
    said = json.dumps(chunk({"content": "Hello"}), indent=1)
    lines = "".join(f"data: {line}\n" for line in said.splitlines())
    end = body_of("F stop D")
    async with stage(tmp_path, "chat", raw(f"{lines}\n".encode() + end)) as scene:
        await scene.go()
        assert scene.shown() == ["Hello"]
        await scene.check()


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


async def test_data_after_the_end_marker_is_ignored(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat", 'H T"all" F stop U D T" and more" EOF') as scene:
        await scene.go()
        assert scene.shown() == ["all"]
        await scene.check()


# --- field values --------------------------------------------------------------------------------


STOPS = ["stop", "STOP", "end_turn", "eos", "COMPLETED", "stop_sequence", "banana", 7, 1]


@pytest.mark.parametrize("reason", STOPS)
async def test_all_spellings_of_stop_end_the_answer(tmp_path: Path, reason: str | int) -> None:
    script = (*steps('H T"all"'), event(chunk({}, reason)), *steps("EOF"))
    async with stage(tmp_path, "chat", script) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert await scene.history() == ["U:go", "A:all"]
        assert len(scene.requests) == 1
        await scene.check()


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "max_output_tokens", "incomplete"])
async def test_all_spellings_of_the_output_limit_continue_the_answer(
    tmp_path: Path, reason: str
) -> None:
    script = (*steps('H T"half of "'), event(chunk({}, reason)), *steps("EOF"))
    async with stage(tmp_path, "chat", script, 'H T"it." F stop D') as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:half of it."]
        assert "output length limit" in scene.asked(2)[-1]["content"]
        await scene.check()


@pytest.mark.parametrize("reason", ["tool_call", "TOOL_CALLS", "function_call", "tool_use"])
async def test_all_spellings_of_tool_calls_run_the_tools(tmp_path: Path, reason: str) -> None:
    script = (*steps('H C(0,c1,pay,{"amount":3})'), event(chunk({}, reason)), *steps("EOF"))
    async with stage(tmp_path, "chat", script, OK) as scene:
        await scene.go()
        assert scene.desk.ran == ["pay 3"]
        await scene.check()


async def test_the_finish_reason_may_arrive_with_the_last_text(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 3}
    script = (*steps("H"), event(chunk({"content": "all"}, "stop", usage=usage)), *steps("EOF"))
    async with stage(tmp_path, "chat", script) as scene:
        turn = await scene.go()
        assert scene.shown() == ["all"]
        spent = await scene._store.spending.totals(turn_id=turn.id)
        assert (spent.input_tokens, spent.output_tokens) == (11, 3)
        await scene.check()


async def test_several_choices_are_merged_into_one_answer(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    both = {
        "choices": [
            {"index": 0, "delta": {"content": "Looking."}, "finish_reason": None},
            {"index": 1, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"},
        ]
    }
    async with stage(tmp_path, "chat", (*steps("H"), event(both), *steps("D")), OK) as scene:
        await scene.go()
        assert await scene.history() == [
            "U:go",
            "A{read}:Looking.",
            "T:content of a",
            "A:done",
        ]
        await scene.check()


NOTHING: list[object] = [
    None,
    {},
    {"choices": None},
    {"choices": []},
    {"choices": [None]},
    {"choices": [{"delta": None}]},
    {"choices": [{"index": 0}]},
    chunk({"content": None, "tool_calls": None}),
    chunk({"role": "assistant"}),
    chunk({"tool_calls": []}),
    "a word",
    7,
]


@pytest.mark.parametrize("nothing", NOTHING, ids=json.dumps)
async def test_empty_events_are_ignored(tmp_path: Path, nothing: object) -> None:
    script = (
        *steps("H"),
        event(nothing),
        Text("Hel"),
        event(nothing),
        *steps('T"lo" F stop'),
        event(nothing),
        *steps("D"),
    )
    async with stage(tmp_path, "chat", script) as scene:
        await scene.go()
        assert await scene.history() == ["U:go", "A:Hello"]
        assert len(scene.requests) == 1
        await scene.check()


@pytest.mark.parametrize(
    "content", [[{"type": "text", "text": "Hello"}], {"type": "text", "text": "Hello"}, ["Hello"]]
)
async def test_content_may_be_a_list_of_parts(tmp_path: Path, content: object) -> None:
    script = (*steps("H"), event(chunk({"content": content})), *steps("F stop D"))
    async with stage(tmp_path, "chat", script) as scene:
        await scene.go()
        assert scene.shown() == ["Hello"]
        await scene.check()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
async def test_all_reasoning_fields_are_recognized(tmp_path: Path, field: str) -> None:
    script = (*steps("H"), event(chunk({field: "6 x 7"})), *steps('T"42" F stop D'))
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
