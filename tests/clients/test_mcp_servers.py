"""MCP servers of other people, called through the real daemon with a scripted model."""

import asyncio
import base64
import contextlib
import json
import re
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest

from tests.clients.kit import (
    SCRIPTS,
    Ended,
    Program,
    Started,
    free_port,
    node_program,
    python_program,
    run,
)
from tests.e2e.api_kit import KEY, daemon_for
from tests.e2e.daemon import Daemon
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer

OFFICIAL = "@modelcontextprotocol/server"
NODE_SERVERS = tuple(
    f"{OFFICIAL}-{name}@2026.8.31"
    for name in ("everything", "filesystem", "memory", "sequential-thinking")
)
PYTHON_SERVERS = (
    "mcp-server-time==2026.10.19",
    "mcp-server-git==2026.10.19",
    "mcp-server-fetch==2026.10.24",
)
FASTMCP = "fastmcp==4.1.2"
HOLDFAST = Path(sys.executable).with_name("holdfast")
PAGE = "<html><head><title>Ships</title></head><body><p>The anchor is up.</p></body></html>"
PNG_HEAD = b"\x89PNG\r\n\x1a\n"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def node_servers() -> Path:
    """The folder of programs of the servers from npm."""
    return node_program("mcp-node", *NODE_SERVERS)


@pytest.fixture(scope="module")
def python_servers() -> Path:
    """The folder of programs of the servers from PyPI."""
    return python_program("mcp-python", *PYTHON_SERVERS)


def program_table(name: str, *command: str | Path, **env: str) -> str:
    """Return the configuration of a server that is a program."""
    first, *rest = map(str, command)
    variables = ", ".join(f"{key} = {json.dumps(each)}" for key, each in env.items())
    return (
        f"[[mcp]]\nname = {json.dumps(name)}\ncommand = {json.dumps(first)}\n"
        f'args = {json.dumps(rest)}\nenv = {{ {variables} }}\napproval = "never"\n'
    )


def node_table(name: str, programs: Path, *arguments: str | Path, **env: str) -> str:
    """Return the configuration of a server from npm, run by the Node beside it."""
    start = programs / f"mcp-server-{name}"
    return program_table(name, programs / "node", start.resolve(), *arguments, **env)


def url_table(name: str, url: str) -> str:
    """Return the configuration of a server over HTTP."""
    return f'[[mcp]]\nname = "{name}"\nurl = "{url}"\napproval = "never"\n'


def configured(home: Path, model: ModelServer, *tables: str) -> Daemon:
    """Return a daemon, not yet started, with these servers."""
    home.mkdir(exist_ok=True)
    config = home / "holdfast.toml"
    config.write_text("\n".join(tables))
    daemon = daemon_for(home / "state", model)
    daemon.env = {"HOLDFAST_CONFIG": str(config)}
    return daemon


def calling(*made: tuple[str, dict[str, Any]]) -> Callable[[dict[str, Any]], Script]:
    """A model that makes one call for each message of the person, then says what came back."""

    def answer(body: dict[str, Any]) -> Script:
        messages = body["messages"]
        number = sum(each["role"] == "tool" for each in messages)
        asked = sum(each["role"] == "user" and each["content"] == "call" for each in messages)
        if number < asked:
            name, arguments = made[number]
            return calls((f"c{number}", name, json.dumps(arguments)))
        return ok("Done.")

    return answer


