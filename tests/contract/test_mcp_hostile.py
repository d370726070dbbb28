"""Hostile MCP servers as programs: none takes the gateway, another call or the log down."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.errors import ToolError, ToolUnknownOutcome
from agent.settings import McpSettings
from agent.tools.mcp import program
from sessions.values.secret import Secret
from tests.contract.test_mcp_servers import PATIENCE, Watched

SERVER = Path(__file__).parents[1] / "fakes" / "mcp_hostile_server.py"


class Context(msgspec.Struct, frozen=True):
    workspace: Path
    idempotency_key: str = "session:turn:call"
    report_progress: Any = print
    ask_person: None = None


def hostile(how: str, *more: str) -> McpSettings:
    return McpSettings(name="odd", command=sys.executable, args=(str(SERVER), how, *more))


async def call(servers: Watched, name: str, workspace: Path) -> str:
    return (await servers.output(name, context=Context(workspace))).text


async def test_a_burst_of_messages_costs_little_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_LINES_PER_SECOND", 1_000_000)
    servers = Watched(hostile("burst"))
    async with servers.running(), asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        output = loop.create_task(servers.output("go", context=Context(tmp_path)))
        worst = 0.0
        while not output.done():  # other work goes on
            began = loop.time()
            await asyncio.sleep(0.01)
            worst = max(worst, loop.time() - began)
        assert output.result().text == "done"
        assert worst < 1.0
        assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) < 40


async def test_a_program_that_dies_in_its_answer_has_an_unknown_outcome(tmp_path: Path) -> None:
    servers = Watched(hostile("crash"))
    async with servers.running():
        with pytest.raises(ToolUnknownOutcome, match="may have taken effect"):
            await call(servers, "half", tmp_path)
        await servers.until(lambda tools: tools)


async def test_answers_of_the_wrong_shape_fail_only_their_call(tmp_path: Path) -> None:
    servers = Watched(hostile("malformed"))
    async with servers.running():
        for name in ("a_text", "a_list", "nothing", "no_content", "unknown_content"):
            with pytest.raises(ToolError):
                await call(servers, name, tmp_path)
            await servers.until(lambda tools: tools)
        assert (await call(servers, "bad_picture", tmp_path)).startswith("[")
        text = await call(servers, "odd_picture", tmp_path)
        assert "../" not in text
        text = await call(servers, "odd_name", tmp_path)
        assert text.startswith("[File: received/")
        assert "/passwd (" in text
    found = list(tmp_path.rglob("*"))  # noqa: ASYNC240 - a test
    assert all(path.resolve().is_relative_to(tmp_path) for path in found)


async def test_an_answer_in_small_pieces_arrives(tmp_path: Path) -> None:
    servers = Watched(hostile("slow"))
    async with servers.running():
        text = await call(servers, "drip", tmp_path)
        assert text == "[The call succeeded without a result.]"


async def test_a_grandchild_that_keeps_the_pipes_open_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_EXIT_SECONDS", 0.2)
    monkeypatch.setattr(program, "_KILL_SECONDS", 0.2)
    note = tmp_path / "pid"
    servers = Watched(hostile("grandchild", str(note)))
    began = time.monotonic()
    try:
        async with servers.running():
            with pytest.raises(ToolUnknownOutcome, match="may have taken effect"):
                await call(servers, "go", tmp_path)
            await servers.until(lambda tools: not tools)
            await servers.until(lambda tools: tools)  # it is started again
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(note.read_text()), signal.SIGKILL)
    assert time.monotonic() - began < PATIENCE


@contextlib.asynccontextmanager
async def old_http_server(events: bytes, posts: list[str]) -> AsyncIterator[str]:
    """Run a server of the older HTTP transport that sends these events and accepts no message."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if head.startswith("GET"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events)
            else:
                posts.append(head.split()[1])
                writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sse"


@pytest.mark.parametrize(
    "events",
    [
        pytest.param("event: endpoint\ndata: {other}/messages\n\n", id="another server"),
        pytest.param("event: endpoint\ndata: //evil.example/x\n\n", id="another host"),
        pytest.param("event: message\ndata: {{}}\n\n", id="no endpoint"),
        pytest.param("data: \n\n", id="nothing"),
        pytest.param("event: endpoint\ndata: /messages\n\n", id="no answers"),
    ],
)
async def test_a_server_of_the_older_transport_gets_our_headers_only_at_its_own_address(
    events: str,
) -> None:
    elsewhere: list[str] = []
    posts: list[str] = []
    async with (
        old_http_server(b"", elsewhere) as other,
        old_http_server(events.format(other=other).encode(), posts) as url,
    ):
        settings = McpSettings(name="odd", url=url, headers={"Token": Secret("s3cret")})
        servers = Watched(settings)
        async with asyncio.timeout(PATIENCE), servers.running():
            assert servers.status()["odd"].startswith("not connected: ")
            assert servers.tools() == ()
    assert elsewhere == []
    assert posts
