"""Sans-IO: decoder of gateway and history payloads into inbound events."""

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
from platforms.core.written_command import is_written_command
from platforms.discord.payloads import parse_custom_id
from platforms.discord.read_marks import sent_at
from platforms.discord.rooms import DiscordChannel, Payload, RecentMessage
from sessions.values.frames import clean_name, to_single_line

_DEFAULT, _REPLY = 0, 19  # message types written by people and bots
_VOICE_MESSAGE = 1 << 13  # message flag
COMMAND, COMPONENT = 2, 3  # interaction types
_COMMAND_PREFIX = "command-"  # of the ids of slash commands

_MENTION = re.compile(r"<(?:(?P<sign>@[!&]?|#)(?P<id>\d+)|a?(?P<emoji>:\w+:)\d+)>")
_SLASH = re.compile(r"</(?P<words>[^:>]+):\d+>")


class BotAccount(msgspec.Struct, frozen=True):
    """The bot's own account."""

    id: str
    name: str
    application: str


class MessageContext(msgspec.Struct, frozen=True, kw_only=True):
    """Surroundings of a message that its payload does not contain."""

    account: BotAccount
    address: Address
    channel: DiscordChannel
    own_roles: frozenset[str]  # the bot's managed roles, which people mention by mistake
    channel_name: Callable[[str], str]
    is_in_use: bool  # the bot was addressed in the channel before
    require_mention: bool
    command_words: frozenset[str] = frozenset()


def own_roles(guild: Payload, me: str) -> frozenset[str]:
    """Return the roles that Discord created in a server for the bot `me`."""
    return frozenset(
        str(role["id"])
        for role in guild.get("roles", ())
        if str((role.get("tags") or {}).get("bot_id", "")) == me
    )


def is_user_message(message: Payload) -> bool:
    """Return whether a person or bot wrote the message, as opposed to a system message."""
    return message.get("type", _DEFAULT) in {_DEFAULT, _REPLY} and "author" in message


def is_own_message(message: Payload, me: BotAccount) -> bool:
    """Return whether the bot itself wrote the message."""
    return str((message.get("author") or {}).get("id")) == me.id


def sender_of(author: Payload, member: Payload | None, guild: str, webhook: str = "") -> Sender:
    """Return the sender with the memberships that the payload proves."""
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
    """Return the memberships of a server member: the server itself and each role."""
    return (f"{guild}/*", *(f"{guild}/role:{role}" for role in member.get("roles", ())))


# --- messages ------------------------------------------------------------------------------------


def read_message(message: Payload, context: MessageContext) -> InboundMessage:
    """Return the event of a new message."""
    number = int(message["id"])
    return InboundMessage(
        id=str(number),
        at=sent_at(number),
        address=context.address,
        sender=_sender(message, context.channel),
        parts=_parts(message, context),
        direct=context.channel.is_direct,
        addressed=context.channel.is_direct or _is_addressed(message, context),
        reply_to=_reply_to(message, context),
        raw=msgspec.json.encode(message),
    )


def read_edit(message: Payload, context: MessageContext) -> InboundEdit | None:
    """Return the event of an edit; None if only Discord changed the message, as for previews."""
    edited = message.get("edited_timestamp")
    if not edited:
        return None
    at = int(dt.datetime.fromisoformat(edited).timestamp() * 1000)
    return InboundEdit(
        id=f"{message['id']}.e{at}",
        at=at,
        address=context.address,
        sender=_sender(message, context.channel),
        message=str(message["id"]),
        parts=_parts(message, context),
        direct=context.channel.is_direct,
        raw=msgspec.json.encode(message),
    )


def read_delete(
    message: str, sender: Sender, address: Address, room: DiscordChannel, now: int
) -> InboundDelete:
    """Return the event of a deleted message."""
    return InboundDelete(
        id=f"{message}.d",
        at=now,
        address=address,
        sender=sender,
        message=message,
        direct=room.is_direct,
    )


def read_context_message(
    message: Payload, context: MessageContext, *, addressed: bool
) -> RecentMessage:
    """Return a message as context for later messages in the same room."""
    answered = message.get("referenced_message") or {}
    ours = is_own_message(message, context.account)
    return RecentMessage(
        id=str(message["id"]),
        author=str(message["author"]["id"]),
        name=_name(message["author"], message.get("member")),
        text=_plain_text(message, context),
        addressed=addressed,
        reply_to_author=str((answered.get("author") or {}).get("id", "")) if ours else "",
    )


def join_messages(messages: Iterable[InboundMessage]) -> InboundMessage:
    """Return one message with the parts of all pieces and the id of the first."""
    first, *others = messages
    parts = first.parts + tuple(part for other in others for part in other.parts)
    addressed = first.addressed or any(other.addressed for other in others)
    return msgspec.structs.replace(first, parts=parts, addressed=addressed)


# --- interactions --------------------------------------------------------------------------------


