"""Clients of the official SDK, and the mapping of its exceptions.

Importing this module imports the SDK, which is slow; the registry imports it only when needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anthropic

from agent.providers.anthropic.refusals import classify_response
from agent.providers.transport.connections import (
    CONNECTION_ERRORS,
    ClientPool,
    socket_timeouts,
    translate_error,
)
from agent.providers.transport.http_client import make_http_client
from agent.settings import TargetSettings

_OFFICIAL_URL = "https://api.anthropic.com"


def make_client_pool(settings: TargetSettings) -> ClientPool[anthropic.AsyncAnthropic]:
    """Create a pool of clients for the service in the settings."""
    return ClientPool(lambda: _make_client(settings))


def service_url(settings: TargetSettings) -> str:
    """Return the service's URL without `/v1`, which people may or may not configure."""
    return (settings.base_url or _OFFICIAL_URL).rstrip("/").removesuffix("/v1")


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Translate exceptions to `ProviderError`, before the response headers and in the body."""
    try:
        yield
    except anthropic.APIStatusError as error:
        body = error.response.text if error.body is None else error.body
        raise classify_response(error.status_code, body, error.response.headers) from error
    except anthropic.APIConnectionError as error:
        cause = error.__cause__
        raise translate_error(cause if isinstance(cause, Exception) else error, url) from error
    except (anthropic.AnthropicError, *CONNECTION_ERRORS) as error:
        raise translate_error(error, url) from error


def _make_client(settings: TargetSettings) -> anthropic.AsyncAnthropic:
    timeout = socket_timeouts(settings.timeouts)
    return anthropic.AsyncAnthropic(
        # Key and URL are always passed, because the SDK would read them from the environment.
        api_key="none",  # each request sets the current key
        base_url=service_url(settings),
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        http_client=make_http_client(timeout),
    )
