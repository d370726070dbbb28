"""Whether a thread shows that we are at work: a line of words, and Slack's own Stop.

The Stop stands below a thread whose session is "processing". That fades only after an hour, so
where it was set is kept, and it is taken away at the latest by the next process. The words fade
after two minutes. Both are a courtesy: some apps, channels and plans do not have them.
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

STATUS_METHOD = "assistant.threads.setStatus"
WRITING_STATUS = "is writing…"
STATUS_TIMEOUT_SECONDS = 5.0
"""Seconds; answers wait behind this."""

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
"""Refusals that are about the app or the channel, so that asking again is useless."""

SaveSessions = Callable[[str], Awaitable[None]]
"""Stores where it may be seen that we are at work."""


class SlackThread(msgspec.Struct, frozen=True):
    """Where an answer is written."""

    channel: str
    ts: str


class ThreadStatus:
    """Says that we are at work, and that we are not any more."""

    def __init__(self, calls: SlackClient, save: SaveSessions) -> None:
        self._calls = calls
        self._save = save
        self._sessions: dict[SlackThread, bool] = {}  # whether we have said so ourselves
        self._to_clear: dict[SlackThread, None] = {}  # it may still be seen there, and must not
        self._with_status: set[SlackThread] = set()  # threads that show words
        self._channels_without_status: set[str] = set()  # channels that have no such line,
        self._channels_without_sessions: set[str] = set()  # and no sessions
        self._changed = False

    def restore(self, stored: str | None) -> None:
        """Take over where an earlier process was at work when it ended."""
        for thread in msgspec.json.decode(stored, type=list[SlackThread]) if stored else []:
            self._to_clear[thread] = None
            self._with_status.add(thread)

    async def show_status(self, thread: SlackThread, status: str) -> None:
        """Show what goes on; no words: something else shows it."""
        await self.start_session(thread)
        if (
            not (status or thread in self._with_status)
            or thread.channel in self._channels_without_status
        ):
            return
        self._with_status.add(thread)
        known = await self._set_status(
            STATUS_METHOD,
            thread,
            defuse_mentions(status)[:_MAX_STATUS_CHARS],
            self._channels_without_status,
        )
        if known and (not status or thread.channel in self._channels_without_status):
            self._with_status.discard(thread)

    async def start_session(self, thread: SlackThread) -> None:
        """Let Slack show its Stop."""
        if self._sessions.get(thread) or thread.channel in self._channels_without_sessions:
            return
        now = self._calls.clock.monotonic()
        reserved = thread in self._to_clear or thread in self._sessions
        if not reserved and not self._calls.rate_limit.can_start_session(now):
            return
        self._to_clear.pop(thread, None)
        self._sessions[thread] = True
        await self._store()  # before it can be seen, lest a crash leaves it there
        await self._set_status(
            SET_SESSION_STATUS, thread, "processing", self._channels_without_sessions
        )

    async def clear(self, thread: SlackThread) -> None:
        """Show no more that we are at work."""
        await self._clear_status(thread)
        if thread in self._sessions:
            del self._sessions[thread]
            self._to_clear[thread] = None
            await self._end_session(thread)

    def on_message_shown(self, thread: SlackThread) -> None:
        """A message was shown there: Slack has taken the words away."""
        self._with_status.discard(thread)

    def on_stream_started(self, thread: SlackThread) -> None:
        """A stream began there, which may let Slack show its Stop."""
        self.on_message_shown(thread)
        if thread.channel not in self._channels_without_sessions:
            self._sessions.setdefault(thread, False)
            self._update_rate_limit()

    def has_session(self, thread: SlackThread) -> bool:
        """Whether it was said there that we are at work."""
        return self._sessions.get(thread, False)

    def on_stream_ended(self, thread: SlackThread) -> None:
        """A stream came to its end: that puts the session at rest."""
        self._sessions.pop(thread, None)
        self._to_clear.pop(thread, None)
        self._update_rate_limit()

    async def retry_clearing(self) -> None:
        """Try again where it may still be seen, and keep where it is."""
        for thread in list(self._to_clear):
            if thread in self._to_clear:  # nobody has begun to work there meanwhile
                await self._clear_status(thread)
                await self._end_session(thread)
        if self._changed:
            await self._store()

    async def _clear_status(self, thread: SlackThread) -> None:
        if thread in self._with_status:
            self._with_status.discard(thread)
            await self._set_status(STATUS_METHOD, thread, "", self._channels_without_status)

    async def _end_session(self, thread: SlackThread) -> None:
        if await self._set_status(
            SET_SESSION_STATUS, thread, "active", self._channels_without_sessions
        ):
            self._to_clear.pop(thread, None)
        self._update_rate_limit()

    async def _set_status(
        self, method: str, thread: SlackThread, status: str, refused: set[str]
    ) -> bool:
        """Set a status; False when it is not known what is shown now."""
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_SECONDS):
                await self._calls.call(
                    method, channel_id=thread.channel, thread_ts=thread.ts, status=status
                )
        except Unauthorized:
            raise
        except Rejected as error:
            _log.debug("slack: %s has no %s: %s", thread.channel, method, error)
            if isinstance(error, SlackRefusal) and error.code in _PERMANENT_REFUSALS:
                refused.add(thread.channel)
            if method == SET_SESSION_STATUS:
                self._sessions.pop(thread, None)
                self._update_rate_limit()
        except (PlatformError, TimeoutError) as error:
            _log.debug("slack: %s: %s", method, error)
            return False
        return True

    def _update_rate_limit(self) -> None:
        self._calls.rate_limit.open_sessions = len(self._sessions) + len(self._to_clear)
        self._changed = True

    async def _store(self) -> None:
        self._update_rate_limit()
        self._changed = False
        await self._save(msgspec.json.encode([*self._sessions, *self._to_clear]).decode())
