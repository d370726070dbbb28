"""Execution of outgoing ops over Discord's REST API."""

import asyncio
import json
import logging
from collections import OrderedDict
from pathlib import Path
from typing import Any

import discord
import msgspec
from discord.http import MultipartParameters

from platforms.core.contract import (
    Address,
    Ask,
    Delete,
    Draft,
    Edit,
    Op,
    Post,
    React,
    Receipt,
    Typing,
    Upload,
)
from platforms.core.errors import ChatGone, Rejected, Unavailable
from platforms.discord import payloads
from platforms.discord.capabilities import MAX_FILE_BYTES, NONCE_SECONDS
from platforms.discord.connection import DiscordClient
from platforms.discord.decode import is_command_id
from platforms.discord.errors import (
    UNKNOWN_CHANNEL,
    UNKNOWN_MESSAGE,
    translate_errors,
)
from platforms.discord.format import render
from platforms.discord.private_answers import PrivateCommands, TokenExpired
from platforms.discord.read_marks import id_at
from platforms.discord.rooms import Payload, channel_id
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_MARGIN_SECONDS = 15.0
_CLOCK_SKEW_MS = 10_000
_MAX_REMEMBERED = 1_000
_PAGE = 100
_MAX_PAGES = 5
_MAX_TYPING_WAIT_SECONDS = 1.0
_MIN_MATCH_CHARS = 20