async def ask(daemon: Daemon, text: str = "call") -> dict[str, Any]:
    """Send a message in one conversation; return the answer of the API."""
    headers = {"Authorization": f"Bearer {KEY}", "X-Holdfast-Session": "ships"}
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{daemon.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        found: dict[str, Any] = await response.json()
        assert response.status == 200, found
        return found


async def until_connected(daemon: Daemon, name: str) -> None:
    """Wait until a server can be called, which may take longer than the daemon's start."""
    async with asyncio.timeout(PATIENCE):
        await daemon.logs(f"MCP server {name} is connected")


def result(model: ModelServer) -> str:
    """The last tool result that the model read."""
    messages = (model.requests[-1].body or {})["messages"]
    return str([each for each in messages if each["role"] == "tool"][-1]["content"])


async def called(home: Path, name: str, table: str, tool: str, **arguments: Any) -> str:
    """Return the result of one call, by a fresh daemon."""
    async with (
        ModelServer(calling((f"{name}_{tool}", arguments))) as model,
        configured(home, model, table) as daemon,
    ):
        await until_connected(daemon, name)
        await ask(daemon)
        return result(model)


# --- one call of each server --------------------------------------------------------------------


async def test_everything(node_servers: Path, tmp_path: Path) -> None:
    table = node_table("everything", node_servers)
    assert await called(tmp_path, "everything", table, "echo", message="ahoy") == "Echo: ahoy"


async def test_filesystem(node_servers: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("Day 1: calm\n")
    table = node_table("filesystem", node_servers, tmp_path)
    file = str(tmp_path / "log.txt")
    assert "Day 1: calm" in await called(tmp_path, "filesystem", table, "read_text_file", path=file)


async def test_memory_over_a_restart_of_daemon_and_server(
    node_servers: Path, tmp_path: Path
) -> None:
    table = node_table("memory", node_servers, MEMORY_FILE_PATH=str(tmp_path / "notes.jsonl"))
    entity = {"name": "Ann", "entityType": "captain", "observations": ["likes storms"]}
    said = await called(tmp_path / "a", "memory", table, "create_entities", entities=[entity])
    assert "Ann" in said
    said = await called(tmp_path / "b", "memory", table, "search_nodes", query="captain")
    assert "likes storms" in said


async def test_sequential_thinking(node_servers: Path, tmp_path: Path) -> None:
    name = "sequential-thinking"
    table = node_table(name, node_servers)
    thought = {"thought": "Weigh anchor", "nextThoughtNeeded": False}
    counts = {"thoughtNumber": 1, "totalThoughts": 1}
    said = await called(tmp_path, name, table, "sequentialthinking", **thought, **counts)
    assert '"thoughtHistoryLength": 1' in said


async def test_time(python_servers: Path, tmp_path: Path) -> None:
    table = program_table("time", python_servers / "mcp-server-time")
    said = await called(tmp_path, "time", table, "get_current_time", timezone="Asia/Tokyo")
    assert re.search(r'"datetime": ?"\d{4}-\d\d-\d\dT[\d:]+\+09:00"', said), said


async def test_git(python_servers: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    made = await run("git", "init", "-q", "-b", "harbour", repository)
    assert made.code == 0, made.all
    table = program_table("git", python_servers / "mcp-server-git", "--repository", repository)
    said = await called(tmp_path, "git", table, "git_status", repo_path=str(repository))
    assert "On branch harbour" in said


async def test_fetch(python_servers: Path, tmp_path: Path) -> None:
    async with serving_page() as url:
        program = python_servers / "mcp-server-fetch"
        table = program_table("fetch", program, "--ignore-robots-txt", "--allow-private-ips")
        said = await called(tmp_path, "fetch", table, "fetch", url=url)
    assert "The anchor is up." in said


@contextlib.asynccontextmanager
async def serving_page() -> AsyncIterator[str]:
    """Serve one page on loopback."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n{PAGE}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ships"


# --- pictures -----------------------------------------------------------------------------------


def looking(body: dict[str, Any]) -> Script:
    """A model that asks for a picture, and describes what it then sees."""
    seen = list(pictures_in(body))
    if not seen:
        return calls(("c1", "everything_get-tiny-image", "{}"))
    width, height = struct.unpack(">II", seen[0][16:24])
    return ok(f"A picture of {width} by {height} pixels.")


async def test_a_picture_of_a_result_is_described_by_a_model_that_can_see(
    node_servers: Path, tmp_path: Path
) -> None:
    table = node_table("everything", node_servers)
    async with ModelServer(looking) as model, configured(tmp_path, model, table) as daemon:
        await until_connected(daemon, "everything")
        answer = await ask(daemon)
        said = answer["choices"][0]["message"]["content"]
        assert re.fullmatch(r"A picture of [1-9]\d* by [1-9]\d* pixels\.", said)
        pictures = list(pictures_in(model.requests[-1].body))
    assert len(pictures) == 1
    assert pictures[0].startswith(PNG_HEAD)
    (kept,) = (tmp_path / "state").glob("workspace/*/received/*/picture.png")
    assert kept.read_bytes() == pictures[0]


def pictures_in(body: Any) -> Iterator[bytes]:
    """Yield the pictures that a request to a model contains as parts."""
    for message in body["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else ()
        for part in parts:
            if part["type"] == "image_url":
                head, _, data = part["image_url"]["url"].partition(",")
                assert head == "data:image/png;base64"
                yield base64.b64decode(data)


# --- HTTP ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def everything_over_http(programs: Path, port: int) -> AsyncIterator[Program]:
    """Run server-everything over Streamable HTTP."""
    start = (programs / "mcp-server-everything").resolve()
    command = (programs / "node", start, "streamableHttp")
    async with Started(*command, env={"PORT": str(port)}) as program:
        await program.says("listening on port")
        yield program


async def test_a_restart_of_an_http_server_between_two_calls_is_not_noticed(
    node_servers: Path, tmp_path: Path
) -> None:
    port = free_port()
    echoes = [("everything_echo", {"message": each}) for each in ("one", "two")]
    async with ModelServer(calling(*echoes)) as model:
        daemon = configured(
            tmp_path, model, url_table("everything", f"http://127.0.0.1:{port}/mcp")
        )
        async with everything_over_http(node_servers, port):
            await daemon.start()
            await until_connected(daemon, "everything")
            await ask(daemon)
            assert result(model) == "Echo: one"
        async with everything_over_http(node_servers, port):
            await ask(daemon)
            assert result(model) == "Echo: two"
            await daemon.stop()


# --- logins -------------------------------------------------------------------------------------


async def test_a_login_at_fastmcp_serves_the_calls_of_the_daemon(tmp_path: Path) -> None:
    python = python_program("fastmcp", FASTMCP) / "python"
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with (
        Started(python, SCRIPTS / "fastmcp_login.py", str(port)) as server,
        ModelServer(calling(("vault_open_sesame", {}))) as model,
    ):
        await server.says("Uvicorn running on")
        daemon = configured(tmp_path, model, url_table("vault", url))
        ours = {**daemon.env, "HOLDFAST_HOME": str(daemon.home)}
        listed = await run(HOLDFAST, "mcp", "test", "vault", env=ours)
        assert listed.code == 1
        assert "log in with: holdfast mcp login vault" in listed.all
        ended = await log_in(ours)
        assert ended.code == 0, ended.all
        (file,) = (daemon.home / "mcp-tokens").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        async with daemon:
            await until_connected(daemon, "vault")
            await ask(daemon)
        assert result(model) == "gold"
        tokens = json.loads(file.read_bytes())["tokens"]
        assert not any(tokens["access_token"] in line for line in daemon.said)


async def log_in(env: dict[str, str]) -> Ended:
    """Run `holdfast mcp login`, and open the address that it prints as a browser does."""
    async with Started(HOLDFAST, "mcp", "login", "vault", env=env) as program:
        address = (await program.says("/authorize?")).strip()
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(address, follow_redirects=True)
        code = await program.ends()
        return Ended(code=code, out="\n".join(program.lines), err=page.text)
