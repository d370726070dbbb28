"""Reads what people attach, piece by piece."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from ssl import SSLContext

import aiohttp
from telegram import Bot

from platforms.core.contract import File
from platforms.core.errors import Rejected, Unavailable
from platforms.telegram.capabilities import LARGEST_DOWNLOAD
from platforms.telegram.errors import mapped
from platforms.telegram.http import client_of

PIECE = 64 * 1024
SECONDS = 30.0

_PATIENCE = aiohttp.ClientTimeout(total=None, connect=SECONDS, sock_read=SECONDS)
_THEIR_FAULT = HTTPStatus.INTERNAL_SERVER_ERROR


async def pieces(
    bot: Bot, base: str, file: File, trusted: SSLContext | bool
) -> AsyncIterator[bytes]:
    """Read one file; `base` is the address of all files, with the token."""
    if file.size is not None and file.size > LARGEST_DOWNLOAD:
        raise Rejected(_too_large(file))
    with mapped():
        found = await bot.get_file(file.ref)
    if (found.file_size or 0) > LARGEST_DOWNLOAD:
        raise Rejected(_too_large(file))
    # The library makes a whole address of it when the server gave only the path.
    address = found.file_path or ""
    if not address.startswith(("http://", "https://")):
        address = f"{base}/{address}"
    read = 0
    with mapped():
        async with (
            client_of(trusted, 1) as client,
            client.get(address, timeout=_PATIENCE, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                msg = f"Telegram does not give {file.name} ({response.status})."
                raise (Unavailable if response.status >= _THEIR_FAULT else Rejected)(msg)
            async for piece in response.content.iter_chunked(PIECE):
                read += len(piece)
                if read > LARGEST_DOWNLOAD:
                    raise Rejected(_too_large(file))
                yield piece


def _too_large(file: File) -> str:
    return f"{file.name} is larger than the {LARGEST_DOWNLOAD // 1_000_000} MB a bot may read."
