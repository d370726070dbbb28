"""A model service of its own process that streams to many clients at once, on a strict schedule.

It waits until all streams that it is told to expect have been asked for, and then writes a token to
each of them at equal intervals, one stream after the other. Every token says when it was written,
by the monotonic clock that all processes of a machine share. Nothing is composed on the way: an
event is a beginning, nineteen digits and an end.
"""

import argparse
import asyncio
import os
import sys
import time

import msgspec

from tests.fakes.dialects.choose import dialect_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Done, Finish, Head, Text, Usage

STAMP = "0" * 19
"""Where the nanoseconds stand in a token."""

_CLOSE_ENOUGH = 0.0005  # seconds; less is not worth a sleep


class _Words:
    """What every stream is sent."""

    def __init__(self, protocol: ProtocolName) -> None:
        dialect = dialect_for(protocol, Usage())
        first = dialect.feed(Head()) + dialect.feed(Text("It begins."))
        lines = "".join(f"{name}: {value}\r\n" for name, value in dialect.headers.items())
        head = f"HTTP/1.1 200 OK\r\n{lines}transfer-encoding: chunked\r\n\r\n"
        token = dialect.feed(Text(f" {STAMP} word"))
        self.head = head.encode() + _chunk(first)
        self.before, self.after = _chunk(token).split(STAMP.encode())
        ending = (dialect.feed(step) for step in (Finish("stop"), Usage(), Done()))
        self.tail = _chunk(b"".join(ending)) + b"0\r\n\r\n"


def _chunk(raw: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(raw), raw)


class _Stream(asyncio.Protocol):
    """One connection with one request."""

    transport: asyncio.Transport

    def __init__(self, service: "_Service") -> None:
        self._service = service
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark:
            return
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) >= int(lines.get(b"content-length", b"0")):
            self._received = b""
            self._service.asked(self)


class Report(msgspec.Struct, frozen=True):
    """How the service itself came along."""

    tokens: int
    latest: float  # seconds that it was behind its own schedule, at most


class _Service:
    def __init__(self, words: _Words, expected: int) -> None:
        self._words = words
        self._expected = expected
        self._streams: list[_Stream] = []
        self._complete = asyncio.Event()

    def asked(self, stream: _Stream) -> None:
        self._streams.append(stream)
        stream.transport.write(self._words.head)
        if len(self._streams) == self._expected:
            self._complete.set()

    async def play(self, interval: float, times: int) -> Report:
        await self._complete.wait()
        words, latest = self._words, 0.0
        apart = interval / len(self._streams)
        due = time.monotonic() + 0.2
        for _ in range(times):
            for stream in self._streams:
                early = due - time.monotonic()
                if early > _CLOSE_ENOUGH:
                    await asyncio.sleep(early)
                latest = max(latest, -early)
                token = b"%b%019d%b" % (words.before, time.monotonic_ns(), words.after)
                stream.transport.write(token)
                due += apart
            await asyncio.sleep(0)  # let go what could not be written at once
        for stream in self._streams:
            stream.transport.write(words.tail)
        return Report(times * len(self._streams), latest)


async def _serve(chosen: argparse.Namespace) -> None:
    service = _Service(_Words(chosen.protocol), chosen.streams)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Stream(service), "127.0.0.1", 0, backlog=2048
    )
    _say(str(server.sockets[0].getsockname()[1]).encode())
    _say(msgspec.json.encode(await service.play(chosen.interval, chosen.times)))
    await asyncio.Event().wait()  # until the one who asked has read it all, and ends this


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS, default="chat")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True, help="seconds between tokens")
    parser.add_argument("--times", type=int, required=True, help="tokens for each stream")
    parser.add_argument("--core", type=int, help="run on this core only")
    chosen = parser.parse_args()
    if chosen.core is not None:
        os.sched_setaffinity(0, {chosen.core})
    asyncio.run(_serve(chosen))


if __name__ == "__main__":
    main()
