"""The chat with us as somebody finds it: what may be asked first, and who was greeted already."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.errors import PlatformError
from platforms.slack.calls import Calls

_log = logging.getLogger(__name__)

MOST_GREETED = 2_000
TITLE = "What shall we begin with?"
PROMPTS = (
    {"title": "What can you do?", "message": "What can you do for me here?"},
    {"title": "Which files are there?", "message": "Which files are in your workspace?"},
    {"title": "Show the commands", "message": "!help"},
)
"""Slack takes four; a press sends the message in the person's name."""

_PATIENCE = 1.5

Keep = Callable[[str], Awaitable[None]]


class Home:
    """Remembers who was greeted."""

    def __init__(self, calls: Calls, keep: Keep) -> None:
        self._calls = calls
        self._keep = keep
        self._greeted: dict[str, None] = {}

    def read(self, kept: str | None) -> None:
        """Take over what an earlier process knew."""
        self._greeted = dict.fromkeys(msgspec.json.decode(kept, type=list[str]) if kept else ())

    def knows(self, channel: str) -> bool:
        """Whether the person of this chat was greeted."""
        return channel in self._greeted

    async def forget(self, channel: str) -> None:
        """The person is not let in any more."""
        if channel in self._greeted:
            del self._greeted[channel]
            await self._keep(self._kept())

    async def welcome(self, channel: str, thread: str) -> None:
        """Suggest what to ask, in a thread only where each conversation is one."""
        if channel not in self._greeted:
            self._greeted[channel] = None
            if len(self._greeted) > MOST_GREETED:
                del self._greeted[next(iter(self._greeted))]
            await self._keep(self._kept())
        try:
            async with asyncio.timeout(_PATIENCE):  # Slack waits for us to take the event
                await self._calls.call(
                    "assistant.threads.setSuggestedPrompts",
                    channel_id=channel,
                    thread_ts=thread or None,
                    title=TITLE,
                    prompts=list(PROMPTS),
                )
        except (PlatformError, TimeoutError) as error:  # nobody misses them
            _log.debug("slack: no suggestions in %s: %s", channel, error)

    def _kept(self) -> str:
        return msgspec.json.encode(list(self._greeted)).decode()
