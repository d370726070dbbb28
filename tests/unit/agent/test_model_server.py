"""The scripted model server is what other tests stand on, so it is tested too."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.model_script import (
    Body,
    End,
    Hang,
    Head,
    Repeat,
    Reset,
    Status,
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
    server: ModelServer, body: object = None, path: str = "/v1/chat/completions"
) -> AsyncIterator[asyncio.StreamReader]:
    """Send one request over a bare socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    raw = json.dumps(body or {}).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw
    )
    try:
        async with asyncio.timeout(5):
            yield reader
    finally:
        writer.close()


async def lines(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [(await reader.readuntil(b"\r\n")).rstrip() for _ in range(count)]


def deltas(script: str) -> list[Any]:
    return [json.loads(e[6:])["choices"][0] for e in body_of(script).split(b"\n\n") if e]


def test_the_language_reads_every_step() -> None:
    assert [type(step) for step in steps('H T"a" [P W.05]*3 S429 RST HANG EOF')] == [
        Head,
        Body,
        Repeat,
        Status,
        Reset,
        Hang,
        End,
    ]
    assert steps("[P W.05]*") == (Repeat((Body(b": ping\n\n"), Wait(0.05)), None),)
    assert steps(ok("x")) == ok("x")


def test_the_language_writes_chat_completions() -> None:
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


def test_absent_fields_are_absent() -> None:
    (piece,) = deltas("C(-,-,-,'{\"amount\": 1')")
    assert piece["delta"]["tool_calls"] == [
        {"type": "function", "function": {"arguments": '{"amount": 1'}}
    ]


@pytest.mark.parametrize("script", ["Z", 'T"a', "H Zzz", "C(1,2)"])
def test_a_script_that_makes_no_sense_is_refused(script: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        steps(script)


def test_a_script_can_be_cut_after_any_byte() -> None:
    whole = body_of(words("a b"))
    assert body_of(cut(words("a b"), 10, "RST")) == whole[:10]
    assert cut(calls(("c1", "f", "{}")), 5, "HANG")[-1] == Hang()


async def test_bytes_go_out_exactly_and_the_request_is_recorded() -> None:
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


async def test_a_client_that_leaves_is_seen() -> None:
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


async def test_a_reset_comes_after_all_that_was_written() -> None:
    async with ModelServer('H X"abc" RST') as server, asking(server) as reader:
        await reader.readuntil(b"\r\n\r\n")
        assert await lines(reader, 2) == [b"3", b"abc"]
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_request_too_many_is_seen() -> None:
    async with ModelServer(ok("a")) as server:
        for expected in (b"200", b"599"):
            async with asking(server) as reader:
                assert expected in await reader.readline()


async def test_one_script_may_answer_everything() -> None:
    async with ModelServer(always(ok("a"))) as server:
        for _ in range(3):
            async with asking(server) as reader:
                assert b"200" in await reader.readline()


async def test_an_echo_answers_with_what_was_said() -> None:
    async with ModelServer(echo()) as server:
        body = {"messages": [{"role": "user", "content": "good day"}]}
        async with asking(server, body) as reader:
            answer = await reader.readuntil(b"[DONE]")
    said = [
        json.loads(e.partition(b"data: ")[2]) for e in answer.split(b"\r\n") if b'"content"' in e
    ]
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in said) == "echo: good day"


async def test_it_serves_as_a_process_of_its_own() -> None:
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
