"""What a turn tells while it runs, for those who wait for it at this very moment.

A chat is shown what stands in the outbox; whoever asked over HTTP reads a feed instead. It is named
by the origin of what was asked, keeps everything from the beginning, so that a second reader misses
nothing, and is forgotten once it has ended: what lasts is in the store.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from agent.events import TurnDone
from gateway.turns.feed_events import FeedEnd, FeedEvent, FeedOutcome
from sessions.changes import Change, EndTurn, SetInbox
from sessions.records import InboxState, TurnState

_OUTCOME_BY_TURN_STATE = {
    TurnState.DONE: FeedOutcome.ANSWERED,
    TurnState.FAILED: FeedOutcome.FAILED,
    TurnState.STOPPED: FeedOutcome.STOPPED,
}
_OUTCOME_BY_INBOX_STATE = {
    InboxState.REFUSED: FeedOutcome.REFUSED,
    InboxState.HELD: FeedOutcome.STOPPED,
    InboxState.DONE: FeedOutcome.STOPPED,
}


class Feed:
    """What is told of one turn."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.inbox_id = ""  # the row that asks, once it is known
        self.reader_count = 0
        self.end: FeedEnd | None = None
        self._events: list[FeedEvent] = []
        self._result: TurnDone | None = None
        self._reader_wakeups: set[asyncio.Event] = set()

    def publish(self, event: FeedEvent) -> None:
        """Let all readers know."""
        if self.end is None:
            self._events.append(event)
            self._wake()

    def set_result(self, result: TurnDone) -> None:
        """The agent is through; that counts once it is committed."""
        self._result = result

    def finish(self, outcome: FeedOutcome, cause: str = "") -> None:
        """Nothing more will come."""
        if self.end is None:
            self.end = FeedEnd(outcome, self._result, cause)
            self._wake()

    @contextlib.contextmanager
    def subscribe(self) -> Iterator["FeedReader"]:
        """Read everything from the beginning to the end."""
        news = asyncio.Event()
        self._reader_wakeups.add(news)
        try:
            yield FeedReader(self, self._events, news)
        finally:
            self._reader_wakeups.discard(news)

    def _wake(self) -> None:
        for news in self._reader_wakeups:
            news.set()


class FeedReader:
    """One reader's place in a feed; made by `Feed.reading`."""

    def __init__(self, feed: Feed, events: Sequence[FeedEvent], wakeup: asyncio.Event) -> None:
        self._feed = feed
        self._events = events
        self._wakeup = wakeup
        self._position = 0
        self.is_cancelled = False

    def cancel(self) -> None:
        """Read no more: whoever wanted it is gone."""
        self.is_cancelled = True
        self._wakeup.set()

    def wake(self) -> None:
        """Have `take` return, also with nothing."""
        self._wakeup.set()

    async def read(self) -> Sequence[FeedEvent | FeedEnd]:
        """Give what is new, once there is something, or the reader was made to look up."""
        if not (self._has_more or self.is_cancelled):
            self._wakeup.clear()
            await self._wakeup.wait()
        found: list[FeedEvent | FeedEnd] = list(self._events[self._position :])
        self._position = len(self._events)
        if self._feed.end:
            found.append(self._feed.end)
        return found

    @property
    def _has_more(self) -> bool:
        return self._position < len(self._events) or self._feed.end is not None


class Feeds:
    """All that somebody reads, or may come to read."""

    def __init__(self) -> None:
        self._by_origin: dict[str, Feed] = {}
        self._by_turn: dict[str, Feed] = {}

    def acquire(self, origin: str) -> Feed:
        """Begin to read; `leave` must follow."""
        feed = self._get_or_create(origin)
        feed.reader_count += 1
        return feed

    def release(self, feed: Feed) -> bool:
        """Read no more; says whether it was the last reader of what is not over."""
        feed.reader_count -= 1
        if feed.reader_count or feed.end:
            return False
        if feed not in self._by_turn.values():
            self._by_origin.pop(feed.origin, None)
        return True

    def get(self, origin: str) -> Feed | None:
        """Give a feed that is there."""
        return self._by_origin.get(origin)

    def start_turn(self, turn: str, origin: str) -> Feed:
        """A turn begins: it tells here what it does."""
        feed = self._by_turn[turn] = self._get_or_create(origin)
        return feed

    def on_committed(self, changes: Iterable[Change]) -> None:
        """These changes are durable now."""
        for change in changes:
            if isinstance(change, EndTurn):
                if feed := self._by_turn.pop(change.id, None):
                    over = _OUTCOME_BY_TURN_STATE.get(change.state, FeedOutcome.INTERRUPTED)
                    self._finish(feed, over, change.cause or "")
            elif isinstance(change, SetInbox) and change.state in _OUTCOME_BY_INBOX_STATE:
                for feed in self._feeds_of_rows(change.ids):
                    self._finish(feed, _OUTCOME_BY_INBOX_STATE[change.state])

    def close(self) -> None:
        """The process ends: whoever still waits, waits in vain."""
        for feed in list(self._by_origin.values()):
            begun = feed in self._by_turn.values()
            self._finish(
                feed, FeedOutcome.INTERRUPTED if begun else FeedOutcome.NOT_STARTED, "restart"
            )
        self._by_turn.clear()

    def _get_or_create(self, origin: str) -> Feed:
        return self._by_origin.setdefault(origin, Feed(origin))

    def _feeds_of_rows(self, inbox: Iterable[str]) -> list[Feed]:
        rows = set(inbox)
        return [feed for feed in self._by_origin.values() if feed.inbox_id in rows]

    def _finish(self, feed: Feed, outcome: FeedOutcome, cause: str = "") -> None:
        self._by_origin.pop(feed.origin, None)
        feed.finish(outcome, cause)
