"""Sans-IO: what the gateway and the history send, as events of ours."""

import datetime as dt
import re
from collections.abc import Callable, Iterable

import msgspec

from platforms.core.contract import (
    Address,
    File,
    InboundAction,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Part,
    Quote,
    Sender,
    Text,
)
from platforms.discord.payloads import parse_custom_id
from platforms.discord.read_marks import sent_at
from platforms.discord.rooms import DiscordChannel, Payload, RecentMessage

_DEFAULT, _REPLY = 0, 19  # kinds of message that people write
_VOICE_MESSAGE = 1 << 13  # a message's flag
COMMAND, COMPONENT = 2, 3  # kinds of interaction

_MENTION = re.compile(r"<(?:(?P<sign>@[!&]?|#)(?P<id>\d+)|a?(?P<emoji>:\w+:)\d+)>")
_SLASH = re.compile(r"</(?P<words>[^:>]+):\d+>")


class BotAccount(msgspec.Struct, frozen=True):
    """Our own account."""

    id: str
    name: str
    application: str


class MessageContext(msgspec.Struct, frozen=True, kw_only=True):
    """What one must know to read a message, besides the message."""

    account: BotAccount
    address: Address
    channel: DiscordChannel
    own_roles: frozenset[str]  # of the bot itself: people mention them by mistake
    channel_name: Callable[[str], str]
    is_in_use: bool  # we were addressed there before
    require_mention: bool


def own_roles(guild: Payload, me: str) -> frozenset[str]:
    """The roles of a server that Discord made for us."""
    return frozenset(
        str(role["id"])
        for role in guild.get("roles", ())
        if str((role.get("tags") or {}).get("bot_id", "")) == me
    )


def is_user_message(message: Payload) -> bool:
    """Tell what people and bots write from what Discord itself announces."""
    return message.get("type", _DEFAULT) in {_DEFAULT, _REPLY} and "author" in message


def is_own_message(message: Payload, me: BotAccount) -> bool:
    """Tell whether we wrote a message."""
    return str((message.get("author") or {}).get("id")) == me.id


def sender_of(author: Payload, member: Payload | None, guild: str, webhook: str = "") -> Sender:
    """Say who it was, with what Discord vouches for."""
    memberships: tuple[str, ...] = ()
    if guild and member is not None and not webhook:
        memberships = membership_of(guild, member)
    return Sender(
        str(author["id"]),
        _name(author, member),
        is_bot=bool(author.get("bot")) or bool(webhook),
        memberships=memberships,
    )


def membership_of(guild: str, member: Payload) -> tuple[str, ...]:
    """What a member of a server is there."""
    return (f"{guild}/*", *(f"{guild}/role:{role}" for role in member.get("roles", ())))


# --- messages ------------------------------------------------------------------------------------


def read_message(message: Payload, reading: MessageContext) -> InboundMessage:
    """Read a new message."""
    number = int(message["id"])
    return InboundMessage(
        id=str(number),
        at=sent_at(number),
        address=reading.address,
        sender=_sender(message, reading.channel),
        parts=_parts(message, reading),
        direct=reading.channel.is_direct,
        addressed=reading.channel.is_direct or _is_addressed(message, reading),
        reply_to=_reply_to(message, reading),
        raw=msgspec.json.encode(message),
    )


def read_edit(message: Payload, reading: MessageContext) -> InboundEdit | None:
    """Read a change; None when nobody changed anything, as when Discord adds a preview."""
    edited = message.get("edited_timestamp")
    if not edited:
        return None
    at = int(dt.datetime.fromisoformat(edited).timestamp() * 1000)
    return InboundEdit(
        id=f"{message['id']}.e{at}",
        at=at,
        address=reading.address,
        sender=_sender(message, reading.channel),
        message=str(message["id"]),
        parts=_parts(message, reading),
        direct=reading.channel.is_direct,
        raw=msgspec.json.encode(message),
    )


def read_delete(
    message: str, sender: Sender, address: Address, room: DiscordChannel, now: int
) -> InboundDelete:
    """Say that somebody took a message back."""
    return InboundDelete(
        id=f"{message}.d",
        at=now,
        address=address,
        sender=sender,
        message=message,
        direct=room.is_direct,
    )


def read_context_message(
    message: Payload, reading: MessageContext, *, addressed: bool
) -> RecentMessage:
    """Read a message as somebody who only listens."""
    answered = message.get("referenced_message") or {}
    ours = is_own_message(message, reading.account)
    return RecentMessage(
        id=str(message["id"]),
        author=str(message["author"]["id"]),
        name=_name(message["author"], message.get("member")),
        text=_plain_text(message, reading),
        addressed=addressed,
        reply_to_author=str((answered.get("author") or {}).get("id", "")) if ours else "",
    )


def join_messages(messages: Iterable[InboundMessage]) -> InboundMessage:
    """Make one message of a text that was too long for one."""
    first, *others = messages
    parts = first.parts + tuple(part for other in others for part in other.parts)
    addressed = first.addressed or any(other.addressed for other in others)
    return msgspec.structs.replace(first, parts=parts, addressed=addressed)


# --- interactions --------------------------------------------------------------------------------


