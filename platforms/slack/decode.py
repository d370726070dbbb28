"""Sans-IO: Slack's payloads as inbound events; the sender is filled in later.

A channel mention arrives as `message` and as `app_mention`, and an event without acknowledgement
arrives again. All of them have the id `channel:timestamp`, so the inbox recognizes the duplicates.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from platforms.core.contract import (
    Address,
    File,
    Inbound,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Part,
    Quote,
    Sender,
    Text,
)
from platforms.core.written_command import is_written_command
from platforms.slack.format import has_mention, to_plain_text
from platforms.slack.read_marks import SlackPlace, SlackPlaces, is_dm, timestamp_ms
from sessions.values.frames import clean_name

Json = Mapping[str, Any]

_MESSAGE_SUBTYPES = {None, "file_share", "thread_broadcast", "me_message", "bot_message"}
_UNKNOWN_SENDER = Sender(id="")
_DAY_MS = 86_400_000
_OWN_NAME = "you"  # the app itself, as the author of a quoted message


class SlackIdentity(msgspec.Struct, frozen=True):
    """The app's own team, user and bot."""

    team: str
    user: str
    bot: str = ""


class SlackEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded event, with the ids of the author and the place."""

    event: Inbound
    user: str
    team: str
    is_bot: bool = False
    channel: str = ""
    thread: str = ""
    ts: str = ""  # position in the channel's history; empty for other events
    addressed: bool = True
    outside_thread: bool = False  # a command in a channel that acts on a thread
    opened_chat: bool = False  # a person opened their chat with the app, without a message

    @property
    def is_ordered(self) -> bool:
        """True for messages, edits and deletes, which must stay in order."""
        return self.ts != "" or isinstance(self.event, InboundEdit | InboundDelete)

    def is_in(self, place: SlackPlace) -> bool:
        """Return true if the event belongs to a place.

        A channel's history contains the roots of threads.
        """
        return self.thread == place.thread or (not place.thread and self.thread == self.ts)


class SlackEventDecoder:
    """Decodes payloads for one identity."""

    def __init__(
        self,
        identity: SlackIdentity,
        places: SlackPlaces,
        names: Mapping[str, str],
        *,
        platform: str = "slack",
        account: str = "",
        require_mention: bool = True,
        command_words: frozenset[str] = frozenset(),
    ) -> None:
        self._identity = identity
        self._places = places
        self._names = names
        self._platform = platform
        self._account = account
        self._require_mention = require_mention
        self._command_words = command_words

    # --- events -------------------------------------------------------------------------------

    def decode_event(self, event: Json, team: str = "") -> SlackEvent | None:
        """Decode an event, or a message of the history with an added channel.

        Return None if the event is of no interest.
        """
        kind, subtype = event.get("type"), event.get("subtype")
        if kind == "agent_session_stopped":
            return self._stop_pressed(event, team)
        if kind == "app_home_opened" and event.get("tab") == "messages":
            return self._chat_opened(str(event.get("channel") or ""), event, team)
        if kind == "assistant_thread_started":  # sent to apps without `agent_view`
            thread = event.get("assistant_thread") or {}
            where = {"user": thread.get("user_id"), "event_ts": event.get("event_ts")}
            ts = str(thread.get("thread_ts") or "")
            return self._chat_opened(str(thread.get("channel_id") or ""), where, team, ts)
        if kind == "message" and subtype == "message_changed":
            return self._edit(event, team)
        if kind == "message" and subtype == "message_deleted":
            return self._delete(event, event.get("previous_message") or {}, team)
        if (
            kind in {"message", "app_mention"}
            and subtype in _MESSAGE_SUBTYPES
            and not event.get("hidden")
        ):
            return self._message(event, team)
        return None

    def _message(self, event: Json, team: str) -> SlackEvent | None:
        channel, ts = str(event.get("channel") or ""), str(event.get("ts") or "")
        if not channel or not ts or self._is_ours(event):
            return None
        raw = str(event.get("text") or "")
        direct = _is_direct(event, channel)
        user = str(event.get("user") or event.get("bot_id") or "")
        is_command = is_written_command(self._plain(raw), self._command_words)
        thread = _thread_of(event, direct=direct)
        called = event.get("type") == "app_mention" or has_mention(raw, self._identity.user)
        addressed = direct or called or is_command or not self._require_mention
        if not direct and thread and self._places.find(channel, thread):
            addressed = True
        if not direct and not thread and addressed:
            # A mention opens a thread; a command acts on the person's last thread.
            thread = self._places.last_thread(channel, user) if is_command else ts
        message = InboundMessage(
            id=f"{channel}:{ts}",
            at=timestamp_ms(ts),
            address=self._address(channel, thread),
            sender=_UNKNOWN_SENDER,
            parts=self._parts(event),
            direct=direct,
            addressed=addressed,
            context=tuple(self._forwarded(event)),
        )
        return SlackEvent(
            event=message,
            user=user,
            team=_team_of(event, team),
            is_bot=bool(event.get("bot_id")),
            channel=channel,
            thread=thread,
            ts=ts,
            addressed=addressed,
            outside_thread=is_command and not direct and not _thread_of(event, direct=direct),
        )

    def _edit(self, event: Json, team: str) -> SlackEvent | None:
        now, before = event.get("message") or {}, event.get("previous_message") or {}
        if now.get("subtype") == "tombstone":  # deleted, but with replies
            return self._delete({**event, "deleted_ts": now.get("ts")}, before or now, team)
        if self._is_ours(now) or "edited" not in now:
            return None
        if before and before.get("text") == now.get("text"):
            return None  # Slack added a link preview
        channel, ts = str(event.get("channel") or ""), str(now.get("ts") or "")
        direct = _is_direct(event, channel)
        thread = _thread_of(now, direct=direct)
        edited = str(now["edited"].get("ts") or event.get("ts"))
        edit = InboundEdit(
            id=f"{channel}:{ts}:edit:{edited}",
            at=timestamp_ms(edited),
            address=self._address(channel, thread),
            sender=_UNKNOWN_SENDER,
            message=f"{channel}:{ts}",
            parts=self._parts(now),
            direct=direct,
        )
        return self._with_author(edit, now, team)

    def _delete(self, event: Json, before: Json, team: str) -> SlackEvent | None:
        if not before or self._is_ours(before):
            return None
        channel = str(event.get("channel") or "")
        ts = str(event.get("deleted_ts") or before.get("ts") or "")
        direct = _is_direct(event, channel)
        delete = InboundDelete(
            id=f"{channel}:{ts}:delete",
            at=timestamp_ms(str(event.get("ts") or event.get("event_ts") or ts)),
            address=self._address(channel, _thread_of(before, direct=direct)),
            sender=_UNKNOWN_SENDER,
            message=f"{channel}:{ts}",
            direct=direct,
        )
        return self._with_author(delete, before, team)

    def _with_author(self, event: Inbound, message: Json, team: str) -> SlackEvent | None:
        user = str(message.get("user") or "")
        return SlackEvent(event=event, user=user, team=_team_of(message, team)) if user else None

    def _stop_pressed(self, event: Json, team: str) -> SlackEvent | None:
        """Decode a press of Slack's native Stop button as the stop command."""
        channel = str(event.get("channel") or event.get("channel_id") or "")
        user = str(event.get("user") or event.get("user_id") or "")
        ts = str(event.get("event_ts") or "")
        if not (channel and user and ts):
            return None
        direct = is_dm(channel)
        thread = _thread_of(event, direct=direct)
        message = self._command("!stop", f"{channel}:{ts}:stop", timestamp_ms(ts), channel, thread)
        return SlackEvent(event=message, user=user, team=_team_of(event, team))

    def _chat_opened(
        self, channel: str, event: Json, team: str, thread: str = ""
    ) -> SlackEvent | None:
        """Decode the opening of a DM as the start command, with one id per day."""
        user, ts = str(event.get("user") or ""), str(event.get("event_ts") or "")
        if not (is_dm(channel) and user):
            return None
        at = timestamp_ms(ts if "." in ts else f"{ts[:-6]}.{ts[-6:]}")
        hello = f"{channel}:hello:{at // _DAY_MS}"
        message = self._command("/start", hello, at, channel, thread)
        return SlackEvent(
            event=message, user=user, team=team, channel=channel, thread=thread, opened_chat=True
        )

    # --- actions and commands -----------------------------------------------------------------

    def decode_action(self, payload: Json) -> SlackEvent | None:
        """Decode the press of one of our buttons, or return None."""
        actions = payload.get("actions") or ()
        if payload.get("type") != "block_actions" or not actions:
            return None
        pressed, person = actions[0], payload.get("user") or {}
        if not str(pressed.get("action_id") or "").startswith("holdfast."):
            return None
        container, message = payload.get("container") or {}, payload.get("message") or {}
        channel = str(container.get("channel_id") or (payload.get("channel") or {}).get("id") or "")
        ts = str(container.get("message_ts") or message.get("ts") or "")
        direct = is_dm(channel)
        where = {"thread_ts": container.get("thread_ts") or message.get("thread_ts"), "ts": ts}
        user, at = str(person.get("id") or ""), str(pressed.get("action_ts") or ts)
        action = InboundAction(
            id=f"{channel}:{ts}:press:{at}:{user}",
            at=timestamp_ms(at),
            address=self._address(channel, _thread_of(where, direct=direct)),
            sender=_UNKNOWN_SENDER,
            action=str(pressed.get("value") or ""),
            message=ts,
            direct=direct,
        )
        return (
            SlackEvent(event=action, user=user, team=str(person.get("team_id") or ""))
            if user
            else None
        )

    def decode_command(self, payload: Json, now: int) -> SlackEvent | None:
        """Decode `/holdfast WORD`.

        Slack names no thread, so the command acts on the person's last thread in the channel.
        """
        channel, user = str(payload.get("channel_id") or ""), str(payload.get("user_id") or "")
        trigger = str(payload.get("trigger_id") or "")
        if not channel or not user:
            return None
        text = str(payload.get("text") or "").strip().lstrip("/!") or "help"
        thread = "" if is_dm(channel) else self._places.last_thread(channel, user)
        message = self._command(f"/{text}", f"{channel}:command:{trigger}", now, channel, thread)
        return SlackEvent(
            event=message,
            user=user,
            team=str(payload.get("team_id") or ""),
            outside_thread=not is_dm(channel),
        )

    def _command(self, text: str, id_: str, at: int, channel: str, thread: str) -> InboundMessage:
        return InboundMessage(
            id=id_,
            at=at,
            address=self._address(channel, thread),
            sender=_UNKNOWN_SENDER,
            parts=(Text(text),),
            direct=is_dm(channel),
            addressed=True,
        )

    # --- parts --------------------------------------------------------------------------------

    def quotes(self, messages: list[dict[str, Any]], before: str) -> tuple[Quote, ...]:
        """Decode the messages of a room before `before`, oldest first."""
        found = []
        for each in messages:
            text = self._plain(str(each.get("text") or ""))
            ts = str(each.get("ts") or "")
            if not text or ts == before or each.get("subtype") not in _MESSAGE_SUBTYPES:
                continue
            user = str(each.get("user") or each.get("bot_id") or "")
            name = _OWN_NAME if self._is_ours(each) else self._name_of(user)
            found.append((timestamp_ms(ts), Quote(name, text, ts)))
        return tuple(quote for _, quote in sorted(found, key=lambda pair: pair[0]))

    def _name_of(self, user: str) -> str:
        """Return a person's name, with the id if the name is the one that quotes give the app."""
        name = self._names.get(user) or user
        return f"{name} {user}" if clean_name(name).casefold() == _OWN_NAME else name

    def _address(self, channel: str, thread: str) -> Address:
        return Address(self._platform, f"{self._identity.team}/{channel}", self._account, thread)

    def _plain(self, text: str) -> str:
        return to_plain_text(text, self._names, self._identity.user)

    def _parts(self, event: Json) -> tuple[Part, ...]:
        text = self._plain(str(event.get("text") or ""))
        parts: list[Part] = [Text(text)] if text else []
        for file in event.get("files") or ():
            if not file.get("id") or file.get("mode") == "tombstone":
                continue
            name = str(file.get("name") or file.get("title") or file["id"])
            kind = str(file.get("mimetype") or "application/octet-stream")
            size = file.get("size")
            known = size if isinstance(size, int) else None
            voice = file.get("subtype") == "slack_audio"  # recorded in Slack
            parts.append(File(name, kind, ref=str(file["id"]), size=known, voice=voice))
        return tuple(parts) or (Text(""),)

    def _forwarded(self, event: Json) -> list[Quote]:
        """Return the messages shared or linked in this one."""
        return [
            Quote(str(each.get("author_name") or ""), self._plain(str(each["text"])))
            for each in event.get("attachments") or ()
            if (each.get("is_share") or each.get("is_msg_unfurl")) and each.get("text")
        ]

    def _is_ours(self, message: Json) -> bool:
        own = self._identity
        return message.get("user") == own.user or (
            own.bot != "" and message.get("bot_id") == own.bot
        )


def _is_direct(event: Json, channel: str) -> bool:
    return event.get("channel_type") == "im" or is_dm(channel)


def _thread_of(message: Json, *, direct: bool) -> str:
    """Return the thread of a message; in a DM a root message belongs to none."""
    thread = str(message.get("thread_ts") or "")
    return "" if direct and thread == message.get("ts") else thread


def _team_of(message: Json, team: str) -> str:
    """Return the author's workspace, which in a shared channel may differ from ours."""
    return str(message.get("user_team") or message.get("source_team") or team)
