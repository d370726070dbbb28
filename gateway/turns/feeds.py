"""Feeds: events of running turns, in memory, for HTTP clients that follow a turn live.

Chats show the items of the outbox instead. A feed is named by the origin of its request and keeps
all events from the first, so that a second reader misses none. It is forgotten when it ends; the
store holds the lasting result.
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
    InboxState.IGNORED: FeedOutcome.STOPPED,  # the sender lost access while the request waited
}


class Feed:
    """Events of one turn, and the readers that wait for them."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.inbox_id = ""  # of the request, see `set_inbox_row`
        self.reader_count = 0
        self.end: FeedEnd | None = None
        self._events: list[FeedEvent] = []
        self._result: TurnDone | None = None
        self._reader_wakeups: set[asyncio.Event] = set()

    def set_inbox_row(self, inbox_id: str) -> None:
        """Set the inbox row of the request, which is stored after the first reader subscribed."""
        self.inbox_id = inbox_id

    def publish(self, event: FeedEvent) -> None:
        """Append an event and wake all readers."""
        if self.end is None:
            self._events.append(event)
            self._wake()

    def set_result(self, result: TurnDone) -> None:
        """Remember the result; readers see it after the commit."""
        self._result = result

    def finish(self, outcome: FeedOutcome, cause: str = "", at: int = 0) -> None:
        """End the feed; a second call has no effect."""
        if self.end is None:
            self.end = FeedEnd(outcome, self._result, cause, at)
            self._wake()

    @contextlib.contextmanager
    def subscribe(self) -> Iterator["FeedReader"]:
        """Yield a reader that starts at the first event."""
        wakeup = asyncio.Event()
        self._reader_wakeups.add(wakeup)
        try:
            yield FeedReader(self, self._events, wakeup)
        finally:
            self._reader_wakeups.discard(wakeup)

    def _wake(self) -> None:
        for wakeup in self._reader_wakeups:
            wakeup.set()


class FeedReader:
    """Position of one reader in a feed; created by `Feed.subscribe`."""

    def __init__(self, feed: Feed, events: Sequence[FeedEvent], wakeup: asyncio.Event) -> None:
        self._feed = feed
        self._events = events
        self._wakeup = wakeup
        self._position = 0
        self.is_cancelled = False

    def cancel(self) -> None:
        """Mark the reader as cancelled, because its client disconnected, and wake `read`."""
        self.is_cancelled = True
        self._wakeup.set()

    def wake(self) -> None:
        """Make `read` return now, possibly without events."""
        self._wakeup.set()

    async def read(self) -> Sequence[FeedEvent | FeedEnd]:
        """Wait for new events, `wake` or `cancel`, and return the events since the last call."""
        if not (self._has_more or self.is_cancelled):
            self._wakeup.clear()
            await self._wakeup.wait()
        events: list[FeedEvent | FeedEnd] = list(self._events[self._position :])
        self._position = len(self._events)
        if self._feed.end:
            events.append(self._feed.end)
        return events

    @property
    def _has_more(self) -> bool:
        return self._position < len(self._events) or self._feed.end is not None


class Feeds:
    """Open feeds, by request and by turn."""

    def __init__(self) -> None:
        self._by_origin: dict[str, Feed] = {}
        self._by_turn: dict[str, Feed] = {}

    def acquire(self, origin: str) -> Feed:
        """Return the feed of a request and count a reader; the caller must call `release`."""
        feed = self._get_or_create(origin)
        feed.reader_count += 1
        return feed

    def release(self, feed: Feed) -> bool:
        """Drop a reader; return True if no reader is left and the feed has not ended."""
        feed.reader_count -= 1
        if feed.reader_count or feed.end:
            return False
        if feed not in self._by_turn.values():
            self._by_origin.pop(feed.origin, None)
        return True

    def get(self, origin: str) -> Feed | None:
        """Return an open feed, or None."""
        return self._by_origin.get(origin)

    def start_turn(self, turn: str, origin: str) -> Feed:
        """Return the feed that a starting turn publishes to."""
        feed = self._by_turn[turn] = self._get_or_create(origin)
        return feed

    def on_committed(self, changes: Iterable[Change]) -> None:
        """End the feeds of ended turns and refused requests; `changes` are committed."""
        for change in changes:
            if isinstance(change, EndTurn):
                if feed := self._by_turn.pop(change.id, None):
                    outcome = _OUTCOME_BY_TURN_STATE.get(change.state, FeedOutcome.INTERRUPTED)
                    self._finish(feed, outcome, change.cause or "", change.at)
            elif isinstance(change, SetInbox) and change.state in _OUTCOME_BY_INBOX_STATE:
                for feed in self._feeds_of_rows(change.ids):
                    self._finish(feed, _OUTCOME_BY_INBOX_STATE[change.state], at=change.at)

    def close(self) -> None:
        """End all feeds, because the process stops."""
        for feed in list(self._by_origin.values()):
            started = feed in self._by_turn.values()
            self._finish(
                feed, FeedOutcome.INTERRUPTED if started else FeedOutcome.NOT_STARTED, "restart"
            )
        self._by_turn.clear()

    def _get_or_create(self, origin: str) -> Feed:
        return self._by_origin.setdefault(origin, Feed(origin))

    def _feeds_of_rows(self, inbox: Iterable[str]) -> list[Feed]:
        rows = set(inbox)
        return [feed for feed in self._by_origin.values() if feed.inbox_id in rows]

    def _finish(self, feed: Feed, outcome: FeedOutcome, cause: str = "", at: int = 0) -> None:
        self._by_origin.pop(feed.origin, None)
        feed.finish(outcome, cause, at)
