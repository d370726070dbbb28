"""The official SDK: its clients, and its exceptions put into our words.

Importing this imports the SDK, which takes a while; the registry does so only when it is needed.
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

OFFICIAL_URL = "https://api.anthropic.com"


def make_client_pool(settings: TargetSettings) -> ClientPool[anthropic.AsyncAnthropic]:
    """Make what lends out clients of this service."""
    return ClientPool(lambda: _make_client(settings))


def service_url(settings: TargetSettings) -> str:
    """Say where the service is; people write it with or without the version."""
    return (settings.base_url or OFFICIAL_URL).rstrip("/").removesuffix("/v1")


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Raise only what `agent.errors` names, before the headers as well as in the body."""
    try:
        yield
    except anthropic.APIStatusError as error:
        said = error.response.text if error.body is None else error.body
        raise classify_response(error.status_code, said, error.response.headers) from error
    except anthropic.APIConnectionError as error:
        cause = error.__cause__
        raise translate_error(cause if isinstance(cause, Exception) else error, url) from error
    except (anthropic.AnthropicError, *CONNECTION_ERRORS) as error:
        raise translate_error(error, url) from error


def _make_client(settings: TargetSettings) -> anthropic.AsyncAnthropic:
    timeout = socket_timeouts(settings.timeouts)
    return anthropic.AsyncAnthropic(
        # Both are always given: the SDK would look for them in the environment.
        api_key="none",  # each request brings the present one
        base_url=service_url(settings),
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        http_client=make_http_client(timeout),
    )
