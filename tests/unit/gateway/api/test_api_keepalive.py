"""Keepalives of a stream, to the second, in a loop with simulated time."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from agent.events import ReasoningDelta, TextDelta, ToolFinished, ToolStarted
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.requests import TurnSubscription
from gateway.http.api.stream import KEEPALIVE_COMMENT, AnswerResponse, Keepalive
from gateway.observe.redact import Redactor
from gateway.turns.feed_events import FeedEvent, FeedOutcome
from gateway.turns.feeds import Feed
from sessions.records import InboxEntry, InboxState
from sessions.values.address import Address
from tests.unit.delivery.simulation import World

INTERVAL = 10.0
WORD = TextDelta("word ")
THOUGHT = ReasoningDelta("hm ")
TOOL = ToolStarted("c1", "read", "a"), ToolFinished("c1", "read", ok=True)

ASKED = InboxEntry(
    id="i1",
    source="api",
    event="e1",
    key="api:1",
    address=Address("api", "1"),
    state=InboxState.RUNNING,
    payload=b"",
    received_at=0,
    decision="admin",
)

TimedEvents = Sequence[tuple[float, FeedEvent]]
"""Events of a turn, with their times."""


class Client:
    """A client that records bodies with their times and can stall for a while."""

    def __init__(self, stalled_until: float = 0.0) -> None:
        self.received: list[tuple[float, bytes]] = []
        self.left = asyncio.Event()
        self._until = stalled_until

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        if self.received:
            await asyncio.sleep(max(0.0, self._until - loop.time()))
        if body := message.get("body"):
            self.received.append((loop.time(), body))

    def keepalives(self) -> list[float]:
        """Times of keepalives."""
        return [at for at, body in self.received if body.startswith(KEEPALIVE_COMMENT)]

    def writes(self) -> list[float]:
        """Times of all other writes."""
        return [at for at, body in self.received if not body.startswith(KEEPALIVE_COMMENT)]


def run_in_simulated_time(work: Callable[[World], Coroutine[Any, Any, Client]]) -> Client:
    with asyncio.Runner(loop_factory=World) as runner:
        world = runner.get_loop()
        assert isinstance(world, World)
        return runner.run(work(world))


def stream_turn(told: TimedEvents, end: float, *, stalled_until: float = 0.0) -> Client:
    """Stream a turn that ends at the given time."""

    async def work(world: World) -> Client:
        feed, client = Feed("o1"), Client(stalled_until)

        async def turn() -> None:
            for at, news in told:
                await asyncio.sleep(at - world.time())
                feed.publish(news)
            await asyncio.sleep(end - world.time())
            feed.finish(FeedOutcome.ANSWERED)

        answer = AnswerResponse(
            subscription=TurnSubscription(
                feed=feed,
                id="a1",
                entry=ASKED,
                created=0,
                model="m",
                session_state="",
                unsubscribe=lambda: None,
            ),
            encoder=ChatEncoder("a1", "m", 0),
            clock=world,
            keepalive=Keepalive(idle_seconds=INTERVAL),
            stream=True,
            redactor=Redactor(),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(turn())
            await answer({}, client.receive, client.send)
            assert world.time() == max(end, stalled_until)
        assert client.received[-1][1].endswith(b"data: [DONE]\n\n")
        return client

    return run_in_simulated_time(work)


CASES: dict[str, tuple[TimedEvents, float, list[float]]] = {
    "only an end": ([], 9.9, []),
    "long wait for the first text": ([(25, WORD)], 30, [10, 20]),
    "gap between two texts": ([(1, WORD), (36, WORD)], 37, [11, 21, 31]),
    "text every nine seconds": ([(9.0 * number, WORD) for number in range(9)], 81, []),
    "each write restarts the interval": ([(9, WORD), (18, WORD)], 40, [28, 38]),
    "silent tool": ([(1, TOOL[0]), (34, TOOL[1])], 35, [11, 21, 31]),
    "reasoning is not written": ([(number, THOUGHT) for number in range(1, 33)], 33, [10, 20, 30]),
    "a keepalive restarts the interval": ([(2, WORD), (13, WORD)], 24, [12, 23]),
}


@pytest.mark.parametrize(("told", "end", "keepalives"), CASES.values(), ids=CASES)
def test_keepalive_follows_every_idle_interval(
    told: TimedEvents, end: float, keepalives: list[float]
) -> None:
    assert stream_turn(told, end).keepalives() == keepalives


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([WORD, THOUGHT, *TOOL])), max_size=12),
    st.integers(0, 40),
)
def test_every_gap_has_its_keepalives_for_any_events(
    steps: list[tuple[int, FeedEvent]], last: int
) -> None:
    now, told = 0.25, list[tuple[float, FeedEvent]]()
    for pause, news in steps:
        now += pause
        told.append((now, news))
    client = stream_turn(told, now + last)
    for before, after in pairwise([0.0, *client.writes()]):
        count = math.ceil((after - before) / INTERVAL) - 1
        expected = [before + INTERVAL * number for number in range(1, count + 1)]
        found = [at for at in client.keepalives() if before < at < after]
        assert found == pytest.approx(expected)


def test_keepalives_do_not_pile_up_for_a_stalled_reader() -> None:
    client = stream_turn([(1, WORD), (2, WORD)], 75, stalled_until=55)
    assert client.keepalives() == [65]
    assert client.writes() == [1, 55, 75]


def test_stream_ends_when_its_reader_disconnects() -> None:
    async def work(world: World) -> Client:
        feed, client = Feed("o1"), Client()
        left: list[float] = []
        answer = AnswerResponse(
            subscription=TurnSubscription(
                feed=feed,
                id="a1",
                entry=ASKED,
                created=0,
                model="m",
                session_state="",
                unsubscribe=lambda: left.append(world.time()),
            ),
            encoder=ChatEncoder("a1", "m", 0),
            clock=world,
            keepalive=Keepalive(idle_seconds=INTERVAL),
            stream=True,
            redactor=Redactor(),
        )
        world.call_later(23, client.left.set)
        await answer({}, client.receive, client.send)
        assert left == [23]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return client

    assert run_in_simulated_time(work).keepalives() == [10, 20]
