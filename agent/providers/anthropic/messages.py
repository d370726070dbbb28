"""The provider for Anthropic's Messages API, based on the official SDK."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

import anthropic
import httpx2

from agent.errors import BadRequest
from agent.model.contract import Chunk, ModelRequest, OpenedChunk
from agent.providers.anthropic.clients import make_client_pool, service_url, translate_errors
from agent.providers.anthropic.dialect import (
    AnthropicDialect,
    dialect_for,
    persistent_dialect,
    simpler_dialects,
)
from agent.providers.anthropic.request import beta_header, encode_request
from agent.providers.anthropic.wire import MessageReader
from agent.providers.transport.connections import (
    REQUEST_HEADERS,
    ServiceKey,
    as_response,
    parse_models,
    read_chunks,
    stream_response,
)
from agent.settings import TargetSettings

_MAX_MODELS = 1000  # the protocol's limit for one page


def build(settings: TargetSettings) -> "AnthropicProvider":
    """Build the provider."""
    return AnthropicProvider(settings)


class AnthropicProvider:
    """A service with the endpoint `/v1/messages`."""

    name = "anthropic"

    def __init__(self, settings: TargetSettings) -> None:
        self._url = service_url(settings)
        self._clients = make_client_pool(settings)
        self._key = ServiceKey(settings.api_key)
        self._dialects: dict[str, AnthropicDialect] = {}  # by model; each worked at least once

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
            listed = await self._key.send_with_key(lambda key: self._request_models(client, key))
        return parse_models(listed, f"{self._url}/v1/models")

    async def _request_models(self, client: anthropic.AsyncAnthropic, key: str) -> httpx2.Response:
        client.api_key = key
        with translate_errors(self._url):
            return await client.get(
                "/v1/models", cast_to=httpx2.Response, options={"params": {"limit": _MAX_MODELS}}
            )

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._clients.aclose()

    async def _open_response(
        self, client: anthropic.AsyncAnthropic, request: ModelRequest
    ) -> httpx2.Response:
        """Send the request, without the features that the service rejects; remember these.

        This is no retry of the same request: each request is simpler than the rejected one.
        """
        dialect = self._dialects.get(request.model) or dialect_for(request.model)
        tried: set[bytes] = set()
        while True:
            body = encode_request(request, dialect)
            tried.add(body)
            try:
                send = partial(self._send, client, body, beta_header(request, dialect))
                response = await self._key.send_with_key(send)
            except BadRequest as error:
                others = simpler_dialects(dialect, str(error))
                other = next((o for o in others if encode_request(request, o) not in tried), None)
                if other is None:
                    raise
                dialect = other
            else:
                self._dialects[request.model] = persistent_dialect(dialect)
                return response

    async def _send(
        self, client: anthropic.AsyncAnthropic, body: bytes, beta: str, key: str
    ) -> httpx2.Response:
        client.api_key = key
        # The SDK's typed method inspects every message, which blocks the event loop for a long
        # history. `post` uses the same headers, errors and connections.
        headers = REQUEST_HEADERS | ({"anthropic-beta": beta} if beta else {})
        with translate_errors(self._url):
            answer: object = await client.post(
                "/v1/messages",
                cast_to=httpx2.Response,
                content=body,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        return as_response(answer)

    async def _read_chunks(self, response: httpx2.Response) -> AsyncGenerator[Chunk]:
        yield OpenedChunk(response.headers.get("request-id", ""))
        with translate_errors(self._url):
            async with aclosing(read_chunks(response, MessageReader())) as chunks:
                async for chunk in chunks:
                    yield chunk
