"""File uploads in Slack's three steps, and downloads by file id."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import aiohttp
from yarl import URL

from platforms.core.contract import File, Receipt, Upload
from platforms.core.errors import PlatformError, Rejected, Unavailable, Unconfirmed
from platforms.slack.calls import Json, SlackClient
from platforms.slack.errors import retry_after, translate_error
from platforms.slack.format import fallback_text
from platforms.slack.send import SlackSender

_CHUNK_BYTES = 64 * 1024
_MAX_REMEMBERED = 1_000
_CLOCK_SKEW_SECONDS = 120.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_SLACK_HOSTS = ("slack.com", "slack-files.com")


class SlackFiles:
    """Uploads and downloads."""

    def __init__(self, calls: SlackClient, show: SlackSender) -> None:
        self._calls = calls
        self._sender = show
        self._sent: OrderedDict[str, str] = OrderedDict()  # op -> file id

    async def upload(self, op: Upload, channel: str, own_user: str) -> Receipt:
        """Upload a file and share it in a channel.

        Only the last step makes the file visible, so a failure before it raises `Unavailable`.
        """
        if op.again and (found := await self._find_sent(op, channel, own_user)):
            return Receipt(found)
        file, size = _open_file(op.path)
        with file:
            try:
                ticket = await self._calls.call(
                    "files.getUploadURLExternal", filename=op.name, length=size
                )
                await self._upload_content(str(ticket["upload_url"]), file, op.media_type)
            except Unconfirmed as error:
                raise Unavailable(str(error)) from error
        file_id = str(ticket["file_id"])
        self._sent[op.op] = file_id
        if len(self._sent) > _MAX_REMEMBERED:
            self._sent.popitem(last=False)
        await self._calls.call(
            "files.completeUploadExternal",
            about_channel=channel,
            files=[{"id": file_id, "title": op.name}],
            channel_id=channel,
            thread_ts=op.address.thread or None,
            initial_comment=fallback_text(op.caption) if op.caption else None,
        )
        return Receipt(file_id)

    async def _upload_content(self, url: str, file: BinaryIO, media_type: str) -> None:
        try:
            async with (
                self._calls.session() as session,
                session.post(
                    url, data=file, headers={"Content-Type": media_type}, timeout=_TIMEOUT
                ) as answer,
            ):
                await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise translate_error(error) from error
        if answer.status != 200:  # noqa: PLR2004
            msg = f"Slack refused the upload ({answer.status})."
            limited = answer.status == 429  # noqa: PLR2004
            raise Unavailable(msg, retry_after(answer.headers) if limited else None)

    async def _find_sent(self, op: Upload, channel: str, own_user: str) -> str | None:
        """Find the file of an earlier try by id, or after a restart by name."""
        known = self._sent.get(op.op)
        for message in await self._sender.history(
            channel, op.address.thread, op.since / 1000 - _CLOCK_SKEW_SECONDS
        ):
            for file in message.get("files") or ():
                same = file.get("id") == known if known else file.get("name") == op.name
                if same and message.get("user") == own_user:
                    return str(file["id"])
        return None

    async def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Stream the content of a file that a person sent."""
        found = (await self._calls.read("files.info", file=file.ref)).get("file") or {}
        url = self._download_url(found, file.name)
        headers = {"Authorization": f"Bearer {self._calls.token.reveal()}"}
        try:
            async with (
                self._calls.session() as session,
                session.get(url, headers=headers, timeout=_TIMEOUT) as answer,
            ):
                _check_response(answer, found, file.name)
                async for piece in answer.content.iter_chunked(_CHUNK_BYTES):
                    yield piece
        except (aiohttp.ClientError, OSError) as error:
            problem = translate_error(error)
            raise _as_retryable(problem) from error

    def _download_url(self, found: Json, name: str) -> str:
        """Return the download URL; refuse other hosts, because the request carries the bot token."""
        url = str(found.get("url_private_download") or found.get("url_private") or "")
        host = URL(url).host or ""
        own = URL(self._calls.base_url).host
        slack = any(host == each or host.endswith(f".{each}") for each in _SLACK_HOSTS)
        if found.get("mode") == "external" or not (host == own or slack):
            msg = f"{name} is not stored on Slack; open it by its link."
            raise Rejected(msg)
        return url


def _open_file(path: str) -> tuple[BinaryIO, int]:
    try:
        size = Path(path).stat().st_size
        return Path(path).open("rb"), size
    except OSError as error:
        msg = f"The file cannot be read: {error.strerror}."
        raise Rejected(msg) from error


def _check_response(answer: aiohttp.ClientResponse, found: Json, name: str) -> None:
    if answer.status in {403, 404, 410}:
        msg = f"{name} does not exist, or the app may not read it ({answer.status})."
        raise Rejected(msg)
    if answer.status != 200:  # noqa: PLR2004
        msg = f"Slack failed to send {name} ({answer.status})."
        raise Unavailable(msg)
    if answer.content_type == "text/html" and "html" not in str(found.get("mimetype")):
        msg = f"Slack sent a web page instead of {name}; the token needs the scope files:read."
        raise Rejected(msg)


def _as_retryable(problem: PlatformError) -> PlatformError:
    """Make an unconfirmed failure retryable, because a download changes nothing."""
    return Unavailable(str(problem)) if isinstance(problem, Unconfirmed) else problem
