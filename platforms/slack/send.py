"""Sending: posts, live answers, edits, deletes and reactions.

In a thread a live answer is a Slack stream, with a card for each tool call. Elsewhere, and after
Slack has ended a stream (after about five minutes, or by the Stop button), the answer continues as a
message that is edited. The metadata of every finished message name the op, so that a repeat finds it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from platforms.core.contract import Ask, Button, Delete, Edit, Post, React, Receipt, Task, Typing
from platforms.core.errors import (
    PlatformError,
    Rejected,
    Unavailable,
    Unconfirmed,
)
from platforms.core.markdown import close_open_marks
from platforms.slack.calls import Json, SlackClient
from platforms.slack.errors import SlackRefusal
from platforms.slack.format import (
    Blocks,
    button_blocks,
    defuse_markdown,
    emoji_name,
    fallback_text,
    growing_markdown,
    has_table,
    letters_and_digits,
    markdown_blocks,
    plain_blocks,
)
from platforms.slack.rate_limit import APPEND_STREAM, START_STREAM, STOP_STREAM, UPDATE_MESSAGE
from platforms.slack.read_marks import SlackPlace, is_dm
from platforms.slack.status import WRITING_STATUS, SlackThread, ThreadStatus
from platforms.slack.stream_chunks import (
    Chunks,
    changed_tasks,
    finished_tasks,
    stream_chunks,
    task_summary,
    task_title,
)
from sessions.values.item_ids import creating_op

_log = logging.getLogger(__name__)

_METADATA_TYPE = "holdfast_op"
_CLOCK_SKEW_SECONDS = 120.0  # possible difference between Slack's clock and ours
_MAX_PAGES, _PAGE_SIZE = 5, 200
_FIRST_REACTION = "eyes"  # a later reaction replaces an earlier one
_MAX_REMEMBERED = 1_000
_MAX_FINAL_WAIT_SECONDS = 15.0  # longest wait of a final edit for the rate limit
_TURN_CHECK_SECONDS = 0.05  # interval between checks for waiting edits
_LIVE_EXPIRY_SECONDS = 1800.0  # without an update, after which a message is no longer live
_NOT_STREAMING = {"message_not_in_streaming_state", "stopped_by_user", "streaming_mode_mismatch"}
_TOO_LONG = "msg_too_long"  # for a stream, although the same text fits into a block
_BAD_BLOCKS = {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"}
_NO_ROOM = "Slack's limits leave no room for a live update now."


class _LiveMessage:
    """A message that is still growing."""

    def __init__(self, channel: str, thread: str, *, streams: bool, sent: str, at: float) -> None:
        self.channel = channel
        self.thread = thread
        self.is_stream = streams
        self.shown_text = sent  # text that Slack has confirmed
        self.cards: dict[str, Task] = {}  # tasks that Slack has confirmed
        self.last_shown_at = at
        self.stopped_by_slack = False  # the thread may still show the Stop button
        self.is_uncertain = False  # the outcome of the last append is unknown
        self.waiting_edit: Edit | None = None  # next state, shown when the rate limit allows
        self.lock = asyncio.Lock()  # one call per message at a time

    def record_shown(self, text: str, changed: tuple[Task, ...], now: float) -> None:
        """Record the text and tasks that Slack has confirmed."""
        self.shown_text, self.last_shown_at = text, now
        self.cards.update((task.id, task) for task in changed)


class SlackSender:
    """Carries out ops on messages."""

    def __init__(self, calls: SlackClient, presence: ThreadStatus) -> None:
        self._calls = calls
        self._thread_status = presence
        self._live: OrderedDict[tuple[str, str], _LiveMessage] = OrderedDict()
        self._edits_waiting = asyncio.Event()
        self._reactions: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._channels_without_streams: set[str] = set()  # channels that refused a stream

    # --- new messages -------------------------------------------------------------------------

    async def post(
        self, op: Post | Ask, channel: str, place: SlackPlace | None, own_user: str
    ) -> Receipt:
        """Post a message; a repeat first looks for the message of the earlier try."""
        thread = op.address.thread
        if op.again and (found := await self._find_sent(op, channel, thread, own_user)):
            return Receipt(found)
        if isinstance(op, Post) and op.streaming:
            return Receipt(await self._begin_answer(op, channel, place))
        return Receipt(await self._post_message(channel, thread, op.text, op.buttons, op.op))

    async def _post_message(
        self, channel: str, thread: str, text: str, buttons: tuple[Button, ...], op: str
    ) -> str:
        async def say(shown: Blocks) -> Json:
            self._check_post_rate(channel)
            return await self._calls.call(
                "chat.postMessage",
                about_channel=channel,
                channel=channel,
                thread_ts=thread or None,
                text=fallback_text(text),
                blocks=shown,
                metadata=_metadata(op),
                # Slack must not fetch a link that a model wrote.
                unfurl_links=False,
                unfurl_media=False,
            )

        answer = await _with_plain_fallback(say, text, buttons)
        self._thread_status.on_message_shown(SlackThread(channel, thread))
        return str(answer.get("ts") or "")

    async def post_for_one(self, op: Post, channel: str, thread: str) -> Receipt:
        """Post a message that only the person sees whom the op names."""

        async def say(shown: Blocks) -> Json:
            return await self._calls.call(
                "chat.postEphemeral",
                about_channel=channel,
                channel=channel,
                user=op.only_for.rpartition("/")[2],
                thread_ts=thread or None,
                text=fallback_text(op.text),
                blocks=shown,
            )

        answer = await _with_plain_fallback(say, op.text, op.buttons)
        return Receipt(str(answer.get("message_ts") or ""))

    def _check_post_rate(self, channel: str) -> None:
        if wait := self._calls.rate_limit.take_post(channel, self._calls.clock.monotonic()):
            msg = "A channel allows one post a second."
            raise Unavailable(msg, wait)

    async def _begin_answer(self, op: Post, channel: str, place: SlackPlace | None) -> str:
        """Start a live answer, if the rate limit has room for updates and the final edit."""
        now, budget = self._calls.clock.monotonic(), self._calls.rate_limit
        streams = place and place.thread and place.user and not is_dm(channel)
        if (
            streams
            and place
            and channel not in self._channels_without_streams
            and budget.can_start_stream(now)
        ):
            try:
                return await self._start_stream(op, channel, place)
            except SlackRefusal:
                self._channels_without_streams.add(channel)
        if not budget.can_start_edited(now):
            raise Unavailable(_NO_ROOM)
        ts = await self._post_message(channel, op.address.thread, _live_text(op), op.buttons, op.op)
        self._add_live(
            ts,
            _LiveMessage(channel, op.address.thread, streams=False, sent="", at=now),
        )
        return ts

    async def _start_stream(self, op: Post, channel: str, place: SlackPlace) -> str:
        text, changed = (
            growing_markdown(op.text),
            changed_tasks(op.tasks, {}),
        )
        answer = await self._calls.call(
            START_STREAM,
            channel=channel,
            thread_ts=op.address.thread,
            chunks=stream_chunks(text, changed, {}) or None,
            recipient_user_id=place.user,
            recipient_team_id=place.team or None,
            task_display_mode="timeline",
        )
        ts, now = str(answer.get("ts") or ""), self._calls.clock.monotonic()
        live = _LiveMessage(channel, op.address.thread, streams=True, sent="", at=now)
        live.record_shown(text, changed, now)
        self._add_live(ts, live)
        self._thread_status.on_stream_started(SlackThread(channel, op.address.thread))
        return ts

    async def _find_sent(
        self, op: Post | Ask, channel: str, thread: str, own_user: str
    ) -> str | None:
        """Return the message that an earlier try of this op may have posted."""
        candidates: list[Json] = []
        for message in await self.history(channel, thread, op.since / 1000 - _CLOCK_SKEW_SECONDS):
            metadata = message.get("metadata") or {}
            if metadata.get("event_type") == _METADATA_TYPE:
                if (metadata.get("event_payload") or {}).get("op") == op.op:
                    return str(message["ts"])
            elif message.get("user") == own_user and not message.get("files"):
                candidates.append(message)
        if not isinstance(op, Post) or not thread:
            return None
        # A live stream has no metadata, so thread and text must identify the message.
        for message in reversed(candidates):
            text = str(message.get("text") or "")
            if _may_be_same(op, text) and (channel, str(message["ts"])) not in self._live:
                return str(message["ts"])
        return None

    async def history(self, channel: str, thread: str, oldest: float) -> list[Json]:
        """Return the messages of a place later than `oldest`, oldest first."""
        where: Json = {"channel": channel, "oldest": f"{max(0.0, oldest):.6f}", "limit": _PAGE_SIZE}
        method = "conversations.history"
        if thread:
            where["ts"], method = thread, "conversations.replies"
        found: list[Json] = []
        cursor = None
        for _ in range(_MAX_PAGES):
            page = await self._calls.read(
                method, about_channel=channel, **where, cursor=cursor, include_all_metadata=True
            )
            found += page.get("messages") or []
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
        # Slack always includes the root of a thread, however old it is.
        new = [message for message in found if float(message.get("ts") or 0) > oldest]
        return sorted(new, key=lambda message: float(message.get("ts") or 0))

    # --- existing messages --------------------------------------------------------------------

    async def edit(self, op: Edit, channel: str) -> Receipt:
        """Edit a message; a live edit may have to wait for `run_live_edits`."""
        live = self._live.get((channel, op.message))
        if live is None and op.streaming:  # started by an earlier process
            live = _LiveMessage(
                channel,
                op.address.thread,
                streams=False,
                sent="",
                at=self._calls.clock.monotonic(),
            )
            self._add_live(op.message, live)
        if live is None:
            await self._show_final(op, channel, None)
            return Receipt(op.message)
        live.waiting_edit = None
        async with live.lock:
            if not op.streaming:
                await self._show_final(op, channel, live)
            elif self._edits_waiting.is_set() or not await self._show_live_state(op, live):
                live.waiting_edit = op
                self._edits_waiting.set()
        return Receipt(op.message)

    async def run_live_edits(self) -> None:
        """Send waiting live edits, longest unchanged message first, until cancelled.

        Chats share Slack's limits, so no chat can tell alone when to continue. A later
        state replaces a waiting one; a final edit never waits here.
        """
        while True:
            await self._edits_waiting.wait()
            await asyncio.sleep(_TURN_CHECK_SECONDS)
            await self.show_waiting_edits()

    async def show_waiting_edits(self) -> None:
        """Send as many waiting live edits as the rate limit allows."""
        waiting = [live for live in self._live.values() if live.waiting_edit]
        for live in sorted(waiting, key=lambda each: each.last_shown_at):
            async with live.lock:
                if live.waiting_edit:
                    await self._show_waiting_edit(live.waiting_edit, live)
        if not any(live.waiting_edit for live in self._live.values()):
            self._edits_waiting.clear()

    async def _show_waiting_edit(self, op: Edit, live: _LiveMessage) -> None:
        try:
            if not await self._show_live_state(op, live):
                return
        except PlatformError as error:
            # The next state or the final edit replaces this one.
            _log.debug("slack: a live update in %s failed: %s", live.channel, error)
        live.waiting_edit = None

    async def _show_live_state(self, op: Edit, live: _LiveMessage) -> bool:
        """Show a live state; return false if the rate limit has no room now."""
        now, budget = self._calls.clock.monotonic(), self._calls.rate_limit
        if live.is_stream:
            if not budget.can_append(now):
                return False
            if await self._append_to_stream(op, live):
                return True
        if not budget.can_update(now):
            return False
        await self._replace_text(op, live.channel, live, _live_text(op))
        live.last_shown_at = now
        return True

    async def _replace_text(
        self, op: Edit, channel: str, live: _LiveMessage | None, text: str
    ) -> None:
        """Edit a message; a stream left open by an earlier process is stopped first."""
        try:
            await self._update_message(op, channel, text)
        except SlackRefusal as error:
            if error.code != "streaming_state_conflict":
                raise
            await self._stop_stream(channel, op.message, live)
            await self._update_message(op, channel, text)

    async def _append_to_stream(self, op: Edit, live: _LiveMessage) -> bool:
        """Append to a stream; return false if the message must be edited from now on."""
        text, changed = (
            growing_markdown(op.text),
            changed_tasks(op.tasks, live.cards),
        )
        if live.is_uncertain or not text.startswith(live.shown_text):
            await self._stop_stream(live.channel, op.message, live)
            return False
        new = stream_chunks(text[len(live.shown_text) :], changed, live.cards)
        if not new:
            return True
        try:
            await self._calls.call(APPEND_STREAM, channel=live.channel, ts=op.message, chunks=new)
        except Unconfirmed:
            live.is_uncertain = True
            raise
        except SlackRefusal as error:
            if error.code == _TOO_LONG:
                await self._stop_stream(live.channel, op.message, live)
            elif error.code in _NOT_STREAMING:
                live.stopped_by_slack = True
                self._mark_stream_ended(live)
            else:
                raise
            return False
        live.record_shown(text, changed, self._calls.clock.monotonic())
        # Only after the first append: a failure here must not make that one uncertain.
        await self._thread_status.start_session(SlackThread(live.channel, live.thread))
        return True

    async def _show_final(self, op: Edit, channel: str, live: _LiveMessage | None) -> None:
        """Show the final text: append the rest of a stream, or replace the whole message."""
        text = defuse_markdown(op.text)
        if live and live.is_stream:
            grows = (
                not live.is_uncertain and text.startswith(live.shown_text) and not has_table(text)
            )
            rest: Chunks = []
            if grows:
                changed = changed_tasks(finished_tasks(op.tasks, live.cards), live.cards)
                rest = stream_chunks(text[len(live.shown_text) :], changed, live.cards)
            whole = await self._stop_stream(channel, op.message, live, rest, op)
            if grows and whole:
                self._remove_live(channel, op.message)
                return
        try:
            await self._wait_for_final_call(UPDATE_MESSAGE)
            await self._replace_text(op, channel, live, op.text)
        except Rejected:  # delivery posts the text in a new message
            self._remove_live(channel, op.message)
            raise
        self._remove_live(channel, op.message)
        if live and live.stopped_by_slack:
            await self._thread_status.clear(SlackThread(channel, live.thread))

    async def _wait_for_final_call(self, method: str) -> None:
        """Wait for the rate limit, for a limited time because Slack may allow more calls."""
        until = self._calls.clock.monotonic() + _MAX_FINAL_WAIT_SECONDS
        while (now := self._calls.clock.monotonic()) < until:
            if not (seconds := self._calls.rate_limit.seconds_until_free(method, now)):
                return
            await asyncio.sleep(min(seconds, until - now))

    async def _stop_stream(
        self,
        channel: str,
        ts: str,
        live: _LiveMessage | None,
        rest: Chunks | None = None,
        op: Edit | None = None,
    ) -> bool:
        """Stop a stream; return false if Slack did not take `rest`."""
        thread = SlackThread(channel, live.thread) if live else None
        busy = thread and self._thread_status.has_session(thread)
        try:
            await self._calls.call(
                STOP_STREAM,
                channel=channel,
                ts=ts,
                chunks=rest or None,
                blocks=button_blocks(op.buttons) or None if op else None,
                metadata=_metadata(creating_op(op.op)) if op else None,
                session_status="active" if busy else None,
            )
        except SlackRefusal as error:
            if error.code == _TOO_LONG and rest:
                await self._stop_stream(channel, ts, live)
                return False
            if error.code not in _NOT_STREAMING:
                raise
            if live:
                live.stopped_by_slack = True
                self._mark_stream_ended(live)
            return False
        if live:
            self._mark_stream_ended(live)
        if thread:
            self._thread_status.on_stream_ended(thread)
        return True

    async def _update_message(self, op: Edit, channel: str, text: str) -> None:
        async def update(**shown: Any) -> None:  # noqa: ANN401 - as the method takes them
            await self._calls.call(
                "chat.update",
                channel=channel,
                ts=op.message,
                metadata=_metadata(creating_op(op.op)),
                **shown,
            )

        short = fallback_text(text)
        try:
            await update(text=short, blocks=markdown_blocks(text, op.buttons))
        except SlackRefusal as error:
            if error.code == "block_mismatch":  # a former stream may have to stay rich text
                await update(markdown_text=defuse_markdown(text))
            elif error.code in _BAD_BLOCKS:
                await update(text=short, blocks=plain_blocks(text, op.buttons))
            else:
                raise

    async def delete(self, op: Delete, channel: str) -> Receipt:
        """Delete a message or a file, if there is one."""
        try:
            if op.message.startswith("F"):
                await self._calls.call("files.delete", file=op.message)
            else:
                await self._delete_message(op, channel)
        except SlackRefusal as error:
            if error.code not in {"message_not_found", "file_not_found", "file_deleted"}:
                raise
        self._remove_live(channel, op.message)
        return Receipt()

    async def _delete_message(self, op: Delete, channel: str) -> None:
        live = self._live.get((channel, op.message))
        if live and live.is_stream:
            await self._stop_stream(channel, op.message, live)
        try:
            await self._calls.call("chat.delete", channel=channel, ts=op.message)
        except SlackRefusal as error:
            if error.code != "streaming_state_conflict":  # a stream left open by an earlier process
                raise
            await self._stop_stream(channel, op.message, None)
            await self._calls.call("chat.delete", channel=channel, ts=op.message)

    # --- reactions and status -----------------------------------------------------------------

    async def react(self, op: React, channel: str) -> Receipt:
        """Replace our reaction on a message."""
        ts = op.message.rpartition(":")[2]
        name = emoji_name(op.emoji) if op.emoji else ""
        if name is None:
            msg = f"Slack has no name for {op.emoji}."
            raise Rejected(msg)
        old = self._reactions.get((channel, ts))
        if old is None and name != _FIRST_REACTION:  # an earlier process may have set one
            old = await self._own_reaction(channel, ts)
        if old and old != name:
            await self._reaction("reactions.remove", channel, ts, old, "no_reaction")
        if name and old != name:
            await self._reaction("reactions.add", channel, ts, name, "already_reacted")
        self._reactions[channel, ts] = name
        self._reactions.move_to_end((channel, ts))
        if len(self._reactions) > _MAX_REMEMBERED:
            self._reactions.popitem(last=False)
        return Receipt()

    async def _own_reaction(self, channel: str, ts: str) -> str:
        answer = await self._calls.read(
            "reactions.get", about_channel=channel, channel=channel, timestamp=ts, full=True
        )
        own_user = (await self._calls.read("auth.test")).get("user_id")
        for reaction in (answer.get("message") or {}).get("reactions") or ():
            if own_user in (reaction.get("users") or ()):
                return str(reaction["name"])
        return ""

    async def _reaction(self, method: str, channel: str, ts: str, name: str, fine: str) -> None:
        try:
            await self._calls.call(
                method, about_channel=channel, channel=channel, timestamp=ts, name=name
            )
        except SlackRefusal as error:
            if error.code != fine:
                raise

    async def typing(self, op: Typing, channel: str) -> Receipt:
        """Show or clear the status of a thread."""
        if not op.address.thread:
            return Receipt()
        thread = SlackThread(channel, op.address.thread)
        if op.over:
            await self._thread_status.clear(thread)
        else:
            seen = any(
                thread == SlackThread(live.channel, live.thread) for live in self._live.values()
            )
            await self._thread_status.show_status(
                thread, op.status or ("" if seen else WRITING_STATUS)
            )
        return Receipt()

    # --- live messages ------------------------------------------------------------------------

    def _add_live(self, ts: str, live: _LiveMessage) -> None:
        self._live[live.channel, ts] = live
        if len(self._live) > _MAX_REMEMBERED:
            self._live.popitem(last=False)
        self._update_rate_limit()

    def _remove_live(self, channel: str, ts: str) -> None:
        self._live.pop((channel, ts), None)
        self._update_rate_limit()

    def _mark_stream_ended(self, live: _LiveMessage) -> None:
        live.is_stream = False
        self._update_rate_limit()

    def _update_rate_limit(self) -> None:
        """Report the number of live messages to the rate limit, which reserves calls for them."""
        forgotten = self._calls.clock.monotonic() - _LIVE_EXPIRY_SECONDS
        for key in [key for key, live in self._live.items() if live.last_shown_at < forgotten]:
            del self._live[key]
        streams = sum(live.is_stream for live in self._live.values())
        self._calls.rate_limit.open_streams = streams
        self._calls.rate_limit.open_updates = len(self._live) - streams


async def _with_plain_fallback(
    say: Callable[[Blocks], Awaitable[Json]], text: str, buttons: tuple[Button, ...]
) -> Json:
    """Post Markdown, or plain text if Slack refuses the blocks."""
    try:
        return await say(markdown_blocks(text, buttons))
    except SlackRefusal as error:
        if error.code not in _BAD_BLOCKS:
            raise
        return await say(plain_blocks(text, buttons))


def _metadata(op: str) -> Json:
    return {"event_type": _METADATA_TYPE, "event_payload": {"op": op}}


def _live_text(op: Post | Edit) -> str:
    """Return the text of a live edit, with a line about running tasks in place of cards."""
    text = close_open_marks(op.text)
    return "\n\n".join(filter(str.strip, (text, task_summary(op.tasks)))) if op.tasks else text


def _may_be_same(op: Post, text: str) -> bool:
    """Return true if a text may come from this op; Slack adds the titles of cards."""
    seen, wanted = letters_and_digits(text), letters_and_digits(op.text)
    for task in op.tasks:
        seen = seen.replace(letters_and_digits(task_title(task)), "", 1)
    if not seen:
        return bool(op.tasks) and bool(text.strip())
    return wanted.startswith(seen) or seen.startswith(wanted)
