"""Asks a platform something that changes nothing: within a deadline, with reasons people can use."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from platforms.core.errors import PlatformError, Unauthorized, Unavailable
from sessions.values.unreached import describe_network_error


@contextlib.asynccontextmanager
async def probe_session(service: str, base_url: str, seconds: float) -> AsyncIterator[None]:
    """Raise only `ApiKeyRejected`, and `Unavailable` for all else that goes wrong in the block."""
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
        told = f"{service} cannot be reached at {host_of(base_url)}: {reason}" if reason else None
        after = error.retry_after if isinstance(error, Unavailable) else None
        raise Unavailable(told or str(error), after) from error


def host_of(url: str) -> str:
    """Name the machine of an address, and its port where it is not the usual one."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
