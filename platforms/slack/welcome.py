"""Suggested prompts in a new chat, and the list of people already greeted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.errors import PlatformError
from platforms.slack.calls import SlackClient

_log = logging.getLogger(__name__)

_MAX_GREETED = 2_000
_TITLE = "How can I help?"
_PROMPTS = (
    {"title": "What can you do?", "message": "What can you do for me here?"},
    {"title": "Which files are there?", "message": "Which files are in your workspace?"},
    {"title": "Show the commands", "message": "!help"},
)
"""At most four; pressing one sends the message in the person's name."""

_TIMEOUT_SECONDS = 1.5

SaveGreeted = Callable[[str], Awaitable[None]]


class WelcomePrompts:
    """The suggested prompts, and the chats that were greeted."""

    def __init__(self, calls: SlackClient, save: SaveGreeted) -> None:
        self._calls = calls
        self._save = save
        self._greeted: dict[str, None] = {}

    def restore(self, stored: str | None) -> None:
        """Load the greeted chats of an earlier process."""
        self._greeted = dict.fromkeys(msgspec.json.decode(stored, type=list[str]) if stored else ())

    def is_greeted(self, channel: str) -> bool:
        """Return true if the person in this DM was greeted."""
        return channel in self._greeted

    async def forget(self, channel: str) -> None:
        """Greet this chat again after the person has regained access."""
        if channel in self._greeted:
            del self._greeted[channel]
            await self._save(self._dump())

    async def show_prompts(self, channel: str, thread: str) -> None:
        """Suggest prompts; failures are logged, because the chat works without them.

        `thread` is set only for older apps, in which each conversation is a thread.
        """
        if channel not in self._greeted:
            self._greeted[channel] = None
            if len(self._greeted) > _MAX_GREETED:
                del self._greeted[next(iter(self._greeted))]
            await self._save(self._dump())
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):  # the event is not acknowledged yet
                await self._calls.call(
                    "assistant.threads.setSuggestedPrompts",
                    channel_id=channel,
                    thread_ts=thread or None,
                    title=_TITLE,
                    prompts=list(_PROMPTS),
                )
        except (PlatformError, TimeoutError) as error:
            _log.debug("slack: no suggested prompts in %s: %s", channel, error)

    def _dump(self) -> str:
        return msgspec.json.encode(list(self._greeted)).decode()
