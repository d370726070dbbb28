import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from agent.settings import VoiceSettings
from gateway.media.speech import TranscriptionFailed
from gateway.media.transcription import MAX_BYTES, Transcriber, transcription_endpoint
from sessions.values.secret import Secret
from tests.fakes.transcription import Reply, TranscriptionServer, transcription_server


@pytest.fixture
async def server() -> AsyncIterator[TranscriptionServer]:
    async with transcription_server() as server:
        yield server


async def heard(
    url: str, *, seconds: float = 5.0, media_type: str = "audio/ogg", **settings: str
) -> str:
    async def speech() -> bytes:
        return b"Ogg"

    given = VoiceSettings(
        transcription_url=url,
        transcription_model=settings.get("model"),
        api_key=Secret("sk-voice"),
    )
    transcriber = Transcriber(given, timeout_seconds=seconds, retry_delay_seconds=0.01)
    try:
        async with asyncio.timeout(5):
            return await transcriber.transcribe(speech, media_type, 3)
    finally:
        await transcriber.aclose()


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/audio/transcriptions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/audio/transcriptions"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/v1/audio/transcriptions"),
        ("http://h/v1/audio/transcriptions", "http://h/v1/audio/transcriptions"),
        ("http://h/a/audio/transcriptions?v=2", "http://h/a/audio/transcriptions?v=2"),
        ("http://h/openai/deployments/w", "http://h/openai/deployments/w/audio/transcriptions"),
    ],
)
def test_the_url_may_be_the_service_or_the_endpoint(url: str, asked: str) -> None:
    assert transcription_endpoint(url) == asked


async def test_speech_is_transcribed(server: TranscriptionServer) -> None:
    assert await heard(server.url) == "Buy milk and bread."
    (asked,) = server.asked
    assert (asked.key, asked.content) == ("Bearer sk-voice", b"Ogg")
    assert (asked.name, asked.media_type) == ("speech.ogg", "audio/ogg")
    assert asked.form == {"model": "whisper-1", "response_format": "json"}


class DeafTransport(httpx2.AsyncHTTPTransport):
    """A transport whose connections cannot be closed at first."""

    is_deaf = True

    async def aclose(self) -> None:
        while self.is_deaf:
            await asyncio.Event().wait()
        await super().aclose()


@pytest.mark.quick
async def test_a_connection_that_does_not_close_delays_the_end_by_seconds_only(
    server: TranscriptionServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def speech() -> bytes:
        return b"Ogg"

    transport = DeafTransport()
    transcriber = Transcriber(VoiceSettings(transcription_url=server.url), transport=transport)
    assert await transcriber.transcribe(speech, "audio/ogg", 3) == "Buy milk and bread."
    async with asyncio.timeout(10):
        await transcriber.aclose()
    assert "was not disconnected within 5 s" in caplog.text
    transport.is_deaf = False
    await transport.aclose()


async def test_the_configured_model_is_requested_and_the_extension_kept(
    server: TranscriptionServer,
) -> None:
    await heard(server.url, model="own", media_type="audio/mp4")
    assert (server.asked[0].form["model"], server.asked[0].name) == ("own", "speech.m4a")


async def test_a_plain_text_response_is_accepted(server: TranscriptionServer) -> None:
    server.replies.append(Reply(text=" Hello.\n", media_type="text/plain"))
    assert await heard(server.url) == "Hello."


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_transient_failure_is_retried_once(
    server: TranscriptionServer, status: int
) -> None:
    server.replies.append(Reply(status, "busy"))
    assert await heard(server.url) == "Buy milk and bread."
    server.replies.extend([Reply(status, "busy")] * 2)
    with pytest.raises(TranscriptionFailed, match=f"not working right now .{status}."):
        await heard(server.url)
    assert len(server.asked) == 4


REFUSED = '{"error": {"message": "no such model"}}'


@pytest.mark.parametrize(
    ("reply", "why", "log"),
    [
        pytest.param(Reply(401, "{}"), "does not accept the API key", "answered 401", id="key"),
        pytest.param(
            Reply(413, "{}"), "too large for the transcription service", "413", id="too large"
        ),
        pytest.param(Reply(400, REFUSED), "rejected it", "400: no such model", id="refused"),
        pytest.param(Reply(404, '{"error": "x"}'), "rejected it", "404: x", id="an error in words"),
        pytest.param(Reply(text="<html>"), "unreadable response", "no JSON", id="no JSON"),
        pytest.param(
            Reply(text='{"words": 1}'), "unreadable response", "no JSON", id="another JSON"
        ),
        pytest.param(Reply(text='{"text": " "}'), "no recognizable speech", "speech", id="silence"),
        pytest.param(
            Reply(text='{"text": "' + "x" * 1_100_000 + '"}'), "too long", "too long", id="too long"
        ),
    ],
)
async def test_a_rejection_is_reported_plainly(
    server: TranscriptionServer, reply: Reply, why: str, log: str
) -> None:
    server.replies.append(reply)
    with pytest.raises(TranscriptionFailed, match=why) as caught:
        await heard(server.url)
    assert log in caught.value.log_message
    assert len(server.asked) == 1


async def test_a_hanging_service_is_aborted(server: TranscriptionServer) -> None:
    gate = asyncio.Event()
    server.replies.append(Reply(gate=gate))
    with pytest.raises(TranscriptionFailed, match=r"took longer than 0\.2 s"):
        await heard(server.url, seconds=0.2)
    gate.set()


async def test_an_unreachable_service_is_reported() -> None:
    with pytest.raises(TranscriptionFailed, match="cannot be reached") as caught:
        await heard("http://127.0.0.1:9/v1")
    assert "127.0.0.1:9" in caught.value.log_message


async def test_a_recording_that_is_too_large_is_not_sent(server: TranscriptionServer) -> None:
    async def speech() -> bytes:
        raise AssertionError

    transcriber = Transcriber(VoiceSettings(transcription_url=server.url))
    with pytest.raises(TranscriptionFailed, match=r"too large .25\.1 MB, at most 25 MB."):
        await transcriber.transcribe(speech, "audio/ogg", MAX_BYTES + 100_000)
