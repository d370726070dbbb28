"""Status line and native Stop button of a thread.

Slack shows the Stop button below a thread whose session is "processing". That state lasts for an
hour, so threads with it are stored, and the next process clears them at the latest. The status line
lasts for two minutes. Both are best effort, because some apps, channels and plans lack them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from platforms.core.errors import PlatformError, Rejected, Unauthorized
from platforms.slack.calls import SlackClient
from platforms.slack.errors import SlackRefusal
from platforms.slack.format import defuse_mentions
from platforms.slack.rate_limit import SET_SESSION_STATUS

_log = logging.getLogger(__name__)

_STATUS_METHOD = "assistant.threads.setStatus"
WRITING_STATUS = "is writing…"
STATUS_TIMEOUT_SECONDS = 5.0
"""Timeout of a call, in seconds; answers wait for these calls."""

_MAX_STATUS_CHARS = 150
_PERMANENT_REFUSALS = {
    "unknown_method",
    "method_deprecated",
    "feature_disabled",
    "missing_scope",
    "not_agent_app",
    "not_authorized",
    "not_allowed_token_type",
    "channel_type_not_supported",
}
"""Refusals that concern the app or the channel, so repeating the call is useless."""

SaveSessions = Callable[[str], Awaitable[None]]
"""Stores the threads that may show the Stop button."""


class SlackThread(msgspec.Struct, frozen=True):
    """The thread of an answer."""

    channel: str
    ts: str


class ThreadStatus:
    """Shows and clears the status line and the Stop button."""

    def __init__(self, calls: SlackClient, save: SaveSessions) -> None:
        self._calls = calls
        self._save = save
        self._sessions: dict[SlackThread, bool] = {}  # True if set by us, not by a stream
        self._to_clear: dict[SlackThread, None] = {}  # may still show the Stop button
        self._with_status: set[SlackThread] = set()
        self._channels_without_status: set[str] = set()
        self._channels_without_sessions: set[str] = set()
        self._changed = False

    def restore(self, stored: str | None) -> None:
        """Load the threads of an earlier process that may have to be cleared."""
        for thread in msgspec.json.decode(stored, type=list[SlackThread]) if stored else []:
            self._to_clear[thread] = None
            self._with_status.add(thread)

    async def show_status(self, thread: SlackThread, status: str) -> None:
        """Show a status line; an empty one removes it, because a message shows the progress."""
        await self.start_session(thread)
        if (
            not (status or thread in self._with_status)
            or thread.channel in self._channels_without_status
        ):
            return
        self._with_status.add(thread)
        known = await self._set_status(
            _STATUS_METHOD,
            thread,
            defuse_mentions(status)[:_MAX_STATUS_CHARS],
            self._channels_without_status,
        )
        if known and (not status or thread.channel in self._channels_without_status):
            self._with_status.discard(thread)

    async def start_session(self, thread: SlackThread) -> None:
        """Set the session to processing, so that Slack shows its Stop button."""
        if self._sessions.get(thread) or thread.channel in self._channels_without_sessions:
            return
        now = self._calls.clock.monotonic()
        reserved = thread in self._to_clear or thread in self._sessions
        if not reserved and not self._calls.rate_limit.can_start_session(now):
            return
        self._to_clear.pop(thread, None)
        self._sessions[thread] = True
        await self._store()  # before the call, so that a crash cannot leave the button behind
        await self._set_status(
            SET_SESSION_STATUS, thread, "processing", self._channels_without_sessions
        )

    async def clear(self, thread: SlackThread) -> None:
        """Remove the status line and the Stop button."""
        await self._clear_status(thread)
        if thread in self._sessions:
            del self._sessions[thread]
            self._to_clear[thread] = None
            await self._end_session(thread)

    def on_message_shown(self, thread: SlackThread) -> None:
        """Record that a message was posted, which removes the status line."""
        self._with_status.discard(thread)

    def on_stream_started(self, thread: SlackThread) -> None:
        """Record that a stream started, which may show the Stop button."""
        self.on_message_shown(thread)
        if thread.channel not in self._channels_without_sessions:
            self._sessions.setdefault(thread, False)
            self._update_rate_limit()

    def has_session(self, thread: SlackThread) -> bool:
        """Return true if `start_session` has set this session to processing."""
        return self._sessions.get(thread, False)

    def on_stream_ended(self, thread: SlackThread) -> None:
        """Record that a stream ended: Slack then shows the thread as idle by itself."""
        self._sessions.pop(thread, None)
        self._to_clear.pop(thread, None)
        self._update_rate_limit()

    async def retry_clearing(self) -> None:
        """Repeat failed calls to clear threads, and store what remains."""
        for thread in list(self._to_clear):
            if thread in self._to_clear:  # no new session started meanwhile
                await self._clear_status(thread)
                await self._end_session(thread)
        if self._changed:
            await self._store()

    async def _clear_status(self, thread: SlackThread) -> None:
        if thread in self._with_status:
            self._with_status.discard(thread)
            await self._set_status(_STATUS_METHOD, thread, "", self._channels_without_status)

    async def _end_session(self, thread: SlackThread) -> None:
        if await self._set_status(
            SET_SESSION_STATUS, thread, "active", self._channels_without_sessions
        ):
            self._to_clear.pop(thread, None)
        self._update_rate_limit()

    async def _set_status(
        self, method: str, thread: SlackThread, status: str, refused: set[str]
    ) -> bool:
        """Set a status; return false if the outcome is unknown."""
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_SECONDS):
                await self._calls.call(
                    method, channel_id=thread.channel, thread_ts=thread.ts, status=status
                )
        except Unauthorized:
            raise
        except Rejected as error:
            _log.debug("slack: %s refused in %s: %s", method, thread.channel, error)
            if isinstance(error, SlackRefusal) and error.code in _PERMANENT_REFUSALS:
                refused.add(thread.channel)
            if method == SET_SESSION_STATUS:
                self._sessions.pop(thread, None)
                self._update_rate_limit()
        except (PlatformError, TimeoutError) as error:
            _log.debug("slack: %s failed in %s: %s", method, thread.channel, error)
            return False
        return True

    def _update_rate_limit(self) -> None:
        self._calls.rate_limit.open_sessions = len(self._sessions) + len(self._to_clear)
        self._changed = True

    async def _store(self) -> None:
        self._update_rate_limit()
        self._changed = False
        await self._save(msgspec.json.encode([*self._sessions, *self._to_clear]).decode())
