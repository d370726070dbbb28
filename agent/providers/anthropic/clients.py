"""The official SDK: its clients, and its exceptions put into our words.

Importing this imports the SDK, which takes a while; the registry does so only when it is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anthropic

from agent.providers.anthropic.refusals import refused
from agent.providers.transport import sockets
from agent.providers.transport.connections import BROKEN, LIMITS, Pool, backstop, tls, translated
from agent.settings import TargetSettings

OFFICIAL = "https://api.anthropic.com"


def clients_for(settings: TargetSettings) -> Pool[anthropic.AsyncAnthropic]:
    """Make what lends out clients of this service."""
    return Pool(lambda: _client(settings))


def address(settings: TargetSettings) -> str:
    """Say where the service is; people write it with or without the version."""
    return (settings.base_url or OFFICIAL).rstrip("/").removesuffix("/v1")


@contextmanager
def in_our_words(url: str) -> Iterator[None]:
    """Raise only what `agent.errors` names, before the headers as well as in the body."""
    try:
        yield
    except anthropic.APIStatusError as error:
        said = error.response.text if error.body is None else error.body
        raise refused(error.status_code, said, error.response.headers) from error
    except anthropic.APIConnectionError as error:
        cause = error.__cause__
        raise translated(cause if isinstance(cause, Exception) else error, url) from error
    except (anthropic.AnthropicError, *BROKEN) as error:
        raise translated(error, url) from error


def _client(settings: TargetSettings) -> anthropic.AsyncAnthropic:
    timeout = backstop(settings.timeouts)
    http = anthropic.DefaultAsyncHttpxClient(verify=tls(), limits=LIMITS, timeout=timeout)
    sockets.use(http)
    return anthropic.AsyncAnthropic(
        # Both are always given: the SDK would look for them in the environment.
        api_key="none",  # each request brings the present one
        base_url=address(settings),
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        http_client=http,
    )