class DiscordSender:
    """Executor of ops; outlives connections, so `client` is set only while connected."""

    def __init__(self, clock: Clock) -> None:
        self.private_commands = PrivateCommands()
        self.client: DiscordClient | None = None
        self._clock = clock
        self._sent_by_nonce: OrderedDict[str, str] = OrderedDict()  # nonce -> message id
        self._reactions: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._dm_channels: dict[str, str] = {}  # user id -> channel id

    def on_own_message(self, nonce: str, message: str) -> None:
        """Record a message of the bot, which proves that the post with this nonce succeeded."""
        self._sent_by_nonce[nonce] = message
        if len(self._sent_by_nonce) > _MAX_REMEMBERED:
            self._sent_by_nonce.popitem(last=False)

    async def deliver(self, op: Op) -> Receipt:
        """See `platforms.core.contract.Adapter`."""
        client = self.client
        if client is None:
            msg = "Discord is not connected"
            raise Unavailable(msg)
        with translate_errors():
            match op:
                case Post() | Ask() | Upload():
                    return await self._create(client, op)
                case Edit():
                    await self._edit(client, op)
                case Delete():
                    await self._delete(client, op)
                case React():
                    await self._react(client, op)
                case Typing():
                    await self._typing(client, op)
                case Draft():
                    msg = "Discord has no drafts"
                    raise Rejected(msg)
        return Receipt()

    # --- new messages ------------------------------------------------------------------------

    async def _create(self, client: DiscordClient, op: Post | Ask | Upload) -> Receipt:
        if isinstance(op, Post) and op.only_for and is_command_id(op.reply_to or ""):
            # A command that was typed as a message has no private answer.
            return await self._answer_privately(client, op)
        if op.again and (known := await self._find_sent(client, op)):
            return Receipt(known)
        channel = self._channel(op.address)
        try:
            message = await self._send(client, channel, op)
        except ChatGone as error:
            # The address of an admin is a user id until the private channel is known.
            if error.code != UNKNOWN_CHANNEL or op.address.thread or channel != op.address.chat:
                raise
            channel = await self._open_private(client, channel, error)
            message = await self._send(client, channel, op)
        self.on_own_message(payloads.message_nonce(op.op), str(message["id"]))
        return Receipt(str(message["id"]))

    async def _answer_privately(self, client: DiscordClient, op: Post) -> Receipt:
        """Show an answer only to the person who gave the command.

        Without the token of the command, which expires and which a restart forgets, the answer goes
        to the private chat with the person. It never goes to the room.
        """
        if command := self.private_commands.find(op.reply_to or ""):
            try:
                return await command.answer(client, op)
            except TokenExpired:
                pass
        log.info("discord: %s is sent as a direct message: its command has expired", op.op)
        try:
            with translate_errors():
                chat = await self._private_channel(client, op.only_for)
            address = Address(op.address.platform, chat, account=op.address.account)
            direct = msgspec.structs.replace(op, address=address, only_for="", reply_to=None)
            return await self._create(client, direct)
        except ChatGone as error:  # the room itself is not gone
            msg = f"the person who asked accepts no direct messages: {error}"
            raise Rejected(msg) from error

    async def _send(self, client: DiscordClient, channel: str, op: Post | Ask | Upload) -> Payload:
        if isinstance(op, Upload):
            params = await _file_params(op)
        else:
            reply_to = op.reply_to if isinstance(op, Post) else None
            payload = payloads.message_payload(
                render(op.text), op.buttons, op=op.op, reply_to=reply_to
            )
            params = MultipartParameters(payload, None, None)
        with translate_errors(), params:
            return dict(await client.http.send_message(int(channel), params=params))

    async def _open_private(self, client: DiscordClient, person: str, error: ChatGone) -> str:
        try:
            return await self._private_channel(client, person)
        except discord.HTTPException:
            raise error from None

    async def _private_channel(self, client: DiscordClient, person: str) -> str:
        """Return the channel of the private chat with a person."""
        if person not in self._dm_channels:
            opened = await client.http.start_private_message(int(person))
            self._dm_channels[person] = str(opened["id"])
        return self._dm_channels[person]

    def _channel(self, address: Address) -> str:
        channel = self._dm_channels.get(address.chat, address.chat)
        if not channel.isdigit() or not (address.thread or "0").isdigit():
            msg = f"{channel_id(address)!r} is not a Discord channel id"
            raise ChatGone(msg)
        return address.thread or channel

    # --- messages of earlier attempts --------------------------------------------------------

    async def _find_sent(self, client: DiscordClient, op: Post | Ask | Upload) -> str | None:
        """Return the message that an earlier attempt created, if any.

        Within the lifetime of the nonce, Discord itself detects the repetition.
        """
        nonce = payloads.message_nonce(op.op)
        if known := self._sent_by_nonce.get(nonce):
            return known
        if self._clock.now() - op.since < (NONCE_SECONDS - _MARGIN_SECONDS) * 1000:
            return None
        channel, after = int(self._channel(op.address)), id_at(op.since - _CLOCK_SKEW_MS)
        me = client.user.id if client.user else 0
        for _ in range(_MAX_PAGES):
            page: list[Any] = list(await client.http.logs_from(channel, _PAGE, after=after))
            for message in sorted(page, key=lambda message: int(message["id"])):
                if int(message["author"]["id"]) == me and self._is_same_message(message, op, nonce):
                    return str(message["id"])
            if len(page) < _PAGE:
                break
            after = max(int(message["id"]) for message in page)
        return None

    def _is_same_message(self, message: Payload, op: Post | Ask | Upload, nonce: str) -> bool:
        if message.get("nonce"):
            return str(message["nonce"]) == nonce
        if str(message["id"]) in self._sent_by_nonce.values():
            return False  # the message belongs to another op
        if isinstance(op, Upload):
            names = {file.get("filename") for file in message.get("attachments", ())}
            return _file_name(op.name) in names
        text, shown = render(op.text).strip(), str(message.get("content", "")).strip()
        # A streamed answer may have been posted with only its beginning.
        is_prefix = len(shown) >= _MIN_MATCH_CHARS and text.startswith(shown)
        return shown == text or is_prefix

    # --- existing messages -------------------------------------------------------------------

    async def _edit(self, client: DiscordClient, op: Edit) -> None:
        channel, payload = (
            self._channel(op.address),
            payloads.message_payload(render(op.text), op.buttons),
        )
        params = MultipartParameters(payload, None, None)
        await client.http.edit_message(int(channel), _message_id(op.message), params=params)

    async def _delete(self, client: DiscordClient, op: Delete) -> None:
        try:
            with translate_errors():
                await client.http.delete_message(
                    int(self._channel(op.address)), _message_id(op.message)
                )
        except Rejected as error:
            if error.code != UNKNOWN_MESSAGE:
                raise

    async def _react(self, client: DiscordClient, op: React) -> None:
        """Add the new reaction, then remove the old one, so that one is always visible."""
        channel, message = int(self._channel(op.address)), _message_id(op.message)
        key = (str(channel), op.message)
        try:
            with translate_errors():
                if op.emoji:
                    await client.http.add_reaction(channel, message, op.emoji)
                for old in await self._old_reactions(client, channel, message, key, op.emoji):
                    await client.http.remove_own_reaction(channel, message, old)
        except ChatGone as error:
            # A missing permission to react does not make the chat unreachable.
            raise Rejected(str(error)) from error
        self._reactions[key] = op.emoji
        if len(self._reactions) > _MAX_REMEMBERED:
            self._reactions.popitem(last=False)

    async def _old_reactions(
        self, client: DiscordClient, channel: int, message: int, key: tuple[str, str], emoji: str
    ) -> list[str]:
        if key in self._reactions:
            old = self._reactions[key]
            return [old] if old and old != emoji else []
        if emoji:
            return []
        payload: Payload = dict(await client.http.get_message(channel, message))
        own = [reaction for reaction in payload.get("reactions", ()) if reaction.get("me")]
        return [str(reaction["emoji"]["name"]) for reaction in own]

    async def _typing(self, client: DiscordClient, op: Typing) -> None:
        if client.rate_limit.queue_seconds() > _MAX_TYPING_WAIT_SECONDS:
            msg = "the typing indicator was skipped, because messages are waiting to be sent"
            raise Unavailable(msg)
        await client.http.send_typing(int(self._channel(op.address)))


def _message_id(name: str) -> int:
    if not name.isdigit():
        msg = f"{name!r} is not a Discord message id"
        raise Rejected(msg)
    return int(name)


def _file_name(name: str) -> str:
    """Return the name with safe characters only; Discord changes others, which breaks matching."""
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name) or "file"


async def _file_params(op: Upload) -> MultipartParameters:
    """Return the multipart body of an upload; the file is streamed from disk."""
    path = Path(op.path)
    try:
        size = (await asyncio.to_thread(path.stat)).st_size
        if size > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES >> 20
            msg = f"{op.name} has {size / 2**20:.0f} MiB; Discord's limit is {limit} MiB"
            raise Rejected(msg)
        file = await asyncio.to_thread(discord.File, path, _file_name(op.name))
    except OSError as error:
        msg = f"{op.name} cannot be read: {error.strerror}"
        raise Rejected(msg) from error
    payload = payloads.message_payload(render(op.caption), op=op.op, file_name=file.filename)
    multipart: list[dict[str, Any]] = [
        {"name": "payload_json", "value": json.dumps(payload)},
        {
            "name": "files[0]",
            "value": file.fp,
            "filename": file.filename,
            "content_type": op.media_type or "application/octet-stream",
        },
    ]
    return MultipartParameters(None, multipart, [file])
