"""The provider for Chat Completions, over the official SDK."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import cast

import httpx2
import msgspec
import openai

from agent.errors import BadRequest
from agent.providers.contract import Chunk, ModelRequest, OpenedChunk
from agent.providers.openai.chat_wire import ChatReader, Dialect, to_body
from agent.providers.openai.clients import Clients, in_our_words, keep_alive
from agent.settings import TargetSettings

_CLOSE_WITHIN = 2.0
_AFTER_DONE = 0.1  # a connection whose body ends in this time can be used again
_HEADERS = {"accept-encoding": "identity", "content-type": "application/json"}


def build(settings: TargetSettings) -> "OpenAIChat":
    """Make the provider."""
    return OpenAIChat(settings)


class OpenAIChat:
    """Any service that offers `/chat/completions`."""

    name = "openai"

    def __init__(self, settings: TargetSettings) -> None:
        self._clients = Clients(settings)
        official = httpx2.URL(self._clients.base_url).host == "api.openai.com"
        self._dialect = Dialect("max_completion_tokens" if official else "max_tokens")

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """See `Provider`."""
        return self._stream(request)

    async def list_models(self) -> tuple[str, ...]:
        """See `ListsModels`."""
        with in_our_words(self._clients.base_url), self._clients.lease() as client:
            listed = await client.get("/models", cast_to=httpx2.Response)
        try:
            models = msgspec.json.decode(listed.content, type=_Models)
        except msgspec.DecodeError:
            msg = f"{self._clients.base_url}/models does not give a list of models"
            raise BadRequest(msg) from None
        return tuple(model.id for model in models.data)

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._clients.aclose()

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        with self._clients.lease() as client:
            response = await self._open(client, request)
            try:
                async with aclosing(self._chunks(response)) as chunks:
                    yield chunks
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_WITHIN):
                        await response.aclose()

    async def _open(self, client: openai.AsyncOpenAI, request: ModelRequest) -> httpx2.Response:
        try:
            return await self._send(client, request)
        except BadRequest as error:
            if "stream_options" not in str(error) or not self._dialect.usage_option:
                raise
        # Not a second try of the same thing: this service does not know that option.
        self._dialect = Dialect(self._dialect.output_limit, usage_option=False)
        return await self._send(client, request)

    async def _send(self, client: openai.AsyncOpenAI, request: ModelRequest) -> httpx2.Response:
        # The SDK's own method for chats checks and copies every message; a long history would
        # hold up the loop. Its general one gives the same headers, errors and connections.
        with in_our_words(self._clients.base_url):
            answer: object = await client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=to_body(request, self._dialect),
                options={"headers": _HEADERS},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        response = cast("httpx2.Response", answer)  # as `cast_to` asks, whatever the types say
        keep_alive(response)
        return response

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk]:
        yield OpenedChunk(response.headers.get("x-request-id", ""))
        reader = ChatReader()
        with in_our_words(self._clients.base_url):
            async with aclosing(response.aiter_bytes()) as received:
                async for data in received:
                    for chunk in reader.feed(data):
                        yield chunk
                    if reader.done:
                        await _finish(received)
                        return
            for chunk in reader.close():
                yield chunk


async def _finish(received: AsyncIterator[bytes]) -> None:
    """Read the rest of a body that has said `[DONE]`; what happens now is of no interest."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_AFTER_DONE):
            async for _ in received:
                pass


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]
