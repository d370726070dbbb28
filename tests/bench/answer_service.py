"""A model service of its own process whose answers are written in the question.

`go t17 100x20` asks for an answer of 100 tokens, one every 20 ms; `x0` gives all of it at once. An
answer says in its end to which question it belongs, so that whoever shows it can be checked.
"""

import asyncio
import heapq
import os
import re
import sys
from itertools import count

from gateway.operate.selftest.plain_http import Connection, serve
from tests.fakes.dialects.choose import dialect_for
from tests.fakes.dialects.steps import Said
from tests.fakes.model_script import Done, Finish, Head, Text, Usage

_ASKED = re.compile(rb"go t(\d+) (\d+)x(\d+)")
_TICK = 0.001  # seconds; tokens that are due within one go together


def question(number: int, tokens: int, milliseconds: int) -> str:
    """Write what the service understands."""
    return f"go t{number} {tokens}x{milliseconds}"


class _Words:
    """The pieces of every answer, as they are sent."""

    def __init__(self) -> None:
        self._dialect = dialect_for("chat", Usage())
        lines = "".join(f"{name}: {value}\r\n" for name, value in self._dialect.headers.items())
        self.head = f"HTTP/1.1 200 OK\r\n{lines}transfer-encoding: chunked\r\n\r\n".encode()
        self.first = self._chunk(Head()) + self._chunk(Text("Here is **what you asked for**:"))
        self.token = self._chunk(Text(" word"))
        self._ending = self._chunk(Finish("stop")) + self._chunk(Usage()) + self._chunk(Done())

    def last(self, number: int) -> bytes:
        """The end of the answer to a question."""
        return self._chunk(Text(f" whole-t{number}.")) + self._ending + b"0\r\n\r\n"

    def _chunk(self, step: Head | Said) -> bytes:
        raw = self._dialect.feed(step)
        return b"%x\r\n%b\r\n" % (len(raw), raw) if raw else b""


class _Stream:
    """An answer that is being written."""

    def __init__(self, to: Connection, number: int, tokens: int, apart: float) -> None:
        self.to = to
        self.number = number
        self.left = tokens
        self.apart = apart


class AnswerService:
    """Writes answers, as many at once as are asked for."""

    def __init__(self) -> None:
        self._words = _Words()
        self._due: list[tuple[float, int, _Stream]] = []
        self._numbers = count()
        self._news = asyncio.Event()

    def asked(self, connection: Connection, path: str, body: bytes) -> None:
        """Take a request."""
        place = body.rfind(b"go t")
        found = _ASKED.match(body, place) if place >= 0 else None
        if not path.endswith("/chat/completions") or not found:
            connection.answer(b'{"error": {"message": "this is no question"}}', 400)
            return
        number, tokens, milliseconds = map(int, found.groups())
        if not milliseconds:
            words = self._words
            answer = words.head + words.first + words.token * tokens + words.last(number)
            connection.write(answer)
            return
        connection.write(self._words.head + self._words.first)
        self._plan(_Stream(connection, number, tokens, milliseconds / 1000), _now())
        self._news.set()

    def _plan(self, stream: _Stream, after: float) -> None:
        heapq.heappush(self._due, (after + stream.apart, next(self._numbers), stream))

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            self._news.clear()
            if not self._due:
                await self._news.wait()
            early = self._due[0][0] - _now()
            if early > 0:
                await asyncio.sleep(max(early, _TICK))
            self._write_due(_now())
            await asyncio.sleep(0)

    def _write_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            moment, _, stream = heapq.heappop(self._due)
            if stream.to.is_closed:
                continue
            stream.left -= 1
            if stream.left > 0:
                stream.to.write(self._words.token)
                self._plan(stream, moment)
            else:
                stream.to.write(self._words.token + self._words.last(stream.number))


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _serve() -> None:
    service = AnswerService()
    async with serve(service.asked) as port:
        print(port, flush=True)  # noqa: T201 - whoever started this reads it
        await service.run()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(_serve())
