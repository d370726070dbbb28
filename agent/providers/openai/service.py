"""What the protocols of OpenAI's kind have in common, over the official SDK: posting, reading."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

import httpx2
import msgspec
import openai

from agent.errors import BadRequest
from agent.model.contract import Chunk, ModelRequest, OpenedChunk
from agent.providers.openai.clients import Clients, in_our_words
from agent.providers.transport.connections import (
    HEADERS,
    Reader,
    models_in,
    opened,
    read,
    streaming,
)

_PASSING = frozenset({"these_pictures"})
"""What is left out of one request only: the next one may be different there."""


class Wire(msgspec.Struct, frozen=True):
    """A protocol: where it is spoken, and its two conversions.

    `write` leaves out what it is told to. `optional` are the names of what it can leave out, each
    with what services say that do not know it.
    """

    path: str
    write: Callable[[ModelRequest, frozenset[str]], bytes]
    reader: Callable[[], Reader]
    optional: Mapping[str, re.Pattern[str]]


class Service:
    """A model service at one address."""

    def __init__(self, clients: Clients, wire: Wire) -> None:
        self._clients = clients
        self._wire = wire
        self._left_out: dict[str, frozenset[str]] = {}  # by model: what it does not take

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """See `Provider`."""
        return streaming(
            self._clients.lease(), lambda client: self._open(client, request), self._chunks
        )

    async def list_models(self) -> tuple[str, ...]:
        """See `ListsModels`."""
        with self._clients.lease() as client:
            listed = await self._clients.key.show(lambda key: self._list(client, key))
        return models_in(listed, f"{self._clients.base_url}/models")

    async def _list(self, client: openai.AsyncOpenAI, key: str) -> httpx2.Response:
        client.api_key = key
        with in_our_words(self._clients.base_url):
            return await client.get("/models", cast_to=httpx2.Response)

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._clients.aclose()

    async def _open(self, client: openai.AsyncOpenAI, request: ModelRequest) -> httpx2.Response:
        without = self._left_out.get(request.model, frozenset())
        body = self._wire.write(request, without)
        while True:
            try:
                return await self._clients.key.show(partial(self._send, client, body))
            except BadRequest as error:
                option, body = self._lesser(request, without, body, str(error))
                if option is None:
                    raise
            # Not a second try of the same thing: this service does not know that option.
            without |= {option}
            known = self._left_out.get(request.model, frozenset())
            self._left_out[request.model] = known | (without - _PASSING)

    def _lesser(
        self, request: ModelRequest, without: frozenset[str], body: bytes, said: str
    ) -> tuple[str | None, bytes]:
        """Write the request without the first option that the service names, if it had one."""
        named = (n for n, words in self._wire.optional.items() if words.search(said.lower()))
        for option in named:
            lesser = self._wire.write(request, without | {option})
            if lesser != body:
                return option, lesser
        return None, body

    async def _send(self, client: openai.AsyncOpenAI, body: bytes, key: str) -> httpx2.Response:
        client.api_key = key
        # The SDK's own methods check and copy every message; a long history would hold up the
        # loop. Its general one gives the same headers, errors and connections.
        with in_our_words(self._clients.base_url):
            answer: object = await client.post(
                self._wire.path,
                cast_to=httpx2.Response,
                content=body,
                options={"headers": HEADERS},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        return opened(answer)

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk]:
        yield OpenedChunk(response.headers.get("x-request-id", ""))
        with in_our_words(self._clients.base_url):
            async with aclosing(read(response, self._wire.reader())) as chunks:
                async for chunk in chunks:
                    yield chunk
