"""The provider for Anthropic's Messages, over the official SDK."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

import anthropic
import httpx2

from agent.errors import BadRequest
from agent.model.contract import Chunk, ModelRequest, OpenedChunk
from agent.providers.anthropic.clients import address, clients_for, in_our_words
from agent.providers.anthropic.dialect import Dialect, dialect_for, lasting, simpler
from agent.providers.anthropic.request import betas, to_body
from agent.providers.anthropic.wire import MessageReader
from agent.providers.transport.connections import HEADERS, Key, models_in, opened, read, streaming
from agent.settings import TargetSettings

_MOST_MODELS = 1000  # that one page of the list may hold


def build(settings: TargetSettings) -> "Anthropic":
    """Make the provider."""
    return Anthropic(settings)


class Anthropic:
    """Any service that offers `/v1/messages`."""

    name = "anthropic"

    def __init__(self, settings: TargetSettings) -> None:
        self._url = address(settings)
        self._clients = clients_for(settings)
        self._key = Key(settings.api_key)
        self._dialects: dict[str, Dialect] = {}  # by model: what proved to be taken

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """See `Provider`."""
        return streaming(
            self._clients.lease(), lambda client: self._open(client, request), self._chunks
        )

    async def list_models(self) -> tuple[str, ...]:
        """See `ListsModels`."""
        with self._clients.lease() as client:
            listed = await self._key.show(lambda key: self._list(client, key))
        return models_in(listed, f"{self._url}/v1/models")

    async def _list(self, client: anthropic.AsyncAnthropic, key: str) -> httpx2.Response:
        client.api_key = key
        with in_our_words(self._url):
            return await client.get(
                "/v1/models", cast_to=httpx2.Response, options={"params": {"limit": _MOST_MODELS}}
            )

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._clients.aclose()

    async def _open(
        self, client: anthropic.AsyncAnthropic, request: ModelRequest
    ) -> httpx2.Response:
        """Send the request; what the service says it does not know is left out and remembered.

        This is not a second try: the refused request and the next one are not the same.
        """
        dialect = self._dialects.get(request.model) or dialect_for(request.model)
        tried: set[bytes] = set()
        while True:
            body = to_body(request, dialect)
            tried.add(body)
            try:
                send = partial(self._send, client, body, betas(request, dialect))
                response = await self._key.show(send)
            except BadRequest as error:
                others = simpler(dialect, str(error))
                other = next((o for o in others if to_body(request, o) not in tried), None)
                if other is None:
                    raise
                dialect = other
            else:
                self._dialects[request.model] = lasting(dialect)
                return response

    async def _send(
        self, client: anthropic.AsyncAnthropic, body: bytes, beta: str, key: str
    ) -> httpx2.Response:
        client.api_key = key
        # The SDK's own method for messages walks through all of them; a long history would hold
        # up the loop. Its general one gives the same headers, errors and connections.
        headers = HEADERS | ({"anthropic-beta": beta} if beta else {})
        with in_our_words(self._url):
            answer: object = await client.post(
                "/v1/messages",
                cast_to=httpx2.Response,
                content=body,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        return opened(answer)

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk]:
        yield OpenedChunk(response.headers.get("request-id", ""))
        with in_our_words(self._url):
            async with aclosing(read(response, MessageReader())) as chunks:
                async for chunk in chunks:
                    yield chunk
