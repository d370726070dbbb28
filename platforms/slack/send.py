"""Shows our messages: posts and finds them again, lets answers grow, and closes what grew.

In a thread an answer that is being written is one of Slack's own streams, with a card for each tool
call; elsewhere, and when Slack ends a stream (after about five minutes, or by its Stop), it is a
message that is edited. Each message carries its op in its metadata, from the moment it is whole.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Any

from platforms.core.contract import Ask, Button, Delete, Edit, Post, React, Receipt, Task, Typing
from platforms.core.errors import (
    PlatformError,
    Rejected,
    Unavailable,
    Unconfirmed,
)
from platforms.core.markdown import close
from platforms.slack.calls import Calls, Json, Refused
from platforms.slack.format import (
    Blocks,
    blocks,
    emoji_name,
    fallback,
    has_table,
    inert,
    likeness,
    plain_blocks,
    rows,
    settled,
)
from platforms.slack.rate_limit import APPENDS, STOPS, STREAMS, UPDATES
from platforms.slack.read_marks import Place, is_dm
from platforms.slack.status import WRITING, Presence, Thread
from platforms.slack.stream_chunks import Chunks, chunks, ended, line, news, title

_log = logging.getLogger(__name__)

METADATA = "holdfast_op"
_CLOCKS_DIFFER = 120.0  # seconds that Slack's clock and ours may be apart
_PAGES, _PAGE = 5, 200
_FIRST_SIGN = "eyes"  # of a message; before any other one there may be one to take away
_REMEMBERED = 1_000
_LONGEST_ENDING = 15.0  # seconds that the last form of a message waits for others
_TICK = 0.05  # seconds between two looks at whose turn it is
_LONGEST_SILENCE = 1800.0  # after which a message is not thought to be written any more
_NOT_STREAMING = {"message_not_in_streaming_state", "stopped_by_user", "streaming_mode_mismatch"}
_TOO_LONG = "msg_too_long"  # of a stream, though the same text fits into a block
_BAD_BLOCKS = {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"}
_NO_ROOM = "Slack's limits leave no room for a live update now."


class _Live:
    """A message that is still being written."""

    def __init__(self, channel: str, thread: str, *, streams: bool, sent: str, at: float) -> None:
        self.channel = channel
        self.thread = thread
        self.streams = streams
        self.sent = sent  # what the stream surely shows
        self.cards: dict[str, Task] = {}  # the same
        self.at = at  # when it was last shown
        self.stopped = False  # by Slack, which may show us at work until we say that we are not
        self.doubtful = False  # the last piece may have arrived or not
        self.waiting: Edit | None = None  # what it should show as soon as it is its turn
        self.lock = asyncio.Lock()  # one call about it at a time

    def took(self, text: str, changed: tuple[Task, ...], now: float) -> None:
        """Note what the stream shows from now on."""
        self.sent, self.at = text, now
        self.cards.update((task.id, task) for task in changed)


class Show:
    """Carries out what is to be shown."""

    def __init__(self, calls: Calls, presence: Presence) -> None:
        self._calls = calls
        self._presence = presence
        self._live: OrderedDict[tuple[str, str], _Live] = OrderedDict()
        self._someone_waits = asyncio.Event()
        self._reactions: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._streamless: set[str] = set()  # channels in which Slack has refused to stream

    # --- new messages -------------------------------------------------------------------------

    async def post(self, op: Post | Ask, channel: str, place: Place | None, us: str) -> Receipt:
        """Show a new message; a repeat first looks whether it is there already."""
        thread = op.address.thread
        if op.again and (found := await self._find(op, channel, thread, us)):
            return Receipt(found)
        if isinstance(op, Post) and op.streaming:
            return Receipt(await self._begin(op, channel, place))
        return Receipt(await self._say(channel, thread, op.text, op.buttons, op.op))

    async def _say(
        self, channel: str, thread: str, text: str, buttons: tuple[Button, ...], op: str
    ) -> str:
        async def say(shown: Blocks) -> Json:
            self._take_room(channel)
            return await self._calls.call(
                "chat.postMessage",
                where=channel,
                channel=channel,
                thread_ts=thread or None,
                text=fallback(text),
                blocks=shown,
                metadata=_metadata(op),
                # A model's link must not make Slack visit it.
                unfurl_links=False,
                unfurl_media=False,
            )

        try:
            answer = await say(blocks(text, buttons))
        except Refused as error:
            if error.code not in _BAD_BLOCKS:
                raise
            answer = await say(plain_blocks(text, buttons))
        self._presence.answered(Thread(channel, thread))
        return str(answer.get("ts") or "")

    def _take_room(self, channel: str) -> None:
        if wait := self._calls.budget.post(channel, self._calls.clock.monotonic()):
            msg = "A channel takes one post a second."
            raise Unavailable(msg, wait)

    async def _begin(self, op: Post, channel: str, place: Place | None) -> str:
        """Begin an answer, if there is room to go on with it and to close it."""
        now, budget = self._calls.clock.monotonic(), self._calls.budget
        streams = place and place.thread and place.user and not is_dm(channel)
        if streams and place and channel not in self._streamless and budget.may_stream(now):
            try:
                return await self._start(op, channel, place)
            except Refused:
                self._streamless.add(channel)
        if not budget.may_edit_another(now):
            raise Unavailable(_NO_ROOM)
        ts = await self._say(channel, op.address.thread, _edited(op), op.buttons, op.op)
        self._keep(ts, _Live(channel, op.address.thread, streams=False, sent="", at=now))
        return ts

    async def _start(self, op: Post, channel: str, place: Place) -> str:
        text, changed = inert(settled(op.text)), news(op.tasks, {})
        answer = await self._calls.call(
            STREAMS,
            channel=channel,
            thread_ts=op.address.thread,
            chunks=chunks(text, changed, {}) or None,
            recipient_user_id=place.user,
            recipient_team_id=place.team or None,
            task_display_mode="timeline",
        )
        ts, now = str(answer.get("ts") or ""), self._calls.clock.monotonic()
        live = _Live(channel, op.address.thread, streams=True, sent="", at=now)
        live.took(text, changed, now)
        self._keep(ts, live)
        self._presence.streams(Thread(channel, op.address.thread))
        return ts

    async def _find(self, op: Post | Ask, channel: str, thread: str, us: str) -> str | None:
        """Look for a message that an earlier try of this op may have left."""
        candidates: list[Json] = []
        for message in await self.history(channel, thread, op.since / 1000 - _CLOCKS_DIFFER):
            metadata = message.get("metadata") or {}
            if metadata.get("event_type") == METADATA:
                if (metadata.get("event_payload") or {}).get("op") == op.op:
                    return str(message["ts"])
            elif message.get("user") == us and not message.get("files"):
                candidates.append(message)
        if not isinstance(op, Post) or not thread:
            return None
        # A stream carries no metadata before its end: it is known by where it is and what it says.
        for message in reversed(candidates):
            text = str(message.get("text") or "")
            if _alike(op, text) and (channel, str(message["ts"])) not in self._live:
                return str(message["ts"])
        return None

    async def history(self, channel: str, thread: str, oldest: float) -> list[Json]:
        """Read what was said in a place since then, the oldest first."""
        where: Json = {"channel": channel, "oldest": f"{max(0.0, oldest):.6f}", "limit": _PAGE}
        method = "conversations.history"
        if thread:
            where["ts"], method = thread, "conversations.replies"
        found: list[Json] = []
        cursor = None
        for _ in range(_PAGES):
            page = await self._calls.read(
                method, where=channel, **where, cursor=cursor, include_all_metadata=True
            )
            found += page.get("messages") or []
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
        # The root of a thread always comes along, however old it is.
        new = [message for message in found if float(message.get("ts") or 0) > oldest]
        return sorted(new, key=lambda message: float(message.get("ts") or 0))

    # --- messages that are there --------------------------------------------------------------

    async def edit(self, op: Edit, channel: str) -> Receipt:
        """Let a message show something else."""
        live = self._live.get((channel, op.message))
        if live is None and op.streaming:  # of an earlier process
            live = _Live(
                channel, op.address.thread, streams=False, sent="", at=self._calls.clock.monotonic()
            )
            self._keep(op.message, live)
        if live is None:
            await self._finish(op, channel, None)
            return Receipt(op.message)
        live.waiting = None
        async with live.lock:
            if not op.streaming:
                await self._finish(op, channel, live)
            elif self._someone_waits.is_set() or not await self._frame(op, live):
                live.waiting = op
                self._someone_waits.set()
        return Receipt(op.message)

    async def take_turns(self) -> None:
        """Show what had to wait for its turn, the longest unchanged first; runs until cancelled.

        Chats share Slack's limits, and none of them can know when it may go on. A later state
        takes the place of what waits; the final form never waits here.
        """
        while True:
            await self._someone_waits.wait()
            await asyncio.sleep(_TICK)
            await self.give_turns()

    async def give_turns(self) -> None:
        """Let those go on for whom there is room."""
        waiting = [live for live in self._live.values() if live.waiting]
        for live in sorted(waiting, key=lambda each: each.at):
            async with live.lock:
                if live.waiting:
                    await self._take_turn(live.waiting, live)
        if not any(live.waiting for live in self._live.values()):
            self._someone_waits.clear()

    async def _take_turn(self, op: Edit, live: _Live) -> None:
        try:
            if not await self._frame(op, live):
                return
        except PlatformError as error:
            # It was not more than a glimpse; the next state or the final form makes up for it.
            _log.debug("slack: a live update failed: %s", error)
        live.waiting = None

    async def _frame(self, op: Edit, live: _Live) -> bool:
        """Show a live state, or tell that there is no room for it now."""
        now, budget = self._calls.clock.monotonic(), self._calls.budget
        if live.streams:
            if not budget.may_append(now):
                return False
            if await self._grow(op, live):
                return True
        if not budget.may_update(now):
            return False
        await self._take_over(op, live.channel, live, _edited(op))
        live.at = now
        return True

    async def _take_over(self, op: Edit, channel: str, live: _Live | None, text: str) -> None:
        """Edit a message, also one that an earlier process left as a stream."""
        try:
            await self._update(op, channel, text)
        except Refused as error:
            if error.code != "streaming_state_conflict":
                raise
            await self._stop(channel, op.message, live)
            await self._update(op, channel, text)

    async def _grow(self, op: Edit, live: _Live) -> bool:
        """Append what is new; False when this is a message that is edited from now on."""
        text, changed = inert(settled(op.text)), news(op.tasks, live.cards)
        if live.doubtful or not text.startswith(live.sent):
            await self._stop(live.channel, op.message, live)
            return False
        new = chunks(text[len(live.sent) :], changed, live.cards)
        if not new:
            return True
        try:
            await self._calls.call(APPENDS, channel=live.channel, ts=op.message, chunks=new)
        except Unconfirmed:
            live.doubtful = True
            raise
        except Refused as error:
            if error.code == _TOO_LONG:
                await self._stop(live.channel, op.message, live)
            elif error.code in _NOT_STREAMING:
                live.stopped = True
                self._no_stream(live)
            else:
                raise
            return False
        live.took(text, changed, self._calls.clock.monotonic())
        # Not with the first words: what goes wrong with it must not put these in doubt.
        await self._presence.begin(Thread(live.channel, live.thread))
        return True

    async def _finish(self, op: Edit, channel: str, live: _Live | None) -> None:
        """Show the final form: the rest of the stream, or the whole anew."""
        text = inert(op.text)
        if live and live.streams:
            grows = not live.doubtful and text.startswith(live.sent) and not has_table(text)
            rest: Chunks = []
            if grows:
                changed = news(ended(op.tasks, live.cards), live.cards)
                rest = chunks(text[len(live.sent) :], changed, live.cards)
            whole = await self._stop(channel, op.message, live, rest, op)
            if grows and whole:
                self._drop(channel, op.message)
                return
        try:
            await self._room_for_the_last(UPDATES)
            await self._take_over(op, channel, live, op.text)
        except Rejected:  # it is shown anew
            self._drop(channel, op.message)
            raise
        self._drop(channel, op.message)
        if live and live.stopped:
            await self._presence.over(Thread(channel, live.thread))

    async def _room_for_the_last(self, method: str) -> None:
        """Wait when many messages end at once; but not for ever, for Slack may allow more."""
        until = self._calls.clock.monotonic() + _LONGEST_ENDING
        while (now := self._calls.clock.monotonic()) < until:
            if not (seconds := self._calls.budget.full(method, now)):
                return
            await asyncio.sleep(min(seconds, until - now))

    async def _stop(
        self,
        channel: str,
        ts: str,
        live: _Live | None,
        rest: Chunks | None = None,
        op: Edit | None = None,
    ) -> bool:
        """End a stream; False when it did not take what was left."""
        thread = Thread(channel, live.thread) if live else None
        busy = thread and self._presence.has_session(thread)
        try:
            await self._calls.call(
                STOPS,
                channel=channel,
                ts=ts,
                chunks=rest or None,
                blocks=rows(op.buttons) or None if op else None,
                metadata=_metadata(_post_of(op)) if op else None,
                session_status="active" if busy else None,
            )
        except Refused as error:
            if error.code == _TOO_LONG and rest:
                await self._stop(channel, ts, live)
                return False
            if error.code not in _NOT_STREAMING:
                raise
            if live:
                live.stopped = True
                self._no_stream(live)
            return False
        if live:
            self._no_stream(live)
        if thread:
            self._presence.stream_ended(thread)
        return True

    async def _update(self, op: Edit, channel: str, text: str) -> None:
        async def update(**shown: Any) -> None:  # noqa: ANN401 - as the method takes them
            await self._calls.call(
                "chat.update",
                channel=channel,
                ts=op.message,
                metadata=_metadata(_post_of(op)),
                **shown,
            )

        short = fallback(text)
        try:
            await update(text=short, blocks=blocks(text, op.buttons))
        except Refused as error:
            if error.code == "block_mismatch":  # what was a stream may have to stay rich text
                await update(markdown_text=inert(text))
            elif error.code in _BAD_BLOCKS:
                await update(text=short, blocks=plain_blocks(text, op.buttons))
            else:
                raise

    async def delete(self, op: Delete, channel: str) -> Receipt:
        """Take a message away, or a file."""
        try:
            if op.message.startswith("F"):
                await self._calls.call("files.delete", file=op.message)
            else:
                await self._remove(op, channel)
        except Refused as error:
            if error.code not in {"message_not_found", "file_not_found", "file_deleted"}:
                raise
        self._drop(channel, op.message)
        return Receipt()

    async def _remove(self, op: Delete, channel: str) -> None:
        live = self._live.get((channel, op.message))
        if live and live.streams:
            await self._stop(channel, op.message, live)
        try:
            await self._calls.call("chat.delete", channel=channel, ts=op.message)
        except Refused as error:
            if error.code != "streaming_state_conflict":  # a stream of an earlier process
                raise
            await self._stop(channel, op.message, None)
            await self._calls.call("chat.delete", channel=channel, ts=op.message)

    # --- signs --------------------------------------------------------------------------------

    async def react(self, op: React, channel: str) -> Receipt:
        """Put one sign on a message in place of the one before."""
        ts = op.message.rpartition(":")[2]
        name = emoji_name(op.emoji) if op.emoji else ""
        if name is None:
            msg = f"Slack has no name for {op.emoji}."
            raise Rejected(msg)
        old = self._reactions.get((channel, ts))
        if old is None and name != _FIRST_SIGN:  # put there before the process started, perhaps
            old = await self._own_reaction(channel, ts)
        if old and old != name:
            await self._reaction("reactions.remove", channel, ts, old, "no_reaction")
        if name and old != name:
            await self._reaction("reactions.add", channel, ts, name, "already_reacted")
        self._reactions[channel, ts] = name
        self._reactions.move_to_end((channel, ts))
        if len(self._reactions) > _REMEMBERED:
            self._reactions.popitem(last=False)
        return Receipt()

    async def _own_reaction(self, channel: str, ts: str) -> str:
        answer = await self._calls.read(
            "reactions.get", where=channel, channel=channel, timestamp=ts, full=True
        )
        us = (await self._calls.read("auth.test")).get("user_id")
        for reaction in (answer.get("message") or {}).get("reactions") or ():
            if us in (reaction.get("users") or ()):
                return str(reaction["name"])
        return ""

    async def _reaction(self, method: str, channel: str, ts: str, name: str, fine: str) -> None:
        try:
            await self._calls.call(method, where=channel, channel=channel, timestamp=ts, name=name)
        except Refused as error:
            if error.code != fine:
                raise

    async def typing(self, op: Typing, channel: str) -> Receipt:
        """Say in a thread that an answer is being written, and what goes on, or that it is over."""
        if not op.address.thread:
            return Receipt()
        thread = Thread(channel, op.address.thread)
        if op.over:
            await self._presence.over(thread)
        else:
            seen = any(thread == Thread(live.channel, live.thread) for live in self._live.values())
            await self._presence.at_work(thread, op.status or ("" if seen else WRITING))
        return Receipt()

    # --- what is being written ----------------------------------------------------------------

    def _keep(self, ts: str, live: _Live) -> None:
        self._live[live.channel, ts] = live
        if len(self._live) > _REMEMBERED:
            self._live.popitem(last=False)
        self._count()

    def _drop(self, channel: str, ts: str) -> None:
        self._live.pop((channel, ts), None)
        self._count()

    def _no_stream(self, live: _Live) -> None:
        live.streams = False
        self._count()

    def _count(self) -> None:
        """Tell the budget how many messages still want to be shown and closed."""
        forgotten = self._calls.clock.monotonic() - _LONGEST_SILENCE
        for key in [key for key, live in self._live.items() if live.at < forgotten]:
            del self._live[key]
        streams = sum(live.streams for live in self._live.values())
        self._calls.budget.open_streams = streams
        self._calls.budget.open_updates = len(self._live) - streams


def _metadata(op: str) -> Json:
    return {"event_type": METADATA, "event_payload": {"op": op}}


def _edited(op: Post | Edit) -> str:
    """Give the live text of a message that is edited: it has no cards, so a line stands below."""
    text = close(op.text)
    return "\n\n".join(filter(str.strip, (text, line(op.tasks)))) if op.tasks else text


def _alike(op: Post, text: str) -> bool:
    """Tell whether a text may be what a try of this op has shown; Slack puts the titles into it."""
    seen, wanted = likeness(text), likeness(op.text)
    for task in op.tasks:
        seen = seen.replace(likeness(title(task)), "", 1)
    if not seen:
        return bool(op.tasks) and bool(text.strip())
    return wanted.startswith(seen) or seen.startswith(wanted)


def _post_of(op: Edit) -> str:
    """Name the op that showed the message first; an edit of op X is called X.e."""
    return op.op.removesuffix(".e")
