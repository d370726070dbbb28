"""Has speech written down, by any service that takes what OpenAI's takes.

It is imported only where such a service is configured: the HTTP client behind it is heavy.
"""

import asyncio

import httpx2
import msgspec

from agent.providers.transport.connections import tls_context
from agent.settings import VoiceSettings
from gateway.media.incoming import extension_for, too_large_message
from gateway.media.speech import RecordingReader, TranscriptionFailed

MAX_BYTES = 25_000_000  # what OpenAI takes
TIMEOUT_SECONDS, RETRY_DELAY_SECONDS = 120.0, 1.0
_CONNECT_SECONDS = 10.0
_MAX_CONCURRENT = 4
_MAX_RESPONSE_BYTES = 1_000_000  # bytes
_MAX_QUOTED_CHARS = 200  # characters of a refusal
_DEFAULT_MODEL = "whisper-1"

_OK, _TOO_LARGE, _TOO_MANY, _FAILED = 200, 413, 429, 500
_UNAUTHORIZED = (401, 403)


class _TransientFailure(TranscriptionFailed):
    """Another try may go well."""


class _TranscriptBody(msgspec.Struct):
    text: str


class _ErrorDetail(msgspec.Struct):
    message: str = ""


class _ErrorResponse(msgspec.Struct):
    error: _ErrorDetail | str = ""


def transcription_endpoint(url: str) -> str:
    """Work out where to send speech: the address may be that of the service or of the method."""
    parts = httpx2.URL(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/audio/transcriptions"):
        path = f"{path or '/v1'}/audio/transcriptions"
    return str(parts.copy_with(path=path))


class Transcriber:
    """One service."""

    def __init__(
        self,
        settings: VoiceSettings,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_delay_seconds: float = RETRY_DELAY_SECONDS,
    ) -> None:
        key = settings.api_key
        self._url = transcription_endpoint(settings.transcription_url or "")
        self._model = settings.transcription_model or _DEFAULT_MODEL
        self._headers = {"Authorization": f"Bearer {key.reveal()}"} if key else {}
        self._timeout_seconds = timeout_seconds
        self._retry_delay_seconds = retry_delay_seconds
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
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
            why = f"writing it down took longer than {self._timeout_seconds:g} s"
            raise TranscriptionFailed(why) from None
        if not text.strip():
            msg = "nothing is said in it that could be made out"
            raise TranscriptionFailed(msg)
        return text.strip()

    async def aclose(self) -> None:
        """See `gateway.media.speech.SpeechToText`."""
        if self._client:
            await self._client.aclose()

    async def _request_with_retry(self, content: bytes, media_type: str) -> str:
        try:
            return await self._request(content, media_type)
        except _TransientFailure:
            await asyncio.sleep(self._retry_delay_seconds)
        return await self._request(content, media_type)

    async def _request(self, content: bytes, media_type: str) -> str:
        name = f"speech{extension_for(media_type) or '.ogg'}"  # services go by the ending
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
            why = "the service that writes speech down cannot be reached"
            raise _TransientFailure(why, f"{self._url}: {kind} {error}".rstrip()) from error

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=tls_context(),
                timeout=httpx2.Timeout(self._timeout_seconds, connect=_CONNECT_SECONDS),
            )
        return self._client


async def _read_body(response: httpx2.Response) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_RESPONSE_BYTES:
            msg = "the service that writes speech down answered at endless length"
            raise TranscriptionFailed(msg)
    return body


def _parse_response(response: httpx2.Response, body: bytes) -> str:
    """Read an answer, or put a refusal into our words."""
    status = response.status_code
    if status == _OK:
        return _parse_text(response, body)
    log = f"{response.url} answered {status}: {_error_message(body)}".rstrip(": ")
    if status in _UNAUTHORIZED:
        msg = "the service that writes speech down does not accept our key"
        raise TranscriptionFailed(msg, log)
    if status == _TOO_LARGE:
        msg = "it is too large for the service that writes speech down"
        raise TranscriptionFailed(msg, log)
    if status == _TOO_MANY or status >= _FAILED:
        msg = f"the service that writes speech down is not working at this moment ({status})"
        raise _TransientFailure(msg, log)
    msg = f"the service that writes speech down refused it ({status})"
    raise TranscriptionFailed(msg, log)


def _parse_text(response: httpx2.Response, body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_TranscriptBody).text
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Some services give plain text, whatever they were asked for.
        if response.headers.get("content-type", "").startswith("text/plain"):
            return body.decode(errors="replace")
        msg = "the service that writes speech down gave an answer that cannot be read"
        raise TranscriptionFailed(msg, f"{response.url} gave no JSON with a text") from None


def _error_message(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:_MAX_QUOTED_CHARS].decode(errors="replace")
    return (error if isinstance(error, str) else error.message)[:_MAX_QUOTED_CHARS]
