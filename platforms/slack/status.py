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
from platforms.slack.calls import Calls, Refused
from platforms.slack.format import inert
from platforms.slack.rate_limit import SESSIONS

_log = logging.getLogger(__name__)

WORDS = "assistant.threads.setStatus"
WRITING = "is writing…"
PATIENCE = 5.0
"""Seconds; answers wait behind this."""

_LONGEST_STATUS = 150
_NEVER = {
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

Keep = Callable[[str], Awaitable[None]]
"""Stores where it may be seen that we are at work."""


class Thread(msgspec.Struct, frozen=True):
    """Where an answer is written."""

    channel: str
    ts: str


class Presence:
    """Says that we are at work, and that we are not any more."""

    def __init__(self, calls: Calls, keep: Keep) -> None:
        self._calls = calls
        self._keep = keep
        self._busy: dict[Thread, bool] = {}  # whether we have said so ourselves
        self._left: dict[Thread, None] = {}  # it may still be seen there, and must not
        self._worded: set[Thread] = set()  # threads that show words
        self._wordless: set[str] = set()  # channels that have no such line,
        self._sessionless: set[str] = set()  # and no sessions
        self._changed = False

    def left_by_an_earlier_process(self, kept: str | None) -> None:
        """Take over where an earlier process was at work when it ended."""
        for thread in msgspec.json.decode(kept, type=list[Thread]) if kept else []:
            self._left[thread] = None
            self._worded.add(thread)

    async def at_work(self, thread: Thread, words: str) -> None:
        """Show what goes on; no words: something else shows it."""
        await self.begin(thread)
        if not (words or thread in self._worded) or thread.channel in self._wordless:
            return
        self._worded.add(thread)
        known = await self._call(WORDS, thread, inert(words)[:_LONGEST_STATUS], self._wordless)
        if known and (not words or thread.channel in self._wordless):
            self._worded.discard(thread)

    async def begin(self, thread: Thread) -> None:
        """Let Slack show its Stop."""
        if self._busy.get(thread) or thread.channel in self._sessionless:
            return
        now = self._calls.clock.monotonic()
        reserved = thread in self._left or thread in self._busy
        if not reserved and not self._calls.budget.may_begin_session(now):
            return
        self._left.pop(thread, None)
        self._busy[thread] = True
        await self._store()  # before it can be seen, lest a crash leaves it there
        await self._call(SESSIONS, thread, "processing", self._sessionless)

    async def over(self, thread: Thread) -> None:
        """Show no more that we are at work."""
        await self._no_words(thread)
        if thread in self._busy:
            del self._busy[thread]
            self._left[thread] = None
            await self._rest(thread)

    def answered(self, thread: Thread) -> None:
        """A message was shown there: Slack has taken the words away."""
        self._worded.discard(thread)

    def streams(self, thread: Thread) -> None:
        """A stream began there, which may let Slack show its Stop."""
        self.answered(thread)
        if thread.channel not in self._sessionless:
            self._busy.setdefault(thread, False)
            self._count()

    def has_session(self, thread: Thread) -> bool:
        """Whether it was said there that we are at work."""
        return self._busy.get(thread, False)

    def stream_ended(self, thread: Thread) -> None:
        """A stream came to its end: that puts the session at rest."""
        self._busy.pop(thread, None)
        self._left.pop(thread, None)
        self._count()

    async def tidy(self) -> None:
        """Try again where it may still be seen, and keep where it is."""
        for thread in list(self._left):
            if thread in self._left:  # nobody has begun to work there meanwhile
                await self._no_words(thread)
                await self._rest(thread)
        if self._changed:
            await self._store()

    async def _no_words(self, thread: Thread) -> None:
        if thread in self._worded:
            self._worded.discard(thread)
            await self._call(WORDS, thread, "", self._wordless)

    async def _rest(self, thread: Thread) -> None:
        if await self._call(SESSIONS, thread, "active", self._sessionless):
            self._left.pop(thread, None)
        self._count()

    async def _call(self, method: str, thread: Thread, status: str, refused: set[str]) -> bool:
        """Set a status; False when it is not known what is shown now."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._calls.call(
                    method, channel_id=thread.channel, thread_ts=thread.ts, status=status
                )
        except Unauthorized:
            raise
        except Rejected as error:
            _log.debug("slack: %s has no %s: %s", thread.channel, method, error)
            if isinstance(error, Refused) and error.code in _NEVER:
                refused.add(thread.channel)
            if method == SESSIONS:
                self._busy.pop(thread, None)
                self._count()
        except (PlatformError, TimeoutError) as error:
            _log.debug("slack: %s: %s", method, error)
            return False
        return True

    def _count(self) -> None:
        self._calls.budget.open_sessions = len(self._busy) + len(self._left)
        self._changed = True

    async def _store(self) -> None:
        self._count()
        self._changed = False
        await self._keep(msgspec.json.encode([*self._busy, *self._left]).decode())
