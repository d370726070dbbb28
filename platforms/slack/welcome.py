"""The chat with us as somebody finds it: what may be asked first, and who was greeted already."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.errors import PlatformError
from platforms.slack.calls import SlackClient

_log = logging.getLogger(__name__)

MAX_GREETED = 2_000
TITLE = "What shall we begin with?"
PROMPTS = (
    {"title": "What can you do?", "message": "What can you do for me here?"},
    {"title": "Which files are there?", "message": "Which files are in your workspace?"},
    {"title": "Show the commands", "message": "!help"},
)
"""Slack takes four; a press sends the message in the person's name."""

_TIMEOUT_SECONDS = 1.5

SaveGreeted = Callable[[str], Awaitable[None]]


class WelcomePrompts:
    """Remembers who was greeted."""

    def __init__(self, calls: SlackClient, save: SaveGreeted) -> None:
        self._calls = calls
        self._save = save
        self._greeted: dict[str, None] = {}

    def restore(self, stored: str | None) -> None:
        """Take over what an earlier process knew."""
        self._greeted = dict.fromkeys(msgspec.json.decode(stored, type=list[str]) if stored else ())

    def is_greeted(self, channel: str) -> bool:
        """Whether the person of this chat was greeted."""
        return channel in self._greeted

    async def forget(self, channel: str) -> None:
        """The person is not let in any more."""
        if channel in self._greeted:
            del self._greeted[channel]
            await self._save(self._dump())

    async def show_prompts(self, channel: str, thread: str) -> None:
        """Suggest what to ask, in a thread only where each conversation is one."""
        if channel not in self._greeted:
            self._greeted[channel] = None
            if len(self._greeted) > MAX_GREETED:
                del self._greeted[next(iter(self._greeted))]
            await self._save(self._dump())
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):  # Slack waits for us to take the event
                await self._calls.call(
                    "assistant.threads.setSuggestedPrompts",
                    channel_id=channel,
                    thread_ts=thread or None,
                    title=TITLE,
                    prompts=list(PROMPTS),
                )
        except (PlatformError, TimeoutError) as error:  # nobody misses them
            _log.debug("slack: no suggestions in %s: %s", channel, error)

    def _dump(self) -> str:
        return msgspec.json.encode(list(self._greeted)).decode()
