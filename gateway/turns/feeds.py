"""What a turn tells while it runs, for those who wait for it at this very moment.

A chat is shown what stands in the outbox; whoever asked over HTTP reads a feed instead. It is named
by the origin of what was asked, keeps everything from the beginning, so that a second reader misses
nothing, and is forgotten once it has ended: what lasts is in the store.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from agent.events import TurnDone
from gateway.turns.news import End, News, Over
from sessions.changes import Change, EndTurn, SetInbox
from sessions.records import InboxState, TurnState

_ENDINGS = {
    TurnState.DONE: Over.ANSWERED,
    TurnState.FAILED: Over.FAILED,
    TurnState.STOPPED: Over.STOPPED,
}
_UNANSWERED = {
    InboxState.REFUSED: Over.REFUSED,
    InboxState.HELD: Over.STOPPED,
    InboxState.DONE: Over.STOPPED,
}


class Feed:
    """What is told of one turn."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.inbox = ""  # the row that asks, once it is known
        self.readers = 0
        self.end: End | None = None
        self._told: list[News] = []
        self._done: TurnDone | None = None
        self._news: set[asyncio.Event] = set()

    def tell(self, news: News) -> None:
        """Let all readers know."""
        if self.end is None:
            self._told.append(news)
            self._wake()

    def done(self, done: TurnDone) -> None:
        """The agent is through; that counts once it is committed."""
        self._done = done

    def finish(self, over: Over, cause: str = "") -> None:
        """Nothing more will come."""
        if self.end is None:
            self.end = End(over, self._done, cause)
            self._wake()

    @contextlib.contextmanager
    def reading(self) -> Iterator["Reading"]:
        """Read everything from the beginning to the end."""
        news = asyncio.Event()
        self._news.add(news)
        try:
            yield Reading(self, self._told, news)
        finally:
            self._news.discard(news)

    def _wake(self) -> None:
        for news in self._news:
            news.set()


class Reading:
    """One reader's place in a feed; made by `Feed.reading`."""

    def __init__(self, feed: Feed, told: Sequence[News], news: asyncio.Event) -> None:
        self._feed = feed
        self._told = told
        self._news = news
        self._given = 0
        self.given_up = False

    def give_up(self) -> None:
        """Read no more: whoever wanted it is gone."""
        self.given_up = True
        self._news.set()

    def look_up(self) -> None:
        """Have `take` return, also with nothing."""
        self._news.set()

    async def take(self) -> Sequence[News | End]:
        """Give what is new, once there is something, or the reader was made to look up."""
        if not (self._has_more or self.given_up):
            self._news.clear()
            await self._news.wait()
        found: list[News | End] = list(self._told[self._given :])
        self._given = len(self._told)
        if self._feed.end:
            found.append(self._feed.end)
        return found

    @property
    def _has_more(self) -> bool:
        return self._given < len(self._told) or self._feed.end is not None


class Feeds:
    """All that somebody reads, or may come to read."""

    def __init__(self) -> None:
        self._by_origin: dict[str, Feed] = {}
        self._by_turn: dict[str, Feed] = {}

    def open(self, origin: str) -> Feed:
        """Begin to read; `leave` must follow."""
        feed = self._of(origin)
        feed.readers += 1
        return feed

    def leave(self, feed: Feed) -> bool:
        """Read no more; says whether it was the last reader of what is not over."""
        feed.readers -= 1
        if feed.readers or feed.end:
            return False
        if feed not in self._by_turn.values():
            self._by_origin.pop(feed.origin, None)
        return True

    def known(self, origin: str) -> Feed | None:
        """Give a feed that is there."""
        return self._by_origin.get(origin)

    def begun(self, turn: str, origin: str) -> Feed:
        """A turn begins: it tells here what it does."""
        feed = self._by_turn[turn] = self._of(origin)
        return feed

    def committed(self, changes: Iterable[Change]) -> None:
        """These changes are durable now."""
        for change in changes:
            if isinstance(change, EndTurn):
                if feed := self._by_turn.pop(change.id, None):
                    over = _ENDINGS.get(change.state, Over.INTERRUPTED)
                    self._finish(feed, over, change.cause or "")
            elif isinstance(change, SetInbox) and change.state in _UNANSWERED:
                for feed in self._asking(change.ids):
                    self._finish(feed, _UNANSWERED[change.state])

    def close(self) -> None:
        """The process ends: whoever still waits, waits in vain."""
        for feed in list(self._by_origin.values()):
            begun = feed in self._by_turn.values()
            self._finish(feed, Over.INTERRUPTED if begun else Over.NOT_BEGUN, "restart")
        self._by_turn.clear()

    def _of(self, origin: str) -> Feed:
        return self._by_origin.setdefault(origin, Feed(origin))

    def _asking(self, inbox: Iterable[str]) -> list[Feed]:
        rows = set(inbox)
        return [feed for feed in self._by_origin.values() if feed.inbox in rows]

    def _finish(self, feed: Feed, over: Over, cause: str = "") -> None:
        self._by_origin.pop(feed.origin, None)
        feed.finish(over, cause)
