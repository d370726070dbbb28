"""Requests to a platform that change nothing, with a deadline and readable errors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from sessions.values.unreached import describe_network_error


@contextlib.asynccontextmanager
async def probe_session(service: str, base_url: str, seconds: float) -> AsyncIterator[None]:
    """Limit the block to `seconds`; raise only `Unauthorized` or `Unavailable`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        msg = f"{service} did not answer within {seconds:g} s ({host_of(base_url)})"
        raise Unavailable(msg) from error
    except Unauthorized:
        raise
    except PlatformError as error:
        reason = describe_network_error(error)
        message = (
            f"{service} cannot be reached at {host_of(base_url)}: {reason}" if reason else None
        )
        after = error.retry_after if isinstance(error, Unavailable) else None
        raise Unavailable(message or str(error), after) from error


def host_of(url: str) -> str:
    """Return host and port of a URL for messages, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
