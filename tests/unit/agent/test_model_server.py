"""The scripted model server is what other tests stand on, so it is tested too."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import (
    End,
    Fault,
    Hang,
    Head,
    Ping,
    Repeat,
    Reset,
    Status,
    Text,
    Usage,
    Wait,
    body_of,
    calls,
    cut,
    ok,
    steps,
    words,
)
from tests.fakes.model_server import ModelServer, always, echo

ROOT = __file__.partition("/tests/")[0]


@asynccontextmanager
async def asking(
    server: ModelServer,
    body: dict[str, Any] | None = None,
    path: str = "/v1/chat/completions",
    headers: str = "",
) -> AsyncIterator[asyncio.StreamReader]:
    """Send one request over a bare socket; it asks for a stream unless the body says otherwise."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    raw = json.dumps({"stream": True} | (body or {})).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    try:
        async with asyncio.timeout(5):
            yield reader
    finally:
        writer.close()


PATHS: dict[ProtocolName, str] = {
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages?beta=true",
    "responses": "/v1/responses",
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


async def body_in(reader: asyncio.StreamReader) -> bytes:
    """Read the body of a chunked response to the end."""
    await reader.readuntil(b"\r\n\r\n")
    whole = b""
    while size := int(await reader.readline(), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    return whole


async def lines(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [(await reader.readuntil(b"\r\n")).rstrip() for _ in range(count)]


def deltas(script: str) -> list[Any]:
    return [json.loads(e[6:])["choices"][0] for e in body_of(script).split(b"\n\n") if e]


def test_every_step_is_parsed() -> None:
    assert [type(step) for step in steps('H T"a" [P W.05]*3 S429 RST HANG EOF')] == [
        Head,
        Text,
        Repeat,
        Status,
        Reset,
        Hang,
        End,
    ]
    assert steps("[P W.05]*") == (Repeat((Ping(), Wait(0.05)), None),)
    assert steps(ok("x")) == ok("x")


def test_steps_with_options_are_parsed() -> None:
    assert steps("U U(7) U(7,100) U(7,100,60)") == (
        Usage(5, 10),
        Usage(7, 10),
        Usage(7, 100),
        Usage(7, 100, 60),
    )
    assert steps('E"a \\"b\\"" E529"busy" EOF') == (Fault('a "b"', 500), Fault("busy", 529), End())
    assert steps('S400"too long" S429:{"retry-after":"1"}"slow" S500') == (
        Status(400, message="too long"),
        Status(429, {"retry-after": "1"}, message="slow"),
        Status(500, message="scripted error"),
    )


def test_a_script_is_written_as_chat_completions() -> None:
    text, thought, called, finished = deltas('T"a \\"b\\"" R"hm" C(0,c1,read,{"a": [1, 2]}) F stop')
    assert text["delta"] == {"content": 'a "b"'}
    assert thought["delta"] == {"reasoning_content": "hm"}
    assert called["delta"]["tool_calls"] == [
        {
            "index": 0,
            "id": "c1",
            "type": "function",
            "function": {"name": "read", "arguments": '{"a": [1, 2]}'},
        }
    ]
    assert finished["finish_reason"] == "stop"


def test_absent_fields_are_omitted() -> None:
    (piece,) = deltas("C(-,-,-,'{\"amount\": 1')")
    assert piece["delta"]["tool_calls"] == [
        {"type": "function", "function": {"arguments": '{"amount": 1'}}
    ]


@pytest.mark.parametrize("script", ["Z", 'T"a', "H Zzz", "C(1,2)", "E", "U(1,2,3,4)"])
def test_an_invalid_script_is_refused(script: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        steps(script)


def test_a_script_can_be_cut_after_any_byte() -> None:
    whole = body_of(words("a b"))
    assert body_of(cut(words("a b"), 10, "RST")) == whole[:10]
    assert cut(calls(("c1", "f", "{}")), 5, "HANG")[-1] == Hang()


async def test_the_exact_bytes_are_sent_and_the_request_is_recorded() -> None:
    async with ModelServer('H X"abc" EOF') as server:
        async with asking(server, {"messages": [{"role": "user", "content": "hi"}]}) as reader:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert await lines(reader, 4) == [b"3", b"abc", b"0", b""]
        received = await server.request(1)
        assert received.last_user_text == "hi"
        assert received.answered.is_set()
        async with asyncio.timeout(5):
            await received.closed.wait()
        assert not received.left


async def test_a_disconnected_client_is_noticed() -> None:
    async with ModelServer('H T"a" HANG') as server:
        async with asking(server) as reader:
            await reader.readuntil(b"\r\n\r\n")
            received = await server.request(1)
            assert not received.closed.is_set()
        async with asyncio.timeout(5):
            await received.closed.wait()
        assert received.left
        assert received.closed_at is not None
        assert received.closed_at >= received.at


async def test_a_reset_follows_all_written_bytes() -> None:
    async with ModelServer('H X"abc" RST') as server, asking(server) as reader:
        await reader.readuntil(b"\r\n\r\n")
        assert await lines(reader, 2) == [b"3", b"abc"]
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_an_unexpected_request_is_recorded() -> None:
    async with ModelServer(ok("a")) as server:
        for expected in (b"200", b"599"):
            async with asking(server) as reader:
                assert expected in await reader.readline()


async def test_one_script_can_answer_all_requests() -> None:
    async with ModelServer(always(ok("a"))) as server:
        for _ in range(3):
            async with asking(server) as reader:
                assert b"200" in await reader.readline()


async def test_an_echo_answers_with_the_text_of_the_request() -> None:
    async with ModelServer(echo()) as server:
        body = {"messages": [{"role": "user", "content": "good day"}]}
        async with asking(server, body) as reader:
            answer = await reader.readuntil(b"[DONE]")
    said = [
        json.loads(e.partition(b"data: ")[2]) for e in answer.split(b"\r\n") if b'"content"' in e
    ]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in said) == "echo: good day"


@every_protocol
async def test_the_path_selects_the_protocol(protocol: ProtocolName) -> None:
    script = 'H T"Hel" P T"lo" C(0,c1,read,{}) F tool_calls U D'
    async with ModelServer(script) as server:
        async with asking(server, {"model": "m"}, PATHS[protocol]) as reader:
            assert await body_in(reader) == body_of(script, protocol)
        received = await server.request(1)
    assert (received.protocol, received.stream, received.model) == (protocol, True, "m")


@every_protocol
@pytest.mark.parametrize("body", [{"stream": False}, {"stream": None}], ids=str)
async def test_a_request_without_streaming_gets_a_json_response(
    protocol: ProtocolName, body: dict[str, Any]
) -> None:
    async with ModelServer(ok("a")) as server:
        async with asking(server, body, PATHS[protocol]) as reader:
            assert await body_in(reader) == body_of(ok("a"), protocol, stream=False)
        assert not server.requests[0].stream


@every_protocol
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("ending", ["RST", "FIN", "HANG"])
async def test_every_protocol_can_be_cut_at_any_byte(
    protocol: ProtocolName, stream: bool, ending: str
) -> None:
    whole = body_of(f'H T"abc" {ending}', protocol, stream=stream)
    async with ModelServer(f'H T"abc" {ending}') as server:
        async with asking(server, {"stream": stream}, PATHS[protocol]) as reader:
            received = await _read_on(reader, whole)
            if ending == "RST":
                with pytest.raises(ConnectionResetError):
                    await reader.read(1)
            elif ending == "FIN":
                assert await reader.read() == b""
            else:
                assert not server.requests[0].answered.is_set()
        assert received == whole


async def _read_on(reader: asyncio.StreamReader, expected: bytes) -> bytes:
    """Read a chunked body as far as it is expected."""
    await reader.readuntil(b"\r\n\r\n")
    received = b""
    while len(received) < len(expected):
        size = int(await reader.readline(), 16)
        received += (await reader.readexactly(size + 2))[:-2]
    return received


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_can_stay_without_a_response(stream: bool) -> None:
    async with ModelServer("HANG") as server:
        async with asking(server, {"stream": stream}) as reader:
            received = await server.request(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await reader.read(1)
        async with asyncio.timeout(5):
            await received.closed.wait()
        assert received.left


async def test_a_wait_also_delays_a_json_response() -> None:
    loop = asyncio.get_running_loop()
    async with (
        ModelServer('H P T"a" [W.02]*3 F stop') as server,
        asking(server, {"stream": False}) as reader,
    ):
        await reader.readuntil(b"\r\n\r\n")
        assert await lines(reader, 2) == [b"1", b""]  # an empty line as a keepalive
        assert b"chat.completion" in await reader.readuntil(b"\r\n0\r\n")
        assert loop.time() - server.requests[0].at >= 0.06


async def test_a_script_without_counterpart_in_the_protocol_fails_the_test() -> None:
    async def play() -> None:
        async with (
            ModelServer("H C(0,-,read,{})") as server,
            asking(server, None, PATHS["anthropic"]) as reader,
        ):
            await reader.read()

    with pytest.raises(BaseExceptionGroup) as caught:
        await play()
    assert caught.group_contains(ValueError, match="no counterpart")


@every_protocol
async def test_an_unexpected_request_is_refused_in_its_own_protocol(protocol: ProtocolName) -> None:
    async with ModelServer() as server, asking(server, None, PATHS[protocol]) as reader:
        answer = await reader.readuntil(b"}}" if protocol != "anthropic" else b'scripted"}')
        assert answer.startswith(b"HTTP/1.1 599")
        assert (b'"type": "api_error"' in answer) == (protocol == "anthropic")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/v1/models?limit=9"])
@pytest.mark.parametrize(
    ("headers", "listed"),
    [
        ("", {"object": "list", "data": [{"id": "scripted", "object": "model"}]}),
        (
            "anthropic-version: 2023-06-01\r\n",
            {"data": [{"id": "scripted", "type": "model"}], "has_more": False},
        ),
    ],
    ids=["openai", "anthropic"],
)
async def test_models_are_listed_in_the_form_of_the_client(
    path: str, headers: str, listed: object
) -> None:
    async with ModelServer() as server, asking(server, None, path, headers) as reader:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert json.loads(await reader.readexactly(length)) == listed
        assert not server.requests


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages/count_tokens"])
async def test_other_paths_are_not_found(path: str) -> None:
    async with ModelServer(ok("a")) as server, asking(server, None, path) as reader:
        assert b"404" in await reader.readline()
        assert not server.requests


async def test_a_request_is_recorded_independently_of_the_protocol() -> None:
    body = {
        "model": "m",
        "system": "Be kind.",
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": "noop", "input_schema": {"type": "object"}}],
        "max_tokens": 9,
    }
    async with ModelServer(ok("a")) as server:
        async with asking(server, body, "/v1/v1/messages") as reader:
            await body_in(reader)
        received = await server.request(1)
    assert received.system == "Be kind."
    assert received.last_user_text == "go"
    assert [message["role"] for message in received.messages] == ["user"]
    assert received.tools == {"noop": {"type": "object"}}
    assert received.max_tokens == 9


@pytest.mark.parametrize("key", ["messages", "input"])
async def test_an_echo_works_in_every_protocol(key: str) -> None:
    path = PATHS["responses" if key == "input" else "anthropic"]
    async with ModelServer(echo()) as server:
        body = {key: [{"role": "user", "content": "hello"}], "stream": False}
        async with asking(server, body, path) as reader:
            assert b"echo: hello" in await body_in(reader)


@pytest.mark.process
async def test_the_server_runs_as_a_separate_process() -> None:
    async with asyncio.timeout(10):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.fakes.model_server", "--script", "echo", "--delay", "0.001"),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        server = ModelServer(port=int(url.split(":")[2].removesuffix("/v1")))
        async with asking(server, {"messages": [{"role": "user", "content": "hi"}]}) as reader:
            assert b"echo" in await reader.readuntil(b"[DONE]")
        process.kill()
        await process.wait()