def read_press(
    interaction: Payload, address: Address, room: DiscordChannel
) -> InboundAction | None:
    """Return the event of a button press; None if the button does not belong to the gateway."""
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


def command_id(interaction: Payload) -> str:
    """Return the id of a slash command, in a form that no message has."""
    return f"{_COMMAND_PREFIX}{int(interaction['id'])}"


def is_command_id(id_: str) -> bool:
    """Return True for the id of a slash command; False for the id of a message."""
    return id_.startswith(_COMMAND_PREFIX)


def read_command(interaction: Payload, address: Address, room: DiscordChannel) -> InboundMessage:
    """Return a slash command as the equivalent text message."""
    data = interaction["data"]
    words = [str(option.get("value", "")).strip() for option in data.get("options", ())]
    text = " ".join(["/" + str(data["name"]), *filter(None, words)])
    number = int(interaction["id"])
    return InboundMessage(
        id=command_id(interaction),
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
    """Return the payload as JSON without its token, which allows posting as the bot for 15 min."""
    stripped = {key: value for key, value in interaction.items() if key != "token"}
    return msgspec.json.encode(stripped)


# --- parts of a message --------------------------------------------------------------------------


def _sender(message: Payload, room: DiscordChannel) -> Sender:
    webhook = str(message.get("webhook_id") or "")
    return sender_of(message["author"], message.get("member"), room.guild, webhook)


def _name(author: Payload, member: Payload | None) -> str:
    names = ((member or {}).get("nick"), author.get("global_name"), author.get("username"))
    return next((str(name) for name in names if name), "")


def _is_addressed(message: Payload, context: MessageContext) -> bool:
    if not context.require_mention:
        return True
    mentioned = any(str(user["id"]) == context.account.id for user in message.get("mentions", ()))
    by_role = any(str(role) in context.own_roles for role in message.get("mention_roles", ()))
    answered = message.get("referenced_message")
    is_reply = bool(answered) and is_own_message(answered or {}, context.account)
    in_thread = bool(context.channel.parent) and context.is_in_use
    is_command = is_written_command(str(message.get("content") or ""), context.command_words)
    return mentioned or by_role or is_reply or in_thread or is_command


def _parts(message: Payload, context: MessageContext) -> tuple[Part, ...]:
    text = _plain_text(message, context)
    files = tuple(_file(message, each) for each in message.get("attachments", ()))
    forwarded = tuple(
        _file(snapshot["message"], each)
        for snapshot in message.get("message_snapshots", ())
        for each in snapshot.get("message", {}).get("attachments", ())
    )
    words = (Text(text),) if text or not (files or forwarded) else ()
    return (*words, *files, *forwarded)


def _file(message: Payload, attachment: Payload) -> File:
    """Return an attachment whose `ref` also names its message, because URLs expire after a day."""
    source = f"{message.get('channel_id', '')}/{message.get('id', '')}/{attachment['id']}"
    kind = str(attachment.get("content_type") or "application/octet-stream")
    return File(
        str(attachment.get("filename") or "file"),
        kind.partition(";")[0],
        ref=f"{source} {attachment['url']}",
        size=attachment.get("size"),
        voice=bool(int(message.get("flags") or 0) & _VOICE_MESSAGE),
    )


def _reply_to(message: Payload, context: MessageContext) -> Quote | None:
    if answered := message.get("referenced_message"):
        name = _name(answered.get("author") or {}, answered.get("member"))
        return Quote(name, _plain_text(answered, context), str(answered["id"]))
    for snapshot in message.get("message_snapshots", ()):
        return Quote("forwarded message", _plain_text(snapshot.get("message", {}), context))
    return None


def _plain_text(message: Payload, context: MessageContext) -> str:
    """Return the text with names in place of ids and without a leading mention of the bot."""
    text = str(message.get("content") or "")
    for mention in (f"<@{context.account.id}>", f"<@!{context.account.id}>"):
        text = text.removeprefix(mention).lstrip() if text.startswith(mention) else text
    for role in context.own_roles:
        text = text.removeprefix(f"<@&{role}>").lstrip() if text.startswith("<@&") else text
    people = {str(user["id"]): _name(user, user.get("member")) for user in _mentioned(message)}
    people.setdefault(context.account.id, context.account.name)

    def to_name(match: re.Match[str]) -> str:
        if match["emoji"]:
            return match["emoji"]
        if match["sign"] == "#":
            return f"#{clean_name(context.channel_name(match['id']))}"
        known = match["sign"] != "@&" and match["id"] in people
        return f"@{clean_name(people[match['id']])}" if known else match[0]

    text = _SLASH.sub(lambda match: f"/{match['words']}", _MENTION.sub(to_name, text))
    stickers = [
        f"[sticker: {to_single_line(str(each.get('name', '')))}]"
        for each in message.get("sticker_items", ())
    ]
    return "\n".join(filter(None, [text, *stickers]))


def _mentioned(message: Payload) -> Iterable[Payload]:
    mentions: Iterable[Payload] = message.get("mentions", ())
    return mentions
