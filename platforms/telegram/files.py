"""Reads what people attach, piece by piece."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from ssl import SSLContext

import aiohttp
from telegram import Bot

from platforms.core.contract import File
from platforms.core.errors import Rejected, Unavailable
from platforms.telegram.capabilities import MAX_DOWNLOAD_BYTES
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import create_session

CHUNK_BYTES = 64 * 1024
TIMEOUT_SECONDS = 30.0

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=TIMEOUT_SECONDS, sock_read=TIMEOUT_SECONDS)
_SERVER_ERROR = HTTPStatus.INTERNAL_SERVER_ERROR


async def download_file(
    bot: Bot, base: str, file: File, trusted: SSLContext | bool
) -> AsyncIterator[bytes]:
    """Read one file; `base` is the address of all files, with the token."""
    if file.size is not None and file.size > MAX_DOWNLOAD_BYTES:
        raise Rejected(_too_large(file))
    with translate_errors():
        found = await bot.get_file(file.ref)
    if (found.file_size or 0) > MAX_DOWNLOAD_BYTES:
        raise Rejected(_too_large(file))
    # The library makes a whole address of it when the server gave only the path.
    address = found.file_path or ""
    if not address.startswith(("http://", "https://")):
        address = f"{base}/{address}"
    read = 0
    with translate_errors():
        async with (
            create_session(trusted, 1) as client,
            client.get(address, timeout=_TIMEOUT, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                msg = f"Telegram does not give {file.name} ({response.status})."
                raise (Unavailable if response.status >= _SERVER_ERROR else Rejected)(msg)
            async for piece in response.content.iter_chunked(CHUNK_BYTES):
                read += len(piece)
                if read > MAX_DOWNLOAD_BYTES:
                    raise Rejected(_too_large(file))
                yield piece


def _too_large(file: File) -> str:
    return f"{file.name} is larger than the {MAX_DOWNLOAD_BYTES // 1_000_000} MB a bot may read."
