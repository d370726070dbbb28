"""A model service of its own process that streams to many clients at once, on a strict schedule.

It waits until all streams that it is told to expect have been asked for, and then writes a token to
each of them at equal intervals, one stream after the other. Every token says when it was written,
by the monotonic clock that all processes of a machine share. Nothing is composed on the way: an
event is a beginning, nineteen digits and an end.

A stream whose request says `SILENT` hears nothing between its first words and its end. One whose
request says `MUCH` gets long tokens and no end: it is waited for until it has gone.
"""

import argparse
import asyncio
import contextlib
import os
import random
import sys
import time

import msgspec

from tests.fakes.dialects.choose import dialect_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Done, Finish, Head, Text, Usage

STAMP = "0" * 19
"""Where the nanoseconds stand in a token."""

SILENT = "silent-stream"
MUCH = "much-for-each-token"

_CLOSE_ENOUGH = 0.0005  # seconds; less is not worth a sleep
_LENGTH = 4_000  # characters of a long token
_PATIENCE = 20.0  # seconds to wait for those that get no end


class _Words:
    """What every stream is sent."""

    def __init__(self, protocol: ProtocolName) -> None:
        dialect = dialect_for(protocol, Usage())
        first = dialect.feed(Head()) + dialect.feed(Text("It begins."))
        lines = "".join(f"{name}: {value}\r\n" for name, value in dialect.headers.items())
        head = f"HTTP/1.1 200 OK\r\n{lines}transfer-encoding: chunked\r\n\r\n"
        self.head = head.encode() + _chunk(first)
        self.token = _parts(dialect.feed(Text(f" {STAMP} word")))
        self.long = _parts(dialect.feed(Text(f" {STAMP} word {_long_text()}")))
        ending = (dialect.feed(step) for step in (Finish("stop"), Usage(), Done()))
        self.tail = _chunk(b"".join(ending)) + b"0\r\n\r\n"


def _long_text() -> str:
    """Words that do not repeat themselves: a model that did would be stopped."""
    letters = random.Random(_LENGTH)  # noqa: S311 - they are no secret
    words = ("".join(letters.choices("abcdefghijklmno", k=6)) for _ in range(_LENGTH // 7))
    return " ".join(words)


def _chunk(raw: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(raw), raw)


def _parts(token: bytes) -> tuple[bytes, bytes]:
    """What stands before the time of writing, and behind it."""
    before, after = _chunk(token).split(STAMP.encode())
    return before, after


class _Stream(asyncio.Protocol):
    """One connection with one request."""

    transport: asyncio.Transport

    def __init__(self, service: "_Service") -> None:
        self._service = service
        self._received = b""
        self.token: tuple[bytes, bytes] | None = None
        self.gone_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone_at = time.monotonic()
        self._service.one_left.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark:
            return
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) >= int(lines.get(b"content-length", b"0")):
            self._received = b""
            self._service.asked(self, body)


class Report(msgspec.Struct, frozen=True):
    """How the service itself came along."""

    tokens: int
    latest: float  # seconds that it was behind its own schedule, at most
    left: int = 0  # streams whose reader went away before the end
    left_within: float = 0.0  # seconds from the first token until the last of them had gone


class _Service:
    def __init__(self, words: _Words, expected: int) -> None:
        self._words = words
        self._expected = expected
        self._streams: list[_Stream] = []
        self._complete = asyncio.Event()
        self.one_left = asyncio.Event()

    def asked(self, stream: _Stream, body: bytes) -> None:
        if SILENT.encode() not in body:
            stream.token = self._words.long if MUCH.encode() in body else self._words.token
        self._streams.append(stream)
        stream.transport.write(self._words.head)
        if len(self._streams) == self._expected:
            self._complete.set()

    async def play(self, interval: float, times: int) -> Report:
        await self._complete.wait()
        latest, written = 0.0, 0
        apart = interval / len(self._streams)
        due = begun = time.monotonic() + 0.2
        for _ in range(times):
            for stream in self._streams:
                early = due - time.monotonic()
                if early > _CLOSE_ENOUGH:
                    await asyncio.sleep(early)
                latest = max(latest, -early)
                due += apart
                if stream.token and not stream.gone_at:
                    before, after = stream.token
                    stream.transport.write(b"%b%019d%b" % (before, time.monotonic_ns(), after))
                    written += 1
            await asyncio.sleep(0)  # let go what could not be written at once
        endless = [stream for stream in self._streams if stream.token is self._words.long]
        for stream in self._streams:
            if stream not in endless:
                stream.transport.write(self._words.tail)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not all(stream.gone_at for stream in endless):
                    self.one_left.clear()
                    await self.one_left.wait()
        left = [stream.gone_at - begun for stream in endless if stream.gone_at]
        return Report(written, latest, len(left), max(left, default=0.0))


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