def read_press(
    interaction: Payload, address: Address, room: DiscordChannel
) -> InboundAction | None:
    """Read the press of a button; None when the button is not one of ours."""
    action = parse_custom_id(str(interaction["data"].get("custom_id", "")))
    if action is None:
        return None
    number = int(interaction["id"])
    return InboundAction(
        id=str(number),
        at=sent_at(number),
        address=address,
        sender=_interaction_sender(interaction, room),
        action=action,
        message=str((interaction.get("message") or {}).get("id", "")),
        direct=room.is_direct,
        raw=_without_token(interaction),
    )


def read_command(interaction: Payload, address: Address, room: DiscordChannel) -> InboundMessage:
    """Read a command of the menu as the message that it stands for."""
    data = interaction["data"]
    words = [str(option.get("value", "")).strip() for option in data.get("options", ())]
    text = " ".join(["/" + str(data["name"]), *filter(None, words)])
    number = int(interaction["id"])
    return InboundMessage(
        id=str(number),
        at=sent_at(number),
        address=address,
        sender=_interaction_sender(interaction, room),
        parts=(Text(text),),
        direct=room.is_direct,
        addressed=True,
        raw=_without_token(interaction),
    )


def _interaction_sender(interaction: Payload, room: DiscordChannel) -> Sender:
    member = interaction.get("member")
    author = interaction.get("user") or (member or {}).get("user") or {}
    return sender_of(author, member, room.guild)


def _without_token(interaction: Payload) -> bytes:
    """With the token anybody could answer in our name for a quarter of an hour."""
    kept = {key: value for key, value in interaction.items() if key != "token"}
    return msgspec.json.encode(kept)


# --- parts of a message --------------------------------------------------------------------------


def _sender(message: Payload, room: DiscordChannel) -> Sender:
    webhook = str(message.get("webhook_id") or "")
    return sender_of(message["author"], message.get("member"), room.guild, webhook)


def _name(author: Payload, member: Payload | None) -> str:
    names = ((member or {}).get("nick"), author.get("global_name"), author.get("username"))
    return next((str(name) for name in names if name), "")


def _is_addressed(message: Payload, reading: MessageContext) -> bool:
    if not reading.require_mention:
        return True
    mentioned = any(str(user["id"]) == reading.account.id for user in message.get("mentions", ()))
    by_role = any(str(role) in reading.own_roles for role in message.get("mention_roles", ()))
    answered = message.get("referenced_message")
    to_us = bool(answered) and is_own_message(answered or {}, reading.account)
    return mentioned or by_role or to_us or (bool(reading.channel.parent) and reading.is_in_use)


def _parts(message: Payload, reading: MessageContext) -> tuple[Part, ...]:
    text = _plain_text(message, reading)
    files = tuple(_file(message, each) for each in message.get("attachments", ()))
    forwarded = tuple(
        _file(snapshot["message"], each)
        for snapshot in message.get("message_snapshots", ())
        for each in snapshot.get("message", {}).get("attachments", ())
    )
    words = (Text(text),) if text or not (files or forwarded) else ()
    return (*words, *files, *forwarded)


def _file(message: Payload, attachment: Payload) -> File:
    """`ref` names the message too: the address of a file is good for a day only."""
    place = f"{message.get('channel_id', '')}/{message.get('id', '')}/{attachment['id']}"
    kind = str(attachment.get("content_type") or "application/octet-stream")
    return File(
        str(attachment.get("filename") or "file"),
        kind.partition(";")[0],
        ref=f"{place} {attachment['url']}",
        size=attachment.get("size"),
        voice=bool(int(message.get("flags") or 0) & _VOICE_MESSAGE),
    )


def _reply_to(message: Payload, reading: MessageContext) -> Quote | None:
    if answered := message.get("referenced_message"):
        name = _name(answered.get("author") or {}, answered.get("member"))
        return Quote(name, _plain_text(answered, reading), str(answered["id"]))
    for snapshot in message.get("message_snapshots", ()):
        return Quote("forwarded message", _plain_text(snapshot.get("message", {}), reading))
    return None


def _plain_text(message: Payload, reading: MessageContext) -> str:
    """The words of a message, with names in place of ids, and without the call at its front."""
    text = str(message.get("content") or "")
    for ours in (f"<@{reading.account.id}>", f"<@!{reading.account.id}>"):
        text = text.removeprefix(ours).lstrip() if text.startswith(ours) else text
    for role in reading.own_roles:
        text = text.removeprefix(f"<@&{role}>").lstrip() if text.startswith("<@&") else text
    people = {str(user["id"]): _name(user, user.get("member")) for user in _mentioned(message)}
    people.setdefault(reading.account.id, reading.account.name)

    def named(match: re.Match[str]) -> str:
        if match["emoji"]:
            return match["emoji"]
        if match["sign"] == "#":
            return f"#{reading.channel_name(match['id'])}"
        known = match["sign"] != "@&" and match["id"] in people
        return f"@{people[match['id']]}" if known else match[0]

    text = _SLASH.sub(lambda match: f"/{match['words']}", _MENTION.sub(named, text))
    stickers = [f"[sticker: {each.get('name', '')}]" for each in message.get("sticker_items", ())]
    return "\n".join(filter(None, [text, *stickers]))


def _mentioned(message: Payload) -> Iterable[Payload]:
    found: Iterable[Payload] = message.get("mentions", ())
    return found
