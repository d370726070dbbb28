"""Wakes the open pages of a chat when there is something new to show."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from platforms.core.contract import Button
from platforms.web.scene import LiveChatState
from sessions.values.clock import Clock


class PageWatcher:
    """One open page: woken for news, and told when the stream must end."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self.has_ended = False

    def end(self) -> None:
        """End the page's stream."""
        self.has_ended = True
        self.wakeup.set()


class PageHub:
    """Holds the live state of chats that are open or being answered, and wakes their pages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, LiveChatState] = {}
        self._watchers: dict[str, set[PageWatcher]] = {}
        self.is_open = False
        self.chats_version = 0
        """Increases whenever the list of conversations may have changed."""
        self.sign_outs = 0
        """Increases with every sign-out."""

    @contextmanager
    def accepting_watchers(self) -> Iterator[None]:
        """Accept watchers for the duration of the block, then end all of them."""
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            self._states.clear()  # drafts end with the connection to the gateway
            for watchers in self._watchers.values():
                for watcher in watchers:
                    watcher.end()

    @contextmanager
    def watch(self, chat: str) -> Iterator[PageWatcher]:
        """Watch a chat; the watcher ends at once if no adapter is running."""
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
        """Return the live state of a chat."""
        return self._states.setdefault(chat, LiveChatState())

    def now(self) -> float:
        """Return the time used for the age of drafts."""
        return self._clock.monotonic()

    def on_user_message(self, chat: str) -> None:
        """Handle a stored message of the user."""
        self.state(chat).rows_version += 1
        self._wake_list()

    def on_posted(self, chat: str, item: str) -> None:
        """Handle an item that is now in the archive."""
        self.state(chat).on_posted(item)
        self._wake_list()

    def on_edited(self, chat: str, item: str, text: str, buttons: tuple[Button, ...]) -> None:
        """Handle an edited message."""
        self.state(chat).on_changed(item, text, buttons)
        self._wake(chat)

    def on_deleted(self, chat: str, item: str) -> None:
        """Handle a deleted message."""
        self.state(chat).on_changed(item, None)
        self._wake(chat)

    def on_draft(self, chat: str, draft: str, text: str, status: str) -> None:
        """Handle an answer that has grown or was withdrawn."""
        self.state(chat).on_draft(draft, text, status, self.now())
        self._wake(chat)

    def on_typing(self, chat: str) -> None:
        """Handle a typing sign, which may also mean that the state of a message has changed."""
        scene = self.state(chat)
        scene.typing_version += 1
        scene.rows_version += 1
        self._wake(chat)

    def on_sign_out(self) -> None:
        """Handle a sign-out: every open page must check its own visit."""
        self.sign_outs += 1
        for chat in self._watchers:
            self._wake(chat)

    def _wake(self, chat: str) -> None:
        for watcher in self._watchers.get(chat, ()):
            watcher.wakeup.set()
        self._drop_if_unused(chat)

    def _wake_list(self) -> None:
        """Tell every open page that the order of the conversation list has changed."""
        self.chats_version += 1
        for chat in self._watchers:
            self._wake(chat)
        for chat in list(self._states):
            self._drop_if_unused(chat)

    def _drop_if_unused(self, chat: str) -> None:
        """Drop the state of a chat without open pages and drafts."""
        scene = self._states.get(chat)
        if scene and chat not in self._watchers and not scene.drafts(self.now()):
            del self._states[chat]
