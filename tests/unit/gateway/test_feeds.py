"""Feeds: what is told of a turn to those who wait for it."""

import asyncio

import pytest

from agent.events import StepDone, TextDelta
from gateway.turns.feeds import Feed, Feeds
from gateway.turns.news import End, News, Over, joined
from sessions.changes import EndTurn, SetInbox
from sessions.records import InboxState, TurnState

A, B = TextDelta("a"), TextDelta("b")


async def everything(feed: Feed) -> list[News | End]:
    found: list[News | End] = []
    with feed.reading() as reading:
        async with asyncio.timeout(5):
            while not (found and isinstance(found[-1], End)):
                found.extend(await reading.take())
    return found


async def test_a_second_reader_gets_everything_from_the_beginning() -> None:
    feeds = Feeds()
    feed = feeds.begun("t1", "o1")
    feed.tell(A)
    first = asyncio.ensure_future(everything(feeds.open("o1")))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    feed.tell(B)
    second = asyncio.ensure_future(everything(feeds.open("o1")))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    feeds.committed([EndTurn("t1", TurnState.DONE, 0)])
    assert await first == await second == [A, B, End(Over.ANSWERED)]


async def test_a_reader_looks_up_from_silence_when_it_is_told_to() -> None:
    feed = Feed("o1")
    loop = asyncio.get_running_loop()
    with feed.reading() as reading:
        loop.call_soon(reading.look_up)
        assert await reading.take() == []
        loop.call_soon(feed.tell, A)
        assert await reading.take() == [A]
        reading.give_up()
        assert await reading.take() == []


def test_pieces_that_came_together_are_told_as_one() -> None:
    done, end = StepDone(), End(Over.ANSWERED)
    together: list[News | End] = [A, B, done, done, B, A, B, end]
    assert list(joined(together)) == [TextDelta("ab"), done, done, TextDelta("bab"), end]
    assert list(joined([A])) == [A]
    assert list(joined([done, B])) == [done, B]
    assert list(joined([])) == []


@pytest.mark.parametrize(
    ("state", "over"),
    [
        (TurnState.DONE, Over.ANSWERED),
        (TurnState.FAILED, Over.FAILED),
        (TurnState.STOPPED, Over.STOPPED),
        (TurnState.INTERRUPTED, Over.INTERRUPTED),
    ],
)
def test_a_feed_ends_with_its_turn(state: TurnState, over: Over) -> None:
    feeds = Feeds()
    feed, other = feeds.begun("t1", "o1"), feeds.begun("t2", "o2")
    feeds.committed([EndTurn("t1", state, 0, "why")])
    assert feed.end == End(over, None, "why")
    assert other.end is None
    assert feeds.known("o1") is None
    feed.tell(A)
    assert feed.end == End(over, None, "why")


@pytest.mark.parametrize(
    ("state", "over"),
    [
        (InboxState.REFUSED, Over.REFUSED),
        (InboxState.HELD, Over.STOPPED),
        (InboxState.RUNNING, None),
    ],
)
def test_what_is_never_begun_ends_as_well(state: InboxState, over: Over | None) -> None:
    feeds = Feeds()
    feed = feeds.open("o1")
    feed.inbox = "i1"
    feeds.committed([SetInbox(("i0", "i1"), state, 0)])
    assert (feed.end and feed.end.over) == over


def test_only_the_last_reader_leaves_a_turn_alone() -> None:
    feeds = Feeds()
    feed = feeds.begun("t1", "o1")
    assert feeds.open("o1") is feed
    feeds.open("o1")
    assert not feeds.leave(feed)
    assert feeds.leave(feed)
    assert feeds.known("o1") is feed  # the turn still runs
    feeds.open("o1")
    feeds.committed([EndTurn("t1", TurnState.DONE, 0)])
    assert not feeds.leave(feed)  # there is nothing to end any more


def test_a_feed_that_nobody_reads_and_no_turn_tells_is_forgotten() -> None:
    feeds = Feeds()
    feed = feeds.open("o1")
    assert feeds.leave(feed)
    assert feeds.known("o1") is None


def test_at_the_end_of_the_process_nobody_waits_on() -> None:
    feeds = Feeds()
    running, waiting = feeds.begun("t1", "o1"), feeds.open("o2")
    feeds.close()
    assert running.end == End(Over.INTERRUPTED, None, "restart")
    assert waiting.end == End(Over.NOT_BEGUN, None, "restart")
