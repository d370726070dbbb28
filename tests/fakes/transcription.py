"""A service that writes speech down, on loopback: it takes what OpenAI's takes."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    key: str
    form: dict[str, str]
    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Reply:
    """What is answered."""

    status: int = 200
    text: str = '{"text": "Buy milk and bread."}'
    media_type: str = "application/json"
    gate: asyncio.Event | None = None  # waited for first


class TranscriptionServer:
    """Answers with what a test wants, then always well; keeps what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.replies: deque[Reply] = deque()

    async def handle(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        words = {name: value for name, value in form.items() if isinstance(value, str)}
        key = request.headers.get("Authorization", "")
        self.asked.append(Asked(key, words, file.filename, file.content_type, file.file.read()))
        reply = self.replies.popleft() if self.replies else Reply()
        if reply.gate:
            await reply.gate.wait()
        return web.Response(text=reply.text, status=reply.status, content_type=reply.media_type)


@contextlib.asynccontextmanager
async def transcription_server() -> AsyncIterator[TranscriptionServer]:
    server = TranscriptionServer()
    app = web.Application(client_max_size=30_000_000)
    app.router.add_post("/v1/audio/transcriptions", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        for reply in server.replies:
            if reply.gate:
                reply.gate.set()
        await runner.cleanup()
