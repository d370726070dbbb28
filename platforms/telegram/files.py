"""Streaming download of attachments."""

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

_CHUNK_BYTES = 64 * 1024
_TIMEOUT_SECONDS = 30.0

_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=_TIMEOUT_SECONDS, sock_read=_TIMEOUT_SECONDS)
_SERVER_ERROR = HTTPStatus.INTERNAL_SERVER_ERROR


async def download_file(
    bot: Bot, base: str, file: File, trusted: SSLContext | bool
) -> AsyncIterator[bytes]:
    """Yield the chunks of one file; `base` is the file root URL, which contains the token.

    Raises `Rejected` for a file over Telegram's 20 MB download limit.
    """
    if file.size is not None and file.size > MAX_DOWNLOAD_BYTES:
        raise Rejected(_too_large(file))
    with translate_errors():
        remote = await bot.get_file(file.ref)
    if (remote.file_size or 0) > MAX_DOWNLOAD_BYTES:
        raise Rejected(_too_large(file))
    # The library turns the path into a URL unless a local file of that name exists.
    address = remote.file_path or ""
    if not address.startswith(("http://", "https://")):
        address = f"{base}/{address}"
    read = 0
    with translate_errors():
        async with (
            create_session(trusted, 1) as client,
            client.get(address, timeout=_TIMEOUT, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                msg = f"Telegram did not return {file.name} ({response.status})."
                raise (Unavailable if response.status >= _SERVER_ERROR else Rejected)(msg)
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                read += len(chunk)
                if read > MAX_DOWNLOAD_BYTES:
                    raise Rejected(_too_large(file))
                yield chunk


def _too_large(file: File) -> str:
    megabytes = MAX_DOWNLOAD_BYTES // 1_000_000
    return f"{file.name} is larger than the {megabytes} MB that Telegram lets bots download."
