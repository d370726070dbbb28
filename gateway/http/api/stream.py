"""A turn as an HTTP response: piece by piece as it happens, or whole at its end."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec
from starlette.types import Message, Receive, Scope, Send

from gateway.http.api.endings import INTERRUPTED, Outcome, cleaned, outcome_of
from gateway.http.api.failures import Failure
from gateway.http.api.pieces import Piece, Story
from gateway.http.api.requests import Following
from gateway.observe.redact import Redactor
from gateway.turns.feeds import Reading
from gateway.turns.news import End, News, joined
from sessions.values.clock import Clock

KEEPALIVE = b": keepalive\n\n"
_STATE = "x-session-state"
_EVENTS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would hold the events back
}
_JSON = {"content-type": "application/json", "cache-control": "no-store"}


class Form(Protocol):
    """How one kind of answer is written."""

    def begin(self) -> bytes:
        """Write the first event of an answer."""
        ...

    def piece(self, piece: Piece) -> bytes:
        """Write what is told of a turn."""
        ...

    def end(self, outcome: Outcome) -> bytes:
        """Write how it ended."""
        ...

    def whole(self, text: str, outcome: Outcome) -> bytes:
        """Write the answer in one piece."""
        ...


class AnswerResponse(msgspec.Struct, frozen=True):
    """An ASGI response that lasts as long as its turn, or until its reader leaves."""

    following: Following
    form: Form
    clock: Clock
    keepalive: float
    stream: bool
    redactor: Redactor

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a reader that takes nothing is cut off by `gateway.http.client_timeouts`."""
        with self.following, self.following.feed.reading() as reading:
            async with asyncio.TaskGroup() as group:
                writer = _Writer(self, send)
                beside = [group.create_task(_wait_until_gone(receive, reading))]
                if self.stream:
                    beside.append(group.create_task(writer.mind_silence(reading)))
                await (writer.stream(reading) if self.stream else writer.whole(reading))
                for task in beside:
                    task.cancel()


class _Writer:
    """Writes one response. Headers wait for something to say: until then it can still fail."""

    def __init__(self, answer: AnswerResponse, send: Send) -> None:
        self._form = answer.form
        self._clock = answer.clock
        self._keepalive = answer.keepalive
        state = answer.following.state
        self._more = {_STATE: state} if state else {}
        self._send = send
        self._redactor = answer.redactor
        self._story = Story(answer.redactor)
        self._started = self._begun = False
        self._wrote_at = answer.clock.monotonic()

    async def stream(self, reading: Reading) -> None:
        """Write events until the end, and a sign of life whenever nothing else was written."""
        while not reading.given_up:
            news = await reading.take()
            events = self._events(news)
            if news and isinstance(news[-1], End):
                await self._end(events, self._outcome(news[-1]))
                return
            if events:
                await self._write(events)
            elif self._silence >= self._keepalive:
                # With it the status is out: whoever waits may as well know what for.
                await self._write(KEEPALIVE + self._beginning())
        await self._given_up()

    async def mind_silence(self, reading: Reading) -> None:
        """Let the writer look up when it is time for a sign of life: no timer for each write."""
        while True:
            left = self._keepalive - self._silence
            if left <= 0:
                reading.look_up()
                left = self._keepalive
            await asyncio.sleep(left)

    @property
    def _silence(self) -> float:
        """Seconds since the last write."""
        return self._clock.monotonic() - self._wrote_at

    async def whole(self, reading: Reading) -> None:
        """Wait for the end, then write the answer."""
        while not reading.given_up:
            news = await reading.take()
            self._pieces(news)
            if news and isinstance(news[-1], End):
                outcome = self._outcome(news[-1])
                if outcome.failure and not self._story.text:
                    await self._refuse(outcome.failure)
                else:
                    body = self._form.whole(self._story.text, outcome)
                    await self._respond(200, _JSON | self._more, body)
                return
        await self._given_up()

    async def _given_up(self) -> None:
        """End what was begun. The reader may still be there: the server lets go of all at its end."""
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self._refuse(INTERRUPTED)

    def _outcome(self, end: End) -> Outcome:
        return cleaned(outcome_of(end), self._redactor.clean)

    def _events(self, news: Iterable[News | End]) -> bytes:
        pieces = self._pieces(news)
        if not pieces:
            return b""
        beginning = self._beginning()  # first: a form may count its events
        return beginning + b"".join(map(self._form.piece, pieces))

    def _beginning(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._form.begin()

    def _pieces(self, news: Iterable[News | End]) -> list[Piece]:
        found: list[Piece] = []
        for each in joined(news):
            found.extend(self._story.end() if isinstance(each, End) else self._story.hear(each))
        return found

    async def _end(self, events: bytes, outcome: Outcome) -> None:
        if outcome.failure and not (self._started or events):
            await self._refuse(outcome.failure)
            return
        last = events + self._beginning() + self._form.end(outcome)
        await self._write(last, more=False)

    async def _write(self, content: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await self._send(_start(200, _EVENTS | self._more))
        await self._send({"type": "http.response.body", "body": content, "more_body": more})
        self._wrote_at = self._clock.monotonic()

    async def _refuse(self, failure: Failure) -> None:
        await self._respond(failure.status, failure.headers() | self._more, failure.body())

    async def _respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        await self._send(_start(status, headers | {"content-length": str(len(body))}))
        await self._send({"type": "http.response.body", "body": body})


def _start(status: int, headers: dict[str, str]) -> Message:
    written = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": written}


async def _wait_until_gone(receive: Receive, reading: Reading) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reading.give_up()
