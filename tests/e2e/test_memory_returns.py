"""Memory of the daemon after a burst: it is returned to the system within a minute."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.http import api_key
from tests.e2e.daemon import Daemon
from tests.fakes.dialects.requests import last_user_text
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import ModelServer
from tests.faults.floods import long_text, resident_megabytes

BUDGET = 1.2
"""Memory after the burst, as a multiple of the memory before."""
WITHIN_SECONDS = 60.0

UNREAD, UNREAD_MEGABYTES = 30, 4
ANSWER_MEGABYTES = 20
IDLE = 10_000
USUAL = 500  # connections before the burst


def writer(body: dict[str, Any]) -> Script:
    """Answer "N MB" with so much text, anything else in brief."""
    asked = last_user_text(body)
    if not asked.endswith(" MB"):
        return ok("fine")
    return long_text(int(asked.split()[0]))


class Api:
    """A client of the daemon's API."""

    def __init__(self, daemon: Daemon) -> None:
        self._port = daemon.port
        key = api_key.key_path(daemon.home).read_text(encoding="ascii").strip()
        self._headers = {"Authorization": f"Bearer {key}"}

    async def ask(self, question: str, *, stream: bool) -> int:
        """Ask a question; return the size of the response."""
        async with (
            aiohttp.ClientSession(headers=self._headers) as http,
            http.post(
                f"http://127.0.0.1:{self._port}/v1/chat/completions",
                json=self._body(question, stream=stream),
                timeout=aiohttp.ClientTimeout(total=120),
            ) as response,
        ):
            return len(await response.read())

    async def is_idle(self) -> bool:
        """Return True if no turn runs."""
        async with (
            aiohttp.ClientSession(headers=self._headers) as http,
            http.get(f"http://127.0.0.1:{self._port}/metrics") as response,
        ):
            return "\nholdfast_running_turns 0" in await response.text()

    def connect(self) -> socket.socket:
        """Open a connection that reads hardly anything."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self._port))
        return connection

    def ask_without_reading(self, question: str) -> socket.socket:
        """Ask a question and leave the streamed answer unread."""
        body = json.dumps(self._body(question, stream=True))
        head = {
            "Host": f"127.0.0.1:{self._port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **self._headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        connection = self.connect()
        connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{lines}\r\n{body}".encode())
        return connection

    @staticmethod
    def _body(question: str, *, stream: bool) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": question}], "stream": stream}


@contextlib.contextmanager
def _closing(connections: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for connection in connections:
            connection.close()


async def leave_streams_unread(api: Api, grown: Callable[[float], bool]) -> None:
    connections = [api.ask_without_reading(f"{UNREAD_MEGABYTES} MB") for _ in range(UNREAD)]
    with _closing(connections):
        await _until(lambda: grown(4.0))


async def get_a_long_answer(api: Api, grown: Callable[[float], bool]) -> None:
    assert await api.ask(f"{ANSWER_MEGABYTES} MB", stream=True) > 1_000_000
    assert await api.ask(f"{ANSWER_MEGABYTES} MB", stream=False) > 1_000_000
    assert grown(1.0)


async def leave_connections_idle(
    api: Api, grown: Callable[[float], bool], count: int = IDLE
) -> None:
    connections: list[socket.socket] = []
    with _closing(connections):
        for _ in range(count // 100):
            connections += [api.connect() for _ in range(100)]
            grown(1.0)
            await asyncio.sleep(0)


async def _until(condition: Callable[[], bool], seconds: float = WITHIN_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the kernel tells only who asks
            await asyncio.sleep(0.1)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("burst", "settings"),
    [
        pytest.param(
            leave_streams_unread,
            ("agent.max_answer_characters=10000000",),
            id="30 unread streams of 4 MB",
        ),
        pytest.param(
            get_a_long_answer, ("agent.max_answer_characters=100000000",), id="an answer of 20 MB"
        ),
        pytest.param(leave_connections_idle, (), id="10,000 idle connections"),
    ],
)
async def test_memory_comes_back_within_a_minute_after_a_burst(
    tmp_path: Path, burst: Any, settings: tuple[str, ...]
) -> None:
    async with ModelServer(writer) as model:
        daemon = Daemon(
            tmp_path,
            "model.name=scripted",
            f"model.base_url={model.url}",
            *settings,
            env={"OPENAI_API_KEY": "sk-none"},
        )
        async with daemon:
            api = Api(daemon)
            for _ in range(20):
                await api.ask("hello", stream=True)
                await api.ask("hello", stream=False)
            # The interpreter keeps some objects of the first few hundred for reuse.
            await leave_connections_idle(api, lambda _: False, USUAL)
            assert await api.is_idle()  # loads the library of the metrics
            before = most = resident_megabytes(daemon.pid)

            def grown(factor: float) -> bool:
                nonlocal most
                most = max(most, resident_megabytes(daemon.pid))
                return most > before * factor

            await burst(api, grown)
            async with asyncio.timeout(WITHIN_SECONDS):
                while not await api.is_idle():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.1)
            seen: list[float] = []

            def is_back() -> bool:
                seen.append(resident_megabytes(daemon.pid))
                return seen[-1] <= before * BUDGET

            try:
                await _until(is_back)
            except TimeoutError:
                pytest.fail(
                    f"{before:.0f} MB before, {most:.0f} then, {seen[-1]:.0f} a minute later"
                )
