"""The official SDK: its clients, and its exceptions put into our words.

Importing this imports the SDK, which takes a while; the registry does so only when it is needed.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import openai

from agent.providers.classify import complaint_in, refused
from agent.providers.transport import sockets
from agent.providers.transport.connections import (
    BROKEN,
    LIMITS,
    Key,
    Pool,
    backstop,
    tls,
    translated,
)
from agent.settings import TargetSettings


class Clients:
    """As many clients of one service as its live streams need."""

    def __init__(self, settings: TargetSettings) -> None:
        self.key = Key(settings.api_key)
        self._pool = Pool(lambda: _client(settings))
        self.base_url = settings.base_url or self._usual_url()

    @property
    def loads(self) -> list[int]:
        """How many streams each client carries."""
        return self._pool.loads

    def lease(self) -> AbstractContextManager[openai.AsyncOpenAI]:
        """Lend a client for one stream."""
        return self._pool.lease()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _usual_url(self) -> str:
        with self._pool.lease() as client:
            return str(client.base_url)


@contextmanager
def in_our_words(base_url: str) -> Iterator[None]:
    """Raise only what `agent.errors` names, before the headers as well as in the body."""
    try:
        yield
    except openai.APIStatusError as error:
        complaint = complaint_in(error.response.text if error.body is None else error.body)
        raise refused(error.status_code, complaint, error.response.headers) from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        raise translated(cause if isinstance(cause, Exception) else error, base_url) from error
    except (openai.OpenAIError, *BROKEN) as error:
        raise translated(error, base_url) from error


def _client(settings: TargetSettings) -> openai.AsyncOpenAI:
    timeout = backstop(settings.timeouts)
    http = openai.DefaultAsyncHttpxClient(verify=tls(), limits=LIMITS, timeout=timeout)
    sockets.use(http)
    return openai.AsyncOpenAI(
        api_key="none",  # each request brings the present one
        base_url=settings.base_url,
        timeout=timeout,
        max_retries=0,
        http_client=http,
    )
