"""Tells the open pages of a chat that there is something to see."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from platforms.core.contract import Button
from platforms.web.scene import Scene
from sessions.values.clock import Clock


class Watcher:
    """One open page: woken when there is news, and told when it has to leave."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.ended = False

    def end(self) -> None:
        """Let the page's stream come to its end."""
        self.ended = True
        self.news.set()


class Hub:
    """Holds the scene of every chat that is looked at or written in, and wakes its viewers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scenes: dict[str, Scene] = {}
        self._watchers: dict[str, set[Watcher]] = {}
        self.is_open = False
        self.chats = 0
        """Grows whenever the list of conversations may have changed."""
        self.departures = 0
        """Grows whenever a visitor has signed out."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let pages watch inside of this block; at its end every watcher has to leave."""
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            self._scenes.clear()  # drafts do not outlast the connection to the gateway
            for watchers in self._watchers.values():
                for watcher in watchers:
                    watcher.end()

    @contextmanager
    def watching(self, chat: str) -> Iterator[Watcher]:
        """Watch a chat; ends at once when no adapter is running."""
        watcher = Watcher()
        self._watchers.setdefault(chat, set()).add(watcher)
        if not self.is_open:
            watcher.end()
        try:
            yield watcher
        finally:
            self._watchers[chat].remove(watcher)
            if not self._watchers[chat]:
                del self._watchers[chat]
                self._forget(chat)

    def scene(self, chat: str) -> Scene:
        """Give the scene of a chat."""
        return self._scenes.setdefault(chat, Scene())

    def now(self) -> float:
        """Give the time by which drafts grow old."""
        return self._clock.monotonic()

    def said(self, chat: str) -> None:
        """A message of the user is in the archive."""
        self.scene(chat).rows += 1
        self._wake_list()

    def posted(self, chat: str, item: str) -> None:
        """An item is in the archive."""
        self.scene(chat).posted(item)
        self._wake_list()

    def edited(self, chat: str, item: str, text: str, buttons: tuple[Button, ...]) -> None:
        """A message shows something else."""
        self.scene(chat).changed(item, text, buttons)
        self._wake(chat)

    def deleted(self, chat: str, item: str) -> None:
        """A message is taken away."""
        self.scene(chat).changed(item, None)
        self._wake(chat)

    def drafted(self, chat: str, draft: str, text: str, status: str) -> None:
        """An answer has grown, or is gone."""
        self.scene(chat).drafted(draft, text, status, self.now())
        self._wake(chat)

    def typing(self, chat: str) -> None:
        """Somebody is at work in the chat; that may also have changed the state of a message."""
        scene = self.scene(chat)
        scene.typing += 1
        scene.rows += 1
        self._wake(chat)

    def left(self) -> None:
        """A visitor has signed out: every open page is to see whether it was theirs."""
        self.departures += 1
        for chat in self._watchers:
            self._wake(chat)

    def _wake(self, chat: str) -> None:
        for watcher in self._watchers.get(chat, ()):
            watcher.news.set()
        self._forget(chat)

    def _wake_list(self) -> None:
        """Tell every page: the chat stands somewhere else in the list now."""
        self.chats += 1
        for chat in self._watchers:
            self._wake(chat)
        for chat in list(self._scenes):
            self._forget(chat)

    def _forget(self, chat: str) -> None:
        """Drop a scene that nobody watches and in which nothing is being written."""
        scene = self._scenes.get(chat)
        if scene and chat not in self._watchers and not scene.drafts(self.now()):
            del self._scenes[chat]
