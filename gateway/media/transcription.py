"""Has speech written down, by any service that takes what OpenAI's takes.

It is imported only where such a service is configured: the HTTP client behind it is heavy.
"""

import asyncio

import httpx2
import msgspec

from agent.providers.transport.connections import tls
from agent.settings import VoiceSettings
from gateway.media.incoming import ending_of, too_large
from gateway.media.speech import NotHeard, Speech

LARGEST = 25_000_000  # what OpenAI takes
SECONDS, PAUSE = 120.0, 1.0
_CONNECT_SECONDS = 10.0
_AT_ONCE = 4
_LONGEST_ANSWER = 1_000_000  # bytes
_QUOTED = 200  # characters of a refusal
_USUAL_MODEL = "whisper-1"

_OK, _TOO_LARGE, _TOO_MANY, _FAILED = 200, 413, 429, 500
_NOT_LET_IN = (401, 403)


class _Passing(NotHeard):
    """Another try may go well."""


class _Text(msgspec.Struct):
    text: str


class _Error(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    error: _Error | str = ""


def endpoint(url: str) -> str:
    """Work out where to send speech: the address may be that of the service or of the method."""
    parts = httpx2.URL(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/audio/transcriptions"):
        path = f"{path or '/v1'}/audio/transcriptions"
    return str(parts.copy_with(path=path))


class Transcriber:
    """One service."""

    def __init__(
        self, settings: VoiceSettings, *, seconds: float = SECONDS, pause: float = PAUSE
    ) -> None:
        key = settings.api_key
        self._url = endpoint(settings.transcription_url or "")
        self._model = settings.transcription_model or _USUAL_MODEL
        self._headers = {"Authorization": f"Bearer {key.reveal()}"} if key else {}
        self._seconds = seconds
        self._pause = pause
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._client: httpx2.AsyncClient | None = None

    async def heard(self, speech: Speech, media_type: str, size: int) -> str:
        """See `gateway.media.speech.Listener`."""
        if size > LARGEST:
            raise NotHeard(too_large(LARGEST, size))
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                content = await speech()
                text = await self._asked(content, media_type)
        except TimeoutError:
            why = f"writing it down took longer than {self._seconds:g} s"
            raise NotHeard(why) from None
        if not text.strip():
            msg = "nothing is said in it that could be made out"
            raise NotHeard(msg)
        return text.strip()

    async def aclose(self) -> None:
        """See `gateway.media.speech.Listener`."""
        if self._client:
            await self._client.aclose()

    async def _asked(self, content: bytes, media_type: str) -> str:
        try:
            return await self._ask(content, media_type)
        except _Passing:
            await asyncio.sleep(self._pause)
        return await self._ask(content, media_type)

    async def _ask(self, content: bytes, media_type: str) -> str:
        name = f"speech{ending_of(media_type) or '.ogg'}"  # services go by the ending
        try:
            async with self._opened().stream(
                "POST",
                self._url,
                headers=self._headers,
                data={"model": self._model, "response_format": "json"},
                files={"file": (name, content, media_type)},
            ) as response:
                return _said(response, await _body(response))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            kind = type(error).__name__
            why = "the service that writes speech down cannot be reached"
            raise _Passing(why, f"{self._url}: {kind} {error}".rstrip()) from error

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=tls(), timeout=httpx2.Timeout(self._seconds, connect=_CONNECT_SECONDS)
            )
        return self._client


async def _body(response: httpx2.Response) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _LONGEST_ANSWER:
            msg = "the service that writes speech down answered at endless length"
            raise NotHeard(msg)
    return body


def _said(response: httpx2.Response, body: bytes) -> str:
    """Read an answer, or put a refusal into our words."""
    status = response.status_code
    if status == _OK:
        return _text(response, body)
    log = f"{response.url} answered {status}: {_complaint(body)}".rstrip(": ")
    if status in _NOT_LET_IN:
        msg = "the service that writes speech down does not accept our key"
        raise NotHeard(msg, log)
    if status == _TOO_LARGE:
        msg = "it is too large for the service that writes speech down"
        raise NotHeard(msg, log)
    if status == _TOO_MANY or status >= _FAILED:
        msg = f"the service that writes speech down is not working at this moment ({status})"
        raise _Passing(msg, log)
    msg = f"the service that writes speech down refused it ({status})"
    raise NotHeard(msg, log)


def _text(response: httpx2.Response, body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Text).text
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Some services give plain text, whatever they were asked for.
        if response.headers.get("content-type", "").startswith("text/plain"):
            return body.decode(errors="replace")
        msg = "the service that writes speech down gave an answer that cannot be read"
        raise NotHeard(msg, f"{response.url} gave no JSON with a text") from None


def _complaint(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:_QUOTED].decode(errors="replace")
    return (error if isinstance(error, str) else error.message)[:_QUOTED]
