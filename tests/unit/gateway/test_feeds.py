"""Feeds: live events of a turn for its readers."""

import asyncio

import pytest

from agent.events import StepDone, TextDelta
from gateway.turns.feed_events import FeedEnd, FeedEvent, FeedOutcome, join_text
from gateway.turns.feeds import Feed, Feeds
from sessions.changes import EndTurn, SetInbox
from sessions.records import InboxState, TurnState

A, B = TextDelta("a"), TextDelta("b")


async def everything(feed: Feed) -> list[FeedEvent | FeedEnd]:
    found: list[FeedEvent | FeedEnd] = []
    with feed.subscribe() as reading:
        async with asyncio.timeout(5):
            while not (found and isinstance(found[-1], FeedEnd)):
                found.extend(await reading.read())
    return found


async def test_a_second_reader_gets_all_events_from_the_first() -> None:
    feeds = Feeds()
    feed = feeds.start_turn("t1", "o1")
    feed.publish(A)
    first = asyncio.ensure_future(everything(feeds.acquire("o1")))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    feed.publish(B)
    second = asyncio.ensure_future(everything(feeds.acquire("o1")))  # noqa: TID251 - awaited below
    await asyncio.sleep(0)
    feeds.on_committed([EndTurn("t1", TurnState.DONE, 0)])
    assert await first == await second == [A, B, FeedEnd(FeedOutcome.ANSWERED)]


async def test_wake_makes_a_waiting_reader_return() -> None:
    feed = Feed("o1")
    loop = asyncio.get_running_loop()
    with feed.subscribe() as reading:
        loop.call_soon(reading.wake)
        assert await reading.read() == []
        loop.call_soon(feed.publish, A)
        assert await reading.read() == [A]
        reading.cancel()
        assert await reading.read() == []


def test_consecutive_text_deltas_are_merged() -> None:
    done, end = StepDone(), FeedEnd(FeedOutcome.ANSWERED)
    together: list[FeedEvent | FeedEnd] = [A, B, done, done, B, A, B, end]
    assert list(join_text(together)) == [TextDelta("ab"), done, done, TextDelta("bab"), end]
    assert list(join_text([A])) == [A]
    assert list(join_text([done, B])) == [done, B]
    assert list(join_text([])) == []


@pytest.mark.parametrize(
    ("state", "over"),
    [
        (TurnState.DONE, FeedOutcome.ANSWERED),
        (TurnState.FAILED, FeedOutcome.FAILED),
        (TurnState.STOPPED, FeedOutcome.STOPPED),
        (TurnState.INTERRUPTED, FeedOutcome.INTERRUPTED),
    ],
)
def test_a_feed_ends_with_its_turn(state: TurnState, over: FeedOutcome) -> None:
    feeds = Feeds()
    feed, other = feeds.start_turn("t1", "o1"), feeds.start_turn("t2", "o2")
    feeds.on_committed([EndTurn("t1", state, 1_999, "why")])
    assert feed.end == FeedEnd(over, None, "why", 1_999)
    assert other.end is None
    assert feeds.get("o1") is None
    feed.publish(A)
    assert feed.end == FeedEnd(over, None, "why", 1_999)


@pytest.mark.parametrize(
    ("state", "over"),
    [
        (InboxState.REFUSED, FeedOutcome.REFUSED),
        (InboxState.HELD, FeedOutcome.STOPPED),
        (InboxState.IGNORED, FeedOutcome.STOPPED),
        (InboxState.RUNNING, None),
    ],
)
def test_a_feed_of_a_turn_that_never_starts_ends(
    state: InboxState, over: FeedOutcome | None
) -> None:
    feeds = Feeds()
    feed = feeds.acquire("o1")
    feed.inbox_id = "i1"
    feeds.on_committed([SetInbox(ids=("i0", "i1"), state=state, at=0)])
    assert (feed.end and feed.end.outcome) == over


def test_only_the_release_of_the_last_reader_reports_an_unread_turn() -> None:
    feeds = Feeds()
    feed = feeds.start_turn("t1", "o1")
    assert feeds.acquire("o1") is feed
    feeds.acquire("o1")
    assert not feeds.release(feed)
    assert feeds.release(feed)
    assert feeds.get("o1") is feed  # the turn still runs
    feeds.acquire("o1")
    feeds.on_committed([EndTurn("t1", TurnState.DONE, 0)])
    assert not feeds.release(feed)  # the feed has ended


def test_a_feed_without_readers_and_turn_is_forgotten() -> None:
    feeds = Feeds()
    feed = feeds.acquire("o1")
    assert feeds.release(feed)
    assert feeds.get("o1") is None


def test_all_feeds_end_when_the_process_stops() -> None:
    feeds = Feeds()
    running, waiting = feeds.start_turn("t1", "o1"), feeds.acquire("o2")
    feeds.close()
    assert running.end == FeedEnd(FeedOutcome.INTERRUPTED, None, "restart")
    assert waiting.end == FeedEnd(FeedOutcome.NOT_STARTED, None, "restart")
