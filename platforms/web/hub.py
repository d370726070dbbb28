"""Tells the open pages of a chat that there is something to see."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from platforms.core.contract import Button
from platforms.web.scene import LiveChatState
from sessions.values.clock import Clock


class PageWatcher:
    """One open page: woken when there is news, and told when it has to leave."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self.has_ended = False

    def end(self) -> None:
        """Let the page's stream come to its end."""
        self.has_ended = True
        self.wakeup.set()


class PageHub:
    """Holds the scene of every chat that is looked at or written in, and wakes its viewers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, LiveChatState] = {}
        self._watchers: dict[str, set[PageWatcher]] = {}
        self.is_open = False
        self.chats_version = 0
        """Grows whenever the list of conversations may have changed."""
        self.sign_outs = 0
        """Grows whenever a visitor has signed out."""

    @contextmanager
    def accepting_watchers(self) -> Iterator[None]:
        """Let pages watch inside of this block; at its end every watcher has to leave."""
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            self._states.clear()  # drafts do not outlast the connection to the gateway
            for watchers in self._watchers.values():
                for watcher in watchers:
                    watcher.end()

    @contextmanager
    def watch(self, chat: str) -> Iterator[PageWatcher]:
        """Watch a chat; ends at once when no adapter is running."""
        watcher = PageWatcher()
        self._watchers.setdefault(chat, set()).add(watcher)
        if not self.is_open:
            watcher.end()
        try:
            yield watcher
        finally:
            self._watchers[chat].remove(watcher)
            if not self._watchers[chat]:
                del self._watchers[chat]
                self._drop_if_unused(chat)

    def state(self, chat: str) -> LiveChatState:
        """Give the scene of a chat."""
        return self._states.setdefault(chat, LiveChatState())

    def now(self) -> float:
        """Give the time by which drafts grow old."""
        return self._clock.monotonic()

    def on_user_message(self, chat: str) -> None:
        """A message of the user is in the archive."""
        self.state(chat).rows_version += 1
        self._wake_list()

    def on_posted(self, chat: str, item: str) -> None:
        """An item is in the archive."""
        self.state(chat).on_posted(item)
        self._wake_list()

    def on_edited(self, chat: str, item: str, text: str, buttons: tuple[Button, ...]) -> None:
        """A message shows something else."""
        self.state(chat).on_changed(item, text, buttons)
        self._wake(chat)

    def on_deleted(self, chat: str, item: str) -> None:
        """A message is taken away."""
        self.state(chat).on_changed(item, None)
        self._wake(chat)

    def on_draft(self, chat: str, draft: str, text: str, status: str) -> None:
        """An answer has grown, or is gone."""
        self.state(chat).on_draft(draft, text, status, self.now())
        self._wake(chat)

    def on_typing(self, chat: str) -> None:
        """Somebody is at work in the chat; that may also have changed the state of a message."""
        scene = self.state(chat)
        scene.typing_version += 1
        scene.rows_version += 1
        self._wake(chat)

    def on_sign_out(self) -> None:
        """A visitor has signed out: every open page is to see whether it was theirs."""
        self.sign_outs += 1
        for chat in self._watchers:
            self._wake(chat)

    def _wake(self, chat: str) -> None:
        for watcher in self._watchers.get(chat, ()):
            watcher.wakeup.set()
        self._drop_if_unused(chat)

    def _wake_list(self) -> None:
        """Tell every page: the chat stands somewhere else in the list now."""
        self.chats_version += 1
        for chat in self._watchers:
            self._wake(chat)
        for chat in list(self._states):
            self._drop_if_unused(chat)

    def _drop_if_unused(self, chat: str) -> None:
        """Drop a scene that nobody watches and in which nothing is being written."""
        scene = self._states.get(chat)
        if scene and chat not in self._watchers and not scene.drafts(self.now()):
            del self._states[chat]
