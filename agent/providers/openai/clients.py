"""Clients of the official SDK, and the mapping of its exceptions.

Importing this module imports the SDK, which is slow; the registry imports it only when needed.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from agent.providers.classify import classify_http_error, parse_service_error
from agent.providers.openai.sdk import openai
from agent.providers.transport.connections import (
    CONNECTION_ERRORS,
    ClientPool,
    ServiceKey,
    socket_timeouts,
    translate_error,
)
from agent.providers.transport.http_client import make_http_client
from agent.settings import TargetSettings


class OpenAIClients:
    """Clients of one service, as many as its open streams need."""

    def __init__(self, settings: TargetSettings) -> None:
        self.key = ServiceKey(settings.api_key)
        self._pool = ClientPool(lambda: _make_client(settings))
        self.base_url = settings.base_url or self._default_url()

    @property
    def stream_counts(self) -> list[int]:
        """Number of open streams per client."""
        return self._pool.stream_counts

    def lease(self) -> AbstractContextManager[openai.AsyncOpenAI]:
        """Lease a client for one stream."""
        return self._pool.lease()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _default_url(self) -> str:
        with self._pool.lease() as client:
            return str(client.base_url)


@contextmanager
def translate_errors(base_url: str) -> Iterator[None]:
    """Translate exceptions to `ProviderError`, before the response headers and in the body."""
    try:
        yield
    except openai.APIStatusError as error:
        body = error.response.text if error.body is None else error.body
        error_info = parse_service_error(body)
        raise classify_http_error(error.status_code, error_info, error.response.headers) from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        raise translate_error(cause if isinstance(cause, Exception) else error, base_url) from error
    except (openai.OpenAIError, *CONNECTION_ERRORS) as error:
        raise translate_error(error, base_url) from error


def _make_client(settings: TargetSettings) -> openai.AsyncOpenAI:
    timeout = socket_timeouts(settings.timeouts)
    return openai.AsyncOpenAI(
        api_key="none",  # each request sets the current key
        base_url=settings.base_url,
        timeout=timeout,
        max_retries=0,
        http_client=make_http_client(timeout),
    )
