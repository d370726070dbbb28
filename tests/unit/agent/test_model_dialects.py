"""The output of the scripted server in each protocol, checked with the types of the official SDKs."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.fakes.dialects.choose import refusal_in
from tests.fakes.dialects.requests import last_user_text, read_request
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.http_client import local_client
from tests.fakes.model_script import Script, Step, Usage, body_of, call_delta, cut, ok, steps
from tests.fakes.model_script import reasoning as thought
from tests.fakes.model_script import text as said
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

ANSWER = (
    'H R"hm" R" so" P T"Hel" B T"lo" C(0,c1,read,\'{"path"\') C(0,-,-,\':"a"}\') '
    'C(1,c2,pay,{"amount": 1}) F tool_calls U(7,100,60) D'
)


class Said(NamedTuple):
    """The content of an answer."""

    thought: str
    text: str
    calls: list[tuple[str, str, Any]]
    why: str | None
    tokens: tuple[int, int, int]  # output, input, cached input


SAID = Said(
    "hm so",
    "Hello",
    [("c1", "read", {"path": "a"}), ("c2", "pay", {"amount": 1})],
    "tool_calls",
    (7, 100, 60),
)
MESSAGE: Any = {
    "model": "scripted",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "go"}],
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def events(script: Script, protocol: ProtocolName) -> list[dict[str, Any]]:
    """Return the JSON of all events; the name of each event must be its type."""
    found = []
    for each in body_of(script, protocol).decode().split("\n\n"):
        name, _, data = each.rpartition("data: ")
        if data not in {"", "[DONE]"} and not each.startswith(":"):
            found.append(json.loads(data))
            assert name == ("" if protocol == "chat" else f"event: {found[-1]['type']}\n")
    return found


def kinds(script: Script, protocol: ProtocolName) -> list[str]:
    return [event["type"] for event in events(script, protocol)]


# --- exact events ----------------------------------------------------------------------------


def test_a_chat_answer_consists_of_chunks() -> None:
    common = '{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", '
    choice = common + '"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}'
    finish = common + '"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'
    tokens = '{"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}'
    counted = f'{common}"choices": [], "usage": {tokens}}}'
    assert body_of('H P T"a" F stop U(7) D EOF').decode() == (
        f": ping\n\ndata: {choice}\n\ndata: {finish}\n\ndata: {counted}\n\ndata: [DONE]\n\n"
    )


def test_a_message_consists_of_blocks() -> None:
    script = 'H R"hm" T"a" C(0,c1,read,{}) F tool_calls U(7) D'
    begun, *rest = events(script, "anthropic")
    assert begun["type"] == "message_start"
    assert begun["message"]["content"] == []
    assert begun["message"]["usage"]["input_tokens"] == 10
    assert rest == [
        _start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        _delta(0, {"type": "thinking_delta", "thinking": "hm"}),
        _delta(0, {"type": "signature_delta", "signature": "signature-0"}),
        {"type": "content_block_stop", "index": 0},
        _start(1, {"type": "text", "text": ""}),
        _delta(1, {"type": "text_delta", "text": "a"}),
        {"type": "content_block_stop", "index": 1},
        _start(2, {"type": "tool_use", "id": "c1", "name": "read", "input": {}}),
        _delta(2, {"type": "input_json_delta", "partial_json": "{}"}),
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 7,
            },
        },
        {"type": "message_stop"},
    ]


def _start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def test_a_response_consists_of_items() -> None:
    assert kinds('H R"hm" T"a" C(0,c1,read,{}) F tool_calls U D', "responses") == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_the_events_of_a_response_have_numbers_and_item_ids() -> None:
    whole = events(ANSWER, "responses")
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    open_now: dict[int, str] = {}
    done = []
    for event in whole:
        if event["type"] == "response.output_item.added":
            open_now[event["output_index"]] = event["item"]["id"]
        elif event["type"] == "response.output_item.done":
            assert open_now.pop(event["output_index"]) == event["item"]["id"]
            done.append(event["item"])
        elif "item_id" in event:
            assert open_now[event["output_index"]] == event["item_id"]
    assert not open_now
    assert whole[-1]["response"]["output"] == done
    assert done[0]["encrypted_content"] == "sealed-0"
    assert len({item["id"] for item in done}) == len(done) == 4


def test_an_open_block_is_sealed_only_by_a_later_step() -> None:
    half = "H C(0,c1,pay,'{\"amount\": 1')"
    assert "content_block_stop" not in kinds(f"{half} RST", "anthropic")
    assert "response.output_item.done" not in kinds(f"{half} RST", "responses")
    assert "content_block_stop" in kinds(f'{half} T"a" RST', "anthropic")
    assert "response.output_item.done" in kinds(f'{half} T"a" RST', "responses")


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("stop", "end_turn"),
        ("tool_calls", "tool_use"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_a_message_has_its_stop_reason(reason: str, stop_reason: str) -> None:
    last = events(f'H T"a" F {reason}', "anthropic")[-1]
    assert last["delta"]["stop_reason"] == stop_reason
    whole = json.loads(body_of(f'H T"a" F {reason}', "anthropic", stream=False))
    assert whole["stop_reason"] == stop_reason


@pytest.mark.parametrize(
    ("reason", "status", "why", "of_the_item"),
    [
        ("stop", "completed", None, "completed"),
        ("tool_calls", "completed", None, "completed"),
        ("length", "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
        ("content_filter", "incomplete", {"reason": "content_filter"}, "incomplete"),
        ("refusal", "incomplete", {"reason": "content_filter"}, "incomplete"),
        ("failed", "failed", None, "failed"),
    ],
)
def test_a_response_has_its_status_and_reason(
    reason: str, status: str, why: object, of_the_item: str
) -> None:
    script = f'H R"b" T"a" F {reason} U'
    last = events(script, "responses")[-1]
    assert last["type"] == f"response.{status}"
    streamed, whole = last["response"], json.loads(body_of(script, "responses", stream=False))
    for response in (streamed, whole):
        assert response["status"] == status
        assert response["incomplete_details"] == why
        assert [item["status"] for item in response["output"]] == ["completed", of_the_item]
        assert (response["error"] is not None) == (status == "failed")
        assert response["usage"]["output_tokens"] == 5


@pytest.mark.parametrize("between", ["", "W1", "P", "RST", "EOF", "HANG"])
def test_the_finish_reason_is_sent_before_the_next_step(between: str) -> None:
    script = f'H T"a" F stop {between}'
    assert "message_delta" in kinds(script, "anthropic")
    assert kinds(script, "responses")[-1] == "response.completed"


def test_usage_after_the_finish_reason_keeps_the_reason() -> None:
    *_, first, second = events('H T"a" F stop W1 U(7)', "anthropic")
    assert first["delta"] == second["delta"]
    assert second["usage"]["output_tokens"] == 7
    alone = events('H T"a" U(7)', "anthropic")[-1]
    assert alone["delta"]["stop_reason"] is None
    assert kinds('H T"a" F stop W1 U', "responses").count("response.completed") == 1
    *_, completed = events('H T"a" U(7) F stop', "responses")
    assert completed["response"]["usage"]["output_tokens"] == 7


@pytest.mark.parametrize(
    ("protocol", "ping", "event", "fault"),
    [
        (
            "chat",
            ": ping\n\n",
            'data: {"type":"x"}\n\n',
            'data: {"error": {"message": "no", "type": "requests", "code": "rate_limit_exceeded"}}',
        ),
        (
            "anthropic",
            'event: ping\ndata: {"type": "ping"}\n\n',
            'event: x\ndata: {"type":"x"}\n\n',
            (
                'event: error\ndata: {"type": "error", "error": {"type": "rate_limit_error", '
                '"message": "no"}, "request_id": "req_scripted"}'
            ),
        ),
        (
            "responses",
            ": ping\n\n",
            'event: x\ndata: {"type":"x"}\n\n',
            (
                'event: error\ndata: {"type": "error", "sequence_number": 0, '
                '"code": "rate_limit_exceeded", "message": "no", "param": null}'
            ),
        ),
    ],
    ids=PROTOCOLS,
)
def test_pings_errors_and_raw_events_have_the_usual_form_of_the_protocol(
    protocol: ProtocolName, ping: str, event: str, fault: str
) -> None:
    assert body_of("P", protocol).decode() == ping
    assert body_of('J{"type":"x"}', protocol).decode() == event
    assert body_of('E429"no"', protocol).decode() == f"{fault}\n\n"
    assert body_of('D X"any\n" D', protocol).decode().count("any\n") == 1
    assert body_of("J{]}", protocol) == b"data: {]}\n\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [('T"a" B', "text_delta"), ('R"a" B', "thinking_delta"), ("C(0,c,f,-) B", "input_json_delta")],
)
def test_an_empty_event_belongs_to_the_open_block(script: str, kind: str) -> None:
    delta = events(f"H {script}", "anthropic")[-1]["delta"]
    assert delta.pop("type") == kind
    assert list(delta.values()) == [""]


def test_an_empty_event_without_open_block_has_no_content() -> None:
    started, empty = events("B", "anthropic")
    assert started["content_block"] == {"type": "text", "text": ""}
    assert empty["delta"] == {"type": "text_delta", "text": ""}
    assert kinds("B B", "responses") == ["response.in_progress"] * 2


@pytest.mark.parametrize("protocol", ["anthropic", "responses"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("script", "step"),
    [
        ("C(0,-,read,{})", "id=None"),
        ("C(0,c1,-,{})", "name=None"),
        ("C(-,-,-,{})", "index=None"),
        ("C(0,c1,read_,-) C(0,-,file,-)", "name='file'"),
        ("C(0,c1,f,-) C(1,c2,f,-) C(0,-,-,{})", "index=0"),
        ('C(0,c1,f,-) T"a" C(0,-,-,{})', "index=0"),
    ],
)
def test_calls_that_a_protocol_cannot_express_are_refused(
    protocol: ProtocolName, stream: bool, script: str, step: str
) -> None:
    with pytest.raises(ValueError, match=rf"CallDelta\(.*{step}.*no counterpart"):
        body_of(script, protocol, stream=stream)
    assert body_of(script, "chat", stream=stream)


@pytest.mark.parametrize("stream", [True, False])
def test_a_finish_reason_without_counterpart_is_refused(stream: bool) -> None:
    with pytest.raises(ValueError, match=r"eos.*no counterpart"):
        body_of('H T"a" F eos D', "responses", stream=stream)


@pytest.mark.parametrize(
    ("script", "made"),
    [
        ("C(0,c1,f,{}) C(0,c2,f,{})", [("c1", "f", "{}"), ("c2", "f", "{}")]),
        ("C(0,c1,f,'{') C(0,c1,f,'}')", [("c1", "f", "{}")]),
        ("C(0,c1,f,'{') C(-,-,-,'}')", [("c1", "f", "{}")]),
        ("C(0,c1,f,'{') C(0,-,f,'}')", [("c1", "f", "{}")]),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_deltas_are_assigned_to_their_call(
    stream: bool, script: str, made: list[tuple[str, str, str]]
) -> None:
    answered = _answer_in(f"H {script} F tool_calls D", "responses", stream=stream)
    calls = [item for item in answered["output"] if item["type"] == "function_call"]
    assert [(call["call_id"], call["name"], call["arguments"]) for call in calls] == made


def _answer_in(script: Script, protocol: ProtocolName, *, stream: bool) -> dict[str, Any]:
    if not stream:
        read: dict[str, Any] = json.loads(body_of(script, protocol, stream=False))
        return read
    answer: dict[str, Any] = events(script, protocol)[-1]["response"]
    return answer


def test_chat_calls_with_one_index_are_separated_in_a_json_response() -> None:
    script = "H C(0,-,f,{}) C(0,-,g,'{') C(0,-,g,'}') C(-,-,-,-) F tool_calls"
    (choice,) = json.loads(body_of(script, stream=False))["choices"]
    assert choice["message"]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


# --- any answer, in the types of the SDKs ----------------------------------------------------

TYPES: dict[ProtocolName, tuple[TypeAdapter[Any], TypeAdapter[Any]]] = {
    "chat": (TypeAdapter(ChatCompletionChunk), TypeAdapter(ChatCompletion)),
    "anthropic": (TypeAdapter(RawMessageStreamEvent), TypeAdapter(Message)),
    "responses": (TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)),
}
plain = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def call_pieces(draw: st.DrawFn, index: int) -> list[Step]:
    arguments = json.dumps(draw(st.dictionaries(plain, st.integers() | plain, max_size=2)))
    middle = draw(st.integers(0, len(arguments)))
    first, rest = arguments[:middle] or None, arguments[middle:]
    return [
        call_delta(index, f"c{index}", draw(st.sampled_from(["read", "pay"])), first),
        call_delta(index, None, None, rest),
    ]


@st.composite
def answers(draw: st.DrawFn) -> list[Step]:
    between = st.sampled_from([(), (*steps("P"),), (*steps("B W0"),)])
    pieces: list[Step] = []
    for index in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["text", "reasoning", "call"]))
        if kind == "call":
            pieces += draw(call_pieces(index))
        else:
            pieces += [said(draw(plain)) if kind == "text" else thought(draw(plain))]
        pieces += draw(between)
    counts = st.integers(0, 10**6)
    tokens = Usage(draw(counts), draw(counts))
    return [*steps("H"), *pieces, *steps("F stop"), tokens, *steps("D")]


@pytest.mark.process
@every_protocol
@given(answers())
def test_any_answer_is_valid_and_the_same_with_and_without_streaming(
    protocol: ProtocolName, script: list[Step]
) -> None:
    of_event, of_whole = TYPES[protocol]
    read = []
    for event in events(script, protocol):
        if event.get("type") != "ping":  # the SDK hides pings and has no type for them
            of_event.validate_python(event)
            read.append(event)
    whole = of_whole.validate_json(body_of(script, protocol, stream=False).strip())
    content = [piece for piece in _contents(whole.to_dict(), protocol) if any(piece)]
    assert [piece for piece in _put_together(read, protocol) if any(piece)] == content
    usage = whole.usage
    output = usage.completion_tokens if protocol == "chat" else usage.output_tokens
    assert output == next(step.output for step in script if isinstance(step, Usage))


def _contents(whole: dict[str, Any], protocol: ProtocolName) -> Iterator[tuple[str, ...]]:
    """Return the parts of a full answer."""
    match protocol:
        case "chat":
            message = whole["choices"][0]["message"]
            yield (message.get("content") or "",)
            yield (message.get("reasoning_content") or "",)
            for call in message.get("tool_calls", []):
                yield call["id"], call["function"]["name"], call["function"]["arguments"]
        case "anthropic":
            for block in whole["content"]:
                if block["type"] == "tool_use":
                    yield block["id"], block["name"], json.dumps(block["input"])
                else:
                    yield (block.get("text") or block.get("thinking") or "",)
        case "responses":
            for item in whole["output"]:
                if item["type"] == "function_call":
                    yield item["call_id"], item["name"], item["arguments"]
                else:
                    yield tuple(part["text"] for part in item.get("content") or item["summary"])


def _put_together(read: list[dict[str, Any]], protocol: ProtocolName) -> list[tuple[str, ...]]:
    match protocol:
        case "chat":
            return _chat_pieces(read)
        case "anthropic":
            return _blocks(read)
        case "responses":
            shown = "".join(e["delta"] for e in read if "delta" in e)
            ended = [*_contents(read[-1]["response"], protocol)]
            assert shown == "".join(piece[-1] for piece in ended)
            return ended


def _chat_pieces(read: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    deltas = [choice["delta"] for event in read for choice in event["choices"]]
    calls: dict[int, list[str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", [])):
        function = call["function"]
        if "id" in call:
            calls[call["index"]] = [call["id"], function["name"], ""]
        calls[call["index"]][2] += function.get("arguments", "")
    whole = [
        ("".join(delta.get(field, "") for delta in deltas),)
        for field in ("content", "reasoning_content")
    ]
    return [*whole, *map(tuple, calls.values())]


def _blocks(read: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    blocks: list[list[str]] = []
    for event in read:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            block = event["content_block"]
            blocks.append([block[key] for key in ("id", "name") if key in block] + [""])
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            delta = event["delta"]
            fields = ("text", "thinking", "partial_json")
            blocks[-1][-1] += next((delta[key] for key in fields if key in delta), "")
    return [(*b[:-1], json.dumps(json.loads(b[-1]))) if b[1:] else tuple(b) for b in blocks]


# --- the clients of the SDKs -----------------------------------------------------------------


@asynccontextmanager
async def messages(*scripts: Script) -> AsyncIterator[anthropic.resources.AsyncMessages]:
    """Yield Anthropic's client, connected to a server with these scripts."""
    async with asyncio.timeout(5), ModelServer(*scripts) as server:
        root = server.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(
            base_url=root, api_key="k", max_retries=0, http_client=local_client()
        ) as client:
            yield client.messages


