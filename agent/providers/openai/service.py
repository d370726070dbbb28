"""The base class of OpenAI-compatible providers: sends requests and reads responses."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

import httpx2
import msgspec

from agent.errors import BadRequest
from agent.model.contract import Chunk, ModelRequest, OpenedChunk
from agent.providers.openai.clients import OpenAIClients, translate_errors
from agent.providers.openai.sdk import openai
from agent.providers.transport.connections import (
    REQUEST_HEADERS,
    ChunkReader,
    as_response,
    parse_models,
    read_chunks,
    stream_response,
)

_PER_REQUEST_FEATURES = frozenset({"these_pictures"})
"""Features that are omitted from one request only, because they depend on the content."""


class WireProtocol(msgspec.Struct, frozen=True):
    """The path and the conversions of a protocol.

    `encode_request` takes the names of features to omit. `optional_features` maps these names to
    patterns for the errors of services without the feature.
    """

    path: str
    encode_request: Callable[[ModelRequest, frozenset[str]], bytes]
    make_reader: Callable[[], ChunkReader]
    optional_features: Mapping[str, re.Pattern[str]]


class OpenAICompatibleProvider:
    """A model service at one address."""

    def __init__(self, clients: OpenAIClients, protocol: WireProtocol) -> None:
        self._clients = clients
        self._protocol = protocol
        self._omitted_by_model: dict[
            str, frozenset[str]
        ] = {}  # features that models do not support

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """See `Provider`."""
        return stream_response(
            self._clients.lease(),
            lambda client: self._open_response(client, request),
            self._read_chunks,
        )

    async def list_models(self) -> tuple[str, ...]:
        """See `SupportsListModels`."""
        with self._clients.lease() as client:
            listed = await self._clients.key.send_with_key(
                lambda key: self._request_models(client, key)
            )
        return parse_models(listed, f"{self._clients.base_url}/models")

    async def _request_models(self, client: openai.AsyncOpenAI, key: str) -> httpx2.Response:
        client.api_key = key
        with translate_errors(self._clients.base_url):
            return await client.get("/models", cast_to=httpx2.Response)

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._clients.aclose()

    async def _open_response(
        self, client: openai.AsyncOpenAI, request: ModelRequest
    ) -> httpx2.Response:
        omitted = self._omitted_by_model.get(request.model, frozenset())
        body = self._protocol.encode_request(request, omitted)
        while True:
            try:
                return await self._clients.key.send_with_key(partial(self._send, client, body))
            except BadRequest as error:
                feature, body = self._reduce_request(request, omitted, body, str(error))
                if feature is None:
                    raise
            # This is no retry of the same request: the next one lacks the unsupported feature.
            omitted |= {feature}
            known = self._omitted_by_model.get(request.model, frozenset())
            self._omitted_by_model[request.model] = known | (omitted - _PER_REQUEST_FEATURES)

    def _reduce_request(
        self, request: ModelRequest, omitted_features: frozenset[str], body: bytes, message: str
    ) -> tuple[str | None, bytes]:
        """Encode the request without the first feature that the error names and the request uses.

        Returns the feature, or None with the unchanged body.
        """
        named = (
            feature
            for feature, pattern in self._protocol.optional_features.items()
            if pattern.search(message.lower())
        )
        for feature in named:
            reduced = self._protocol.encode_request(request, omitted_features | {feature})
            if reduced != body:
                return feature, reduced
        return None, body

    async def _send(self, client: openai.AsyncOpenAI, body: bytes, key: str) -> httpx2.Response:
        client.api_key = key
        # The SDK's typed methods check and copy every message, which blocks the event loop for a
        # long history. `post` uses the same headers, errors and connections.
        with translate_errors(self._clients.base_url):
            answer: object = await client.post(
                self._protocol.path,
                cast_to=httpx2.Response,
                content=body,
                options={"headers": REQUEST_HEADERS},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        return as_response(answer)

    async def _read_chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk]:
        yield OpenedChunk(response.headers.get("x-request-id", ""))
        with translate_errors(self._clients.base_url):
            async with aclosing(read_chunks(response, self._protocol.make_reader())) as chunks:
                async for chunk in chunks:
                    yield chunk
