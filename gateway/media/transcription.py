"""Speech to text through a service with OpenAI's transcription API.

Imported only if such a service is configured, because the HTTP client is large.
"""

import asyncio
import logging

import httpx2
import msgspec

from agent.providers.transport.connections import tls_context
from agent.settings import VoiceSettings
from gateway.media.incoming import too_large_message
from gateway.media.speech import RecordingReader, TranscriptionFailed
from sessions.values.file_names import extension_for

MAX_BYTES = 25_000_000  # OpenAI's limit
log = logging.getLogger(__name__)

_TIMEOUT_SECONDS, _RETRY_DELAY_SECONDS = 120.0, 1.0
_CLOSE_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
_MAX_CONCURRENT = 4
_MAX_RESPONSE_BYTES = 1_000_000
_MAX_QUOTED_CHARS = 200  # of an error response
_DEFAULT_MODEL = "whisper-1"

_OK, _TOO_LARGE, _TOO_MANY, _FAILED = 200, 413, 429, 500
_UNAUTHORIZED = (401, 403)


class _TransientFailure(TranscriptionFailed):
    """A failure that a retry may fix."""


class _TranscriptBody(msgspec.Struct):
    text: str


class _ErrorDetail(msgspec.Struct):
    message: str = ""


class _ErrorResponse(msgspec.Struct):
    error: _ErrorDetail | str = ""


def transcription_endpoint(url: str) -> str:
    """Return the endpoint for a URL that names the service or the endpoint itself."""
    parts = httpx2.URL(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/audio/transcriptions"):
        path = f"{path or '/v1'}/audio/transcriptions"
    return str(parts.copy_with(path=path))


class Transcriber:
    """Client of one transcription service."""

    def __init__(
        self,
        settings: VoiceSettings,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        retry_delay_seconds: float = _RETRY_DELAY_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        key = settings.api_key
        self._url = transcription_endpoint(settings.transcription_url or "")
        self._model = settings.transcription_model or _DEFAULT_MODEL
        self._headers = {"Authorization": f"Bearer {key.reveal()}"} if key else {}
        self._timeout_seconds = timeout_seconds
        self._retry_delay_seconds = retry_delay_seconds
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    async def transcribe(self, read_recording: RecordingReader, media_type: str, size: int) -> str:
        """See `gateway.media.speech.SpeechToText`."""
        if size > MAX_BYTES:
            raise TranscriptionFailed(too_large_message(MAX_BYTES, size))
        try:
            async with asyncio.timeout(self._timeout_seconds), self._slots:
                content = await read_recording()
                text = await self._request_with_retry(content, media_type)
        except TimeoutError:
            why = f"transcription took longer than {self._timeout_seconds:g} s"
            raise TranscriptionFailed(why) from None
        if not text.strip():
            msg = "it contains no recognizable speech"
            raise TranscriptionFailed(msg)
        return text.strip()

    async def aclose(self) -> None:
        """See `gateway.media.speech.SpeechToText`."""
        if self._client is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.aclose()
        except TimeoutError:
            log.warning("%s was not disconnected within %g s", self._url, _CLOSE_SECONDS)

    async def _request_with_retry(self, content: bytes, media_type: str) -> str:
        try:
            return await self._request(content, media_type)
        except _TransientFailure:
            await asyncio.sleep(self._retry_delay_seconds)
        return await self._request(content, media_type)

    async def _request(self, content: bytes, media_type: str) -> str:
        name = f"speech{extension_for(media_type) or '.ogg'}"  # services use the extension
        try:
            async with self._open_client().stream(
                "POST",
                self._url,
                headers=self._headers,
                data={"model": self._model, "response_format": "json"},
                files={"file": (name, content, media_type)},
            ) as response:
                return _parse_response(response, await _read_body(response))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            kind = type(error).__name__
            why = "the transcription service cannot be reached"
            raise _TransientFailure(why, f"{self._url}: {kind} {error}".rstrip()) from error

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=tls_context(),
                transport=self._transport,
                timeout=httpx2.Timeout(self._timeout_seconds, connect=_CONNECT_SECONDS),
            )
        return self._client


async def _read_body(response: httpx2.Response) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_RESPONSE_BYTES:
            msg = "the transcription service sent a response that is too long"
            raise TranscriptionFailed(msg)
    return body


def _parse_response(response: httpx2.Response, body: bytes) -> str:
    """Return the transcript, or raise the error of a response."""
    status = response.status_code
    if status == _OK:
        return _parse_text(response, body)
    log = f"{response.url} answered {status}: {_error_message(body)}".rstrip(": ")
    if status in _UNAUTHORIZED:
        msg = "the transcription service does not accept the API key"
        raise TranscriptionFailed(msg, log)
    if status == _TOO_LARGE:
        msg = "it is too large for the transcription service"
        raise TranscriptionFailed(msg, log)
    if status == _TOO_MANY or status >= _FAILED:
        msg = f"the transcription service is not working right now ({status})"
        raise _TransientFailure(msg, log)
    msg = f"the transcription service rejected it ({status})"
    raise TranscriptionFailed(msg, log)


def _parse_text(response: httpx2.Response, body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_TranscriptBody).text
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Some services ignore `response_format` and return plain text.
        if response.headers.get("content-type", "").startswith("text/plain"):
            return body.decode(errors="replace")
        msg = "the transcription service sent an unreadable response"
        raise TranscriptionFailed(msg, f"{response.url} sent no JSON with a text") from None


def _error_message(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:_MAX_QUOTED_CHARS].decode(errors="replace")
    return (error if isinstance(error, str) else error.message)[:_MAX_QUOTED_CHARS]
