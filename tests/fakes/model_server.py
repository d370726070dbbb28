"""A model service on loopback that does exactly what its script says, byte by byte.

In a test: `async with ModelServer('H T"Hel" RST', ok("done")) as server:` and then `server.url`,
`server.requests`. The path of a request tells the protocol: `/chat/completions`, `/messages` or
`/responses`. As a process: `python -m tests.fakes.model_server --script echo`
prints its URL and serves until it is killed. The language is described in `model_script`.
"""

import argparse
import asyncio
import fcntl
import json
import socket
import struct
import sys
import termios
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

from tests.fakes.dialects.choose import dialect_for, protocol_of, refusal_in
from tests.fakes.dialects.requests import Asked, last_user_text, read_request
from tests.fakes.dialects.steps import ProtocolName, first_usage
from tests.fakes.model_script import (
    Close,
    End,
    Hang,
    Head,
    Repeat,
    Reset,
    Script,
    Status,
    Step,
    Wait,
    status,
    steps,
    words,
)

Handler = Callable[[dict[str, Any]], Script]


class Received:
    """One request, and what became of its connection."""

    def __init__(
        self, method: str, path: str, headers: dict[str, str], raw: bytes, at: float
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.raw = raw
        self.body: Any = json.loads(raw) if raw else None
        self.at = at  # loop time
        self.closed = asyncio.Event()  # the connection is gone, whoever ended it
        self.closed_at: float | None = None
        self.left = False  # the client went away before the script was through
        self.answered = asyncio.Event()  # the script is through

    @property
    def protocol(self) -> ProtocolName:
        """What the client speaks, by the path; for other paths by what its headers tell."""
        if found := protocol_of(self.path):
            return found
        return "anthropic" if "anthropic-version" in self.headers else "chat"

    @cached_property
    def asked(self) -> Asked:
        """The request in no protocol's words."""
        return read_request(self.protocol, self.raw or b"{}")

    @property
    def last_user_text(self) -> str:
        return self.asked.last_user_text

    @property
    def system(self) -> str:
        return self.asked.system

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All but the system prompt; see `Asked` for their keys."""
        return self.asked.messages

    @property
    def tools(self) -> dict[str, Any]:
        """The JSON schemas of the tools on offer, by name."""
        return self.asked.tools

    @property
    def max_tokens(self) -> int | None:
        return self.asked.max_tokens

    @property
    def model(self) -> str | None:
        named: str | None = (self.body or {}).get("model")
        return named

    @property
    def stream(self) -> bool:
        return (self.body or {}).get("stream") is True


class ModelServer:
    """Answers requests to a model by the given scripts in order, or by a function of the request's body.

    When the scripts are used up it answers with status 599, so that a request too many is seen.
    """

    def __init__(
        self, *scripts: Script | Handler, models: Sequence[str] = ("scripted",), port: int = 0
    ) -> None:
        self.requests: list[Received] = []
        self.connections_made = 0
        self.models = tuple(models)
        self.key = ""  # the only one that is accepted, if any is set
        self.refusal = 401  # the status for another one
        self.port = port
        self._scripts = iter(scripts)
        self._handler = next((each for each in scripts if callable(each)), None)
        self._seen = asyncio.Condition()
        self._running: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()

    @property
    def url(self) -> str:
        """The base URL as clients are given it."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def request(self, number: int) -> Received:
        """Wait until that many requests to a model have come (counted from 1), and give that one."""
        async with self._seen:
            await self._seen.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._running:
            task.cancel()
        for connection in tuple(self._connections):
            connection.transport.abort()
        # What went wrong in the test is the test's own and needs no group around it.
        await self._group.__aexit__(None, None, None)

    def receive(self, connection: "_Connection", request: Received) -> None:
        task = self._group.create_task(self._answer(connection, request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, connection: "_Connection", request: Received) -> None:
        route = request.path.partition("?")[0]
        if route in {"/v1/models", "/v1/v1/models"}:
            body = json.dumps(self._listing(request.protocol)).encode()
            await connection.play(self._refusal(request) or (Status(200, {}, body),), request)
            return
        if route == "/nonsense/v1/models":
            await connection.play((Status(200, {}, b"<html>"),), request)
            return
        if protocol_of(request.path) is None:
            await connection.play((status(404, message="no such page"),), request)
            return
        async with self._seen:
            self.requests.append(request)
            script = self._script_for(request)
            self._seen.notify_all()
        await connection.play(steps(script), request)

    def _listing(self, protocol: ProtocolName) -> dict[str, Any]:
        if protocol == "anthropic":
            listed = [{"id": name, "type": "model"} for name in self.models]
            return {"data": listed, "has_more": False}
        named = [{"id": name, "object": "model"} for name in self.models]
        return {"object": "list", "data": named}

    def _refusal(self, request: Received) -> Sequence[Step] | None:
        shown = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        if shown.removeprefix("Bearer ") == self.key or not self.key:
            return None
        return steps((status(self.refusal, message="Incorrect API key provided."),))

    def _script_for(self, request: Received) -> Script:
        if refused := self._refusal(request):
            return refused
        if self._handler is not None:
            return self._handler(request.body)
        chosen = next(self._scripts, None)
        assert not callable(chosen)
        return (status(599, message="no script left"),) if chosen is None else chosen


class _Connection(asyncio.Protocol):
    """One socket: requests in, one after the other, and the bytes of the scripts out."""

    transport: asyncio.Transport

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = b""
        self._request: Received | None = None
        self._lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server._connections.add(self)
        self._server.connections_made += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._connections.discard(self)
        self._lost.set()
        self._writable.set()
        if self._request is not None:
            self._request.closed_at = asyncio.get_running_loop().time()
            self._request.left = not self._request.answered.is_set()
            self._request.closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = first.split(" ")
        now = asyncio.get_running_loop().time()
        self._request = Received(method, path, headers, rest[:length], now)
        self._server.receive(self, self._request)

    async def play(self, script: Sequence[Step], request: Received) -> None:
        self._protocol = request.protocol
        self._dialect = dialect_for(request.protocol, first_usage(script), stream=request.stream)
        ended = await self._steps(script)
        if not ended:
            await self._ending(End())
        request.answered.set()

    async def _steps(self, script: Sequence[Step]) -> bool:
        """Carry the steps out; true when one of them was an ending."""
        for step in script:
            if self._lost.is_set() or await self._step(step):
                return True
        return False

    async def _step(self, step: Step) -> bool:
        match step:
            case Status():
                self.transport.write(_whole(step, self._protocol))
                return True
            case End() | Close() | Reset() | Hang():
                await self._ending(step)
                return True
            case Repeat(inner, times):
                return await self._repeat(inner, times)
            case Head():
                self.transport.write(_head(self._dialect.headers))
                await self._write(self._dialect.feed(step))
            case Wait(seconds):
                await self._write(self._dialect.feed(step))
                await self._pause(seconds)
            case _:
                await self._write(self._dialect.feed(step))
        return False

    async def _write(self, raw: bytes) -> None:
        if raw:
            self.transport.write(b"%x\r\n%b\r\n" % (len(raw), raw))
            await self._writable.wait()

    async def _ending(self, step: End | Close | Reset | Hang) -> None:
        await self._write(self._dialect.close())
        match step:
            case End():
                self.transport.write(b"0\r\n\r\n")
            case Close():
                self.transport.close()
            case Reset():
                await self._reset()
            case Hang():
                await self._lost.wait()

    async def _repeat(self, inner: Sequence[Step], times: int | None) -> bool:
        done = 0
        while times is None or done < times:
            if await self._steps(inner):
                return True
            done += 1
            await asyncio.sleep(0)  # others have a turn, and a lost connection is noticed
        return False

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            pass

    async def _reset(self) -> None:
        sock: socket.socket = self.transport.get_extra_info("socket")
        # A reset throws away what the other side has not got yet, so wait until it has all.
        while not self._lost.is_set() and (
            self.transport.get_write_buffer_size() or _unacknowledged(sock)
        ):
            await self._pause(0.001)
        if self._lost.is_set():
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def _unacknowledged(sock: socket.socket) -> int:
    waiting: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    return waiting


def _head(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 200 OK\r\n{lines}transfer-encoding: chunked\r\n\r\n".encode()


def _whole(response: Status, protocol: ProtocolName) -> bytes:
    said = response.message
    body = response.body if said is None else refusal_in(protocol, response.code, said)
    headers = {
        "content-type": "application/json",
        **response.headers,
        "content-length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.code} Scripted\r\n{lines}\r\n".encode() + body


def always(script: Script) -> Handler:
    """Answers every request with the same script."""
    return lambda _body: script


def echo(delay: float = 0.0) -> Handler:
    """Answers `echo: ` and what the user said last, word by word."""

    return lambda body: words(f"echo: {last_user_text(body)}", delay)


async def _serve(handler: Handler, port: int) -> None:
    async with ModelServer(handler, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model service on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", default="echo", help="echo, slow, hang, or a script")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between words of an echo")
    chosen = parser.parse_args()
    named: dict[str, Handler] = {
        "echo": echo(chosen.delay),
        "slow": echo(chosen.delay or 0.25),
        "hang": always("H HANG"),
    }
    asyncio.run(_serve(named.get(chosen.script) or always(chosen.script), chosen.port))


if __name__ == "__main__":
    main()