@asynccontextmanager
async def openai_client(*scripts: Script) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        asyncio.timeout(5),
        ModelServer(*scripts) as server,
        openai.AsyncOpenAI(
            base_url=server.url, api_key="k", max_retries=0, http_client=local_client()
        ) as client,
    ):
        yield client


def _message_says(message: Message) -> Said:
    blocks = message.content
    usage = message.usage
    cached = usage.cache_read_input_tokens or 0
    return Said(
        "".join(block.thinking for block in blocks if block.type == "thinking"),
        "".join(block.text for block in blocks if block.type == "text"),
        [(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"],
        message.stop_reason,
        (usage.output_tokens, usage.input_tokens + cached, cached),
    )


def _response_says(response: Response) -> Said:
    thoughts = [item for item in response.output if item.type == "reasoning"]
    calls = [item for item in response.output if item.type == "function_call"]
    usage = response.usage
    assert usage is not None
    return Said(
        "".join(part.text for item in thoughts for part in item.summary),
        response.output_text,
        [(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        response.status,
        (usage.output_tokens, usage.input_tokens, usage.input_tokens_details.cached_tokens),
    )


def _completion_says(completion: ChatCompletion) -> Said:
    (choice,) = completion.choices
    calls = [each for each in choice.message.tool_calls or [] if each.type == "function"]
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return Said(
        (choice.message.model_extra or {})["reasoning_content"],
        choice.message.content or "",
        [(each.id, each.function.name, json.loads(each.function.arguments)) for each in calls],
        choice.finish_reason,
        (
            usage.completion_tokens,
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens or 0,
        ),
    )


async def test_the_sdk_reads_a_message() -> None:
    async with messages(ANSWER, ANSWER, ANSWER) as client:
        read = [event.type async for event in await client.create(**MESSAGE, stream=True)]
        assert read == [kind for kind in kinds(ANSWER, "anthropic") if kind != "ping"]
        async with client.stream(**MESSAGE) as stream:
            assert _message_says(await stream.get_final_message()) == SAID._replace(why="tool_use")
        whole = await client.create(**MESSAGE)
        assert _message_says(whole) == SAID._replace(why="tool_use")


async def test_the_sdk_reads_a_response() -> None:
    async with openai_client(ANSWER, ANSWER) as client:
        stream = await client.responses.create(model="scripted", input="go", stream=True)
        read = [event async for event in stream]
        assert [event.type for event in read] == kinds(ANSWER, "responses")
        assert read[-1].type == "response.completed"
        assert _response_says(read[-1].response) == SAID._replace(why="completed")
        whole = await client.responses.create(model="scripted", input="go")
        assert _response_says(whole) == SAID._replace(why="completed")


async def test_the_sdk_reads_a_chat() -> None:
    async with openai_client(ANSWER, ANSWER) as client:
        chat = {"model": "scripted", "messages": MESSAGE["messages"]}
        async with client.chat.completions.stream(**chat) as stream:
            streamed = await stream.get_final_completion()
        assert _completion_says(streamed) == SAID
        whole = await client.chat.completions.create(**chat)
        assert _completion_says(whole) == SAID


@pytest.mark.parametrize(
    ("script", "error", "kind"),
    [
        ('S400"no"', anthropic.BadRequestError, "invalid_request_error"),
        ("S401", anthropic.AuthenticationError, "authentication_error"),
        ("S429", anthropic.RateLimitError, "rate_limit_error"),
        ("S500", anthropic.InternalServerError, "api_error"),
        ("S529", anthropic.InternalServerError, "overloaded_error"),
        ('H E529"busy"', anthropic.APIStatusError, "overloaded_error"),
        ('H T"a" E"broken"', anthropic.APIStatusError, "api_error"),
    ],
)
async def test_the_sdk_raises_errors_in_messages(
    script: str, error: type[anthropic.APIStatusError], kind: str
) -> None:
    async with messages(script) as client:
        with pytest.raises(error) as caught:
            _ = [event async for event in await client.create(**MESSAGE, stream=True)]
    assert caught.value.type == kind


async def test_the_sdk_raises_errors_in_responses() -> None:
    async with openai_client('S429"slow"', 'H T"a" E429"slow"', "H F failed") as client:
        with pytest.raises(openai.RateLimitError, match="slow"):
            await client.responses.create(model="scripted", input="go", stream=True)
        stream = await client.responses.create(model="scripted", input="go", stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "error"
        assert (last.code, last.message) == ("rate_limit_exceeded", "slow")
        stream = await client.responses.create(model="scripted", input="go", stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "response.failed"


# --- requests --------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
RAW_ARGUMENTS = '{ "path":"a" }'
BODIES: dict[ProtocolName, str] = {
    "chat": """{"messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "read "}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "read", "arguments": "{ \\"path\\":\\"a\\" }"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "A"},
        {"role": "assistant", "content": "It says A."},
        {"role": "user", "content": "thanks"}],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
        "max_completion_tokens": 9}""",
    "anthropic": """{"system": [{"type": "text", "text": "Be kind."}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "read "}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "read", "input": { "path":"a" }}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "A"}]}]},
        {"role": "assistant", "content": "It says A."},
        {"role": "user", "content": "thanks"}],
        "tools": [{"name": "read", "input_schema": SCHEMA}],
        "max_tokens": 9}""",
    "responses": """{"instructions": "Be kind.", "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "read "}, {"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "call_id": "c1", "name": "read",
            "arguments": "{ \\"path\\":\\"a\\" }"},
        {"type": "function_call_output", "call_id": "c1", "output": "A"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "It says A."}]},
        {"role": "user", "content": "thanks"}],
        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA},
            {"type": "web_search"}],
        "max_output_tokens": 9}""",
}


def _neutral(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, **fields}


@every_protocol
def test_a_request_is_parsed_the_same_in_every_protocol(protocol: ProtocolName) -> None:
    raw = BODIES[protocol].replace("SCHEMA", json.dumps(SCHEMA)).encode()
    asked = read_request(protocol, raw)
    assert asked.system == "Be kind."
    assert asked.messages == [
        _neutral("user", "read a"),
        _neutral(
            "assistant",
            "",
            tool_calls=[{"id": "c1", "name": "read", "arguments": RAW_ARGUMENTS}],
        ),
        _neutral("tool", "A", tool_call_id="c1"),
        _neutral("assistant", "It says A."),
        _neutral("user", "thanks"),
    ]
    assert asked.tools == {"read": SCHEMA}
    assert asked.max_tokens == 9
    assert asked.last_user_text == last_user_text(json.loads(raw)) == "thanks"


@every_protocol
def test_a_minimal_request_is_parsed(protocol: ProtocolName) -> None:
    asked = read_request(protocol, b"{}")
    assert (asked.system, asked.messages, asked.tools, asked.max_tokens) == ("", [], {}, None)
    assert asked.last_user_text == ""


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_may_be_among_the_messages(role: str) -> None:
    sent = [{"role": role, "content": "Be kind."}, {"role": "user", "content": "go"}]
    keys: dict[ProtocolName, str] = {"chat": "messages", "responses": "input"}
    for protocol, key in keys.items():
        asked = read_request(protocol, json.dumps({key: sent}).encode())
        assert (asked.system, len(asked.messages)) == ("Be kind.", 1)


def test_results_and_text_of_one_message_are_separated() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "A"},
        {"type": "text", "text": "and now b"},
    ]
    raw = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    assert read_request("anthropic", raw).messages == [
        _neutral("tool", "A", tool_call_id="c1"),
        _neutral("user", "and now b"),
    ]


def test_calls_belong_to_the_assistant_text_before_them() -> None:
    sent = [
        {"role": "assistant", "content": "I look."},
        *(
            {"type": "function_call", "call_id": each, "name": "read", "arguments": "{}"}
            for each in ("c1", "c2")
        ),
    ]
    (message,) = read_request("responses", json.dumps({"input": sent}).encode()).messages
    assert message["content"] == "I look."
    assert [call["id"] for call in message["tool_calls"]] == ["c1", "c2"]
    assert read_request("responses", b'{"input": "go"}').messages == [_neutral("user", "go")]


# --- JSON responses --------------------------------------------------------------------------


@every_protocol
@pytest.mark.parametrize(
    ("script", "parses"),
    [
        pytest.param('H T"a" F stop', True, id="the reason is known"),
        pytest.param('H T"a" U', True, id="the count is known"),
        pytest.param('H T"a" D', True, id="the end mark"),
        pytest.param('H T"a" F stop D F stop D', True, id="once only"),
        pytest.param('H P W0 B P T"a" F stop', True, id="empty lines in front"),
        pytest.param('H T"a" EOF', False, id="cut in text"),
        pytest.param("H C(0,c1,f,'{') EOF", False, id="cut in a call"),
        pytest.param('H J{"error":{}}', True, id="JSON as it is"),
        pytest.param('H T"a" E"no" F stop D', True, id="an error instead"),
    ],
)
def test_a_json_response_is_complete_if_the_script_has_an_end(
    protocol: ProtocolName, script: str, parses: bool
) -> None:
    body = body_of(script, protocol, stream=False)
    assert body
    if parses:
        assert isinstance(json.loads(body), dict)
    else:
        assert body.startswith(b'{"id"')
        assert b'"a"' in body or b'"f"' in body
        with pytest.raises(json.JSONDecodeError):
            json.loads(body)


@every_protocol
def test_a_json_response_without_steps_is_empty(protocol: ProtocolName) -> None:
    assert body_of("H B EOF", protocol, stream=False) == b""
    assert body_of('H X"no JSON" EOF', protocol, stream=False) == b"no JSON"


def test_arguments_in_a_json_response_are_those_of_the_script() -> None:
    body = body_of('H C(0,c1,f,{ "a":1e2 }) F tool_calls', "anthropic", stream=False)
    assert b'"input":{ "a":1e2 }' in body
    (cut_off,) = json.loads(body_of("H C(0,c1,f,'{\"a') F length", "anthropic", stream=False))[
        "content"
    ]
    assert cut_off["input"] == {}


@every_protocol
def test_a_cut_script_yields_a_prefix_of_the_bytes(protocol: ProtocolName) -> None:
    for stream in (True, False):
        whole = body_of(ANSWER, protocol, stream=stream)
        for after in range(0, len(whole) + 1, 97):
            part = cut(ANSWER, after, "RST", protocol, stream=stream)
            assert body_of(part, protocol, stream=stream) == whole[:after]


@every_protocol
def test_the_first_event_has_the_input_tokens_of_the_script(protocol: ProtocolName) -> None:
    for script in (ok("a"), 'H [T"a" U]*1 F stop D', 'H [T"a"]*2 U(7,20) D'):
        assert body_of(script, protocol)
    begun = events("H [U(7,20)]*1", "anthropic")[0]["message"]["usage"]
    assert (begun["input_tokens"], begun["output_tokens"]) == (20, 1)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("chat", "scripted"), ("anthropic", "not_found_error"), ("responses", "scripted")],
)
def test_an_error_response_has_the_form_of_its_protocol(protocol: ProtocolName, kind: str) -> None:
    refused = json.loads(refusal_in(protocol, 404, "gone"))
    assert (refused["error"]["message"], refused["error"]["type"]) == ("gone", kind)
    assert (refused.get("type") == "error") == (protocol == "anthropic")
