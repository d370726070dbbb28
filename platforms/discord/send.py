"""Carries out ops."""

import asyncio
import json
import logging
from collections import OrderedDict
from pathlib import Path
from typing import Any

import discord
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
from platforms.discord.connection import Client
from platforms.discord.errors import (
    UNKNOWN_CHANNEL,
    UNKNOWN_MESSAGE,
    GoneWith,
    RejectedWith,
    mapped,
)
from platforms.discord.format import render
from platforms.discord.read_marks import id_at
from platforms.discord.rooms import Payload, channel_of
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

LARGEST_FILE = 10 * 1024 * 1024
NONCE_SECONDS = 120.0
"""How long Discord surely recognises the nonce of a message."""

_MARGIN_SECONDS = 15.0
_CLOCKS_DIFFER = 10_000
_MOST_REMEMBERED = 1_000
_PAGE = 100
_MOST_PAGES = 5
_LONGEST_WAIT = 1.0
_SIGNIFICANT = 20


class Speaker:
    """Our side of every conversation."""

    def __init__(self, clock: Clock) -> None:
        self.client: Client | None = None  # while there is a connection
        self._clock = clock
        self._made: OrderedDict[str, str] = OrderedDict()  # nonce -> message
        self._signs: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._private: dict[str, str] = {}  # person -> channel

    def saw(self, nonce: str, message: str) -> None:
        """A message of ours came by: what became of its post is known now."""
        self._made[nonce] = message
        if len(self._made) > _MOST_REMEMBERED:
            self._made.popitem(last=False)

    async def deliver(self, op: Op) -> Receipt:
        """See `platforms.core.contract.Adapter`."""
        client = self.client
        if client is None:
            msg = "Discord is not connected"
            raise Unavailable(msg)
        with mapped():
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

    async def _create(self, client: Client, op: Post | Ask | Upload) -> Receipt:
        if op.again and (known := await self._find(client, op)):
            return Receipt(known)
        channel = self._channel(op.address)
        try:
            message = await self._send(client, channel, op)
        except GoneWith as error:
            # An admin is written to by id, before anybody knows the channel to that person.
            if error.code != UNKNOWN_CHANNEL or op.address.thread or channel != op.address.chat:
                raise
            channel = await self._open_private(client, channel, error)
            message = await self._send(client, channel, op)
        self.saw(payloads.nonce_of(op.op), str(message["id"]))
        return Receipt(str(message["id"]))

    async def _send(self, client: Client, channel: str, op: Post | Ask | Upload) -> Payload:
        if isinstance(op, Upload):
            params = await _with_file(op)
        else:
            reply_to = op.reply_to if isinstance(op, Post) else None
            payload = payloads.message(render(op.text), op.buttons, op=op.op, reply_to=reply_to)
            params = MultipartParameters(payload, None, None)
        with mapped(), params:
            return dict(await client.http.send_message(int(channel), params=params))

    async def _open_private(self, client: Client, person: str, error: GoneWith) -> str:
        try:
            opened = await client.http.start_private_message(int(person))
        except discord.HTTPException:
            raise error from None
        self._private[person] = str(opened["id"])
        return self._private[person]

    def _channel(self, address: Address) -> str:
        channel = self._private.get(address.chat, address.chat)
        if not channel.isdigit() or not (address.thread or "0").isdigit():
            msg = f"{channel_of(address)!r} is not a channel of Discord"
            raise ChatGone(msg)
        return address.thread or channel

    # --- was it sent? ------------------------------------------------------------------------

    async def _find(self, client: Client, op: Post | Ask | Upload) -> str | None:
        """Find what an earlier try made; within the nonce's time Discord does that itself."""
        nonce = payloads.nonce_of(op.op)
        if known := self._made.get(nonce):
            return known
        if self._clock.now() - op.since < (NONCE_SECONDS - _MARGIN_SECONDS) * 1000:
            return None
        channel, after = int(self._channel(op.address)), id_at(op.since - _CLOCKS_DIFFER)
        me = client.user.id if client.user else 0
        for _ in range(_MOST_PAGES):
            page: list[Any] = list(await client.http.logs_from(channel, _PAGE, after=after))
            for message in sorted(page, key=lambda each: int(each["id"])):
                if int(message["author"]["id"]) == me and self._is_of(message, op, nonce):
                    return str(message["id"])
            if len(page) < _PAGE:
                break
            after = max(int(message["id"]) for message in page)
        return None

    def _is_of(self, message: Payload, op: Post | Ask | Upload, nonce: str) -> bool:
        if message.get("nonce"):
            return str(message["nonce"]) == nonce
        if str(message["id"]) in self._made.values():
            return False  # of another op
        if isinstance(op, Upload):
            names = {file.get("filename") for file in message.get("attachments", ())}
            return _file_name(op.name) in names
        text, shown = render(op.text).strip(), str(message.get("content", "")).strip()
        grown = len(shown) >= _SIGNIFICANT and text.startswith(shown)  # it was still being written
        return shown == text or grown

    # --- messages that are there -------------------------------------------------------------

    async def _edit(self, client: Client, op: Edit) -> None:
        channel, payload = self._channel(op.address), payloads.message(render(op.text), op.buttons)
        params = MultipartParameters(payload, None, None)
        await client.http.edit_message(int(channel), _message(op.message), params=params)

    async def _delete(self, client: Client, op: Delete) -> None:
        try:
            with mapped():
                await client.http.delete_message(
                    int(self._channel(op.address)), _message(op.message)
                )
        except RejectedWith as error:
            if error.code != UNKNOWN_MESSAGE:
                raise

    async def _react(self, client: Client, op: React) -> None:
        """Put the new sign, then take the old one away: there is always one to see."""
        channel, message = int(self._channel(op.address)), _message(op.message)
        key = (str(channel), op.message)
        try:
            with mapped():
                if op.emoji:
                    await client.http.add_reaction(channel, message, op.emoji)
                for old in await self._old_signs(client, channel, message, key, op.emoji):
                    await client.http.remove_own_reaction(channel, message, old)
        except ChatGone as error:
            raise Rejected(str(error)) from error  # a missing right to react is no missing chat
        self._signs[key] = op.emoji
        if len(self._signs) > _MOST_REMEMBERED:
            self._signs.popitem(last=False)

    async def _old_signs(
        self, client: Client, channel: int, message: int, key: tuple[str, str], emoji: str
    ) -> list[str]:
        if key in self._signs:
            old = self._signs[key]
            return [old] if old and old != emoji else []
        if emoji:
            return []
        shown: Payload = dict(await client.http.get_message(channel, message))
        mine = [each for each in shown.get("reactions", ()) if each.get("me")]
        return [str(each["emoji"]["name"]) for each in mine]

    async def _typing(self, client: Client, op: Typing) -> None:
        if client.gate.ahead() > _LONGEST_WAIT:
            msg = "there is more important to say"
            raise Unavailable(msg)
        await client.http.send_typing(int(self._channel(op.address)))


def _message(name: str) -> int:
    if not name.isdigit():
        msg = f"{name!r} is not a message of Discord"
        raise Rejected(msg)
    return int(name)


def _file_name(name: str) -> str:
    """Discord makes its own of other characters, and would not be recognised."""
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name) or "file"


async def _with_file(op: Upload) -> MultipartParameters:
    """Stream a file from disk, with everything else beside it."""
    path = Path(op.path)
    try:
        size = (await asyncio.to_thread(path.stat)).st_size
        if size > LARGEST_FILE:
            msg = f"{op.name} has {size / 2**20:.0f} MiB; Discord takes {LARGEST_FILE >> 20}"
            raise Rejected(msg)
        file = await asyncio.to_thread(discord.File, path, _file_name(op.name))
    except OSError as error:
        msg = f"{op.name} cannot be read: {error.strerror}"
        raise Rejected(msg) from error
    payload = payloads.message(render(op.caption), op=op.op, file_name=file.filename)
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
